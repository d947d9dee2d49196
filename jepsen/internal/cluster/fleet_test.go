package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/network"
)

// behaviour is the environment variable that makes this test binary act as a server.
const behaviour = "JEPSEN_TEST_BEHAVIOUR"

func TestMain(m *testing.M) {
	switch os.Getenv(behaviour) {
	case "":
		os.Exit(m.Run())
	case "serve":
		awaitTerm()
	case "hog":
		hog()
		awaitTerm()
	case "panic":
		panic("out of luck")
	}
}

func awaitTerm() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	<-c
}

func newTestFleet(t *testing.T, behave string) *Fleet {
	t.Helper()
	f := newFleet(t.TempDir())
	self, err := os.Executable()
	require.NoError(t, err)
	f.add("n1", "n1", func(...string) *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), behaviour+"="+behave)
		return cmd
	})
	t.Cleanup(func() { require.NoError(t, f.close()) })
	return f
}

func TestKilledStoppedAndStartedAgainIsNoFinding(t *testing.T) {
	f := newTestFleet(t, "serve")
	for _, end := range []func(string) error{f.Kill, f.Stop} {
		require.NoError(t, f.Start("n1"))
		require.NoError(t, f.Start("n1"), "starting what runs does nothing")
		require.True(t, f.Running("n1"))
		require.NoError(t, end("n1"))
		require.False(t, f.Running("n1"))
	}
	require.Empty(t, f.Findings())
}

func TestFrozenGoesOn(t *testing.T) {
	f := newTestFleet(t, "serve")
	require.NoError(t, f.Start("n1"))
	require.NoError(t, f.Pause("n1"))
	pid := f.PIDs("n1")[0]
	require.Eventually(t, func() bool { return state(t, pid) == "T" }, 5*time.Second, time.Millisecond)
	require.NoError(t, f.Resume("n1"))
	require.Eventually(t, func() bool { return state(t, pid) != "T" }, 5*time.Second, time.Millisecond)
	require.True(t, f.Running("n1"))
}

// state is a process's state in the kernel's letters; T is stopped.
func state(t *testing.T, pid int) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip("no /proc here")
	}
	return strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))[0]
}

func TestEndingByItselfIsAFindingUnlessExcused(t *testing.T) {
	f := newTestFleet(t, "panic")
	over := f.Excuse("n1")
	require.NoError(t, f.Start("n1"))
	waitFor(f, "n1")
	require.Empty(t, f.Findings())
	over()

	require.NoError(t, f.Start("n1"))
	waitFor(f, "n1")
	require.Len(t, f.Findings(), 1)
	require.Contains(t, f.Findings()[0], "n1 ended by itself")
	require.Contains(t, f.Findings()[0], "panic: out of luck")
}

func waitFor(f *Fleet, member string) { <-f.members[member][0].Done() }

// hogged is the size of a hog's allocation in bytes.
const hogged = 128 << 20

// hog allocates memory, frees it, and prints a line.
func hog() {
	b := bytes.Repeat([]byte{1}, hogged)
	runtime.KeepAlive(b)
	b = nil
	debug.FreeOSMemory()
	fmt.Println("given back")
}

// TestWatchSeesPeaks: peaks between two polls count.
func TestWatchSeesPeaks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /proc here")
	}
	f := newTestFleet(t, "hog")
	require.NoError(t, f.Start("n1"))
	require.Eventually(t, func() bool {
		log, _ := os.ReadFile(f.LogFile("n1"))
		return bytes.Contains(log, []byte("given back"))
	}, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	u := Watch(ctx, []string{"n1"}, f, func(string) string { return t.TempDir() }, func() int64 { return 42 })["n1"]
	require.Greater(t, u.Resident, int64(hogged))
	require.EqualValues(t, 42, u.ResidentAt)
	require.Positive(t, u.Files)
}

func TestLimitsArePassedToNodes(t *testing.T) {
	n, err := network.NewProxies(1, "client", "peer")
	require.NoError(t, err)
	defer n.Close()
	c := Config{Net: n, Dir: t.TempDir(), Nodes: 1, DataDir: func(m string) string { return m }, Binary: "holdfast"}
	c.Limits = Limits{MaxMemory: 100 << 20, MaxMemoryClients: 10 << 20, AddressSpace: 4 << 30}
	h := NewHoldfast(c)
	defer h.Close()
	cmd := h.fleet.members["n1"][0].command()
	require.Subset(t, cmd.Env, []string{"HOLDFAST_MAX_MEMORY=104857600", "HOLDFAST_MAX_MEMORY_CLIENTS=10485760"})
	require.Contains(t, cmd.Args[2], "ulimit -v 4194304 ")
	require.Contains(t, cmd.Args[2], "ulimit -n 1024 ")
}

// TestTwinAtAPlaceOfTheInitialCluster: a second process of n1, at the place that n3 left, gets flags that list each
// address once; serve refuses others.
func TestTwinAtAPlaceOfTheInitialCluster(t *testing.T) {
	n, err := network.NewProxies(3, "client", "peer")
	require.NoError(t, err)
	defer n.Close()
	h := NewHoldfast(Config{Net: n, Dir: t.TempDir(), Nodes: 3, DataDir: func(m string) string { return m }})
	defer h.Close()
	h.set("n3", func(p *place) { p.twin = "n1" })
	first, second, third := n.Listen("n1", "peer"), n.Listen("n2", "peer"), n.Listen("n3", "peer")
	require.Contains(t, h.args("n3"), "n1="+third+",n2="+second+",n3="+first)
	require.Contains(t, h.args("n2"), "n1="+first+",n2="+second+",n3="+third)
}

// TestResidentFollowsTheFlags: the limit depends on the flags and on the number of nodes.
func TestResidentFollowsTheFlags(t *testing.T) {
	l := Limits{MaxMemory: 100 << 20, MaxMemoryClients: 10 << 20}
	require.EqualValues(t, 150+10+256+400, l.Resident(3)>>20)
	require.EqualValues(t, 150+10+256+800, l.Resident(5)>>20)
}
