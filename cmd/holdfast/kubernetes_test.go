package main

import (
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server"
)

// manifest is what the test looks at in an object of Kubernetes.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name        string
		Annotations map[string]string
	}
	Spec struct {
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Selector                 map[string]any
		Ports                    []struct {
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		MaxUnavailable        int    `yaml:"maxUnavailable"`
		ServiceName           string `yaml:"serviceName"`
		Replicas              int
		PodManagementPolicy   string                                     `yaml:"podManagementPolicy"`
		VolumeClaimTemplates  []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
		ActiveDeadlineSeconds int                                        `yaml:"activeDeadlineSeconds"`
		JobTemplate           struct {
			Spec struct {
				ActiveDeadlineSeconds int `yaml:"activeDeadlineSeconds"`
				Template              podTemplate
			}
		} `yaml:"jobTemplate"`
		Template    podTemplate
		PodSelector podSelector `yaml:"podSelector"`
		Ingress     []struct {
			Ports []struct{ Port string }
			From  []struct {
				PodSelector podSelector `yaml:"podSelector"`
			}
		}
	}
}

type podSelector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type podTemplate struct {
	Metadata struct{ Labels map[string]string }
	Spec     podSpec
}

type podSpec struct {
	Grace      int `yaml:"terminationGracePeriodSeconds"`
	Containers []containerSpec
	Volumes    []volumeSpec
}

type volumeSpec struct {
	Name   string
	Secret struct {
		SecretName string `yaml:"secretName"`
	}
	PersistentVolumeClaim struct {
		ClaimName string `yaml:"claimName"`
	} `yaml:"persistentVolumeClaim"`
}

type envSpec struct {
	Name, Value string
	ValueFrom   struct {
		FieldRef struct {
			FieldPath string `yaml:"fieldPath"`
		} `yaml:"fieldRef"`
	} `yaml:"valueFrom"`
}

