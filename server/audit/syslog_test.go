//go:build unix

package audit

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
)

// syslogd listens on a socket as the syslog daemon does.
func syslogd(t *testing.T, path string) net.Conn {
	t.Helper()
	d, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

var syslogMessage = regexp.MustCompile(`^<86>\w{3} [ \d]\d \d\d:\d\d:\d\d holdfast\[\d+\]: (\{.*\})\n$`)

// received returns the lines of the next messages.
func received(t *testing.T, d net.Conn, messages int) (lines []Line) {
	t.Helper()
	buffer := make([]byte, 1<<16)
	for range messages {
		n, err := d.Read(buffer)
		require.NoError(t, err)
		message := syslogMessage.FindSubmatch(buffer[:n])
		require.NotNil(t, message, "%s", buffer[:n])
		l, err := ParseLine(message[1])
		require.NoError(t, err)
		lines = append(lines, l)
	}
	return lines
}

// openedSyslog returns a log that writes to a syslog daemon, and a channel with the lines of the node's own log.
func openedSyslog(t *testing.T, path string) (*Log, channel) {
	t.Helper()
	to := make(channel, 100)
	l := newLog(Config{Path: Syslog, Node: "n1", Logger: slog.New(slog.NewTextHandler(to, nil))})
	l.chunk = 0
	var err error
	l.out, err = openSyslog("unixgram", path, l.quit, l.config.Logger)
	require.NoError(t, err)
	l.Begin("c1")
	l.start()
	return l, to
}

type channel chan string

func (c channel) Write(b []byte) (int, error) {
	c <- string(b)
	return len(b), nil
}

// TestSyslog shows that each line of the audit log is one message. While the daemon is down, lines wait, and none is
// lost when it is up again.
func TestSyslog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	_, err := openSyslog("unixgram", path, nil, nil)
	require.ErrorContains(t, err, "syslog daemon of this machine")
	d := syslogd(t, path)
	l, logged := openedSyslog(t, path)
	l.Changes(1, []event.LockChange{changed("k", "a", event.LockGranted), changed("k", "a", event.LockReleased)})
	lines := received(t, d, 3)
	require.Equal(t, Started, lines[0].Event)
	require.Equal(t, []string{"c1 1.0 granted k a", "c1 1.1 released k a"}, events(lines))

	require.NoError(t, d.Close())
	require.NoError(t, os.Remove(path))
	l.Changes(2, []event.LockChange{changed("k", "b", event.LockGranted)})
	require.Contains(t, <-logged, "the syslog daemon takes no lines of the audit log: they wait")
	l.Changes(3, []event.LockChange{changed("k", "b", event.LockReleased)})
	d = syslogd(t, path)
	require.Equal(t, []string{"c1 2.0 granted k b", "c1 3.0 released k b"}, events(received(t, d, 2)))
	require.NoError(t, l.Close())
	require.Empty(t, logged, "one message for each time that the daemon is away")
	require.EqualValues(t, 5, l.Lines())
	require.Zero(t, l.Dropped())
}

// TestSyslogAway shows that while the daemon is down a bounded number of lines waits. Exactly those that were not
// written are counted as dropped, and Close does not wait for the daemon.
func TestSyslogAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	d := syslogd(t, path)
	l, logged := openedSyslog(t, path)
	const first, all = 1000, 2000
	l.Changes(1, slices.Repeat([]event.LockChange{changed("k", "a", event.LockGranted)}, first))
	const taken = 11
	received(t, d, taken)
	require.NoError(t, d.Close()) // while more lines are being written
	require.NoError(t, os.Remove(path))
	<-logged
	l.mu.Lock()
	l.room = 4 << 10
	l.mu.Unlock()
	for i := range uint64(all - first) {
		l.Changes(2+i, []event.LockChange{changed("k", "a", event.LockGranted)})
	}
	require.Less(t, all-first-int(l.Dropped()), 100)
	require.NoError(t, l.Close())
	require.GreaterOrEqual(t, l.Lines(), uint64(taken))
	require.EqualValues(t, all+1, l.Lines()+l.Dropped())
}

// TestSyslogMessageTooLong shows that a message that is too long for the socket is an error, and that later lines are
// written.
func TestSyslogMessageTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	d := syslogd(t, path)
	out, err := openSyslog("unixgram", path, nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer out.close()
	require.ErrorIs(t, out.write([]byte(strings.Repeat("x", 8<<20))), syscall.EMSGSIZE)
	require.NoError(t, out.write([]byte("{}\n{}\n")))
	received(t, d, 2)
}

// TestSyslogCountsDroppedOnce shows that lines that are too long for the socket are counted by lines with the event
// Dropped, each once, even if two follow each other, and that the lines beside them are written.
func TestSyslogCountsDroppedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	d := syslogd(t, path)
	l, _ := openedSyslog(t, path)
	require.NoError(t, l.Close())
	received(t, d, 1)
	w := &writer{Log: l}
	long := strings.Repeat("x", 8<<20) + "\n"
	w.pending = []byte("{}\n" + long + long + "{}\n")
	w.writeWaiting()
	var counted uint64
	for _, line := range received(t, d, 4) {
		counted += line.Count
	}
	require.EqualValues(t, 2, counted)
	require.EqualValues(t, 1+4, l.Lines())
	require.EqualValues(t, 2, l.Dropped())
}
