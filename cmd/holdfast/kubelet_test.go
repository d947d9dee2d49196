package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/fleet"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// kube plays the parts of Kubernetes that the manifests lean on: the controller of the StatefulSet, with its claims and
// rolling updates, and the kubelet with probes, restarts and graceful ends. kubectl_test.go has its commands.
// Containers are processes of this machine with the environment of the manifest; addresses and folders become ones of
// this machine.
type kube struct {
	dir    string               // secrets and volumes
	url    string               // of the API
	images map[string]string    // the program by image
	addrs  map[string][3]string // by pod: for clients, for nodes, for probes
	ctx    context.Context
	lives  sync.WaitGroup

	mu       sync.Mutex
	objects  map[string]manifest // what was applied
	revision int                 // of the StatefulSet's template
	claims   map[string]bool     // true: to be deleted once no pod uses it
	pods     map[string]*kubePod
	all      []*kubePod // those that are gone, too
	jobs     map[string]kubeJob
	sets     []string // the values that helm was given
	trouble  []string // what no operator should see
}

// kubeJob is the outcome of a job and its output.
type kubeJob struct {
	err error
	log string
}

// kubePod is a pod of the StatefulSet, from its creation until it is gone.
type kubePod struct {
	name     string
	image    string
	revision int
	spec     containerSpec
	grace    time.Duration
	leave    chan struct{} // closed when the pod is deleted
	leaving  bool
	process  fleet.Process
	ready    bool
	served   bool  // the process has been ready: a stop is graceful from then on
	statuses []int // with which the container has ended
	log      *protocoltest.Buffer
}

const kubeTick = 20 * time.Millisecond

func newKube(t *testing.T, exe string) *kube {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	k := &kube{
		dir: t.TempDir(), images: make(map[string]string), addrs: make(map[string][3]string), ctx: ctx,
		objects: make(map[string]manifest), claims: make(map[string]bool), pods: make(map[string]*kubePod),
		jobs: make(map[string]kubeJob),
	}
	k.image(t, manifests(t)["StatefulSet/holdfast"].Spec.Template.Spec.Containers[0].Image, exe)
	free := freeAddrs(t, 15)
	for i := range 5 {
		k.addrs[fmt.Sprintf("holdfast-%d", i)] = [3]string(free[3*i:])
	}
	k.lives.Go(k.control)
	t.Cleanup(func() {
		cancel()
		k.lives.Wait()
		if t.Failed() {
			for _, p := range k.all {
				t.Logf("%s ended with %v, and said:\n%s", p.name, p.statuses, p.log)
			}
		}
	})
	return k
}

// image makes the program known under a name, as a push to a registry does.
func (k *kube) image(t *testing.T, name, exe string) {
	t.Helper()
	file := filepath.Join(k.dir, "image-"+name)
	require.NoError(t, os.Link(exe, file))
	k.images[name] = file
}

// control is the loop of the controllers.
func (k *kube) control() {
	tick := time.NewTicker(kubeTick)
	defer tick.Stop()
	for k.ctx.Err() == nil {
		k.mu.Lock()
		k.reconcile()
		k.mu.Unlock()
		select {
		case <-tick.C:
		case <-k.ctx.Done():
		}
	}
}

// reconcile takes a step from the pods and claims that there are to those that are wanted.
func (k *kube) reconcile() {
	for claim, deleted := range k.claims {
		if deleted && k.pods[strings.TrimPrefix(claim, "data-")] == nil {
			_ = os.RemoveAll(k.volume(claim))
			delete(k.claims, claim)
		}
	}
	set, ok := k.objects["StatefulSet/holdfast"]
	if !ok {
		return
	}
	for name, p := range k.pods {
		var ordinal int
		if _, err := fmt.Sscanf(name, "holdfast-%d", &ordinal); err == nil && ordinal >= set.Spec.Replicas {
			p.delete()
		}
	}
	for i := range set.Spec.Replicas {
		if name := fmt.Sprintf("holdfast-%d", i); k.pods[name] == nil && !k.claims["data-"+name] {
			k.begin(name, set.Spec.Template.Spec)
		}
	}
	// A rolling update, from the last to the first: each once those behind it are new and ready.
	for i := set.Spec.Replicas - 1; i >= 0; i-- {
		p := k.pods[fmt.Sprintf("holdfast-%d", i)]
		if p == nil || p.leaving {
			return
		}
		if p.revision != k.revision {
			p.delete()
			return
		}
		if !p.ready {
			return
		}
	}
}

// begin creates a pod, and its claim if there is none.
func (k *kube) begin(name string, spec podSpec) {
	k.claims["data-"+name] = false
	c := spec.Containers[0]
	p := &kubePod{
		name: name, image: c.Image, revision: k.revision, spec: c, grace: time.Duration(spec.Grace) * time.Second,
		leave: make(chan struct{}), log: new(protocoltest.Buffer), process: fleet.Process{Name: name},
	}
	k.pods[name] = p
	k.all = append(k.all, p)
	run := k.run(name, spec.Volumes, c)
	k.lives.Go(func() { k.live(p, run) })
}

func (p *kubePod) delete() {
	if !p.leaving {
		p.leaving = true
		close(p.leave)
	}
}

func (k *kube) volume(claim string) string { return filepath.Join(k.dir, "volume-"+claim) }

