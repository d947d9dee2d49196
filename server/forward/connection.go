package forward

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// connection is the follower's end of one connection to the leader.
type connection struct {
	config *ClientConfig
	leader string
	conn   net.Conn
	wake   chan struct{}

	mu       sync.Mutex
	waits    map[uint64]chan int // WAITs without an answer, by number
	lastWait uint64
	out      []byte // messages with WAITs to be sent
	// wanted has what this node wants the leader to know. wantedDue is set if the leader must be told.
	wanted    wanted
	wantedDue bool
	reports   [][]byte // messages with answers to the leader's inquiries

	reporting sync.WaitGroup // the goroutines that answer inquiries

	// Only the sender uses the frame, and the functions that append batches to it.
	frame             []byte
	addWrite, addRead func(*Batch) bool
	// Only the listener uses the following.
	parts     map[partOf]*strings.Builder // large replies that are incomplete
	partBytes int                         // total bytes in parts
	wrote     []Completion
	answered  []Completion
	lastReply time.Time // when the newest reply came, or the connection was opened
}

// wanted is the content of the message "subscribe".
type wanted struct{ commits, diskFull bool }

// partOf names the reply that a part belongs to.
type partOf struct {
	kind   byte
	number uint64
}

func newConnection(config *ClientConfig, leader string, conn net.Conn) *connection {
	c := &connection{
		config: config, leader: leader, conn: conn, wake: make(chan struct{}, 1),
		waits: make(map[uint64]chan int), parts: make(map[partOf]*strings.Builder), lastReply: time.Now(),
	}
	// Each use of a method as a value allocates.
	c.addWrite, c.addRead = c.appendWrite, c.appendRead
	return c
}

// send writes the queued messages and batches until ctx ends, as many as fit into a frame at a time.
func (c *connection) send(ctx context.Context) error {
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return nil
		}
		for {
			// Goroutines that are ready to run queue their batches first: a frame costs both nodes more than a batch.
			runtime.Gosched()
			if c.gather(); len(c.frame) == wire.Head {
				break
			}
			if _, err := c.conn.Write(wire.Seal(c.frame)); err != nil {
				return err
			}
			c.frame = wire.Kept(c.frame)
		}
	}
}

// gather fills the frame with the queued batches and messages.
func (c *connection) gather() {
	if c.frame == nil {
		c.frame = make([]byte, wire.Head, 64<<10)
	}
	c.frame = c.frame[:wire.Head]
	c.config.Writes.Take(c, c.addWrite)
	c.config.Reads.Take(c, c.addRead)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame = append(c.frame, c.out...)
	c.out = c.out[:0]
	for len(c.reports) > 0 && c.fits(len(c.reports[0])) {
		c.frame = append(c.frame, c.reports[0]...)
		c.reports = c.reports[1:]
	}
	if c.wantedDue {
		c.frame = binary.AppendUvarint(append(c.frame, kindSubscribe), bits(c.wanted.commits, c.wanted.diskFull))
		c.wantedDue = false
	}
}

// fits reports whether n more bytes fit into the frame. An empty frame has room for any number.
func (c *connection) fits(n int) bool {
	return len(c.frame) == wire.Head || len(c.frame)+n <= wire.Gather
}

func (c *connection) appendWrite(b *Batch) bool {
	if !c.fits(len(b.Body)) {
		return false
	}
	frame := binary.AppendUvarint(append(c.frame, kindWrite), b.Seq)
	frame = binary.AppendUvarint(binary.AppendUvarint(frame, b.Low), packHints(b))
	c.frame = wire.AppendBytes(frame, b.Body)
	return true
}

func (c *connection) appendRead(b *Batch) bool {
	if !c.fits(len(b.Body)) {
		return false
	}
	kind := byte(kindRead)
	if b.Census {
		kind = kindCensus
	}
	frame := binary.AppendUvarint(append(c.frame, kind), b.Seq)
	if !b.Census {
		frame = binary.AppendUvarint(frame, uint64(b.Count))
	}
	c.frame = wire.AppendBytes(frame, b.Body)
	return true
}

// listen reads the leader's frames until the connection breaks.
func (c *connection) listen(br *bufio.Reader) error {
	limit := 4*c.config.ReplyBytes + wire.Step
	var buf []byte
	for {
		var err error
		if buf, err = wire.Read(br, buf, limit); err != nil {
			if errors.Is(err, io.EOF) {
				err = errHungUp
			}
			return err
		}
		c.wrote, c.answered = c.wrote[:0], c.answered[:0]
		f := wire.Fields[string]{Rest: string(buf)}
		for f.More() {
			if err := c.message(&f); err != nil {
				return err
			}
		}
		if f.Err != nil {
			return f.Err
		}
		if c.stuck() {
			return errUnanswered
		}
		c.config.Writes.Complete(c.wrote)
		c.config.Reads.Complete(c.answered)
		clear(c.wrote)
		clear(c.answered)
		buf = wire.Kept(buf)
	}
}

// errUnanswered is the error of a link with status messages and without replies. Either this node's messages are lost,
// or the leader commits nothing. A new connection helps in the first case, and costs little in the second.
var errUnanswered = fmt.Errorf("nothing that was sent has been answered for %v", SilenceTimeout)

// stuck reports whether batches have been sent and none has been answered for SilenceTimeout.
func (c *connection) stuck() bool {
	now := time.Now()
	if len(c.wrote)+len(c.answered) > 0 {
		c.lastReply = now
	}
	return now.Sub(c.lastReply) >= SilenceTimeout &&
		max(c.config.Writes.Unanswered(c), c.config.Reads.Unanswered(c)) >= SilenceTimeout
}

