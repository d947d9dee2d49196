package forward

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// Timing of a link.
const (
	greetTimeout = 5 * time.Second
	// statusInterval is the time between two status messages of the leader.
	statusInterval = time.Second
	// SilenceTimeout is the time without a message after which a follower closes its link.
	SilenceTimeout = 3500 * time.Millisecond
	// maxWaits bounds the unanswered WAITs of one link.
	maxWaits = 1024
	// maxUnprepared bounds the batches of one link that wait for the compiler.
	maxUnprepared = 64
)

// Peer is the leader's end of one follower's link.
type Peer struct {
	config      *ReceiverConfig
	conn        net.Conn
	origin      protocol.Incarnation
	out         *outbox
	wake        chan struct{} // signals that out is not empty
	readsQueued chan struct{} // signals that reads is not empty
	sources     chan Batch    // batches that wait for the compiler
	parts       sync.WaitGroup
	ended       chan struct{} // closed once no more messages are read
	usable      uint64        // see About.usable

	mu        sync.Mutex
	reads     []forwardedRead
	readBytes int // the memory of unanswered reads
	waits     int
	inquiries uint64
	reports   map[uint64]chan protocol.Value // the answers of open inquiries, by number
}

func newPeer(config *ReceiverConfig, conn net.Conn, hello greeting) *Peer {
	return &Peer{
		config: config, conn: conn, origin: protocol.Incarnation{Node: hello.id, Epoch: hello.epoch},
		wake: make(chan struct{}, 1), readsQueued: make(chan struct{}, 1), sources: make(chan Batch, maxUnprepared),
		out: newOutbox(config.ReplyBytes), usable: hello.about.usable(),
		ended: make(chan struct{}), reports: make(map[uint64]chan protocol.Value),
	}
}

// listen reads frames until the link breaks.
func (p *Peer) listen(ctx context.Context, br *bufio.Reader, put func(...Batch) error, subscribe func(commits, diskFull bool),
) error {
	limit := p.config.BatchBytes + wire.Step
	var writes []Batch
	for {
		// Bodies share the frame's memory until they are copied into an entry, so each frame has memory of its own.
		frame, err := wire.Read(br, nil, limit)
		if err != nil {
			return err
		}
		writes = writes[:0]
		var reads []forwardedRead
		f := wire.Fields[[]byte]{Rest: frame}
		for f.More() {
			switch kind := f.Kind(); kind {
			case kindWrite:
				w := Batch{Origin: p.origin, Seq: f.Number(), Low: f.Number()}
				unpackHints(&w, f.Number())
				w.Body = f.Bytes()
				if !w.Hints.Has(protocol.LargeScript) || f.Err != nil {
					writes = append(writes, w)
				} else if err := p.queueForCompiler(ctx, w); err != nil {
					return err
				}
			case kindRead:
				reads = append(reads, forwardedRead{
					number: f.Number(), count: int(f.Number()), body: string(f.Bytes()),
					deadline: time.Now().Add(p.config.CommandTimeout),
				})
			case kindCensus:
				reads = append(reads, forwardedRead{
					number: f.Number(), census: true, body: string(f.Bytes()),
					deadline: time.Now().Add(p.config.CommandTimeout),
				})
			case kindReport:
				number, answer := f.Number(), string(f.Bytes())
				if f.Err == nil {
					f.Err = p.report(number, answer)
				}
			case kindWait:
				number, nodes, millis := f.Number(), int(f.Number()), f.Number()
				if f.Err == nil {
					p.wait(ctx, number, nodes, time.Duration(millis)*time.Millisecond)
				}
			case kindSubscribe:
				n := f.Number()
				subscribe(n&1 != 0, n&2 != 0)
			default:
				return fmt.Errorf("%w: kind %q", wire.ErrCorrupt, kind)
			}
		}
		if f.Err != nil {
			return f.Err
		}
		if len(writes) > 0 {
			if err := put(writes...); err != nil {
				return err
			}
			clear(writes) // frees the frame's memory
		}
		if len(reads) > 0 {
			p.queueReads(reads)
		}
	}
}

