//go:build unix

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/secrets"
)

// machines are six machines on which the chapters of the operator's pages are run: folders in the places of
// /etc/holdfast, /var/lib/holdfast and /usr/bin, free ports in the places of addresses, and a systemctl that does what
// is asked here. A cluster is installed on the first three.
type machines struct {
	root  string
	addrs []string // for clients, by machine; then for nodes
}

const systemctlStub = `#!/bin/sh
# start, stop, restart and reload of the one unit, which reads its environment as holdfast.service has it. What is
# reloaded has read its credentials again.
set -eu
begin() {
	set -a; . /etc/holdfast/holdfast.env; set +a
	HOLDFAST_DATA_DIR=/var/lib/holdfast /usr/bin/holdfast serve </dev/null >>$ROOT/log 2>&1 &
	echo $! > $ROOT/pid
}
end() {
	pid=$(cat $ROOT/pid)
	kill -TERM $pid 2>/dev/null || true
	while grep -qs '^State:.[^Z]' /proc/$pid/status; do sleep 1; done
}
reads() { grep -c 'msg="credentials read again"' $ROOT/log || true; }
case "$*" in
'enable --now holdfast' | 'start holdfast') begin ;;
'stop holdfast') end ;;
'restart holdfast') end; begin ;;
'reload holdfast') before=$(reads); kill -HUP $(cat $ROOT/pid); while [ $(reads) = $before ]; do sleep 1; done ;;
*) echo "systemctl $*: not here" >&2; exit 1 ;;
esac
`

func newMachines(t *testing.T, exe string) *machines {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the stand-in for systemctl reads /proc")
	}
	m := &machines{root: t.TempDir(), addrs: freeAddrs(t, 12)}
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o700)) }
	require.NoError(t, os.Mkdir(filepath.Join(m.root, "backup"), 0o700))
	for i := range 6 {
		for _, dir := range []string{"etc", "bin", "archive"} {
			require.NoError(t, os.MkdirAll(m.path(i, dir), 0o700))
		}
		require.NoError(t, os.Link(exe, m.path(i, "archive", "holdfast")))
		write(m.path(i, "bin", "systemctl"), m.here(i, strings.ReplaceAll(systemctlStub, "$ROOT", m.path(i))))
		write(m.path(i, "bin", "sleep"), "#!/bin/sh\nexec /bin/sleep 0.05\n")
	}
	t.Cleanup(func() {
		for i := range 6 {
			m.kill(i)
			if log, _ := os.ReadFile(m.path(i, "log")); t.Failed() {
				t.Logf("n%d said:\n%s", i+1, log)
			}
		}
	})
	return m
}

func (m *machines) path(i int, names ...string) string {
	return filepath.Join(append([]string{m.root, fmt.Sprint("n", i+1)}, names...)...)
}

// here is what a text means on a machine.
func (m *machines) here(i int, text string) string {
	words := []string{
		"/etc/holdfast", m.path(i, "etc"), "/var/lib/holdfast", m.path(i, "data"), "/usr/bin/holdfast", m.path(i, "bin",
			"holdfast"),
		"/backup", filepath.Join(m.root, "backup"), "/root/holdfast-ca", filepath.Join(m.root, "ca"),
	}
	for j := range 6 {
		words = append(words, fmt.Sprintf("10.0.0.%d:6379", j+1), m.addrs[j], fmt.Sprintf("10.0.0.%d:7379", j+1),
			m.addrs[6+j])
	}
	return strings.NewReplacer(words...).Replace(text)
}

// own puts the name and the addresses of a node in the place of n1's, where n1's stand alone.
func own(i int, text string) string {
	n := strconv.Itoa(i + 1)
	return strings.NewReplacer(
		"--name n1", "--name n"+n, "--server 10.0.0.1:6379 ", "--server 10.0.0."+n+":6379 ",
		"n1.crt", "n"+n+".crt", "n1.key", "n"+n+".key",
		"HOLDFAST_NAME=n1", "HOLDFAST_NAME=n"+n, "HOLDFAST_ADDR=10.0.0.1", "HOLDFAST_ADDR=10.0.0."+
			n, "HOLDFAST_PEER_ADDR=10.0.0.1", "HOLDFAST_PEER_ADDR=10.0.0."+n,
	).Replace(text)
}

// run runs a chapter: "once" on the first machine, "each-node" on those, and "others" on all but the first.
func (m *machines) run(t *testing.T, name string, each ...int) (said string) {
	t.Helper()
	for _, b := range chapter(t, name) {
		said += m.block(t, b, each...)
	}
	return said
}

