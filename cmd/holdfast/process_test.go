package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/fleet"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// These tests run the real binary as real processes and kill them.

// build compiles the program, once for all tests.
func build(t *testing.T) string {
	t.Helper()
	protocoltest.SkipShort(t, "starts processes")
	exe, err := built()
	require.NoError(t, err)
	return exe
}

var buildFolder string // removed at the end

var built = sync.OnceValues(func() (string, error) {
	exe := filepath.Join(buildFolder, "holdfast")
	return exe, fleet.Build(context.Background(), ".", exe, ".")
})

func TestMain(m *testing.M) {
	if slices.Contains([]string{"kubectl", "helm"}, filepath.Base(os.Args[0])) {
		os.Exit(kubectl())
	}
	var err error
	if buildFolder, err = os.MkdirTemp("", "holdfast-test-"); err != nil {
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(buildFolder)
	os.Exit(status)
}

// node is a `holdfast serve` process that can be killed and started again.
type node struct {
	process
	name string
	args []string
}

// newNode is a node before its first start. It ends with the test.
func newNode(t *testing.T, exe, name, addr string, args ...string) *node {
	t.Helper()
	n := &node{name: name, process: process{addr: addr, exe: exe}, args: args}
	n.Name, n.Log = name, filepath.Join(t.TempDir(), "log")
	t.Cleanup(func() {
		n.Kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, n.Output())
		}
	})
	return n
}

func (n *node) start(t *testing.T) {
	t.Helper()
	require.NoError(t, n.Start(exec.Command(n.exe, n.args...)))
}

// stop asks for a graceful end and waits for it.
func (n *node) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, n.Stop(15*time.Second), "%s", n.Output())
}

// program is a process with what it has written.
type program struct {
	fleet.Process
	stdout, stderr protocoltest.Buffer
}

// running starts a program, which ends with the test.
func running(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{Process: fleet.Process{Name: filepath.Base(cmd.Path)}}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &p.stdout, &p.stderr, time.Second
	require.NoError(t, p.Start(cmd))
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%q said:\n%s%s", cmd.Args, &p.stdout, &p.stderr)
		}
	})
	return p
}

// says waits until the program has written text to its standard output.
func (p *program) says(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.stdout.String(), text) }, 20*time.Second,
		time.Millisecond, "%s", &p.stderr)
}

// status waits for the end.
func (p *program) status(t *testing.T) int {
	t.Helper()
	require.NoError(t, p.Wait(30*time.Second))
	return p.ExitCode()
}

// freeAddrs are n loopback addresses that no other test gets.
func freeAddrs(t *testing.T, n int) []string {
	t.Helper()
	addrs, err := fleet.Reserve(n)
	require.NoError(t, err)
	return addrs
}

// startNodes starts a cluster and waits until every node of it serves.
func startNodes(t *testing.T, exe string, count int, flags ...string) []*node {
	t.Helper()
	nodes := launch(t, exe, count, flags...)
	waitServing(t, nodes...)
	return nodes
}

// launch starts a cluster's processes, which end with the test.
func launch(t *testing.T, exe string, count int, flags ...string) []*node {
	t.Helper()
	nodes := plan(t, exe, count, flags...)
	for _, n := range nodes {
		n.start(t)
	}
	return nodes
}

// plan is a cluster's processes before they are started. "{node}" in a flag is the node's name.
func plan(t *testing.T, exe string, count int, flags ...string) []*node {
	t.Helper()
	addrs := freeAddrs(t, 2*count)
	var members []string
	for i := range count {
		members = append(members, fmt.Sprintf("n%d=%s", i+1, addrs[count+i]))
	}
	dir := t.TempDir()
	var nodes []*node
	for i := range count {
		name := fmt.Sprintf("n%d", i+1)
		args := append([]string{
			"serve", "--name", name, "--addr", addrs[i], "--peer-addr", addrs[count+i],
			"--data-dir", filepath.Join(dir, name), "--initial-cluster", strings.Join(members, ","),
			"--log-level", "info",
		}, flags...)
		for i, arg := range args {
			args[i] = strings.ReplaceAll(arg, "{node}", name)
		}
		nodes = append(nodes, newNode(t, exe, name, addrs[i], args...))
	}
	return nodes
}

func waitServing(t *testing.T, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		require.NoError(t, n.waitServing(ctx), "%s", n.Output())
		cancel()
	}
}

// others are the nodes but one.
func others(nodes []*node, but *node) []*node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n == but })
}

// ask sends one command on a connection of its own.
func ask(ctx context.Context, addr string, words ...string) (protocol.Value, error) {
	return (&process{addr: addr}).ask(ctx, words...)
}