// queueForCompiler queues a batch for the compiler, so that later batches can pass it.
func (p *Peer) queueForCompiler(ctx context.Context, b Batch) error {
	select {
	case p.sources <- b:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// prepare compiles the sources of batches, one batch after another, and then passes each batch to put.
func (p *Peer) prepare(ctx context.Context, put func(...Batch) error) {
	for {
		select {
		case b := <-p.sources:
			p.config.Prepare(b.Body)
			_ = put(b) // after an error the link ends, and so does ctx
		case <-ctx.Done():
			return
		}
	}
}

// Reply queues the reply to one write, or drops it if there is no room, as the follower's own log has it. The caller
// calls [Peer.Flush] after the last.
func (p *Peer) Reply(seq uint64, replies []protocol.Value) {
	size, ok := protocol.SizesWithin(replies, p.config.ReplyBytes)
	if ok && !p.out.holds(2*shortBytes) {
		p.out.put(kindWrote, seq, replies, size, time.Now().Add(p.config.CommandTimeout))
	}
}

// Flush starts sending the queued replies.
func (p *Peer) Flush() { notify(p.wake) }

// send writes queued messages, and a status message every statusInterval, until ctx ends.
func (p *Peer) send(ctx context.Context) {
	conn := &wire.Steady{Conn: p.conn}
	spare := make([]byte, wire.Head, 4096)
	status := time.NewTicker(statusInterval)
	defer status.Stop()
	p.putStatus()
	for {
		frame, more := p.out.take(spare)
		if len(frame) > wire.Head {
			if _, err := conn.Write(wire.Seal(frame)); err != nil {
				_ = p.conn.Close()
				return
			}
		}
		if spare = wire.Kept(frame); spare == nil {
			spare = make([]byte, wire.Head, 4096)
		}
		if more {
			select {
			case <-status.C:
				p.putStatus()
			default:
			}
			continue
		}
		select {
		case <-p.wake:
		case <-status.C:
			p.putStatus()
		case <-ctx.Done():
			return
		}
	}
}

// putStatus queues a status message.
func (p *Peer) putStatus() {
	b := p.config.Status()
	p.out.add(func(dst []byte) []byte {
		dst = binary.AppendUvarint(append(dst, kindStatus), b.Term)
		dst = binary.AppendUvarint(dst, b.Commit)
		dst = binary.AppendUvarint(dst, uint64(len(b.Members)))
		for _, m := range b.Members {
			dst = wire.AppendBytes(wire.AppendBytes(wire.AppendBytes(dst, m.ID), m.ClientAddr), m.SentinelAddr)
			dst = binary.AppendUvarint(binary.AppendUvarint(dst, bits(m.Silent, m.DiskFull)), m.LogIndex)
			dst = appendVersions(wire.AppendBytes(dst, m.Release), &m.About)
		}
		return dst
	})
}

// wait answers a WAIT on a goroutine of its own, as the client chooses the timeout.
func (p *Peer) wait(ctx context.Context, number uint64, nodes int, timeout time.Duration) {
	p.mu.Lock()
	tooMany := p.waits >= maxWaits
	if !tooMany {
		p.waits++
	}
	p.mu.Unlock()
	respond := func(n int) {
		p.out.add(func(dst []byte) []byte {
			return binary.AppendUvarint(binary.AppendUvarint(append(dst, kindWaited), number), uint64(n))
		})
		notify(p.wake)
	}
	if tooMany {
		respond(p.config.Quorum())
		return
	}
	p.parts.Go(func() {
		respond(p.config.Wait(ctx, nodes, timeout))
		p.mu.Lock()
		p.waits--
		p.mu.Unlock()
	})
}

// inquire sends a question about the follower's clients, and returns the answer.
func (p *Peer) inquire(ctx context.Context, question string) (protocol.Value, error) {
	answer := make(chan protocol.Value, 1)
	p.mu.Lock()
	p.inquiries++
	number := p.inquiries
	p.reports[number] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.reports, number)
		p.mu.Unlock()
	}()
	p.out.add(func(dst []byte) []byte {
		return wire.AppendBytes(binary.AppendUvarint(append(dst, kindInquiry), number), question)
	})
	notify(p.wake)
	select {
	case v := <-answer:
		return v, nil
	case <-p.ended:
		return protocol.Value{}, net.ErrClosed
	case <-ctx.Done():
		return protocol.Value{}, ctx.Err()
	}
}

// report delivers the answer to an inquiry, unless inquire has returned.
func (p *Peer) report(number uint64, answer string) error {
	v, rest, err := protocol.DecodeValue(answer)
	if err != nil || rest != "" {
		return fmt.Errorf("%w: report", wire.ErrCorrupt)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if waits := p.reports[number]; waits != nil {
		delete(p.reports, number)
		waits <- v
	}
	return nil
}
