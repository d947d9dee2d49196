//go:build linux

package store

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// withoutLocks calls do on a thread for which the system has no locks of files, as on some network file systems.
func withoutLocks(t *testing.T, do func()) {
	const noNewPrivileges, setFilter, filterMode = 38, 22, 2 // of prctl
	load := syscall.SockFilter{Code: syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS}
	isLock := syscall.SockFilter{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, Jf: 1, K: syscall.SYS_FLOCK}
	fail := syscall.SockFilter{Code: syscall.BPF_RET | syscall.BPF_K, K: 0x00050000 | uint32(syscall.ENOLCK)}
	allow := syscall.SockFilter{Code: syscall.BPF_RET | syscall.BPF_K, K: 0x7fff0000}
	filter := []syscall.SockFilter{load, isLock, fail, allow}
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	possible, done := false, make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		_, _, no := syscall.Syscall6(syscall.SYS_PRCTL, noNewPrivileges, 1, 0, 0, 0, 0)
		if no == 0 {
			_, _, no = syscall.Syscall(syscall.SYS_PRCTL, setFilter, filterMode, uintptr(unsafe.Pointer(&program)))
		}
		if possible = no == 0; possible {
			do()
		}
	}()
	<-done
	if !possible {
		t.Skip("the system filters no calls")
	}
}

// TestFolderOnAFileSystemWithoutLocks is not used.
func TestFolderOnAFileSystemWithoutLocks(t *testing.T) {
	dir := memoryDir(t)
	withoutLocks(t, func() {
		_, err := lockDir(dir)
		if !errors.Is(err, syscall.ENOLCK) {
			t.Errorf("the folder is locked: %v", err)
		}
	})
	lock, err := lockDir(dir)
	require.NoError(t, err)
	require.NoError(t, lock.Close())
}

// TestFolderInUseIsLeftClosed: who finds it locked keeps no descriptor.
func TestFolderInUseIsLeftClosed(t *testing.T) {
	c := config(memoryDir(t), KindBolt)
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
