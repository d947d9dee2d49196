package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// behaviour makes this test binary play a server.
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
	f.specs["n1"] = []spec{{"n1", func(...string) *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), behaviour+"="+behave)
		return cmd
	}}}
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
	pid := f.find("n1", "n1").cmd.Process.Pid
	require.Eventually(t, func() bool { return state(t, pid) == "T" }, 5*time.Second, time.Millisecond)
	require.NoError(t, f.Resume("n1"))
	require.Eventually(t, func() bool { return state(t, pid) != "T" }, 5*time.Second, time.Millisecond)
	require.True(t, f.Running("n1"))
}

// state is a process's state as the kernel names it: T is stopped.
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

func waitFor(f *Fleet, member string) {
	if p := f.find(member, member); p != nil {
		<-p.done
	}
}
