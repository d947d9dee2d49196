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

	mu    sync.Mutex
	asks  map[uint64]chan int // WAITs
	asked uint64
	out   []byte // their messages
	// subscribed: this node wants commit notifications. subscriptionDue: the leader does not know yet.
	subscribed, subscriptionDue bool
	reports                     [][]byte // messages with answers to the leader's inquiries

	reporting sync.WaitGroup // the goroutines that answer

	// The sender's alone: the frame, and the functions that append batches to the frame.
	frame             []byte
	addWrite, addRead func(*Batch) bool
	// The listener's alone.
	parts     map[partOf]*strings.Builder // large replies that are not complete
	partBytes int                         // of all of them
	wrote     []Completion
	answered  []Completion
	lastReply time.Time // the time of the newest reply, or of the connection's start
}

// partOf names the reply that a part belongs to.
type partOf struct {
	kind   byte
	number uint64
}

func newConnection(config *ClientConfig, leader string, conn net.Conn) *connection {
	c := &connection{
		config: config, leader: leader, conn: conn, wake: make(chan struct{}, 1),
		asks: make(map[uint64]chan int), parts: make(map[partOf]*strings.Builder), lastReply: time.Now(),
	}
	// Made once: each use of a method as a value would allocate.
	c.addWrite, c.addRead = c.appendWrite, c.appendRead
	return c
}

// send writes what waits into frames, everything that has come meanwhile into one.
func (c *connection) send(ctx context.Context) error {
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return nil
		}
		for {
			// Connections that are ready to run put their batches in first: a frame
			// costs both nodes more than a batch does.
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

// gather makes a frame of what waits.
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
	if c.subscriptionDue {
		c.frame = appendBool(append(c.frame, kindSubscribe), c.subscribed)
		c.subscriptionDue = false
	}
}

// fits reports whether so many bytes go into the frame: an empty frame takes any number.
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

// listen takes the leader's frames until the connection breaks.
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

// errUnanswered: status messages come, and replies do not. What this node sends is lost, or the leader commits nothing:
// a new connection helps in the first case, and costs little in the second.
var errUnanswered = fmt.Errorf("nothing that was sent has been answered for %v", DeafAfter)

// stuck reports whether nothing that was sent is answered any more.
func (c *connection) stuck() bool {
	now := time.Now()
	if len(c.wrote)+len(c.answered) > 0 {
		c.lastReply = now
	}
	return now.Sub(c.lastReply) >= DeafAfter &&
		max(c.config.Writes.Unanswered(c), c.config.Reads.Unanswered(c)) >= DeafAfter
}

// message takes one message of the leader.
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

// part takes a part, which ends the frame, and returns the whole reply with the last.
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
		// The batch has an answer: the time limit was over, or this node's own log had the replies.
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

// forget gives up what there is of a reply.
func (c *connection) forget(of partOf) {
	if got := c.parts[of]; got != nil {
		c.partBytes -= got.Len()
		delete(c.parts, of)
	}
}

var errHungUp = errors.New("the leader hung up")

// status takes a status message.
func (c *connection) status(f *wire.Fields[string]) {
	b := Status{Term: f.Number(), Commit: f.Number()}
	for range f.Number() {
		m := Member{ID: f.Bytes(), About: About{ClientAddr: f.Bytes(), SentinelAddr: f.Bytes()}}
		m.Silent, m.LogIndex, m.Release = f.Number() != 0, f.Number(), f.Bytes()
		m.NewestVersion, m.HoldVersion = f.Number(), f.Number()
		if b.Members = append(b.Members, m); f.Err != nil {
			return
		}
	}
	if f.Err == nil {
		c.config.OnStatus(b)
	}
}

// ask sends a WAIT.
func (c *connection) ask(nodes int, timeout time.Duration) <-chan int {
	answer := make(chan int, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	c.asks[c.asked] = answer
	c.out = binary.AppendUvarint(append(c.out, kindWait), c.asked)
	c.out = binary.AppendUvarint(c.out, uint64(nodes))
	c.out = binary.AppendUvarint(c.out, uint64(timeout.Milliseconds()))
	notify(c.wake)
	return answer
}

// report answers an inquiry of the leader, which bounds how many there are at a time.
func (c *connection) report(number uint64, question string) {
	answer := protocol.AppendValue(nil, c.config.Report(question))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports = append(c.reports, wire.AppendBytes(binary.AppendUvarint([]byte{kindReport}, number), string(answer)))
	notify(c.wake)
}

// subscribe sends whether this node wants commit notifications.
func (c *connection) subscribe(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribed, c.subscriptionDue = yes, true // a flag and no message each: clients come and go quickly
	notify(c.wake)
}

func (c *connection) answer(number uint64, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if asked := c.asks[number]; asked != nil {
		delete(c.asks, number)
		asked <- n
	}
}

// hangUp ends the WAITs that got no answer.
func (c *connection) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for number, asked := range c.asks {
		delete(c.asks, number)
		close(asked)
	}
}
