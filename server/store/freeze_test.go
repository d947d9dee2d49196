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

// freezeEnv makes this test's program the one that is frozen.
const freezeEnv = "HOLDFAST_TEST_FREEZE"

const (
	freezeLimit = 800 * time.Millisecond
	freezeFor   = 2 * freezeLimit
)

// The partition tests found this: SIGSTOP in the middle of an fsync, for longer
// than the limit, and the node ended itself when it went on.
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

// appendSlowly makes one append that is not over when the process goes on, and
// takes half of the limit then.
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
	// By then the append is surely under way.
	time.AfterFunc(freezeLimit/4, func() { fmt.Println("appending") })
	require.NoError(t, s.Log.StoreLog(&raft.Log{Index: 2, Term: 1}))
	fmt.Println("appended")
}
