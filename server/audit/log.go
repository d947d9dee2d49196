package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/loglimit"
)

// Stdout and Syslog are the values of [Config.Path] for the standard output and the syslog daemon of the machine.
const (
	Stdout = "stdout"
	Syslog = "syslog"
)

// Config configures a [Log].
type Config struct {
	// Path is the current file. The older files have the suffixes ".1", ".2" and so on, the newest first.
	Path   string
	Stdout io.Writer // for the Path [Stdout]
	// Bytes is the limit of all files together.
	Bytes int64
	// Patterns select the keys whose changes are written. Without patterns, the changes of all keys are written.
	Patterns []string
	Node     string
	Logger   *slog.Logger
}

// Log is an audit log. A nil *Log is the log of a node that does not audit: it ignores all calls except [Log.Changes].
type Log struct {
	config Config
	// room bounds pending, in bytes. The lines that are being written may take as much again.
	room int
	out  output
	// chunk is the size of a write, in bytes, rounded up to a whole line. The last write of several is up to twice as
	// long. If chunk is 0, a write has one line.
	chunk   int
	run     int64
	lines   atomic.Uint64
	dropped atomic.Uint64
	// wake is signaled when pending has lines, and full when it has at least chunkBytes.
	wake    chan struct{}
	full    chan struct{}
	quit    chan struct{}
	ended   chan struct{}
	closing sync.Once

	mu           sync.Mutex // guards the fields from here to clients
	encoder      encoder
	pending      []byte // the buffer: the lines that are not being written yet
	pendingLines uint64
	unreported   uint64 // lines that were dropped after those in pending, and that no Dropped line counts yet
	notes        int    // lines of the node in this run
	// written is the last line that an earlier run wrote, or zero once this run has applied a later one.
	written mark

	clients clients
}

// mark is the position of a line of the log.
type mark struct {
	cluster string
	index   uint64
	n       int
}

const (
	// waitingBytes bounds the buffer: it has room for the lines of five seconds at 10,000 changes a second.
	waitingBytes = 8 << 20
	// gatherFor is the time for which lines are gathered before they are written: a write for each entry would cost more
	// than everything else in this package.
	gatherFor = 50 * time.Millisecond
	// closeWithin is the time for which Close waits for the last lines.
	closeWithin = 2 * time.Second
	// tellAfter is the duration of writing the buffer after which a warning is logged.
	tellAfter = 15 * time.Second
)

// Open opens the output, and writes lines to it until Close.
func Open(c Config) (*Log, error) {
	l := newLog(c)
	var err error
	switch c.Path {
	case Stdout:
		l.out = &pipe{c.Stdout}
	case Syslog:
		l.chunk = 0
		l.out, err = openSyslog("", "", l.quit, c.Logger)
	default:
		l.out, l.written, err = openFiles(c.Path, c.Bytes, c.Logger)
	}
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	l.start()
	return l, nil
}

func newLog(c Config) *Log {
	return &Log{
		config: c, room: waitingBytes, chunk: chunkBytes, run: time.Now().UnixNano(), wake: make(chan struct{}, 1),
		full: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}),
	}
}

func (l *Log) start() {
	started := Line{Event: Started}
	if len(l.config.Patterns) > 0 {
		started.Text = auditLocks + strings.Join(l.config.Patterns, " ")
	}
	l.Note(started)
	if f, ok := l.out.(*files); ok {
		f.head = bytes.Clone(l.pending)
	}
	go l.write()
}

// Begin sets the ID of the cluster. It is called before the first [Log.Changes].
func (l *Log) Begin(cluster string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.encoder = encoder{cluster: cluster}
}

// Close writes the buffer. It fails if that takes longer than two seconds.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.closing.Do(func() { close(l.quit) })
	select {
	case <-l.ended:
		return nil
	case <-time.After(closeWithin):
		return fmt.Errorf("audit log: the last lines were not written within %v", closeWithin)
	}
}

// Changes adds the lines of the changes of an entry to the buffer. It does not wait for a write.
func (l *Log) Changes(index uint64, changes []event.LockChange) {
	l.mu.Lock()
	l.clients.mu.Lock()
	for n := range changes {
		ch := &changes[n]
		switch written := l.isWritten(index, n); {
		case written:
		case ch.What == event.LocksOmitted:
			l.dropped.Add(uint64(ch.Count))
			l.addNote(Line{Event: Dropped, Count: uint64(ch.Count)})
		case (l.isWanted(ch.Key) || isOfDatabase(ch.What)) && l.hasRoom():
			client := ""
			if ch.Own {
				client = l.clients.known[ch.Conn]
			}
			l.pending = l.encoder.append(l.pending, index, n, ch, client)
			l.pendingLines++
		}
	}
	l.clients.mu.Unlock()
	l.mu.Unlock()
	poke(l.wake)
}

// isWritten reports whether an earlier run has written the line of a change. The caller holds mu.
func (l *Log) isWritten(index uint64, n int) bool {
	w := &l.written
	if w.index == 0 || w.cluster != l.encoder.cluster {
		return false
	}
	if index < w.index || index == w.index && n <= w.n {
		return true
	}
	w.index = 0
	return false
}

// isWanted reports whether the changes of a key are written. A pattern that exceeds the step limit matches, so that a
// client cannot hide a lock by a long key.
func (l *Log) isWanted(key string) bool {
	if len(l.config.Patterns) == 0 {
		return true
	}
	for _, p := range l.config.Patterns {
		steps := int64(maxMatchSteps)
		if protocol.MatchSteps(p, key, false, &steps) || steps < 0 {
			return true
		}
	}
	return false
}

