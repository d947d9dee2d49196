package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

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
	bin := t.TempDir()
	own, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(own, filepath.Join(bin, "kubectl")))
	for _, name := range []string{"docker", "kind"} { // the job "image" of .ci/run builds the image
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o700))
	}
	top, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(filepath.Join(top, "cmd"), filepath.Join(page.folder, "cmd")))
	page.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBE="+server.URL)
	text := readFile(t, filepath.Join("packaging", "KUBERNETES.md"))
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
		Password: readFile(t, filepath.Join(p.dir, "secret-holdfast", "password")),
	})
	require.NoError(t, client.SetNX(t.Context(), "lock:kept", "token", time.Hour).Err())
	client.Close()

	p.run(t, "Upgrade")
	for _, pod := range []string{"holdfast-0", "holdfast-1", "holdfast-2"} {
		require.Equal(t, "holdfast:NEW", p.pods[pod].image)
	}
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

	p.mu.Lock()
	lost := p.pods["holdfast-1"]
	require.NoError(t, lost.process.Kill())
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
	out = p.sh(t, p.images["holdfast:NEW"]+" inspect holdfast.backup; "+p.images["holdfast:NEW"]+" inspect "+
		p.volume("holdfast-backups")+"/*.backup")
	require.Equal(t, 2, strings.Count(out, "checksums"), out)
	require.Positive(t, c.counted.Load())
	password := readFile(t, filepath.Join(p.dir, "secret-holdfast", "password"))
	client = redis.NewClient(&redis.Options{Addr: p.service(), Password: password})
	defer client.Close()
	n, err := client.Get(t.Context(), "counter").Int64()
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, c.counted.Load(), "increments that were acknowledged are lost")
	require.LessOrEqual(t, n, c.counted.Load()+c.failed.Load(), "increments were applied twice")

	p.run(t, "Restore")
	p.whole(t, 3)
	lock("lock:kept")
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(t, p.trouble)
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}
