//go:build linux

package store

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// TestFolderInUseIsLeftClosed: an Open that finds the folder locked keeps no descriptor.
func TestFolderInUseIsLeftClosed(t *testing.T) {
	c := config(memoryDir(t))
	mustOpen(t, c)
	requireRefused(t, c, "in use by another process")
	held := 0
	descriptors, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, d := range descriptors {
		path, _ := os.Readlink(filepath.Join("/proc/self/fd", d.Name()))
		if path == filepath.Join(c.DataDir, lockName) {
			held++
		}
	}
	require.Equal(t, 1, held)
}

// limitEnv marks the process that has no free descriptors.
const limitEnv = "HOLDFAST_TEST_NOFILE"

// TestAppendsWithoutFreeDescriptors: the log appends several segments while the process has no free descriptor.
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
	c := config(dir)
	c.Hooks.OnFault = func(op Op, err error) { t.Errorf("%s: %v", op, err) }
	s := mustOpen(t, c)
	store := func(from, to uint64) {
		for i := from; i <= to; i++ {
			require.NoError(t, s.Log.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 3<<20)}))
		}
	}
	store(1, 6) // into a second segment, which was prepared while there were descriptors
	var taken []*os.File
	for {
		f, err := os.Open("/dev/null")
		if err != nil {
			require.True(t, errors.Is(err, syscall.EMFILE), err)
			break
		}
		taken = append(taken, f)
	}
	store(7, 18)
	for _, f := range taken {
		require.NoError(t, f.Close())
	}
	require.NoError(t, s.Close())
}
