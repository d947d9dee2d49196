package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/cmd/internal/clienttest"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// shell is an interactive shell at a terminal.
type shell struct {
	keys   *os.File
	screen *protocoltest.Buffer
}

// atTerminal starts a shell at a terminal of its own; in its environment `holdfast` finds the nodes.
func atTerminal(t *testing.T, exe string, c *clienttest.Cluster) *shell {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer tty.Close()
	cmd := exec.Command(bash, "--norc", "--noprofile", "--noediting", "-i")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.Env = append(os.Environ(), "PS1=prompt ", "HOLDFAST_SERVER="+c.Addrs()[0], "holdfast="+exe)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	s := &shell{keys: keys, screen: new(protocoltest.Buffer)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buffer := make([]byte, 4096)
		for {
			n, err := keys.Read(buffer)
			_, _ = s.screen.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = keys.Close()
		if t.Failed() {
			t.Logf("the screen:\n%s", s.screen)
		}
	})
	return s
}

func (s *shell) enter(t *testing.T, keys string) {
	t.Helper()
	_, err := s.keys.WriteString(keys)
	require.NoError(t, err)
}

// shows waits until text is on the screen for the nth time.
func (s *shell) shows(t *testing.T, text string, nth int) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(s.screen.String(), text) >= nth }, 20*time.Second,
		time.Millisecond,
		"%q is not on the screen:\n%s", text, s.screen)
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// TestLockAtATerminal: a command under a lock reads from the terminal and heeds its keys as without one.
func TestLockAtATerminal(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1)
	s := atTerminal(t, exe, c)
	t.Run("input", func(t *testing.T) {
		s.enter(t, "$holdfast lock job -- sh -c 'echo wants-$((1+1)); read x; echo got-$x'\n")
		s.shows(t, "wants-2", 1)
		s.enter(t, "text\n")
		s.shows(t, "got-text", 1)
	})
	t.Run("Ctrl-C", func(t *testing.T) {
		s.enter(t, "$holdfast lock job -- sh -c 'echo runs-$((1+2)); exec sleep 1000'; echo status-$?\n")
		s.shows(t, "runs-3", 1)
		s.enter(t, ctrlC)
		require.Eventually(t, func() bool { return c.Holder("job") == "" }, 20*time.Second, time.Millisecond)
		s.enter(t, "echo then-$?\n")
		s.shows(t, "then-130", 1)
	})
	t.Run("Ctrl-C in a script", func(t *testing.T) {
		s.enter(t, "bash -c '$holdfast lock job -- sh -c \"echo runs-\\$((2+2)); exec sleep 1000\"; echo next-$((2+3))'\n")
		s.shows(t, "runs-4", 1)
		s.enter(t, ctrlC)
		s.enter(t, "echo after-$((1+0))\n")
		s.shows(t, "after-1", 1)
		require.NotContains(t, s.screen.String(), "next-5", "the script ends, too")
	})
	t.Run("Ctrl-Z", func(t *testing.T) {
		s.enter(t, "$holdfast lock job -- sh -c 'echo sleeps-$((2+4)); read x; echo read-$x'\n")
		s.shows(t, "sleeps-6", 1)
		s.enter(t, ctrlZ)
		s.shows(t, "Stopped", 1)
		require.NotEmpty(t, c.Holder("job"), "the node keeps the session")
		require.False(t, c.Demands(), "and demands no sign of life")
		s.enter(t, "fg\n")
		s.shows(t, "holdfast lock job", 4) // fg says what goes on
		s.enter(t, "more\n")
		s.shows(t, "read-more", 1)
		require.True(t, c.Demands(), "again")
	})
	t.Run("Ctrl-Z, lost meanwhile", func(t *testing.T) {
		s.enter(t, "$holdfast lock job -- sh -c 'echo sleeps-$((3+4)); read x; echo read-$x'\n")
		s.shows(t, "sleeps-7", 1)
		s.enter(t, ctrlZ)
		s.shows(t, "Stopped", 2)
		c.Break("job")
		s.enter(t, "fg\n")
		s.shows(t, "broken", 1)
		s.enter(t, "echo status-$?\n")
		s.shows(t, fmt.Sprintf("status-%d", statusLost), 1)
	})
}

// TestWatchAtATerminal: the status is shown in place, and Ctrl-C gives the terminal back as it was.
func TestWatchAtATerminal(t *testing.T) {
	exe, c := build(t), clienttest.Start(t, 1)
	s := atTerminal(t, exe, c)
	s.enter(t, "$holdfast cluster status --watch; echo status-$?\n")
	s.shows(t, "\x1b[?1049h", 1)
	s.shows(t, "\x1b[H\x1b[Kn1 leads alone", 1)
	s.shows(t, "\x1b[H", 2)
	s.enter(t, ctrlC)
	s.shows(t, "\x1b[?25h\x1b[?1049l", 1)
	s.shows(t, "status-0", 1)
}
