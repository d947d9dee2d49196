// Command strict decodes the manifests into the types that Kubernetes and the Prometheus operator publish, and
// compose.yaml by the schema of the Compose specification: a field that is unknown, given twice, or of another type is
// an error. It is a module of its own, so that the program has none of these as requirements. ../check.sh runs it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
	err := compose("../compose.yaml")
	for _, file := range []string{"kubernetes.yaml", "restore.yaml", "podmonitor.yaml"} {
		err = errors.Join(err, manifests("../"+file))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// kinds are the objects that the manifests may have.
var kinds = map[metav1.TypeMeta]func() any{
	{APIVersion: "v1", Kind: "Service"}:                          func() any { return new(corev1.Service) },
	{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}:  func() any { return new(networkingv1.NetworkPolicy) },
	{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:       func() any { return new(policyv1.PodDisruptionBudget) },
	{APIVersion: "apps/v1", Kind: "StatefulSet"}:                 func() any { return new(appsv1.StatefulSet) },
	{APIVersion: "batch/v1", Kind: "CronJob"}:                    func() any { return new(batchv1.CronJob) },
	{APIVersion: "batch/v1", Kind: "Job"}:                        func() any { return new(batchv1.Job) },
	{APIVersion: "v1", Kind: "PersistentVolumeClaim"}:            func() any { return new(corev1.PersistentVolumeClaim) },
	{APIVersion: "monitoring.coreos.com/v1", Kind: "PodMonitor"}: func() any { return new(monitoringv1.PodMonitor) },
}

func manifests(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var found int
	for i, document := range bytes.Split(text, []byte("\n---\n")) {
		var is metav1.TypeMeta
		if err := yaml.Unmarshal(document, &is); err != nil {
			return fmt.Errorf("%s, document %d: %w", path, i, err)
		}
		made := kinds[is]
		if made == nil {
			return fmt.Errorf("%s, document %d: unknown object %s %s", path, i, is.APIVersion, is.Kind)
		}
		object := made()
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
