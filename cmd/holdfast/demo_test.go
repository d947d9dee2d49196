package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server"
)

// demoRun is a `holdfast demo` process with its screen.
type demoRun struct {
	*program
	port  int
	stdin io.Writer
}

func startDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	d := &demoRun{port: freeDemoPort(t)}
	cmd := exec.Command(build(t), append([]string{"demo", "--port", strconv.Itoa(d.port)}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	var err error
	d.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	d.program = running(t, cmd)
	d.await(t, "Ctrl-C stops everything")
	return d
}

// freeDemoPort finds a port that a demo can have, with the others that it needs.
func freeDemoPort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port, err := strconv.Atoi(portOf(freeAddrs(t, 1)[0]))
		require.NoError(t, err)
		if port+httpPortOffset+demoNodes > 65535 {
			continue
		}
		taken := func(c server.Config) bool { return checkDemoNode(c) != nil }
		c := server.DefaultConfig()
		if !slices.ContainsFunc(demoConfigs(c, &demoOwn{port: port}), taken) {
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

// await waits until the screen shows pattern, and returns what its groups matched.
func (d *demoRun) await(t *testing.T, pattern string) []string {
	t.Helper()
	var match []string
	require.Eventually(t, func() bool {
		match = regexp.MustCompile(pattern).FindStringSubmatch(d.stdout.String())
		return match != nil
	}, 30*time.Second, 5*time.Millisecond, "the demo did not say %q:\n%s%s", pattern, &d.stdout, &d.stderr)
	return match
}

func (d *demoRun) kill(t *testing.T, pid string) {
	t.Helper()
	number, err := strconv.Atoi(pid)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(number, syscall.SIGKILL))
}

// TestDemoTellsWhatHappened: the demo's screen shows who leads, what became of a node that
// was killed, and nothing of raft; Enter brings nodes back.
func TestDemoTellsWhatHappened(t *testing.T) {
	d := startDemo(t)
	leader := d.await(t, `(n\d)  127\.0\.0\.1:\d+  pid (\d+)  leads`)
	follower := d.await(t, `(n\d)  127\.0\.0\.1:\d+  pid (\d+)  follows`)
	folder := d.await(t, `Data and logs are in (.*)\.\n`)[1]
	require.FileExists(t, filepath.Join(folder, "n1.log"))
	line := strings.Fields(d.await(t, `redis-cli -p (\d+ LOCK\.ACQUIRE .*)\n`)[1])
	fence, err := ask(t.Context(), "127.0.0.1:"+line[0], line[1:]...)
	require.NoError(t, err)
	page, err := http.Get(d.await(t, `http://127\.0\.0\.1:\d+/`)[0])
	require.NoError(t, err)
	require.NoError(t, page.Body.Close())
	require.Equal(t, http.StatusOK, page.StatusCode)
	require.Positive(t, fence.Num, fence)

	d.kill(t, follower[2])
	d.await(t, follower[1]+` is gone \(signal: killed\), `+leader[1]+` still leads\.`)
	fmt.Fprintln(d.stdin)
	again := d.await(t, follower[1]+` is back as pid (\d+) after \d+\.\d+ s, and follows\.`)

	d.kill(t, leader[2])
	second := d.await(t, leader[1]+` is gone \(signal: killed\), (n\d) leads after \d+\.\d+ s\.`)
	require.NotEqual(t, leader[1], second[1])
	d.kill(t, again[1])
	d.await(t, follower[1]+
		` is gone \(signal: killed\)\. 1 of 3 nodes are left: no lock can be taken until a majority is back\.`)
	fmt.Fprintln(d.stdin)
	d.await(t, leader[1]+` is back`)
	fmt.Fprintln(d.stdin)
	d.await(t, `All nodes run\.`)

	require.NoError(t, d.Signal(syscall.SIGTERM))
	<-d.Done()
	require.Zero(t, d.ExitCode())
	require.NotContains(t, d.stdout.String(), "level=")
	require.Empty(t, d.stderr.String())
	require.NoDirExists(t, folder)
}

// TestDemoWithoutATerminal: a killed node of a demo without a terminal comes back by itself.
func TestDemoWithoutATerminal(t *testing.T) {
	d := startDemo(t)
	require.NoError(t, d.stdin.(io.Closer).Close())
	follower := d.await(t, `(n\d)  127\.0\.0\.1:\d+  pid (\d+)  follows`)
	d.kill(t, follower[2])
	d.await(t, follower[1]+` is gone \(signal: killed\)`)
	d.await(t, follower[1]+` is back as pid (\d+) after`)
	require.NoError(t, d.Signal(syscall.SIGTERM))
	<-d.Done()
}

// TestDemoHeedsItsFlags: what the demo takes reaches its nodes.
func TestDemoHeedsItsFlags(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	d := startDemo(t, "--password", "open sesame", "--debug", "--max-clients", "77", "--data-dir", dir, "--log-format",
		"json")
	ctx := context.Background()
	for i := range demoNodes {
		addr := fmt.Sprintf("127.0.0.1:%d", d.port+i)
		stranger := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
		require.ErrorContains(t, stranger.Get(ctx, "lock").Err(), "NOAUTH")
		require.NoError(t, stranger.Close())

		c := redis.NewClient(&redis.Options{Addr: addr, Password: "open sesame", MaxRetries: -1})
		require.ErrorIs(t, c.Get(ctx, "lock").Err(), redis.Nil)
		require.NoError(t, c.Do(ctx, "DEBUG", "CLOCK", "OK").Err())
		settings, err := c.ConfigGet(ctx, "maxclients").Result()
		require.NoError(t, err)
		require.Equal(t, "77", settings["maxclients"])
		require.NoError(t, c.Close())
	}
	require.NotContains(t, d.stdout.String(), "open sesame")
	require.Contains(t, d.stdout.String(), "REDISCLI_AUTH")
	require.NoError(t, d.Signal(syscall.SIGTERM))
	<-d.Done()
	log := protocoltest.ReadFile(t, filepath.Join(dir, "n1.log"))
	require.Contains(t, log, `"msg":"stopped"`)
	require.DirExists(t, filepath.Join(dir, "n1"))
}

// other is a value of o that is not its default.
func (o option) other() string {
	switch t := o.value.(type) {
	case *bool:
		return strconv.FormatBool(!*t)
	case *int:
		return strconv.Itoa(*t + 1)
	case *uint64:
		return strconv.FormatUint(*t+1, 10)
	case *time.Duration:
		return (*t + time.Second).String()
	default:
		return "other"
	}
}

// TestEveryFlagOfTheDemoHasItsEffect: whether by flag or by environment, the demo hands a setting to
// its nodes or refuses it, and lists only what it hands on, but for flags of tests.
func TestEveryFlagOfTheDemoHasItsEffect(t *testing.T) {
	var help strings.Builder
	_, err := demoFlags(newDemoOwn()).parse([]string{"--help"}, &help)
	require.Error(t, err)
	defaults := server.DefaultConfig()
	var refused []string
	for _, o := range options(&defaults) {
		if o.heading != "" {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			taken := func(c server.Config, err error) bool {
				if err != nil {
					require.ErrorContains(t, err, "demo")
					return false
				}
				require.Contains(t, nodeEnvironment(c), o.env()+"="+o.other())
				return true
			}
			byFlag := taken(demoFlags(newDemoOwn()).parse([]string{"--" + o.name + "=" + o.other()}, nil))
			t.Setenv(o.env(), o.other())
			byEnvironment := taken(demoFlags(newDemoOwn()).parse(nil, nil))
			require.Equal(t, byFlag, byEnvironment)
			require.Equal(t, byFlag && !o.debug, strings.Contains(help.String(), "--"+o.name+" "))
			if !byFlag {
				refused = append(refused, o.name)
			}
		})
	}
	require.Subset(t, refused, []string{
		"join", "non-voter", "peer-advertise-addr", "audit-log-bytes", "audit-locks", "tls-auth-clients-user",
	}, "without an effect there")
}