func leaderOf(t *testing.T, nodes []*node) *node {
	t.Helper()
	for _, n := range nodes {
		info, err := ask(context.Background(), n.addr, "INFO", "holdfast")
		if err != nil {
			continue
		}
		for _, m := range nodes {
			if infoField(info.Str, "leader_name") == m.name {
				return m
			}
		}
	}
	t.Fatal("no node knows a leader")
	return nil
}

func client(t *testing.T, n *node) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: n.addr, MaxRetries: -1, ReadTimeout: 10 * time.Second})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func clientsOf(t *testing.T, nodes []*node) (clients []*redis.Client) {
	t.Helper()
	for _, n := range nodes {
		clients = append(clients, client(t, n))
	}
	return clients
}

// acknowledged is what clients were told they hold.
type acknowledged struct {
	mu    sync.Mutex
	locks map[string]string
	fence map[int64]int
}

func (a *acknowledged) add(key, token string, fence int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.locks[key] = token
	a.fence[fence]++
}

// lockUntil takes one lock after another on the nodes in turn until ctx ends.
func (a *acknowledged) lockUntil(ctx context.Context, worker int, clients []*redis.Client) {
	for i := 0; ctx.Err() == nil; i++ {
		c := clients[(worker+i)%len(clients)]
		key := fmt.Sprintf("lock:%d:%d", worker, i)
		token := fmt.Sprintf("token-%d-%d", worker, i)
		ok, err := c.SetNX(ctx, key, token, time.Hour).Result()
		if err != nil || !ok {
			continue // not acknowledged: nothing is promised
		}
		if n, err := c.Incr(ctx, "fence").Result(); err == nil {
			a.add(key, token, n)
		}
	}
}

// TestKilledLeadersForgetNothing is the product's promise, tried on real
// processes: leaders are killed with kill -9 while clients take locks, and every lock that was
// acknowledged is there afterwards, through every node.
func TestKilledLeadersForgetNothing(t *testing.T) {
	nodes := startNodes(t, build(t), 3)
	clients := clientsOf(t, nodes)
	a := &acknowledged{locks: map[string]string{}, fence: map[int64]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() { a.lockUntil(ctx, w, clients) })
	}
	for range 3 {
		before := a.count()
		require.Eventually(t, func() bool { return a.count() > before+50 }, 30*time.Second, 10*time.Millisecond)
		leader := leaderOf(t, nodes)
		leader.Kill()
		waitServing(t, others(nodes, leader)...)
		leader.start(t)
		waitServing(t, leader)
	}
	cancel()
	workers.Wait()
	a.verify(t, clients)
	for _, n := range nodes {
		n.Kill()
	}
	for _, n := range nodes {
		n.start(t)
	}
	waitServing(t, nodes...)
	a.verify(t, clients)
}

func (a *acknowledged) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.locks)
}

// verify finds every acknowledged lock through every node, and no fencing token given twice.
func (a *acknowledged) verify(t *testing.T, clients []*redis.Client) {
	t.Helper()
	ctx := context.Background()
	var keys []string
	for key := range a.locks {
		keys = append(keys, key)
	}
	require.NotEmpty(t, keys)
	for _, c := range clients {
		values, err := c.MGet(ctx, keys...).Result()
		require.NoError(t, err)
		for i, key := range keys {
			require.Equal(t, a.locks[key], values[i], "%s was acknowledged", key)
		}
		ttl, err := c.PTTL(ctx, keys[0]).Result()
		require.NoError(t, err)
		require.Greater(t, ttl, 50*time.Minute)
	}
	for fence, times := range a.fence {
		require.Equal(t, 1, times, "fencing token %d was given out more than once", fence)
	}
}

// TestOrderlyStopHandsOver: SIGTERM to the leader makes another node lead before
// the process ends, and it ends with status 0.
func TestOrderlyStopHandsOver(t *testing.T) {
	nodes := startNodes(t, build(t), 3)
	old := leaderOf(t, nodes)
	c := client(t, old)
	require.NoError(t, c.Set(context.Background(), "lock", "token", time.Hour).Err())
	old.stop(t)
	require.Zero(t, old.ExitCode(), "%s", old.Output())
	require.Contains(t, old.Output(), "msg=stopped")
	for _, n := range others(nodes, old) {
		value, err := client(t, n).Get(context.Background(), "lock").Result()
		require.NoError(t, err, "the leadership was handed over before %s ended", old.name)
		require.Equal(t, "token", value)
	}
	require.NotEqual(t, old.name, leaderOf(t, others(nodes, old)).name)
}

