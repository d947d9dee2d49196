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

// Stdout and Syslog are the [Config.Path] of the process's standard output, and of the syslog daemon of the machine.
const (
	Stdout = "stdout"
	Syslog = "syslog"
)

// Config is what a [Log] is told.
type Config struct {
	// Path is the file that is written now. Older ones have ".1", ".2" and so on behind it, the newest first.
	Path   string
	Stdout io.Writer // of the Path [Stdout]
	// Bytes is what all files may take together.
	Bytes int64
	// Patterns are those of the keys whose changes are written; none: all are.
	Patterns []string
	Node     string
	Logger   *slog.Logger
}

// Log writes lines. All methods but Open's work on nil: nobody audits.
type Log struct {
	config Config
	// room bounds what waits, in bytes. What is being written counts for as much again.
	room int
	out  output
	// chunk is about how much is written at once, in whole lines; 0: one line.
	chunk   int
	run     int64
	lines   atomic.Uint64
	dropped atomic.Uint64
	// wake is poked when something waits, and full when much does.
	wake    chan struct{}
	full    chan struct{}
	quit    chan struct{}
	ended   chan struct{}
	closing sync.Once

	mu         sync.Mutex // guards what follows
	encoder    encoder
	pending    []byte
	unreported uint64 // lines behind pending that were dropped, and that no line "dropped" counts yet
	notes      int    // of this run
	// written is the place of the last line that an earlier run has written; zero: this run is behind it.
	written mark

	clients clients
}

// mark is the place of a line of the log.
type mark struct {
	cluster string
	index   uint64
	n       int
}

const (
	// waitingBytes bounds what waits to be written: at 10,000 changes a second, for three seconds.
	waitingBytes = 8 << 20
	// gatherFor is how long lines wait for others: a write for each entry costs more than all else here.
	gatherFor = 50 * time.Millisecond
	// closeWithin is how long Close waits for the last lines.
	closeWithin = 2 * time.Second
	// tellAfter is how long the lines that waited may take to be written before a message says so.
	tellAfter = 15 * time.Second
)

// Open opens the file, or what takes its place, and writes until Close.
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

// Begin sets the ID of the cluster. It is called before the first changes come.
func (l *Log) Begin(cluster string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.encoder = encoder{cluster: cluster}
}

// Close writes what waits, for as long as the disk or the reader of a pipe lets it within two seconds.
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

// Changes takes what happened to locks in an entry. It does not wait.
func (l *Log) Changes(index uint64, changes []event.LockChange) {
	l.mu.Lock()
	l.clients.mu.Lock()
	for n := range changes {
		ch := &changes[n]
		switch written := l.isWritten(index, n); {
		case written:
		case ch.What == event.LocksOmitted:
			l.dropped.Add(uint64(ch.Count))
			l.pending = append(l.pending, l.noted(Line{Event: Dropped, Count: uint64(ch.Count)})...)
		case (l.isWanted(ch.Key) || isOfDatabase(ch.What)) && l.hasRoom():
			client := ""
			if ch.Own {
				client = l.clients.known[ch.Conn]
			}
			l.pending = l.encoder.append(l.pending, index, n, ch, client)
		}
	}
	l.clients.mu.Unlock()
	l.mu.Unlock()
	poke(l.wake)
}

// isWritten reports whether an earlier run has written a line. The caller holds mu.
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

// isWanted reports whether the changes of a key are written. A pattern that takes too long matches: no key hides by its
// length.
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
	// MaxPatterns is how many patterns there are at most: each change of a lock is matched when it is applied.
	MaxPatterns = 32
	// maxMatchSteps bounds the work for a key and a pattern.
	maxMatchSteps = 10_000
)

// hasRoom reports whether one more line may wait, and counts it if not. The caller holds mu.
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

// Note writes a line of the node. Its time is now.
func (l *Log) Note(line Line) {
	if l == nil {
		return
	}
	line.Addr, line.Name, line.User, line.Key = cut(line.Addr), cut(line.Name), cut(line.User), cutName(line.Key)
	line.Text, line.By = cut(line.Text), cut(line.By)
	l.mu.Lock()
	if l.hasRoom() {
		l.pending = append(l.pending, l.noted(line)...)
	}
	l.mu.Unlock()
	poke(l.wake)
}

// noted encodes a line of the node. The caller holds mu.
func (l *Log) noted(line Line) []byte {
	line.Time, line.Node, line.Run = time.Now().UTC().Truncate(time.Millisecond), l.config.Node, l.run
	line.Cluster, line.N = l.encoder.cluster, l.notes
	l.notes++
	text, _ := json.Marshal(line)
	return append(text, '\n')
}

// Lines and Dropped are how many lines this run has written, and how many it has not, for want of room or since the
// write failed.
func (l *Log) Lines() uint64 {
	if l == nil {
		return 0
	}
	return l.lines.Load()
}

// Dropped is as [Log.Lines] says.
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

// write writes what waits, until Close.
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
		case <-l.quit: // looked at above
		}
		gathered.Stop()
		w.writeWaiting()
	}
}

// writer is the goroutine's.
type writer struct {
	*Log
	spare []byte // memory
	// missing counts lines that were dropped behind the last line of the file.
	missing uint64
	limit   loglimit.Limit
}

const (
	// chunkBytes is about how much is written to a file at once, and how much waits at least before it is written early.
	// keptBytes is the memory that is kept for the next lines.
	chunkBytes = 128 << 10
	keptBytes  = 1 << 20
)

func (w *writer) writeWaiting() {
	defer time.AfterFunc(tellAfter, func() {
		w.config.Logger.Warn("nobody takes the lines of the audit log: they wait", "after", tellAfter)
	}).Stop()
	w.mu.Lock()
	text, dropped := w.pending, w.unreported
	w.pending, w.unreported = w.spare[:0], 0
	w.mu.Unlock()
	for rest := text; len(rest) > 0; {
		chunk := rest
		if len(rest) > w.chunk {
			chunk = rest[:w.chunk+1+bytes.IndexByte(rest[w.chunk:], '\n')]
		}
		w.writeChunk(chunk)
		rest = rest[len(chunk):]
	}
	if dropped > 0 {
		w.missing += dropped
		w.writeChunk(nil)
		w.warn(slog.LevelWarn, "lines of the audit log were dropped", "lines", dropped)
	}
	if w.spare = text; cap(text) > keptBytes {
		w.spare = nil
	}
}

// writeChunk writes lines, and before them how many are missing: a reader must not take the lines around a gap for
// all. What the disk or the pipe does not take is missing, too.
func (w *writer) writeChunk(lines []byte) {
	n := uint64(bytes.Count(lines, []byte{'\n'}))
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

// warn logs once a minute. The caller does not hold mu: the node's log may be a pipe that nobody reads.
func (w *writer) warn(level slog.Level, message string, attrs ...any) {
	if silent, ok := w.limit.Admit(time.Now()); ok {
		w.config.Logger.Log(context.Background(), level, message, append(attrs, "not_logged", silent)...)
	}
}
