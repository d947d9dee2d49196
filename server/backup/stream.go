package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Source captures the state of a node. Stale: without asking the leader.
type Source func(ctx context.Context, stale bool) (Meta, io.WriterTo, error)

// Limits of the backups of a node.
type Limits struct {
	// Open is how many clients may take a backup at a time: each keeps alive what the node has changed since.
	Open int
	// ChunkBytes is how much a client is given at a time.
	ChunkBytes int
	// Idle is how long a client may take to ask for the next chunk, and Total for all of them.
	Idle, Total time.Duration
}

// DefaultLimits suit files of hundreds of gigabytes.
func DefaultLimits() Limits {
	return Limits{Open: 2, ChunkBytes: 512 << 10, Idle: 30 * time.Second, Total: 2 * time.Hour}
}

// Why a stream is refused, or ends before its end.
var (
	ErrTooMany = errors.New("as many backups as this node allows are being taken")
	errIdle    = errors.New("the backup was given up: the next part was not asked for in time")
	errTotal   = errors.New("the backup was given up: it took too long")
	errClosed  = errors.New("the backup was given up")
)

// Streams are the backups that clients of a node take.
type Streams struct {
	source Source
	limits Limits

	mu   sync.Mutex
	open int
}

// NewStreams makes the streams of a node.
func NewStreams(source Source, l Limits) *Streams { return &Streams{source: source, limits: l} }

// Begin captures the state and begins to encode the file. The caller must close the stream.
func (s *Streams) Begin(ctx context.Context, stale bool) (*Stream, error) {
	if !s.enter() {
		return nil, ErrTooMany
	}
	m, state, err := s.source(ctx, stale)
	if err != nil {
		s.leave()
		return nil, err
	}
	t := &Stream{
		Meta: m, idle: s.limits.Idle, chunkBytes: s.limits.ChunkBytes,
		chunks: make(chan []byte, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	t.start(s.limits.Total)
	go func() {
		defer s.leave()
		t.encode(state)
	}()
	return t, nil
}

// start has the stream end when a client is idle, and when all takes too long.
func (t *Stream) start(total time.Duration) {
	t.mu.Lock() // else a timer could end the stream before both are there
	defer t.mu.Unlock()
	t.idleTimer = time.AfterFunc(t.idle, func() { t.end(errIdle) })
	t.totalTimer = time.AfterFunc(total, func() { t.end(errTotal) })
}

func (s *Streams) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.limits.Open {
		return false
	}
	s.open++
	return true
}

func (s *Streams) leave() {
	s.mu.Lock()
	s.open--
	s.mu.Unlock()
}

// Open counts the streams that hold a state.
func (s *Streams) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// Stream is a file on its way to a client. Its methods but Close are for one goroutine.
type Stream struct {
	Meta Meta

	chunkBytes            int
	idle                  time.Duration
	idleTimer, totalTimer *time.Timer

	chunks chan []byte   // closed behind the last
	stop   chan struct{} // closed when the stream ends early
	ended  chan struct{} // closed when nothing is encoded any more

	mu      sync.Mutex
	err     error // why the stream ended early
	stopped bool
	// summary is good when chunks is closed.
	summary Summary
	failure error
	chunk   []byte
}

// Next returns the next part of the file, and [io.EOF] behind the last.
func (t *Stream) Next(ctx context.Context) ([]byte, error) {
	select {
	case <-t.stop:
		return nil, t.cause()
	default:
	}
	t.idleTimer.Reset(t.idle)
	select {
	case b, more := <-t.chunks:
		switch {
		case more:
			return b, nil
		case t.failure != nil:
			return nil, t.cause()
		}
		return nil, io.EOF
	case <-t.stop:
		return nil, t.cause()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Summary is good after [io.EOF].
func (t *Stream) Summary() Summary { return t.summary }

// Close gives up what is left. Any goroutine may call it, more than once.
func (t *Stream) Close() {
	t.end(errClosed)
	<-t.ended
}

func (t *Stream) end(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	t.stopped, t.err = true, why
	t.idleTimer.Stop()
	t.totalTimer.Stop()
	close(t.stop)
}

func (t *Stream) cause() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		return fmt.Errorf("encode backup: %w", t.failure)
	}
	return t.err
}

// encode writes the file into chunks.
func (t *Stream) encode(state io.WriterTo) {
	defer close(t.ended)
	defer close(t.chunks)
	w, err := NewWriter(chunker{t}, t.Meta)
	if err == nil {
		_, err = state.WriteTo(w)
	}
	if err == nil {
		t.summary, err = w.Close()
	}
	if err == nil {
		err = t.hand()
	}
	t.failure = err
}

// chunker cuts the file.
type chunker struct{ t *Stream }

func (c chunker) Write(b []byte) (n int, err error) {
	t := c.t
	for len(b) > 0 {
		if t.chunk == nil {
			t.chunk = make([]byte, 0, t.chunkBytes)
		}
		step := min(len(b), t.chunkBytes-len(t.chunk))
		t.chunk = append(t.chunk, b[:step]...)
		b, n = b[step:], n+step
		if len(t.chunk) == t.chunkBytes {
			if err := t.hand(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// hand gives the chunk to the client.
func (t *Stream) hand() error {
	if len(t.chunk) == 0 {
		return nil
	}
	select {
	case t.chunks <- t.chunk:
		t.chunk = nil
		return nil
	case <-t.stop:
		return errClosed
	}
}
