//go:build unix

package store_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/store"
)

// freezeEnv marks the process that is frozen.
const freezeEnv = "HOLDFAST_TEST_FREEZE"

const (
	freezeLimit = 800 * time.Millisecond
	freezeFor   = 2 * freezeLimit
)

// TestWatchdogDoesNotCountTheTimeInWhichTheProcessIsFrozen: a process is stopped by SIGSTOP in the middle of an append,
// for longer than the limit. When it continues, the append does not count as stalled, so the node does not end.
func TestWatchdogDoesNotCountTheTimeInWhichTheProcessIsFrozen(t *testing.T) {
	protocoltest.SkipShort(t, "a process")
	if os.Getenv(freezeEnv) != "" {
		appendSlowly(t)
		return
	}
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), freezeEnv+"=1")
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer func() { _ = child.Process.Kill() }()
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "appending", lines.Text())
	require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
	<-time.After(freezeFor)
	require.NoError(t, child.Process.Signal(syscall.SIGCONT))
	require.True(t, lines.Scan())
	require.Equal(t, "appended", lines.Text())
}

// appendSlowly makes one append that has not ended when the process continues, and then takes half of the limit.
func appendSlowly(t *testing.T) {
	faults := store.NewFaults()
	s := open(t, store.Hooks{
		DiskStallLimit: freezeLimit,
		OnStall: func(op store.Op, elapsed time.Duration) {
			fmt.Printf("%s stalled for %s\n", op, elapsed)
		},
		Faults: faults,
	})
	faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: freezeFor + freezeLimit/2})
	// By then the append has begun.
	time.AfterFunc(freezeLimit/4, func() { fmt.Println("appending") })
	require.NoError(t, s.Log.StoreLog(&raft.Log{Index: 2, Term: 1}))
	fmt.Println("appended")
}