const (
	// MaxPatterns bounds the patterns, since each change is compared with all of them when it is applied.
	MaxPatterns = 32
	// maxMatchSteps bounds the work of comparing a key with a pattern.
	maxMatchSteps = 10_000
)

// hasRoom reports whether the buffer has room for one more line. If not, it counts the line as dropped. The caller
// holds mu.
func (l *Log) hasRoom() bool {
	if len(l.pending) >= chunkBytes {
		poke(l.full)
	}
	if len(l.pending) <= l.room {
		return true
	}
	l.unreported++
	l.dropped.Add(1)
	return false
}

// Note adds a line of the node, with the current time, to the buffer.
func (l *Log) Note(line Line) {
	if l == nil {
		return
	}
	line.Addr, line.Name, line.User, line.Key = cut(line.Addr), cut(line.Name), cut(line.User), cutName(line.Key)
	line.Text, line.By = cut(line.Text), cut(line.By)
	l.mu.Lock()
	if l.hasRoom() {
		l.addNote(line)
	}
	l.mu.Unlock()
	poke(l.wake)
}

// addNote adds a line of the node to the buffer. The caller holds mu.
func (l *Log) addNote(line Line) {
	l.pending = append(l.pending, l.noted(line)...)
	l.pendingLines++
}

// noted encodes a line of the node. The caller holds mu.
func (l *Log) noted(line Line) []byte {
	line.Time, line.Node, line.Run = time.Now().UTC().Truncate(time.Millisecond), l.config.Node, l.run
	line.Cluster, line.N = l.encoder.cluster, l.notes
	l.notes++
	text, _ := json.Marshal(line)
	return append(text, '\n')
}

// Lines returns the number of lines that this run has written.
func (l *Log) Lines() uint64 {
	if l == nil {
		return 0
	}
	return l.lines.Load()
}

// Dropped returns the number of lines that this run has not written, because the buffer was full or a write failed.
func (l *Log) Dropped() uint64 {
	if l == nil {
		return 0
	}
	return l.dropped.Load()
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// write writes the buffer again and again, until Close.
func (l *Log) write() {
	defer close(l.ended)
	defer l.out.close()
	w := &writer{Log: l, limit: loglimit.Limit{Burst: 1, Every: time.Minute}}
	for {
		select {
		case <-l.wake:
		case <-l.quit:
			w.writeWaiting()
			return
		}
		gathered := time.NewTimer(gatherFor)
		select {
		case <-gathered.C:
		case <-l.full:
		case <-l.quit: // the next iteration returns
		}
		gathered.Stop()
		w.writeWaiting()
	}
}

// writer has the state of the goroutine that writes.
type writer struct {
	*Log
	spare []byte // the memory of the next buffer
	// missing is the number of lines that were dropped after the last line of the file.
	missing uint64
	limit   loglimit.Limit
}

const (
	// chunkBytes is the chunk of a file, and the size of the buffer at which it is written early. keptBytes bounds the
	// memory that is kept for the next buffer.
	chunkBytes = 128 << 10
	keptBytes  = 1 << 20
)

func (w *writer) writeWaiting() {
	defer time.AfterFunc(tellAfter, func() {
		w.config.Logger.Warn("nobody takes the lines of the audit log: they wait", "after", tellAfter)
	}).Stop()
	w.mu.Lock()
	text, lines, dropped := w.pending, w.pendingLines, w.unreported
	w.pending, w.pendingLines, w.unreported = w.spare[:0], 0, 0
	w.mu.Unlock()
	for rest := text; len(rest) > 0; {
		chunk, n := rest, lines
		if len(rest) > 2*w.chunk {
			chunk = rest[:w.chunk+1+bytes.IndexByte(rest[w.chunk:], '\n')]
			n = uint64(bytes.Count(chunk, []byte{'\n'}))
		}
		w.writeChunk(chunk, n)
		rest, lines = rest[len(chunk):], lines-n
	}
	if dropped > 0 {
		w.missing += dropped
		w.writeChunk(nil, 0)
		w.warn(slog.LevelWarn, "lines of the audit log were dropped", "lines", dropped)
	}
	if w.spare = text; cap(text) > keptBytes {
		w.spare = nil
	}
}

// writeChunk writes n lines, and before them a line with the number of missing lines, so that a reader notices the gap.
// If the write fails, the n lines are missing, too.
func (w *writer) writeChunk(lines []byte, n uint64) {
	var err error
	if w.missing > 0 {
		w.mu.Lock()
		note := w.noted(Line{Event: Dropped, Count: w.missing})
		w.mu.Unlock()
		if err = w.out.write(note); err == nil {
			w.missing = 0
			w.Log.lines.Add(1)
		}
	}
	if err == nil && n > 0 {
		err = w.out.write(lines)
	}
	if err == nil {
		w.Log.lines.Add(n)
		return
	}
	w.dropped.Add(n)
	w.missing += n
	w.warn(slog.LevelError, "write audit log", "error", err, "lines", n)
}

// warn logs a message, at most once a minute. The caller does not hold mu, since a write to the node's
// log may block: the log may be a pipe.
func (w *writer) warn(level slog.Level, message string, attrs ...any) {
	if silent, ok := w.limit.Admit(time.Now()); ok {
		w.config.Logger.Log(context.Background(), level, message, append(attrs, "not_logged", silent)...)
	}
}