type containerSpec struct {
	Name, Image     string
	ImagePullPolicy string `yaml:"imagePullPolicy"`
	Args            []string
	Ports           []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Env            []envSpec
	StartupProbe   probe `yaml:"startupProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	VolumeMounts   []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
	SecurityContext struct {
		ReadOnlyRootFilesystem bool `yaml:"readOnlyRootFilesystem"`
	} `yaml:"securityContext"`
}

type probe struct {
	HTTPGet          struct{ Path, Port, Scheme string } `yaml:"httpGet"`
	PeriodSeconds    int                                 `yaml:"periodSeconds"`
	TimeoutSeconds   int                                 `yaml:"timeoutSeconds"`
	FailureThreshold int                                 `yaml:"failureThreshold"`
}

// manifests are the objects of kubernetes.yaml by kind and name.
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	objects, err := manifestsOf(strings.NewReader(protocoltest.ReadFile(t, filepath.Join("packaging", "kubernetes.yaml"))))
	require.NoError(t, err)
	return objects
}

func manifestsOf(text io.Reader) (map[string]manifest, error) {
	objects := make(map[string]manifest)
	for decoder := yaml.NewDecoder(text); ; {
		var m manifest
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil || m.APIVersion == "" {
			return nil, fmt.Errorf("behind %d objects: %w", len(objects), err)
		}
		objects[m.Kind+"/"+m.Metadata.Name] = m
	}
}

// TestKubernetes: the manifests start three nodes that find each other, are probed where they answer, and set flags
// that there are.
func TestKubernetes(t *testing.T) {
	objects := manifests(t)
	require.Len(t, objects, 7)
	checkNodes(t, objects, 3)
	c := objects["StatefulSet/holdfast"].Spec.Template.Spec.Containers[0]
	require.Equal(t, "holdfast:"+protocol.HoldfastVersion, c.Image, "an image without a tag is pulled at each start")
	require.Equal(t, "IfNotPresent", c.ImagePullPolicy)
}

// checkNodes checks the objects of a cluster that so many nodes found, and returns the flags of the first.
func checkNodes(t *testing.T, objects map[string]manifest, founders int) server.Config {
	t.Helper()
	var found manifest
	for _, m := range objects {
		if m.Kind == "StatefulSet" {
			found = m
		}
	}
	name, set := found.Metadata.Name, found.Spec
	nodes := objects["Service/"+set.ServiceName].Spec
	require.Equal(t, "None", nodes.ClusterIP)
	require.True(t, nodes.PublishNotReadyAddresses, "nobody is ready before a majority has found each other")
	require.Equal(t, "Parallel", set.PodManagementPolicy)
	if budget, there := objects["PodDisruptionBudget/"+name]; there {
		require.Equal(t, 1, budget.Spec.MaxUnavailable)
	}

	pod := set.Template.Spec
	c := pod.Containers[0]
	require.Equal(t, []string{"serve"}, c.Args)
	require.True(t, c.SecurityContext.ReadOnlyRootFilesystem)
	require.Greater(t, time.Duration(pod.Grace)*time.Second, server.DefaultConfig().ShutdownTimeout)
	ports := make(map[string]int)
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, service := range []string{name, set.ServiceName} {
		require.NotEmpty(t, objects["Service/"+service].Spec.Selector)
		for _, p := range objects["Service/"+service].Spec.Ports {
			require.Equal(t, ports[p.TargetPort], p.Port)
		}
		for label, value := range objects["Service/"+service].Spec.Selector {
			require.Equal(t, set.Template.Metadata.Labels[label], value)
		}
		const label = "app.kubernetes.io/name"
		backup := objects["CronJob/"+name+"-backup"].Spec.JobTemplate.Spec.Template.Metadata.Labels
		require.NotEqual(t, backup[label], objects["Service/"+service].Spec.Selector[label])
	}
	if backup, there := objects["CronJob/"+name+"-backup"]; there {
		most := time.Duration(backup.Spec.JobTemplate.Spec.ActiveDeadlineSeconds) * time.Second
		require.Positive(t, most)
		require.Less(t, most, partialAge, "a backup that runs for longer would lose its file to the next")
	}
	if policy, there := objects["NetworkPolicy/"+name]; there {
		opened := make(map[string]int)
		require.Subset(t, set.Template.Metadata.Labels, policy.Spec.PodSelector.MatchLabels)
		for _, rule := range policy.Spec.Ingress {
			for _, p := range rule.Ports {
				opened[p.Port] = ports[p.Port]
				if p.Port == "peer" {
					require.Len(t, rule.From, 1, "only nodes connect to nodes")
					require.Equal(t, policy.Spec.PodSelector, rule.From[0].PodSelector)
				}
			}
		}
		require.Equal(t, ports, opened)
	}
	require.Equal(t, "/livez", c.StartupProbe.HTTPGet.Path)
	require.Equal(t, "/livez", c.LivenessProbe.HTTPGet.Path)
	require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
	require.Greater(t, c.StartupProbe.PeriodSeconds*c.StartupProbe.FailureThreshold, 300, "a large log takes its time")
	require.Greater(t, c.LivenessProbe.PeriodSeconds*c.LivenessProbe.FailureThreshold, pod.Grace,
		"a node that is slow is not lost")

	config, client := server.DefaultConfig(), newClientFlags()
	for _, e := range c.Env {
		named := func(o option) bool { return o.heading == "" && o.env() == e.Name }
		at := slices.IndexFunc(options(&config), named)
		switch {
		case e.ValueFrom.FieldRef.FieldPath == "metadata.name":
			require.Equal(t, e, c.Env[0], "it is there before others refer to it")
			require.Equal(t, "HOLDFAST_NAME", e.Name)
		case e.ValueFrom.FieldRef.FieldPath == "metadata.namespace":
			require.Equal(t, e, c.Env[1])
			require.Equal(t, "NAMESPACE", e.Name)
		case at < 0:
			require.True(t, slices.ContainsFunc(client.rows(), named), "%s is no flag's", e.Name)
		default:
			value := strings.NewReplacer("$(HOLDFAST_NAME)", name+"-0", "$(NAMESPACE)", "default").Replace(e.Value)
			require.NoError(t, newFlagValue(options(&config)[at].value).Set(value), e.Name)
		}
	}
	scheme := ""
	if config.TLSCert != "" {
		scheme = "HTTPS"
	}
	for _, p := range []probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		require.NotZero(t, ports[p.HTTPGet.Port])
		require.Greater(t, p.TimeoutSeconds, 3, "a check that hangs is answered after 3 s")
		require.Equal(t, scheme, p.HTTPGet.Scheme)
	}
	var pods []podSpec
	for _, m := range objects {
		pods = append(pods, m.Spec.Template.Spec, m.Spec.JobTemplate.Spec.Template.Spec)
	}
	for _, of := range pods {
		volumes := make(map[string]bool)
		for _, v := range of.Volumes {
			volumes[v.Name] = true
		}
		for _, claim := range set.VolumeClaimTemplates {
			volumes[claim.Metadata.Name] = true
		}
		for _, c := range of.Containers {
			for _, v := range c.VolumeMounts {
				require.True(t, volumes[v.Name], v.Name)
			}
		}
	}
	if founders > 1 {
		config.Name = name + "-3" // of a pod that is added later
		require.NoError(t, config.Validate())
	}
	config.Name = name + "-0" // the pod's
	require.NoError(t, config.Validate())
	peers, err := config.Peers()
	require.NoError(t, err)
	require.Len(t, peers, founders)
	for peer, addr := range peers {
		require.Equal(t, peer+"."+set.ServiceName+":7379", addr)
		require.Equal(t, founders > 1, strings.Contains(config.Join, addr), "a node alone cannot join itself")
	}
	require.Equal(t, name+"-0."+set.ServiceName+".default.svc:6379", config.AdvertiseAddr)
	for addr, port := range map[string]string{config.Addr: "redis", config.PeerAddr: "peer", config.HTTPAddr: "http"} {
		require.Contains(t, addr, ":"+map[int]string{6379: "6379", 7379: "7379", 8379: "8379"}[ports[port]])
	}
	return config
}

// TestCompose: the three nodes of compose.yaml have flags that fit together, and ports that clients are told.
func TestCompose(t *testing.T) {
	text := protocoltest.ReadFile(t, filepath.Join("packaging", "compose.yaml"))
	var file struct {
		Services map[string]struct {
			Environment map[string]string
			Ports       []string
			Volumes     []string
			Grace       string `yaml:"stop_grace_period"`
		}
		Volumes map[string]any
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &file))
	require.Len(t, file.Services, 3)
	for name, s := range file.Services {
		config := server.DefaultConfig()
		for env, value := range s.Environment {
			at := slices.IndexFunc(options(&config), func(o option) bool { return o.heading == "" && o.env() == env })
			require.GreaterOrEqual(t, at, 0, "%s is no flag's", env)
			require.NoError(t, newFlagValue(options(&config)[at].value).Set(value), env)
		}
		require.NoError(t, config.Validate())
		require.Equal(t, name, config.Name)
		peers, err := config.Peers()
		require.NoError(t, err)
		require.Len(t, peers, 3)
		require.Equal(t, name+":7379", peers[name])
		port := strings.TrimPrefix(config.AdvertiseAddr, "localhost:")
		require.Equal(t, []string{"127.0.0.1:" + port + ":6379"}, s.Ports)
		volume, _, _ := strings.Cut(s.Volumes[0], ":")
		require.Equal(t, name, volume)
		require.Contains(t, file.Volumes, volume)
		grace, err := time.ParseDuration(s.Grace)
		require.NoError(t, err)
		require.Greater(t, grace, config.ShutdownTimeout)
	}
}

// kubernetesPage runs the blocks of packaging/KUBERNETES.md.
type kubernetesPage struct {
	*kube
	folder string // in which the blocks are run
	env    []string
	blocks map[string]string // by chapter, all of its blocks in order
}

func newKubernetesPage(t *testing.T) *kubernetesPage {
	t.Helper()
	exe := build(t)
	page := &kubernetesPage{kube: newKube(t, exe), folder: t.TempDir(), blocks: make(map[string]string)}
	page.image(t, "holdfast:NEW", exe)
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	page.url = server.URL
	bin := t.TempDir()
	own, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(own, filepath.Join(bin, "kubectl")))
	require.NoError(t, os.Symlink(own, filepath.Join(bin, "helm")))
	for _, name := range []string{"docker", "kind"} { // the job "image" of .ci/run builds the image
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o700))
	}
	top, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(filepath.Join(top, "cmd"), filepath.Join(page.folder, "cmd")))
	page.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBE="+server.URL)
	text := protocoltest.ReadFile(t, filepath.Join("packaging", "KUBERNETES.md"))
	for _, chapter := range strings.Split(text, "\n## ")[1:] {
		title, body, _ := strings.Cut(chapter, "\n")
		page.blocks[title] += strings.Join(fenced(body, "sh"), "")
	}
	return page
}

// run runs the blocks of a chapter, and returns what they print.
func (p *kubernetesPage) run(t *testing.T, chapter string) string {
	t.Helper()
	require.NotEmpty(t, p.blocks[chapter], "%s has no chapter %q", "KUBERNETES.md", chapter)
	return p.sh(t, p.blocks[chapter])
}

func (p *kubernetesPage) sh(t *testing.T, code string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", code)
	cmd.Dir, cmd.Env = p.folder, p.env
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", code, out)
	return string(out)
}

// whole waits until so many nodes vote and answer.
func (p *kubernetesPage) whole(t *testing.T, voters int) {
	t.Helper()
	p.sh(t,
		fmt.Sprintf("until kubectl exec holdfast-0 -- /holdfast cluster status --voters %d >said 2>&1; do sleep 0.1; done",
			voters))
}

// counter counts by a replicated counter through the service for clients, again after an error, until it is told to
// end.
type counter struct {
	counted, failed atomic.Int64
	end, ended      chan struct{}
}

func (p *kubernetesPage) count() *counter {
	c := &counter{end: make(chan struct{}), ended: make(chan struct{})}
	password, _ := os.ReadFile(filepath.Join(p.dir, "secret-holdfast", "password"))
	go func() {
		defer close(c.ended)
		for {
			client := redis.NewClient(&redis.Options{Addr: p.service(), Password: string(password), MaxRetries: -1, PoolSize: 1})
			for client.Incr(p.ctx, "counter").Err() == nil {
				c.counted.Add(1)
				select {
				case <-c.end:
					client.Close()
					return
				case <-time.After(kubeTick / 4):
				}
			}
			client.Close()
			c.failed.Add(1)
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(kubeTick):
			}
		}
	}()
	return c
}

// TestKubernetesAsWritten runs the page about Kubernetes: the nodes are applied, upgraded, made five and three again,
// and one loses its volume, while a client counts. Nothing that was acknowledged is lost, no probe fails, and each stop
// is graceful.
func TestKubernetesAsWritten(t *testing.T) {
	t.Parallel()
	p := newKubernetesPage(t)
	apply, status, found := strings.Cut(p.blocks["Apply"], "kubectl exec")
	require.True(t, found)
	p.sh(t, apply)
	p.whole(t, 3) // members hear of each other a little later than pods are ready
	require.Contains(t, p.sh(t, "kubectl exec"+status), "3 of 3 voters answer, 1 may fail")
	c := p.count()
	defer func() { t.Log("counted", c.counted.Load(), "failed", c.failed.Load()) }()
	lock := func(want string) {
		t.Helper()
		require.Contains(t, p.sh(t, "kubectl exec holdfast-0 -- /holdfast locks"), want)
	}
	client := redis.NewClient(&redis.Options{
		Addr:     p.addrs["holdfast-2"][0],
		Password: protocoltest.ReadFile(t, filepath.Join(p.dir, "secret-holdfast", "password")),
	})
	require.NoError(t, client.SetNX(t.Context(), "lock:kept", "token", time.Hour).Err())
	client.Close()

	p.run(t, "Upgrade")
	for _, pod := range []string{"holdfast-0", "holdfast-1", "holdfast-2"} {
		require.Equal(t, "holdfast:NEW", p.pods[pod].image)
	}
	backup := p.objects["CronJob/holdfast-backup"].Spec.JobTemplate.Spec.Template.Spec
	require.Equal(t, "holdfast:NEW", backup.Containers[0].Image)
	lock("lock:kept")

	out, in, _ := strings.Cut(p.blocks["Scale"], "kubectl exec holdfast-0 -- /holdfast cluster remove")
	p.sh(t, out)
	p.whole(t, 5)
	p.sh(t, "kubectl exec holdfast-0 -- /holdfast cluster remove"+in)
	require.Len(t, p.claims, 4, "three nodes have one each, and the backups have one")
	p.sh(t, out) // with new folders under the same names
	p.whole(t, 5)
	p.sh(t, "kubectl exec holdfast-0 -- /holdfast cluster remove"+in)
	p.whole(t, 3)
	require.Contains(t, p.sh(t, "kubectl exec"+status), "3 of 3 voters answer", "both were removed")

	p.mu.Lock()
	lost := p.pods["holdfast-1"]
	lost.process.Kill()
	p.mu.Unlock()
	require.NoError(t, p.wait("the end of the process", func() bool { return len(lost.statuses) > 0 }))
	require.NoError(t, os.RemoveAll(p.volume("data-holdfast-1")))
	p.run(t, "A lost volume")
	p.whole(t, 3)
	require.NotSame(t, lost, p.pods["holdfast-1"])
	lock("lock:kept")

	close(c.end)
	<-c.ended
	p.run(t, "Back up")
	kept, err := filepath.Glob(p.volume("holdfast-backups") + "/*.bak")
	require.NoError(t, err)
	require.Len(t, kept, 1)
	out = p.sh(t, p.images["holdfast:NEW"]+" inspect holdfast.backup; "+p.images["holdfast:NEW"]+" inspect "+kept[0])
	require.Equal(t, 2, strings.Count(out, "checksums"), out)
	require.Positive(t, c.counted.Load())
	password := protocoltest.ReadFile(t, filepath.Join(p.dir, "secret-holdfast", "password"))
	client = redis.NewClient(&redis.Options{Addr: p.service(), Password: password})
	defer client.Close()
	n, err := client.Get(t.Context(), "counter").Int64()
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, c.counted.Load(), "increments that were acknowledged are lost")
	require.LessOrEqual(t, n, c.counted.Load()+c.failed.Load(), "increments were applied twice")

	const example = "20261130T031700Z.bak"
	require.Contains(t, p.blocks["Restore"], example)
	p.blocks["Restore"] = strings.ReplaceAll(p.blocks["Restore"], example, filepath.Base(kept[0]))
	require.Contains(t, p.run(t, "Restore"), filepath.Base(kept[0])+" can be restored", "the log has the file's name")
	p.whole(t, 3)
	lock("lock:kept")
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(t, p.trouble)
}