func (m *machines) block(t *testing.T, b block, each ...int) (said string) {
	t.Helper()
	if b.where == "root" {
		t.Logf("not run, as it needs root or systemd:\n%s", b.code)
	}
	for _, i := range map[string][]int{"once": {0}, "each-node": each, "others": {1, 2}}[b.where] {
		code := b.code
		if b.where == "each-node" {
			code = own(i, code)
		}
		said += m.sh(t, i, m.here(i, code))
	}
	for _, file := range []string{"password", "cluster-secret", "new-password", "new-secret"} {
		if b.where == "once" && strings.Contains(b.code, "> "+file+"\n") || strings.Contains(b.code, "> "+file+")\n") {
			text := protocoltest.ReadFile(t, m.path(0, "etc", file)) // "copy it to the same folder of every node"
			for i := 1; i < 6; i++ {
				require.NoError(t, os.WriteFile(m.path(i, "etc", file), []byte(text), 0o600))
			}
		}
	}
	if strings.Contains(b.code, "holdfast certs") {
		m.copyCertificates(t)
	}
	return said
}

// copyCertificates is "copy ca.crt, n1.crt and n1.key to n1, and do the same for the other nodes".
func (m *machines) copyCertificates(t *testing.T) {
	t.Helper()
	for i := range 3 {
		for _, file := range []string{"ca.crt", fmt.Sprintf("n%d.crt", i+1), fmt.Sprintf("n%d.key", i+1)} {
			text := protocoltest.ReadFile(t, filepath.Join(m.root, "ca", file))
			require.NoError(t, os.WriteFile(m.path(i, "etc", file), []byte(text), 0o600))
		}
	}
}

func (m *machines) sh(t *testing.T, i int, code string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-eu", "-c", code)
	c.Dir = m.path(i, "archive")
	c.Env = []string{"PATH=" + m.path(i, "bin") + ":" + os.Getenv("PATH"), envFileVariable + "=" +
		m.path(i, "etc", "holdfast.env")}
	out, err := c.CombinedOutput()
	require.NoError(t, err, "n%d: %s\n%s", i+1, code, out)
	return string(out)
}

