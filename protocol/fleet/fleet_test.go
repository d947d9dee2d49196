//go:build unix

package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newProcess(t *testing.T) *Process {
	t.Helper()
	p := &Process{Name: "child", Log: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(p.Kill)
	return p
}

func shell(script string) *exec.Cmd { return exec.Command("sh", "-c", script) }

func TestProcessIsStartedAgain(t *testing.T) {
	p := newProcess(t)
	ends := 0
	p.AtEnd = func() { ends++ }
	require.False(t, p.Running())
	require.Zero(t, p.PID())
	require.Empty(t, p.Output())
	p.Kill()
	require.NoError(t, p.Stop(time.Minute), "it never ran")

	require.NoError(t, p.Start(shell("echo one; echo two >&2; exit 7")))
	<-p.Done()
	require.Equal(t, 1, ends)
	require.False(t, p.Running())
	require.Equal(t, "one\ntwo\n", p.Output())
	require.Equal(t, "two", p.Tail(1))
	require.Equal(t, "exit status 7", p.ExitState())
	require.Equal(t, 7, p.ExitCode())
	require.NoError(t, p.Signal(syscall.SIGTERM), "it has ended")

	first := p.PID()
	require.NoError(t, p.Start(shell("exec sleep 1000")))
	require.True(t, p.Running())
	require.NotEqual(t, first, p.PID())
	require.Empty(t, p.Output(), "of this start")
	p.Kill()
	require.Equal(t, "signal: killed", p.ExitState())
	require.Equal(t, 2, ends)

	require.NoError(t, p.Start(shell("exec sleep 1000")))
	require.NoError(t, p.Stop(time.Minute))
	require.Equal(t, "signal: terminated", p.ExitState())

	require.ErrorContains(t, p.Start(exec.Command("no-such-program")), "start child: ")
	p.Log = filepath.Join(p.Log, "below a file")
	require.ErrorContains(t, p.Start(shell("")), "open log of child: ")
}

// TestOutputHasItsOwnPlace: what the command says about its output is heeded.
func TestOutputHasItsOwnPlace(t *testing.T) {
	p := newProcess(t)
	cmd := shell("echo one; echo two >&2")
	var out bytes.Buffer
	cmd.Stdout = &out
	require.NoError(t, p.Start(cmd))
	<-p.Done()
	require.Equal(t, "one\n", out.String())
	require.Equal(t, "two\n", p.Output())
}

func TestStopKillsWhatDoesNotHeedIt(t *testing.T) {
	p := newProcess(t)
	require.NoError(t, p.Start(shell("trap '' TERM; echo ready; while :; do sleep 1000; done")))
	require.NoError(t, Await(t.Context(), func(context.Context) error {
		if p.Output() == "" {
			return errors.New("the signal is not caught yet")
		}
		return nil
	}, p))
	require.EqualError(t, p.Stop(10*time.Millisecond), "child did not end within 10ms")
	require.Equal(t, "signal: killed", p.ExitState())
}

func TestAwait(t *testing.T) {
	asked := 0
	soon := func(context.Context) error {
		if asked++; asked < 3 {
			return errors.New("soon")
		}
		return nil
	}
	require.NoError(t, Await(t.Context(), soon))
	require.Equal(t, 3, asked)

	never := func(context.Context) error { return errors.New("no luck") }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Await(ctx, never)
	require.EqualError(t, err, "no luck (context canceled)")
	require.ErrorIs(t, err, context.Canceled)

	p := newProcess(t)
	require.NoError(t, p.Start(shell("echo out of luck; exit 3")))
	require.EqualError(t, Await(t.Context(), never, p), "child did not start: exit status 3\nout of luck")
}

func TestBuild(t *testing.T) {
	require.ErrorContains(t, Build(t.Context(), t.TempDir(), "program", "./nowhere"), "build program: exit status 1\n")
}

// TestReserve: a program that is started later can listen where nothing answers until then, and nobody else gets the
// address by chance.
func TestReserve(t *testing.T) {
	const reserved, others = 500, 5000
	addrs, err := Reserve(reserved)
	require.NoError(t, err)
	taken := map[string]bool{}
	for _, addr := range addrs {
		require.False(t, taken[addr], "given twice")
		taken[addr] = true
	}
	_, err = net.Dial("tcp", addrs[0])
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	for range 2 {
		l, err := net.Listen("tcp", addrs[0])
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	if runtime.GOOS != "linux" {
		t.Skip("reserved for now only")
	}
	for i := range others {
		l, err := net.Listen("tcp", []string{"127.0.0.1:0", ":0"}[i%2])
		require.NoError(t, err)
		port := l.Addr().(*net.TCPAddr).Port
		require.False(t, taken[fmt.Sprintf("127.0.0.1:%d", port)], "another got port %d", port)
		require.NoError(t, l.Close())
	}
}

// TestRelayEndsBothDirections: the server sees the end of a client whose other direction could go on.
func TestRelayEndsBothDirections(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	r, err := NewRelay(func(context.Context) (net.Conn, Carry, error) {
		out, err := net.Dial("tcp", server.Addr().String())
		return out, func(to, from net.Conn) error { _, _ = io.Copy(to, from); return io.EOF }, err
	})
	require.NoError(t, err)
	client, err := net.Dial("tcp", r.Addr())
	require.NoError(t, err)
	accepted, err := server.Accept()
	require.NoError(t, err)
	defer accepted.Close()
	require.NoError(t, client.Close())
	require.NoError(t, accepted.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = accepted.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, r.Close())
}
