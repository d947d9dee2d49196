//go:build unix

package frontend

import (
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// maxIdleBytes bounds the memory of an idle connection, including its goroutine's stack.
const maxIdleBytes = 12 << 10

// TestIdleConnections shows that an idle connection that has run a few commands uses less than maxIdleBytes.
func TestIdleConnections(t *testing.T) {
	protocoltest.SkipShort(t, "opens a thousand sockets")
	heap, stacks := idleBytes(t, 1000)
	t.Logf("an idle connection costs %d bytes of heap and %d of stack", heap, stacks)
	require.Less(t, heap+stacks, maxIdleBytes)
}

// BenchmarkIdleConnections reports the memory of each of 10,000 idle connections, or of as many as may be open.
func BenchmarkIdleConnections(b *testing.B) {
	var files syscall.Rlimit
	require.NoError(b, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	n := min(10_000, (int(files.Cur)-100)/2)
	for b.Loop() {
		heap, stacks := idleBytes(b, n)
		b.ReportMetric(float64(n), "conns")
		b.ReportMetric(float64(heap), "heap-B/conn")
		b.ReportMetric(float64(stacks), "stack-B/conn")
	}
}

// idleBytes opens n connections, and returns the bytes of heap and stack of each. The clients are bare sockets, which
// use no heap.
func idleBytes(t testing.TB, n int) (heap, stacks int) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := startOn(t, Config{Limits: Limits{MaxClients: n}}, newCluster(), ln)
	port := ln.Addr().(*net.TCPAddr).Port
	hello := append(append(command("HELLO", "3", "SETNAME", "worker"), command("SET", "k", "v", "PX", "30000")...),
		command("GET", "k")...)
	heap0, stacks0 := memory()
	sockets := make([]int, n)
	buf := make([]byte, 4096)
	for i := range sockets {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		require.NoError(t, err)
		defer syscall.Close(fd)
		require.NoError(t, syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}))
		_, err = syscall.Write(fd, hello)
		require.NoError(t, err)
		_, err = syscall.Read(fd, buf)
		require.NoError(t, err)
		sockets[i] = fd
	}
	require.Eventually(t, func() bool { return s.clientCount() == n }, 10*time.Second, time.Millisecond)
	heap1, stacks1 := memory()
	return (heap1 - heap0) / n, (stacks1 - stacks0) / n
}

// memory returns the bytes of heap and stack in use, after collections have emptied the pools and shrunk the stacks.
func memory() (heap, stacks int) {
	for range 4 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc), int(m.StackInuse)
}