// TestFailingDiskIsNoLostConnection: a node whose disk fails tells its clients
// what it knows of their commands before it ends, and the others go on.
func TestFailingDiskIsNoLostConnection(t *testing.T) {
	nodes := startNodes(t, build(t), 3, "--debug")
	failing := leaderOf(t, nodes)
	var incremented *redis.IntCmd
	_, err := client(t, failing).Pipelined(t.Context(), func(p redis.Pipeliner) error {
		require.NoError(t, p.Do(t.Context(), "DEBUG", "DISK", "ERROR").Err())
		incremented = p.Incr(t.Context(), "n")
		return nil
	})
	require.Equal(t, err, incremented.Err())
	// An entry of the node's own, as for a comparison of states, may meet the failing disk before the command does.
	require.Regexp(t, "^(UNCERTAIN|CLUSTERDOWN .*, the command was not applied$)", err)
	unapplied := strings.HasPrefix(err.Error(), "CLUSTERDOWN")
	<-failing.Done()
	require.NotZero(t, failing.ExitCode())
	require.Contains(t, failing.Output(), "disk failed")
	for i, n := range others(nodes, failing) {
		now, err := client(t, n).Incr(t.Context(), "n").Result()
		require.NoError(t, err)
		done := int64(i + 1)
		require.True(t, now == done || now == done+1 && !unapplied, now)
	}
}

// TestDiskFailsAtAnElection: the first that a failing disk loses is the term. Raft
// panics then; the node ends in its own way all the same.
func TestDiskFailsAtAnElection(t *testing.T) {
	nodes := startNodes(t, build(t), 3, "--debug")
	leader := leaderOf(t, nodes)
	failing := others(nodes, leader)[0]
	require.NoError(t, client(t, failing).Do(t.Context(), "DEBUG", "DISK", "ERROR").Err())
	leader.Kill() // whether it votes or is voted for, the next term is the first that it stores
	<-failing.Done()
	require.Equal(t, 1, failing.ExitCode(), failing.Output())
	require.NotContains(t, failing.Output(), "panic")
	require.Contains(t, failing.Output(), "disk failed")
}

// TestOrderlyStopIsNoError: nodes that are stopped, one after the other or all at
// once, under load, log nothing at the level of errors: neither they nor those that stay.
func TestOrderlyStopIsNoError(t *testing.T) {
	exe := build(t)
	for _, atOnce := range []bool{false, true} {
		t.Run(fmt.Sprintf("atOnce=%t", atOnce), func(t *testing.T) {
			nodes := startNodes(t, exe, 3)
			ctx, cancel := context.WithCancel(t.Context())
			var clients sync.WaitGroup
			for _, n := range nodes {
				c := client(t, n)
				clients.Go(func() {
					for ctx.Err() == nil {
						_ = c.Incr(ctx, "n")
					}
				})
			}
			leader := leaderOf(t, nodes)
			var stops sync.WaitGroup
			for _, n := range append([]*node{leader}, others(nodes, leader)...) {
				stops.Go(func() { n.stop(t) })
				if !atOnce {
					stops.Wait()
				}
			}
			stops.Wait()
			cancel()
			clients.Wait()
			for _, n := range nodes {
				require.NotContains(t, n.Output(), "level=ERROR", n.name)
				require.Zero(t, n.ExitCode(), n.name)
			}
		})
	}
}

// listenForNotices is the service manager's end: it returns the next notice of the process.
func listenForNotices(t *testing.T) (path string, next func() string) {
	dir, err := os.MkdirTemp("", "notify") // short: a socket's path has at most 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return path, func() string {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
		b := make([]byte, 256)
		n, err := conn.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
}

// TestServiceManagerIsTold: a unit of Type=notify starts and stops with the node. The node has
// executed itself by then (timerslack_linux.go), and nothing is told before its ports are open.
func TestServiceManagerIsTold(t *testing.T) {
	path, next := listenForNotices(t)
	t.Setenv("NOTIFY_SOCKET", path)
	addrs := freeAddrs(t, 2)
	n := newNode(t, build(t), "n1", addrs[0], "serve", "--addr", addrs[0], "--peer-addr", addrs[1],
		"--data-dir", t.TempDir())
	n.start(t)
	require.Equal(t, "READY=1", next())
	conn, err := net.Dial("tcp", addrs[0])
	require.NoError(t, err)
	_ = conn.Close()
	n.stop(t)
	require.Equal(t, "STOPPING=1", next())
	require.Zero(t, n.ExitCode())
}

func TestNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	require.NoError(t, notify("READY=1"), "nobody listens")
	path, next := listenForNotices(t)
	t.Setenv("NOTIFY_SOCKET", path)
	require.NoError(t, notify("READY=1"))
	require.Equal(t, "READY=1", next())
	t.Setenv("NOTIFY_SOCKET", path+".gone")
	require.ErrorContains(t, notify("STOPPING=1"), "tell the service manager STOPPING=1")
}
