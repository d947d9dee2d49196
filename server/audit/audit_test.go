package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
)

// at is the Unix time in milliseconds of most changes in these tests.
const at = int64(1_790_000_000_123)

func changed(key, owner, what string) event.LockChange {
	return event.LockChange{What: what, Key: key, Owner: owner, Node: "n1@abc", Conn: 7, AtMillis: at}
}

func opened(t *testing.T, path string, change func(c *Config)) *Log {
	t.Helper()
	c := Config{Path: path, Bytes: 8 << 20, Node: "n1", Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&c)
	}
	l, err := Open(c)
	require.NoError(t, err)
	l.Begin("c1")
	return l
}

// told returns the lines of files, all of which must be readable.
func told(t *testing.T, paths ...string) []Line {
	t.Helper()
	trail := trailOf(t, paths...)
	require.Zero(t, trail.Unreadable)
	return trail.Lines
}

func trailOf(t *testing.T, paths ...string) Trail {
	t.Helper()
	var from []io.Reader
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		from = append(from, bytes.NewReader(text))
	}
	trail, err := Read(from, func(*Line) bool { return true })
	require.NoError(t, err)
	return trail
}

// events returns the lines of the replicated log in short, without those of a node itself.
func events(lines []Line) (all []string) {
	for _, l := range lines {
		if l.Run == 0 {
			all = append(all, fmt.Sprintf("%s %d.%d %s %s %s", l.Cluster, l.Index, l.N, l.Event, l.Key, l.Owner))
		}
	}
	return all
}

// TestLines shows that lines are read as they were written, whatever bytes keys and owners have.
func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := opened(t, path, nil)
	l.SetClient(7, Client{Addr: "10.0.0.1:5", Name: "w", User: "billing"})
	long := strings.Repeat("x", 3000)
	full := event.LockChange{
		What: event.LockTaken, DB: 3, Key: "k", Owner: "o", Node: "n1@abc", Conn: 7, Own: true, Fence: 5, Session: 9,
		AtMillis: at, WaitedMillis: 11, HeldMillis: 12, Note: "job \"7\"", Reason: "broken", Command: "lock.break", By: "b",
		Text: "why",
	}
	stock := changed("s", "token", event.LockGranted)
	stock.Stock = true
	l.Changes(42, []event.LockChange{full, stock})
	l.Changes(43, []event.LockChange{
		changed("a\"\n\xff\x00<é>", "\xfe\\", event.LockGranted), changed(long, long, event.LockReleased),
	})
	require.NoError(t, l.Close())
	require.EqualValues(t, 5, l.Lines())
	lines := told(t, path)
	require.Len(t, lines, 5)
	require.Equal(t, Line{
		Time: time.UnixMilli(at).UTC(), Cluster: "c1", Index: 42, Event: "lost", Kind: "native", DB: 3, Key: "k", Owner: "o",
		Fence: 5, Session: 9, Client: "n1/7", Addr: "10.0.0.1:5", Name: "w", User: "billing", WaitedMillis: 11,
		HeldMillis: 12, Note: "job \"7\"", Reason: "broken", Command: "lock.break", By: "b", Text: "why",
	}, lines[0])
	require.Equal(t, Line{
		Time: time.UnixMilli(at).UTC(), Cluster: "c1", Index: 42, N: 1, Event: "granted", Kind: "stock", Key: "s",
		Owner: "token", Client: "n1/7",
	}, lines[1])
	require.Equal(t, "a\"\n\xff\x00<é>", lines[2].Key)
	require.Equal(t, "\xfe\\", lines[2].Owner)
	require.Equal(t, []string{cutName(long), cutName(long)}, []string{lines[3].Key, lines[3].Owner})
	require.NotEqual(t, cutName(long), cutName(long+"x"), "long names that begin alike differ")
	require.Equal(t, Started, lines[4].Event)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

// TestAppliedAgain shows that a node that applies entries again after a restart writes only the lines that its file
// lacks. A line that was cut off when the process ended is written whole.
func TestAppliedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	apply := func(l *Log, cluster string, from, to uint64) {
		l.Begin(cluster)
		for index := from; index <= to; index++ {
			l.Changes(index, []event.LockChange{changed("k", "a", event.LockGranted), changed("k", "a", event.LockReleased)})
		}
		require.NoError(t, l.Close())
	}
	apply(opened(t, path, nil), "c1", 5, 6)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	torn := bytes.LastIndex(text, []byte(`,"key"`))
	require.NoError(t, os.WriteFile(path, text[:torn], 0o600))
	apply(opened(t, path, nil), "c1", 4, 8)
	trail := trailOf(t, path)
	require.Equal(t, 1, trail.Unreadable)
	want := []string{
		"c1 5.0 granted k a", "c1 5.1 released k a", "c1 6.0 granted k a", "c1 6.1 released k a",
		"c1 7.0 granted k a", "c1 7.1 released k a", "c1 8.0 granted k a", "c1 8.1 released k a",
	}
	require.Equal(t, want, events(trail.Lines))
	require.Len(t, trail.Lines, len(want)+2, "each start has a line")
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, len(want), bytes.Count(text, []byte(`"kind":"native"`))-1, "a line was written twice")

	// Another cluster, as after a restore, has lower indexes.
	apply(opened(t, path, nil), "c0", 2, 3)
	got := events(trailOf(t, path).Lines)
	require.Len(t, got, len(want)+4)
	require.Contains(t, got, "c0 2.0 granted k a")
}

