// Command strict decodes the files of its arguments into the types that Kubernetes, cert-manager and the Prometheus
// operator publish; without arguments the manifests in the folder above, and compose.yaml by the schema of the Compose
// specification. A field that is unknown, given twice, or of another type is an error. It is a module of its own, so
// that the program has none of these as requirements. ../check.sh and the test of the chart run it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/compose-spec/compose-go/v2/cli"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	files := os.Args[1:]
	var err error
	if len(files) == 0 {
		err = compose("../compose.yaml")
		files = []string{"../kubernetes.yaml", "../restore.yaml", "../podmonitor.yaml"}
	}
	for _, file := range files {
		err = errors.Join(err, manifests(file))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// kinds are the objects that the manifests may have.
var kinds = map[metav1.TypeMeta]func() any{
	{APIVersion: "v1", Kind: "ConfigMap"}:                            made[corev1.ConfigMap],
	{APIVersion: "v1", Kind: "Service"}:                              made[corev1.Service],
	{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}:      made[networkingv1.NetworkPolicy],
	{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:           made[policyv1.PodDisruptionBudget],
	{APIVersion: "apps/v1", Kind: "StatefulSet"}:                     made[appsv1.StatefulSet],
	{APIVersion: "batch/v1", Kind: "CronJob"}:                        made[batchv1.CronJob],
	{APIVersion: "batch/v1", Kind: "Job"}:                            made[batchv1.Job],
	{APIVersion: "v1", Kind: "PersistentVolumeClaim"}:                made[corev1.PersistentVolumeClaim],
	{APIVersion: "monitoring.coreos.com/v1", Kind: "PodMonitor"}:     made[monitoringv1.PodMonitor],
	{APIVersion: "monitoring.coreos.com/v1", Kind: "PrometheusRule"}: made[monitoringv1.PrometheusRule],
	{APIVersion: "cert-manager.io/v1", Kind: "Certificate"}:          made[certmanagerv1.Certificate],
}

func made[T any]() any { return new(T) }

func manifests(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var found int
	for i, document := range bytes.Split(bytes.TrimPrefix(text, []byte("---\n")), []byte("\n---\n")) {
		var is metav1.TypeMeta
		if err := yaml.Unmarshal(document, &is); err != nil {
			return fmt.Errorf("%s, document %d: %w", path, i, err)
		}
		create := kinds[is]
		if create == nil {
			return fmt.Errorf("%s, document %d: unknown object %s %s", path, i, is.APIVersion, is.Kind)
		}
		object := create()
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return fmt.Errorf("%s, %s: %w", path, is.Kind, err)
		}
		if err := readBack(object); err != nil {
			return fmt.Errorf("%s, %s: %w", path, is.Kind, err)
		}
		found++
	}
	fmt.Printf("%s: %d objects as Kubernetes knows them\n", path, found)
	return nil
}

// readBack checks words that decoding takes unseen, although Kubernetes knows only a few of them.
func readBack(object any) error {
	if job, is := object.(*batchv1.CronJob); is && job.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent {
		return fmt.Errorf("concurrency policy %q", job.Spec.ConcurrencyPolicy)
	}
	set, is := object.(*appsv1.StatefulSet)
	if !is {
		return nil
	}
	if p := set.Spec.PodManagementPolicy; p != appsv1.ParallelPodManagement {
		return fmt.Errorf("pod management policy %q", p)
	}
	keep := appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	if p := set.Spec.PersistentVolumeClaimRetentionPolicy; p == nil || p.WhenScaled != keep || p.WhenDeleted != keep {
		return fmt.Errorf("retention of volumes: %+v", p)
	}
	for _, c := range set.Spec.VolumeClaimTemplates {
		if c.Spec.AccessModes[0] != corev1.ReadWriteOnce || c.Spec.Resources.Requests.Storage().IsZero() {
			return fmt.Errorf("volume %s: %+v", c.Name, c.Spec)
		}
	}
	return nil
}

func compose(path string) error {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithName("holdfast"))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, s := range project.Services {
		if s.Build == nil || s.Environment["HOLDFAST_NAME"] == nil {
			return fmt.Errorf("%s: service %s has no build, or no name", path, s.Name)
		}
		for _, of := range []string{s.Build.Context, filepath.Join(s.Build.Context, s.Build.Dockerfile)} {
			if _, err := os.Stat(of); err != nil {
				return fmt.Errorf("%s: service %s: %w", path, s.Name, err)
			}
		}
	}
	fmt.Printf("%s: %d services as Compose knows them\n", path, len(project.Services))
	return nil
}
