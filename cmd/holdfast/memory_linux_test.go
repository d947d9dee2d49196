package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// container bounds the memory of the processes that its command starts.
type container struct{ folder string }

// newContainer makes a control group of the memory controller, version 1 or 2, that has so many bytes.
func newContainer(t *testing.T, bytes int) container {
	t.Helper()
	name := fmt.Sprintf("holdfast-%d-%d", os.Getpid(), bytes)
	for _, limit := range []string{"memory/%s/memory.limit_in_bytes", "%s/memory.max"} {
		limit = filepath.Join("/sys/fs/cgroup", fmt.Sprintf(limit, name))
		c := container{filepath.Dir(limit)}
		if os.Mkdir(c.folder, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(c.folder) })                 // its processes are gone
		if f, err := os.OpenFile(limit, os.O_WRONLY, 0); err == nil { // the kernel has made it
			_, err = f.WriteString(strconv.Itoa(bytes))
			if _ = f.Close(); err == nil {
				return c
			}
		}
	}
	t.Skip("needs root, and a memory controller, for a control group")
	return container{}
}

// command is exe in the container.
func (c container) command(exe string, args ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{
		"-c", `echo $$ > "$0"/cgroup.procs && exec "$@"`, c.folder, exe,
	}, args...)...)
}

// kills counts the processes that the kernel has killed for want of memory.
func (c container) kills(t *testing.T) int {
	t.Helper()
	for _, file := range []string{"memory.oom_control", "memory.events"} {
		text, err := os.ReadFile(filepath.Join(c.folder, file))
		for line := range strings.Lines(string(text)) {
			if n, is := strings.CutPrefix(line, "oom_kill "); is && err == nil {
				count, err := strconv.Atoi(strings.TrimSpace(n))
				require.NoError(t, err)
				return count
			}
		}
	}
	t.Skip("the kernel does not say whom it has killed")
	return 0
}

// TestFullNodeStartsAgain in a container that its keys and its log fill, with the flags that it ran with.
func TestFullNodeStartsAgain(t *testing.T) {
	exe := build(t)
	for _, mib := range []int{128, 256, 512} {
		t.Run(fmt.Sprintf("%d MiB", mib), func(t *testing.T) {
			t.Parallel()
			c := newContainer(t, mib<<20)
			n := plan(t, exe, 1)[0]
			require.NoError(t, n.Start(c.command(exe, n.args...)))
			waitServing(t, n)
			fill(t, n.addr, 240<<20) // just below what a snapshot is taken for
			n.Kill()
			require.NoError(t, n.Start(c.command(exe, n.args...)))
			waitServing(t, n)
			require.Zero(t, c.kills(t))
		})
	}
}

// TestLargeValuesFitAContainer has more clients that set large values at once than a node of the container has room for.
func TestLargeValuesFitAContainer(t *testing.T) {
	exe := build(t)
	const bytes, clients = 256 << 20, 24
	nodes, containers := plan(t, exe, 3), make([]container, 3)
	for i, n := range nodes {
		containers[i] = newContainer(t, bytes+i<<12)
		require.NoError(t, n.Start(containers[i].command(exe, n.args...)))
	}
	waitServing(t, nodes...)
	value := strings.Repeat("v", 8_000_000)
	var setting sync.WaitGroup
	errs := make([]error, clients)
	for i := range errs {
		setting.Go(func() {
			client := redis.NewClient(&redis.Options{
				Addr: nodes[i%len(nodes)].addr, MaxRetries: -1, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
			})
			defer client.Close()
			err := client.Set(t.Context(), fmt.Sprint("key", i%4), value, 0).Err()
			if refusal := redis.Error(nil); !errors.As(err, &refusal) { // by a cluster that is slow
				errs[i] = err // the connection is gone
			}
		})
	}
	setting.Wait()
	require.NoError(t, errors.Join(errs...))
	waitServing(t, nodes...)
	for _, c := range containers {
		require.Zero(t, c.kills(t))
	}
}

// fill sets keys of 192 KiB, so many bytes in all. The log also has the sets that are refused as the memory is
// full. The state machine takes longer for each than the log takes to read it.
func fill(t *testing.T, addr string, bytes int) {
	t.Helper()
	const size = 192 << 10
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	set := redis.NewScript("for i = 1, 200000 do end return redis.call('set', KEYS[1], ARGV[1])")
	value, refused := strings.Repeat("v", size), 0
	for i := range bytes / size {
		err := set.Run(t.Context(), client, []string{fmt.Sprint("key", i)}, value).Err()
		if err != nil {
			require.ErrorContains(t, err, protocol.ErrOOM.Prefix)
			refused++
		}
	}
	require.NotZero(t, refused)
}