// TestDoubles shows that a line that several nodes have written is read once, with the client's address if one of the
// nodes knows it.
func TestDoubles(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, node := range []string{"n2", "n1", "n3"} {
		path := filepath.Join(dir, node)
		paths = append(paths, path)
		l := opened(t, path, func(c *Config) { c.Node = node })
		l.SetClient(7, Client{Addr: node + ":5", User: "u"})
		e := changed("k", "a", event.LockGranted)
		e.Own = node == "n1"
		l.Changes(3, []event.LockChange{e})
		require.NoError(t, l.Close())
	}
	lines := told(t, paths...)
	require.Equal(t, []string{"c1 3.0 granted k a"}, events(lines))
	require.Equal(t, "n1:5", lines[0].Addr)
	require.Len(t, lines, 4, "each node says that it has started")
	require.Equal(t, lines, told(t, paths[1], paths[2], paths[0], paths[1]))
}

// gate is an output that blocks until open is closed, and fails while fails is set.
type gate struct {
	open  chan struct{}
	fails atomic.Bool
	bytes.Buffer
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	if g.fails.Load() {
		return 0, errors.New("no space left")
	}
	return g.Buffer.Write(b)
}

func (g *gate) lines(t *testing.T) []Line {
	t.Helper()
	trail, err := Read([]io.Reader{&g.Buffer}, func(*Line) bool { return true })
	require.NoError(t, err)
	require.Zero(t, trail.Unreadable)
	return trail.Lines
}

// TestNothingWaits shows that while the output blocks, a bounded number of lines waits. The others are counted, in
// Dropped and in a line.
func TestNothingWaits(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	l := opened(t, Stdout, func(c *Config) { c.Stdout = g })
	const all, room = 5000, 64 << 10
	l.mu.Lock()
	l.room = room
	l.mu.Unlock()
	for i := range uint64(all) {
		l.Changes(1+i, []event.LockChange{changed("some-key", "a", event.LockGranted)})
	}
	l.mu.Lock()
	waits := len(l.pending)
	l.mu.Unlock()
	require.Less(t, waits, room+1<<10)
	close(g.open)
	require.NoError(t, l.Close())
	lines := g.lines(t)
	var dropped uint64
	for _, line := range lines {
		if line.Event == Dropped {
			dropped += line.Count
		}
	}
	require.Positive(t, dropped)
	require.Equal(t, dropped, l.Dropped())
	require.EqualValues(t, all, len(events(lines))+int(dropped))
	require.EqualValues(t, len(lines), l.Lines())
}

// TestCloseGivesUp shows that Close returns even if the output does not take the last lines.
func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		l := opened(t, Stdout, func(c *Config) { c.Stdout = g })
		require.ErrorContains(t, l.Close(), "were not written within")
		close(g.open)
		<-l.ended
	})
}

// TestOmitted shows that changes of an entry that the state machine did not report are recorded in a line, and end a
// span of the trail.
func TestOmitted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	for range 2 { // the second applies the entry again
		l := opened(t, path, nil)
		l.Changes(1, []event.LockChange{changed("k", "a", event.LockGranted), {What: event.LocksOmitted, Count: 9}})
		l.Changes(2, []event.LockChange{changed("k", "b", event.LockGranted)})
		require.NoError(t, l.Close())
	}
	trail := trailOf(t, path)
	require.Equal(t, []string{"c1 1.0 granted k a", "c1 2.0 granted k b"}, events(trail.Lines))
	require.Len(t, trail.Spans, 2)
}

// TestWriteFails shows that lines that a full disk did not take are counted, and recorded in a line before the next
// ones, since a reader must not take the trail for complete.
func TestWriteFails(t *testing.T) { synctest.Test(t, testWriteFails) }

func testWriteFails(t *testing.T) {
	var logged bytes.Buffer
	g := &gate{open: make(chan struct{})}
	l := opened(t, Stdout, func(c *Config) {
		c.Stdout, c.Logger = g, slog.New(slog.NewTextHandler(&logged, nil))
	})
	close(g.open)
	apply := func(index uint64, what string) {
		e := changed("k", "a", what)
		e.AtMillis += 1000 * int64(index)
		l.Changes(index, []event.LockChange{e})
		time.Sleep(2 * gatherFor)
	}
	apply(1, event.LockGranted)
	g.fails.Store(true)
	apply(2, event.LockReleased)
	apply(3, event.LockGranted)
	require.EqualValues(t, 2, l.Dropped())
	g.fails.Store(false)
	apply(4, event.LockReleased)
	apply(5, event.LockGranted)
	require.NoError(t, l.Close())
	require.EqualValues(t, 2, l.Dropped())
	require.EqualValues(t, 5, l.Lines(), "with two lines of the node")
	require.Contains(t, logged.String(), `error="no space left"`)
	trail, err := Read([]io.Reader{&g.Buffer}, func(*Line) bool { return true })
	require.NoError(t, err)
	require.Equal(t, []string{"c1 1.0 granted k a", "c1 4.0 released k a", "c1 5.0 granted k a"}, events(trail.Lines))
	require.Equal(t, Dropped, trail.Lines[4].Event)
	require.EqualValues(t, 2, trail.Lines[4].Count)
	require.Equal(t, []Span{
		{"n1", "c1", at + 1000, at + 1000, 1, 1, ""}, {"n1", "c1", at + 4000, at + 5000, 4, 5, ""},
	}, trail.Spans)
}