// message handles one message of the leader.
func (c *connection) message(f *wire.Fields[string]) error {
	switch kind := f.Kind(); kind {
	case kindWrote:
		c.wrote = append(c.wrote, Completion{Number: f.Number(), Replies: values(f)})
	case kindAnswer:
		c.answered = append(c.answered, Completion{Number: f.Number(), Replies: values(f)})
	case kindRefuse:
		number, outcome := f.Number(), protocol.Outcome(f.Number())
		c.answered = append(c.answered, Completion{Number: number, Err: &protocol.Error{
			Prefix: f.Bytes(), Text: f.Bytes(),
			Outcome: outcome,
		}})
	case kindWaited:
		number, n := f.Number(), int(f.Number())
		c.answer(number, n)
	case kindInquiry:
		number, question := f.Number(), f.Bytes()
		if f.Err == nil {
			c.reporting.Go(func() { c.report(number, question) })
		}
	case kindStatus:
		c.status(f)
	case kindPart:
		c.lastReply = time.Now()
		of, whole, err := c.part(f)
		switch {
		case err != nil:
			return err
		case whole == nil:
		case of.kind == kindWrote:
			c.wrote = append(c.wrote, Completion{Number: of.number, Replies: whole})
		default:
			c.answered = append(c.answered, Completion{Number: of.number, Replies: whole})
		}
	default:
		return fmt.Errorf("%w: kind %q", wire.ErrCorrupt, kind)
	}
	return nil
}

// part handles the part of a reply, which extends to the end of the frame. It returns the whole reply with the last
// part, and else nil.
func (c *connection) part(f *wire.Fields[string]) (of partOf, whole []protocol.Value, err error) {
	if len(f.Rest) < 2 {
		return of, nil, fmt.Errorf("%w: part", wire.ErrCorrupt)
	}
	of.kind = f.Kind()
	state := f.Kind()
	of.number = f.Number()
	batches := c.config.Reads
	if of.kind == kindWrote {
		batches = c.config.Writes
	}
	got := c.parts[of]
	text := f.Rest
	f.Rest = ""
	if state == partDropped || !batches.Has(of.number) {
		// The batch is answered already: by its deadline, or by this node's own log.
		c.forget(of)
		return of, nil, f.Err
	}
	if got == nil {
		got = &strings.Builder{}
		c.parts[of] = got
	}
	if c.partBytes += len(text); c.partBytes > 2*c.config.ReplyBytes {
		return of, nil, fmt.Errorf("%w: %d bytes of replies that are not complete", wire.ErrCorrupt, c.partBytes)
	}
	_, _ = got.WriteString(text)
	if state == partLast {
		c.forget(of)
		all := wire.Fields[string]{Rest: got.String()}
		whole = values(&all)
		if all.Err == nil && len(all.Rest) > 0 {
			all.Err = fmt.Errorf("%w: reply in parts", wire.ErrCorrupt)
		}
		f.Err = all.Err
	}
	return of, whole, f.Err
}

// forget drops the received parts of a reply.
func (c *connection) forget(of partOf) {
	if got := c.parts[of]; got != nil {
		c.partBytes -= got.Len()
		delete(c.parts, of)
	}
}

var errHungUp = errors.New("the leader hung up")

func (c *connection) status(f *wire.Fields[string]) {
	b := Status{Term: f.Number(), Commit: f.Number()}
	for range f.Number() {
		m := Member{ID: f.Bytes(), About: About{ClientAddr: f.Bytes(), SentinelAddr: f.Bytes()}}
		state := f.Number()
		m.Silent, m.DiskFull = state&1 != 0, state&2 != 0
		m.LogIndex, m.Release = f.Number(), f.Bytes()
		m.NewestVersion, m.HoldVersion = f.Number(), f.Number()
		if b.Members = append(b.Members, m); f.Err != nil {
			return
		}
	}
	if f.Err == nil {
		c.config.OnStatus(b)
	}
}

// sendWait sends a WAIT. The channel gets the number of nodes, or is closed when the connection breaks.
func (c *connection) sendWait(nodes int, timeout time.Duration) <-chan int {
	answer := make(chan int, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastWait++
	c.waits[c.lastWait] = answer
	c.out = binary.AppendUvarint(append(c.out, kindWait), c.lastWait)
	c.out = binary.AppendUvarint(c.out, uint64(nodes))
	c.out = binary.AppendUvarint(c.out, uint64(timeout.Milliseconds()))
	notify(c.wake)
	return answer
}

// report answers an inquiry. The leader bounds the number of inquiries at a time.
func (c *connection) report(number uint64, question string) {
	answer := protocol.AppendValue(nil, c.config.Report(question))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports = append(c.reports, wire.AppendBytes(binary.AppendUvarint([]byte{kindReport}, number), string(answer)))
	notify(c.wake)
}

// subscribe has the leader told what this node wants.
func (c *connection) subscribe(w wanted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted, c.wantedDue = w, true // a flag, not a message for each change: clients change it often
	notify(c.wake)
}

func (c *connection) answer(number uint64, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait := c.waits[number]; wait != nil {
		delete(c.waits, number)
		wait <- n
	}
}

// hangUp closes the channels of unanswered WAITs.
func (c *connection) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for number, wait := range c.waits {
		delete(c.waits, number)
		close(wait)
	}
}
