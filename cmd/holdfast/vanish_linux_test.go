package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// away is a machine of its own for clients: a network namespace behind a link.
type away struct {
	t    *testing.T
	name string
	addr string // the host's, as the machine sees it
}

func newAway(t *testing.T) away {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil || os.Getuid() != 0 {
		t.Skip("needs root, and ip of iproute2, for a network namespace")
	}
	pid := os.Getpid()
	a := away{t: t, name: fmt.Sprintf("hf%d", pid)} // also the host's end of the link
	net := netip.AddrFrom4([4]byte{10, 78, byte(pid), byte(pid>>8) << 2})
	host := net.Next()
	a.addr = host.String()
	if out, err := exec.Command("ip", "netns", "add", a.name).CombinedOutput(); err != nil {
		t.Skipf("no network namespace can be made here: %s", out)
	}
	t.Cleanup(func() { // the namespace lives as long as its processes
		_ = exec.Command("sh", "-c", `ip netns pids "$0" | xargs -r kill -9; ip netns del "$0"; ip link del "$0"`,
			a.name).Run()
	})
	if out, err := exec.Command("ip", "link", "add", a.name, "type", "veth", "peer", "name", "eth0", "netns",
		a.name).CombinedOutput(); err != nil {
		t.Skipf("no link can be made here: %s", out)
	}
	a.ip("addr", "add", a.addr+"/30", "dev", a.name)
	a.ip("link", "set", a.name, "up")
	a.ip("-n", a.name, "addr", "add", host.Next().String()+"/30", "dev", "eth0")
	a.ip("-n", a.name, "link", "set", "eth0", "up")
	return a
}

func (a away) ip(args ...string) {
	a.t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(a.t, err, "ip %v: %s", args, out)
}

// run starts a program there. It ends with the test.
func (a away) run(program string, args ...string) {
	a.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", a.name, program}, args...)...)
	require.NoError(a.t, cmd.Start())
	a.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// TestVanishedMachine: the locks of a machine that has lost its power or its network are free when their leases are
// over, not when the kernel stops to believe in the connection: with nothing under way, and with a grant under way.
func TestVanishedMachine(t *testing.T) {
	exe := build(t)
	machine := newAway(t)
	n := plan(t, exe, 1, "--insecure")[0]
	_, port, err := net.SplitHostPort(n.addr)
	require.NoError(t, err)
	n.args[slices.Index(n.args, "--addr")+1] = "0.0.0.0:" + port
	n.start(t)
	waitServing(t, n)
	do := func(words ...string) protocol.Value {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		v, err := ask(ctx, n.addr, words...)
		require.NoError(t, err)
		return v
	}
	for _, key := range []string{"idle", "granted"} {
		if key == "granted" {
			require.Equal(t, protocol.KindInteger, do("LOCK.ACQUIRE", key, "other", "PX", "600000").Kind)
		}
		machine.run(exe, "lock", key, "--server", machine.addr+":"+port, "--ttl", "2s", "--", "sleep", "900")
	}
	both := regexp.MustCompile(`(?s)lock_holds:2\r.*lock_waiters:1\r`)
	require.Eventually(t, func() bool { return both.MatchString(do("INFO", "everything").Str) }, 20*time.Second,
		20*time.Millisecond)
	machine.ip("-n", machine.name, "link", "set", "eth0", "down")
	require.Equal(t, protocol.KindInteger, do("LOCK.RELEASE", "granted", "other").Kind)
	for _, key := range []string{"idle", "granted"} {
		require.Eventually(t, func() bool { return !do("LOCK.ACQUIRE", key, "next", "PX", "600000").IsNull() }, time.Minute,
			50*time.Millisecond, key)
	}
}