// TestTold shows that a blocked output is logged once, while lines wait.
func TestTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged, g := make(channel, 100), &gate{open: make(chan struct{})}
		l := opened(t, Stdout, func(c *Config) { c.Stdout, c.Logger = g, slog.New(slog.NewTextHandler(logged, nil)) })
		time.Sleep(tellAfter)
		require.Empty(t, logged)
		time.Sleep(gatherFor)
		synctest.Wait()
		require.Len(t, logged, 1)
		require.Contains(t, <-logged, "nobody takes the lines of the audit log: they wait")
		time.Sleep(time.Hour)
		close(g.open)
		l.Changes(1, []event.LockChange{changed("k", "a", event.LockGranted)})
		require.NoError(t, l.Close())
		time.Sleep(time.Hour)
		require.Empty(t, logged)
		require.EqualValues(t, 2, l.Lines())
	})
}

// TestRotation shows that all files together stay within their limit, the newest lines are kept, no file ends within a
// line, and each file names the patterns of its locks.
func TestRotation(t *testing.T) {
	const most = 8 << 20
	path := filepath.Join(t.TempDir(), "audit.log")
	some := func(c *Config) { c.Patterns = []string{"k*", "l"} }
	l := opened(t, path, some)
	key, index := strings.Repeat("k", 1000), uint64(0)
	for range 3 {
		for range 4000 {
			index++
			l.Changes(index, []event.LockChange{changed(key, "a", event.LockGranted)})
		}
		require.NoError(t, l.Close())
		require.EqualValues(t, 4000+1, l.Lines())
		l = opened(t, path, some)
	}
	require.NoError(t, l.Close())
	paths, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	require.Len(t, paths, FileCount)
	sum := int64(0)
	for _, p := range paths {
		info, err := os.Stat(p)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		sum += info.Size()
		alone := trailOf(t, p)
		require.Equal(t, "k* l", alone.Spans[0].Locks)
		require.Len(t, alone.Spans, 1)
	}
	require.LessOrEqual(t, sum, int64(most))
	lines := told(t, paths...)
	require.Greater(t, len(events(lines)), 5000)
	for i := range lines {
		if lines[i].Run == 0 && i > 0 {
			require.Equal(t, lines[i-1].Index+1, lines[i].Index)
		}
	}
	require.Equal(t, index, lines[len(events(lines))-1].Index)
}

// TestPatterns shows that the changes of matching locks are written, and those of a whole database. The numbers of
// lines within an entry count the others, too, so that nodes with different patterns number them alike.
func TestPatterns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := opened(t, path, func(c *Config) { c.Patterns = []string{"jobs:*", "[ab]"} })
	l.Changes(1, []event.LockChange{
		changed("c", "o", event.LockGranted), changed("d", "o", event.LockGranted), changed("jobs:1", "o", event.LockGranted),
		changed("b", "o", event.LockGranted), changed("", "", event.LocksFlushed), changed("", "", event.LocksSwapped),
	})
	require.NoError(t, l.Close())
	lines := told(t, path)
	require.Equal(t, []string{
		"c1 1.2 granted jobs:1 o", "c1 1.3 granted b o", "c1 1.4 flushed  ", "c1 1.5 swapped  ",
	}, events(lines))
	require.Equal(t, "--audit-locks jobs:* [ab]", lines[4].Text)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), Started))
}

// TestClientsThatLeft shows that a bounded number of ended connections is remembered, the latest.
func TestClientsThatLeft(t *testing.T) {
	l := &Log{}
	for conn := range int64(maxEndedClients + 10) {
		l.SetClient(1+conn, Client{Addr: "a", Name: strings.Repeat("n", 1000)})
		l.ClientGone(1 + conn)
		l.ClientGone(1 << 40) // one that was never known
	}
	require.Len(t, l.clients.known, maxEndedClients)
	require.Empty(t, l.clients.known[10])
	require.Equal(t, `,"addr":"a","name":"`+strings.Repeat("n", maxNameBytes)+`"`, l.clients.known[11])
	l.SetClient(1, Client{Addr: "b", User: "u"})
	require.Equal(t, `,"addr":"b","user":"u"`, l.clients.known[1])
}

// TestNilLog shows that the methods of a nil Log do nothing.
func TestNilLog(t *testing.T) {
	var l *Log
	l.Begin("c")
	l.Note(Line{Event: Started})
	l.SetClient(1, Client{})
	l.ClientGone(1)
	require.Zero(t, l.Lines()+l.Dropped())
	require.NoError(t, l.Close())
}