// kill is kill -9 of what runs on a machine.
func (m *machines) kill(i int) {
	text, _ := os.ReadFile(m.path(i, "pid"))
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		_ = os.Remove(m.path(i, "pid"))
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (m *machines) client(t *testing.T, i int) *redis.Client {
	t.Helper()
	password, _, _ := strings.Cut(protocoltest.ReadFile(t, m.path(i, "etc", "password")), "\n")
	c := redis.NewClient(&redis.Options{
		Addr: m.addrs[i], Password: password, MaxRetries: -1,
		ReadTimeout: 10 * time.Second,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// holders take locks on all machines, with a fence each, until they are stopped.
type holders struct {
	mu      sync.Mutex
	locks   map[string]string // acknowledged
	largest [2]int64          // fences: of the counter, and of native locks
	cancel  context.CancelFunc
	workers sync.WaitGroup
}

func (m *machines) load(t *testing.T) *holders {
	h := &holders{locks: make(map[string]string)}
	ctx, cancel := context.WithCancel(t.Context())
	h.cancel = cancel
	var turn atomic.Int64
	for i := range 3 {
		c := m.client(t, i)
		h.workers.Go(func() {
			for ctx.Err() == nil {
				key, token := fmt.Sprint("lock:", turn.Add(1)), fmt.Sprint("token ", i)
				fence, err := c.Incr(ctx, "fence:orders").Result()
				if err != nil || c.SetNX(ctx, key, token, time.Hour).Err() != nil {
					continue
				}
				native, err := c.Do(ctx, "LOCK.ACQUIRE", "native:"+key, token, "PX", "3600000").Int64()
				h.mu.Lock()
				h.locks[key] = token
				h.largest[0] = max(h.largest[0], fence)
				if err == nil {
					h.largest[1] = max(h.largest[1], native)
				}
				h.mu.Unlock()
			}
		})
	}
	return h
}

func (h *holders) acknowledged() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.locks)
}

func (h *holders) goesOn(t *testing.T) {
	t.Helper()
	before := len(h.acknowledged())
	require.Eventually(t, func() bool { return len(h.acknowledged()) > before+20 }, 30*time.Second, 5*time.Millisecond)
}

func (h *holders) stop() {
	h.cancel()
	h.workers.Wait()
}

// verify finds locks through each machine, and fences that are larger than those that were given out.
func (h *holders) verify(t *testing.T, m *machines, locks map[string]string) {
	t.Helper()
	for i := range 3 {
		c := m.client(t, i)
		var keys []string
		for key := range locks {
			keys = append(keys, key)
		}
		var values []any
		require.Eventually(t, func() (ok bool) { // a node that is being taken in hangs up
			var err error
			values, err = c.MGet(t.Context(), keys...).Result()
			return err == nil
		}, 30*time.Second, 20*time.Millisecond, "n%d", i+1)
		for j, key := range keys {
			require.Equal(t, locks[key], values[j], "%s through n%d", key, i+1)
		}
		fence, err := c.Incr(t.Context(), "fence:orders").Result()
		require.NoError(t, err)
		require.Greater(t, fence, h.largest[0])
		native, err := c.Do(t.Context(), "LOCK.ACQUIRE", fmt.Sprint("job ", fence), "me", "PX", "60000").Int64()
		require.NoError(t, err)
		require.Greater(t, native, h.largest[1])
		h.largest = [2]int64{fence, native}
	}
}

// TestTLSAsWritten: a cluster that serves goes over to TLS, by certificates that the chapter makes. The commands on a
// node's machine go on without a flag.
func TestTLSAsWritten(t *testing.T) {
	t.Parallel()
	m := newMachines(t, build(t))
	m.run(t, "install", 0, 1, 2)
	require.NoError(t, m.client(t, 0).SetNX(t.Context(), "held", "token", time.Hour).Err())
	m.run(t, "tls", 0, 1, 2)
	require.Error(t, m.client(t, 0).Get(t.Context(), "held").Err(), "the port speaks TLS alone")
	ca, err := secrets.LoadCA("ca", m.path(0, "etc", "ca.crt"))
	require.NoError(t, err)
	for i := range 3 {
		require.Contains(t, m.sh(t, i, "holdfast locks"), "held")
		c := m.client(t, i).Options()
		c.TLSConfig = &tls.Config{RootCAs: ca, MinVersion: tls.VersionTLS12}
		secured := redis.NewClient(c)
		defer secured.Close()
		require.Equal(t, "token", secured.Get(t.Context(), "held").Val())
	}
}

// TestRunbookAsWritten installs a cluster, and upgrades and backs it up under load. Then it loses all nodes, and is
// restored: every lock that was acknowledged before the backup's instant is there, no lease is shorter, fences only
// grow. Then it loses its majority, and the survivor goes on. All of that by the commands of the operator's pages.
func TestRunbookAsWritten(t *testing.T) {
	m := newMachines(t, build(t))
	m.run(t, "install", 0, 1, 2)
	h := m.load(t)
	h.goesOn(t)
	m.run(t, "upgrade", 0, 1, 2)
	h.goesOn(t)
	require.NoError(t, m.client(t, 0).Set(t.Context(), "short", "x", 20*time.Second).Err())
	before := h.acknowledged()
	require.Contains(t, m.run(t, "backup"), "fence:orders (database 0)")
	h.goesOn(t)
	h.stop()
	h.verify(t, m, h.acknowledged())
	for i := range 3 {
		m.kill(i)
		require.NoError(t, os.WriteFile(m.path(i, "pid"), []byte("999999999"), 0o600)) // nothing runs
	}
	require.Contains(t, m.run(t, "restore", 0, 1, 2), "1 keys that match fence:*")
	h.verify(t, m, before)
	left, err := m.client(t, 1).PTTL(t.Context(), "short").Result()
	require.NoError(t, err)
	require.Greater(t, left, 4*time.Minute, "the lease begins anew, and has --min-lease left")
	for i, begun := range []int{1, 0, 0} {
		log := protocoltest.ReadFile(t, m.path(i, "log"))
		require.Equal(t, begun, strings.Count(log, " command=restore "), "n%d", i+1)
	}

	require.NoError(t, m.client(t, 1).Do(t.Context(), "WAIT", "2", "0").Err())
	for i := 1; i < 3; i++ {
		m.kill(i)
	}
	require.NoError(t, os.RemoveAll(m.path(0, "data.old")))
	m.run(t, "lost-quorum", 0)
	h.verify(t, m, before)
	log := protocoltest.ReadFile(t, m.path(0, "log"))
	require.Contains(t, log, " command=recover ")
}
