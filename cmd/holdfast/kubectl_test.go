package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// request is a command of kubectl.
type request struct {
	Words []string
	File  []byte // what apply reads
}

// answer is what a command of kubectl has to say.
type answer struct {
	Stdout, Stderr []byte
	Status         int
}

// kubectl is the program of this name or of helm's, which a block of the page runs: it has the test carry out its
// words.
func kubectl() int {
	r := request{Words: os.Args[1:]}
	if program := filepath.Base(os.Args[0]); program != "kubectl" {
		r.Words = append([]string{program}, r.Words...)
	}
	var err error
	if file := r.Words[len(r.Words)-1]; r.Words[0] == "apply" {
		if file == "-" {
			file = "/dev/stdin"
		}
		r.File, err = os.ReadFile(file)
	}
	var a answer
	if err == nil {
		a, err = r.send(os.Getenv("KUBE"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubectl:", err)
		return 1
	}
	_, _ = os.Stdout.Write(a.Stdout)
	_, _ = os.Stderr.Write(a.Stderr)
	return a.Status
}

func (r request) send(url string) (a answer, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	resp, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	return a, json.NewDecoder(resp.Body).Decode(&a)
}

func (k *kube) ServeHTTP(w http.ResponseWriter, body *http.Request) {
	if body.Method == http.MethodGet {
		k.api(w, body.URL.Path)
		return
	}
	var r request
	var a answer
	err := json.NewDecoder(body.Body).Decode(&r)
	if err == nil {
		a, err = k.command(r)
	}
	if err != nil {
		a = answer{Stderr: []byte("kubectl: " + err.Error() + "\n"), Status: 1}
	}
	_ = json.NewEncoder(w).Encode(a)
}

// command carries out those words of kubectl that the page has.
func (k *kube) command(r request) (a answer, err error) {
	words := r.Words
	unknown := fmt.Errorf("%q is not played here", words)
	if len(words) < 3 {
		return a, unknown
	}
	switch last := words[len(words)-1]; words[0] + " " + words[1] {
	case "apply -f":
		return a, k.apply(r.File)
	case "create secret":
		return a, k.secret(words[3], words[4:])
	case "create job":
		return a, k.job(last, strings.TrimPrefix(words[2], "--from=cronjob/"))
	case "wait --for=condition=complete":
		k.mu.Lock()
		defer k.mu.Unlock()
		job, ran := k.jobs[strings.TrimPrefix(last, "job/")]
		if !ran {
			return a, fmt.Errorf("there is no %s", last)
		}
		return a, job.err
	case "scale statefulset/holdfast":
		return a, k.change(func(set *manifest) (err error) {
			set.Spec.Replicas, err = strconv.Atoi(last)
			return err
		})
	case "set image", "set env":
		if name, is := strings.CutPrefix(words[2], "cronjob/"); is {
			k.mu.Lock()
			defer k.mu.Unlock()
			// The containers of an object are shared by its copies.
			pod := k.objects["CronJob/"+name].Spec.JobTemplate.Spec.Template.Spec
			pod.Containers[0].Image = strings.TrimPrefix(last, "backup=")
			return a, nil
		}
		return a, k.change(func(set *manifest) error {
			c := &set.Spec.Template.Spec.Containers
			*c = slices.Clone(*c)
			if words[1] == "image" {
				(*c)[0].Image = strings.TrimPrefix(last, "holdfast=")
			}
			env := slices.Clone((*c)[0].Env)
			(*c)[0].Env = slices.DeleteFunc(env, func(e envSpec) bool { return e.Name+"-" == last })
			return nil
		})
	case "rollout status":
		return a, k.wait("the rollout", k.settled)
	case "delete pvc", "delete pod":
		return a, k.remove(words[1], words[2:])
	case "helm install", "helm upgrade":
		return a, k.helm(words[1:])
	case "logs --selector", "delete job":
		k.mu.Lock()
		defer k.mu.Unlock()
		if words[0] == "delete" {
			delete(k.jobs, last)
			return a, nil
		}
		for _, job := range k.jobs {
			a.Stdout = append(a.Stdout, job.log...)
		}
		return a, nil
	}
	if words[0] == "exec" && words[2] == "--" && words[3] == "/holdfast" {
		return k.exec(words[1], words[4:])
	}
	return a, unknown
}

func (k *kube) apply(file []byte) error {
	objects, err := manifestsOf(bytes.NewReader(file))
	if err != nil {
		return err
	}
	for name, m := range objects { // what helm runs before it changes anything
		if m.Metadata.Annotations["helm.sh/hook"] == "pre-upgrade" {
			delete(objects, name)
			if most := m.Spec.ActiveDeadlineSeconds; most <= 0 || most >= 300 {
				return fmt.Errorf("helm gives %s up after 5 min, and the job runs on, at most for %d s", name, most)
			}
			k.toEnd(m.Metadata.Name, m.Spec.Template.Spec)
			k.mu.Lock()
			err := k.jobs[m.Metadata.Name].err
			k.mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
	k.mu.Lock()
	for name, m := range objects {
		k.put(name, m)
		if m.Kind == "PersistentVolumeClaim" {
			k.claims[m.Metadata.Name] = false
		}
	}
	k.mu.Unlock()
	for _, m := range objects {
		if m.Kind == "Job" {
			k.toEnd(m.Metadata.Name, m.Spec.Template.Spec)
		}
	}
	return nil
}

func (k *kube) secret(name string, literals []string) error {
	folder := filepath.Join(k.dir, "secret-"+name)
	err := os.Mkdir(folder, 0o700)
	for _, literal := range literals {
		key, value, _ := strings.Cut(strings.TrimPrefix(literal, "--from-literal="), "=")
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, key), []byte(value), 0o600))
	}
	return err
}

func (k *kube) job(name, from string) error {
	k.mu.Lock()
	cron, ok := k.objects["CronJob/"+from]
	k.mu.Unlock()
	if !ok {
		return fmt.Errorf("there is no CronJob %q", from)
	}
	k.toEnd(name, cron.Spec.JobTemplate.Spec.Template.Spec)
	return nil
}

// toEnd runs the pod of a job to its end.
func (k *kube) toEnd(job string, spec podSpec) {
	c := spec.Containers[0]
	for _, v := range spec.Volumes {
		if claim := v.PersistentVolumeClaim.ClaimName; claim != "" {
			_ = os.MkdirAll(k.volume(claim), 0o700)
		}
	}
	out, err := k.run(job+"-x7k2p", spec.Volumes, c)(k.ctx, slices.Clone(c.Args)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.jobs[job] = kubeJob{err, string(out)}
}

func (k *kube) change(by func(set *manifest) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	set, ok := k.objects["StatefulSet/holdfast"]
	if !ok {
		return errors.New("there is no StatefulSet")
	}
	err := by(&set)
	k.put("StatefulSet/holdfast", set)
	return err
}

// put keeps an object. A StatefulSet with another template has a revision of its own, to which pods are updated.
func (k *kube) put(name string, m manifest) {
	if m.Kind == "StatefulSet" && !reflect.DeepEqual(m.Spec.Template, k.objects[name].Spec.Template) {
		k.revision++
	}
	k.objects[name] = m
}

// settled reports whether the pods are those that are wanted, all are new and ready; k is locked.
func (k *kube) settled() bool {
	ready := 0
	for _, p := range k.pods {
		if p.revision == k.revision && p.ready && !p.leaving {
			ready++
		}
	}
	return ready == len(k.pods) && ready == k.objects["StatefulSet/holdfast"].Spec.Replicas
}

// wait waits until something holds of k, which is locked meanwhile.
func (k *kube) wait(what string, holds func() bool) error {
	tick, end := time.NewTicker(kubeTick), time.After(time.Minute)
	defer tick.Stop()
	for {
		k.mu.Lock()
		held := holds()
		k.mu.Unlock()
		if held {
			return nil
		}
		select {
		case <-tick.C:
		case <-end:
			return fmt.Errorf("gave up waiting for %s", what)
		case <-k.ctx.Done():
			return k.ctx.Err()
		}
	}
}

// remove deletes pods or claims, and waits until they are gone unless told otherwise. A pod that is gone may be there
// anew.
func (k *kube) remove(kind string, names []string) error {
	patient := true
	var gone []func() bool
	k.mu.Lock()
	for _, name := range names {
		_, claimed := k.claims[name]
		p := k.pods[name]
		switch {
		case name == "--wait=false":
			patient = false
		case kind == "pvc" && claimed:
			k.claims[name] = true
			gone = append(gone, func() bool { return !k.claims[name] })
		case kind == "pod" && p != nil:
			p.delete()
			gone = append(gone, func() bool { return k.pods[name] != p })
		default:
			k.mu.Unlock()
			return fmt.Errorf("there is no %s %q", kind, name)
		}
	}
	k.mu.Unlock()
	for _, done := range gone {
		if !patient {
			break
		}
		if err := k.wait("the end of "+kind, done); err != nil {
			return err
		}
	}
	return nil
}

// exec runs the program in a container that runs.
func (k *kube) exec(pod string, args []string) (a answer, err error) {
	k.mu.Lock()
	p := k.pods[pod]
	runs := p != nil && p.process.Running()
	spec := k.objects["StatefulSet/holdfast"].Spec.Template.Spec
	k.mu.Unlock()
	if !runs {
		return a, fmt.Errorf("the container of %s does not run", pod)
	}
	var out, complaint bytes.Buffer
	cmd := k.run(pod, spec.Volumes, p.spec)(k.ctx, args...)
	cmd.Env = append(cmd.Env, "HOLDFAST_SERVER="+k.addrs[pod][0]) // 127.0.0.1:6379 in a pod
	cmd.Stdout, cmd.Stderr = &out, &complaint
	var exit *exec.ExitError
	if err = cmd.Run(); errors.As(err, &exit) {
		err = nil
	}
	return answer{out.Bytes(), complaint.Bytes(), cmd.ProcessState.ExitCode()}, err
}

// helm installs or upgrades a release by what helm renders: upgrade NAME CHART --reuse-values --set ….
func (k *kube) helm(words []string) error {
	k.mu.Lock()
	k.sets = append(k.sets, slices.DeleteFunc(words[3:], func(w string) bool { return w == "--reuse-values" })...)
	args := append([]string{"template", words[1], words[2], "--dry-run=server", "--kube-apiserver", k.url}, k.sets...)
	k.mu.Unlock()
	rendered, err := runHelm(k.ctx, args...)
	if err != nil {
		return err
	}
	return k.apply(rendered)
}

// api answers what a chart looks up: the StatefulSet that is there.
func (k *kube) api(w http.ResponseWriter, path string) {
	k.mu.Lock()
	set, there := k.objects["StatefulSet/holdfast"]
	k.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch path {
	case "/apis/apps/v1":
		fmt.Fprint(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": [{"name": `+
			`"statefulsets", "kind": "StatefulSet", "namespaced": true, "verbs": ["get"]}]}`)
	case "/apis/apps/v1/namespaces/default/statefulsets/holdfast":
		if there {
			fmt.Fprintf(w, `{"kind": "StatefulSet", "apiVersion": "apps/v1", "spec": {"replicas": %d}}`, set.Spec.Replicas)
			return
		}
		fallthrough
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
	}
}