// TestNodesOfTheDemoShareTheMachine: together they take no more memory than one node on a machine of its own,
// unless the user says what each may take.
func TestNodesOfTheDemoShareTheMachine(t *testing.T) {
	for _, test := range []struct{ args, want []string }{
		{nil, []string{"HOLDFAST_MAX_MEMORY=13%", "HOLDFAST_MAX_MEMORY_CLIENTS=3%"}},
		{[]string{"--max-memory", "1gb"}, []string{"HOLDFAST_MAX_MEMORY=1gb", "HOLDFAST_MAX_MEMORY_CLIENTS=3%"}},
		{
			[]string{"--max-memory", server.DefaultMaxMemory, "--max-memory-clients", "5%"},
			[]string{"HOLDFAST_MAX_MEMORY_CLIENTS=5%"},
		},
	} {
		c, err := demoFlags(newDemoOwn()).parse(test.args, nil)
		require.NoError(t, err)
		var got []string
		for _, e := range nodeEnvironment(c) {
			if strings.HasPrefix(e, "HOLDFAST_MAX_MEMORY") {
				got = append(got, e)
			}
		}
		require.Equal(t, test.want, got, "%q", test.args)
	}
}

// TestNodesOfTheDemoGetNothingElse: a variable that a flag overrides does not reach the nodes beside it.
func TestNodesOfTheDemoGetNothingElse(t *testing.T) {
	t.Setenv("HOLDFAST_PASSWORD", "from-env")
	t.Setenv("HOLDFAST_MAX_CLIENTS", "7")
	c, err := demoFlags(newDemoOwn()).parse([]string{"--password", "", "--max-clients", "8"}, nil)
	require.NoError(t, err)
	var got []string
	for _, e := range nodeEnvironment(c) {
		if strings.HasPrefix(e, "HOLDFAST_PASSWORD=") || strings.HasPrefix(e, "HOLDFAST_MAX_CLIENTS=") {
			got = append(got, e)
		}
	}
	require.Equal(t, []string{"HOLDFAST_MAX_CLIENTS=8"}, got)
}

// TestDemoMovesItsPage: another program on the port of the page is no reason to start nothing.
func TestDemoMovesItsPage(t *testing.T) {
	port := freeDemoPort(t)
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+httpPortOffset+1))
	require.NoError(t, err)
	defer taken.Close()
	c := server.DefaultConfig()
	c.DataDir = t.TempDir()
	d, err := newDemo(c, demoOwn{port: port}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("127.0.0.1:%d", port+httpPortOffset), d.nodes[0].http)
	require.NotEqual(t, taken.Addr().String(), d.nodes[1].http)
	require.NotContains(t, []string{d.nodes[0].http, d.nodes[2].http}, d.nodes[1].http)
	require.Contains(t, d.nodes[1].env, "HOLDFAST_HTTP_ADDR="+d.nodes[1].http)
}

// TestDemoTellsOfTakenPorts: before it starts anything.
func TestDemoTellsOfTakenPorts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	c := server.DefaultConfig()
	for _, change := range []func(*server.Config){
		func(c *server.Config) { c.Addr, c.PeerAddr = taken.Addr().String(), "127.0.0.1:0" },
		func(c *server.Config) { c.Addr, c.PeerAddr = "127.0.0.1:0", taken.Addr().String() },
	} {
		change(&c)
		require.ErrorContains(t, checkDemoNode(c), "--port moves the demo")
	}
}