// run makes the process of a container, each time it is called.
func (k *kube) run(name string, volumes []volumeSpec, c containerSpec) func(ctx context.Context,
	args ...string) *exec.Cmd {
	own := k.addrs[name]
	local := []string{"0.0.0.0:6379", own[0], "0.0.0.0:7379", own[1], "0.0.0.0:8379", own[2]}
	for pod, addr := range k.addrs {
		local = append(local, pod+".holdfast-nodes.default.svc:6379", addr[0], pod+".holdfast-nodes:7379", addr[1])
	}
	for _, m := range c.VolumeMounts {
		folder := k.volume(m.Name + "-" + name)
		for _, v := range volumes {
			switch {
			case v.Name != m.Name:
			case v.Secret.SecretName != "":
				folder = filepath.Join(k.dir, "secret-"+v.Secret.SecretName)
			default:
				folder = k.volume(v.PersistentVolumeClaim.ClaimName)
			}
		}
		local = append(local, m.MountPath, folder)
	}
	return func(ctx context.Context, args ...string) *exec.Cmd {
		env := map[string]string{"HOLDFAST_DATA_DIR": "/data"} // the image's
		expand := func(text string) string {
			return os.Expand(strings.NewReplacer("$(", "${", ")", "}").Replace(text), func(name string) string {
				return env[name]
			})
		}
		here := strings.NewReplacer(append(slices.Clone(local), "holdfast:6379", k.service())...)
		for _, e := range c.Env {
			env[e.Name] = expand(e.Value)
			switch e.ValueFrom.FieldRef.FieldPath {
			case "metadata.name":
				env[e.Name] = name
			case "metadata.namespace":
				env[e.Name] = "default"
			}
		}
		for i, arg := range args {
			args[i] = here.Replace(expand(arg))
		}
		cmd := exec.CommandContext(ctx, k.images[c.Image], args...)
		for _, variable := range slices.Sorted(maps.Keys(env)) {
			cmd.Env = append(cmd.Env, variable+"="+here.Replace(env[variable]))
		}
		return cmd
	}
}

// service is the address of a pod that is ready, as the service for clients has it; k is not locked.
func (k *kube) service() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.ready {
			return k.addrs[p.name][0]
		}
	}
	return "127.0.0.1:1"
}

// live runs a pod: its container is started again when it ends, until the pod is deleted.
func (k *kube) live(p *kubePod, run func(context.Context, ...string) *exec.Cmd) {
	for first := true; ; first = false {
		if !first {
			select { // the kubelet waits for 10 s to 5 min
			case <-time.After(10 * kubeTick):
			case <-p.leave:
			}
		}
		if !k.once(p, run) {
			break
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, p.name)
}

// once runs the container once, and reports whether it is to be started again.
func (k *kube) once(p *kubePod, run func(context.Context, ...string) *exec.Cmd) bool {
	select {
	case <-p.leave:
		return false
	case <-k.ctx.Done():
		return false
	default:
	}
	cmd := run(k.ctx, slices.Clone(p.spec.Args)...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := p.process.Start(cmd); err != nil {
		k.complain("%v", err)
		return false
	}
	probes := make(chan struct{})
	go func() { defer close(probes); k.probe(p, p.process.Done()) }()
	select {
	case <-p.process.Done():
	case <-p.leave:
		if err := p.process.Stop(p.grace); err != nil {
			k.complain("%v", err)
		}
	}
	<-probes
	k.mu.Lock()
	defer k.mu.Unlock()
	status := p.process.ExitCode()
	if p.leaving && p.served && status != 0 && status != statusRemoved {
		k.trouble = append(k.trouble, fmt.Sprintf("%s was stopped, and ended with status %d", p.name, status))
	}
	p.statuses = append(p.statuses, status)
	p.ready, p.served = false, false
	return !p.leaving
}

func (k *kube) complain(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trouble = append(k.trouble, fmt.Sprintf(format, args...))
}

// probe asks a container as often as the machine lets it: first the startup probe, and once that succeeds the others. A
// probe counts as failed once it has failed without a break for as long as the manifest allows.
func (k *kube) probe(p *kubePod, ended <-chan struct{}) {
	asks := func(of probe) func() (ok, failed bool) {
		since := time.Now()
		client := http.Client{Timeout: time.Duration(of.TimeoutSeconds) * time.Second}
		allowed := time.Duration(of.PeriodSeconds*of.FailureThreshold) * time.Second
		return func() (bool, bool) {
			resp, err := client.Get("http://" + k.addrs[p.name][2] + of.HTTPGet.Path)
			if err == nil {
				resp.Body.Close()
			}
			// What Kubernetes takes for success.
			if err == nil && resp.StatusCode >= 200 && resp.StatusCode < 400 {
				since = time.Now()
				return true, false
			}
			return false, time.Since(since) > allowed
		}
	}
	startup := asks(p.spec.StartupProbe)
	var live, ready func() (ok, failed bool)
	for {
		select {
		case <-ended:
			return
		case <-time.After(kubeTick):
		}
		if live == nil {
			ok, failed := startup()
			if failed {
				k.complain("%s: the startup probe failed", p.name)
			}
			if ok {
				live, ready = asks(p.spec.LivenessProbe), asks(p.spec.ReadinessProbe)
			}
			continue
		}
		if _, failed := live(); failed {
			k.complain("%s: the liveness probe failed", p.name)
		}
		ok, failed := ready()
		k.mu.Lock()
		p.ready = (ok || p.ready && !failed) && !p.leaving
		p.served = p.served || p.ready
		k.mu.Unlock()
	}
}
