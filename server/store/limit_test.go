//go:build linux

package store

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// limitEnv makes this test's program the one that has no descriptors left.
const limitEnv = "HOLDFAST_TEST_NOFILE"

// TestAppendsWithoutFreeDescriptors: others have taken all that the process may have.
func TestAppendsWithoutFreeDescriptors(t *testing.T) {
	dir := os.Getenv(limitEnv)
	if dir == "" {
		child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		child.Env = append(os.Environ(), limitEnv+"="+memoryDir(t))
		out, err := child.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	limit := syscall.Rlimit{Cur: 128, Max: 128}
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	c := config(dir, KindWAL)
	c.Hooks.OnFault = func(op Op, err error) { t.Errorf("%s: %v", op, err) }
	s := mustOpen(t, c)
	require.NoError(t, s.Log.StoreLogs(entries(1, 1)))
	// Not before the next segment is ready: it takes the place of the first in a moment.
	require.NoError(t, s.Log.StoreLog(&raft.Log{Index: 2, Term: 1, Data: make([]byte, 7<<20)}))
	require.NoError(t, s.Log.StoreLog(&raft.Log{Index: 3, Term: 1, Data: make([]byte, 7<<20)}))
	var taken []*os.File
	for {
		f, err := os.Open("/dev/null")
		if err != nil {
			require.True(t, errors.Is(err, syscall.EMFILE), err)
			break
		}
		taken = append(taken, f)
	}
	for i := uint64(4); i < 9; i++ {
		require.NoError(t, s.Log.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 7<<20)}))
	}
	for _, f := range taken {
		require.NoError(t, f.Close())
	}
	require.NoError(t, s.Close())
}
