package replica

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Timing of a link.
const (
	greetWithin = 5 * time.Second
	// beaconEvery is how often the leader says something on an idle link, and
	// deafAfter when a follower gives up a link on which nothing is said.
	beaconEvery = time.Second
	deafAfter   = 3500 * time.Millisecond
	// maxWaits bounds the WAIT commands that one link has open.
	maxWaits = 1024
)

// inbound is the leader's end of one follower's link.
type inbound struct {
	r      *Replica
	conn   net.Conn
	origin protocol.Origin
	wake   chan struct{} // there is something to send
	asked  chan struct{} // there are reads

	mu    sync.Mutex
	out   []byte // the frame to send next, with room for its head
	reads []forwardedRead
	waits int
}

type forwardedRead struct {
	number uint64
	count  int
	body   string
}

// receive runs one link that another node opened.
func (b *inbox) receive(ctx context.Context, conn net.Conn) {
	br := bufio.NewReaderSize(conn, 64<<10)
	_ = conn.SetDeadline(time.Now().Add(greetWithin))
	frame, err := readFrame(br, nil, greetingLimit)
	if err == nil && len(frame) > 0 && frame[0] == kindBallot {
		if err := b.r.succession.answer(conn, frame); err != nil {
			b.r.config.Logger.Debug("answer ballot", "error", err)
		}
		return
	}
	in, err := b.greet(conn, frame)
	if err != nil {
		b.r.config.Logger.Debug("refuse link", "error", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { in.send(ctx) })
	parts.Go(func() { in.answerReads(ctx) })
	err = in.listen(ctx, br, &parts)
	b.dismiss(in)
	cancel()
	_ = conn.Close()
	parts.Wait()
	b.r.config.Logger.Debug("link ended", "node", in.origin.Node, "error", err)
}

// greet finds out who is at the other end, and admits it if this node leads.
func (b *inbox) greet(conn net.Conn, frame []byte) (*inbound, error) {
	hello, err := parseGreeting(frame, kindHello)
	if err != nil {
		return nil, err
	}
	in := &inbound{
		r: b.r, conn: conn, origin: protocol.Origin{Node: hello.name, Epoch: hello.epoch},
		wake: make(chan struct{}, 1), asked: make(chan struct{}, 1),
		out: make([]byte, frameHead, 4096),
	}
	welcome := greeting{version: linkVersion, name: b.r.config.Name, clientAddr: b.r.config.ClientAddr}
	switch {
	case hello.version != linkVersion:
		welcome.verdict = verdictVersion
	case !b.r.authentic(conn, hello.name):
		welcome.verdict = verdictStranger
	case !b.admit(in):
		welcome.verdict = verdictNotLeading
	}
	if _, err := conn.Write(sealFrame(welcome.append(make([]byte, frameHead), kindWelcome))); err != nil {
		b.dismiss(in)
		return nil, err
	}
	if welcome.verdict != verdictOK {
		return nil, fmt.Errorf("refuse node %q: verdict %d", hello.name, welcome.verdict)
	}
	_ = conn.SetDeadline(time.Time{})
	b.r.addresses.set(hello.name, hello.clientAddr)
	return in, nil
}

// authentic reports whether conn comes from the other member of that name.
func (r *Replica) authentic(conn net.Conn, name string) bool {
	if peer, ok := conn.(interface{ PeerName() string }); ok && peer.PeerName() != name {
		return false
	}
	return r.config.InitialCluster[name] != "" && name != r.config.Name
}

// listen takes frames until the link breaks.
func (in *inbound) listen(ctx context.Context, br *bufio.Reader, parts *sync.WaitGroup) error {
	limit := in.r.config.Limits.UnitBytes + frameStep
	var writes []forwarded
	for {
		// Bodies stay in the frame until they are in an entry: each frame has memory of its own.
		frame, err := readFrame(br, nil, limit)
		if err != nil {
			return err
		}
		writes = writes[:0]
		var reads []forwardedRead
		f := fields[[]byte]{rest: frame}
		for f.more() {
			switch kind := f.kind(); kind {
			case kindWrite:
				w := forwarded{origin: in.origin, seq: f.number(), low: f.number(), body: f.bytes()}
				writes = append(writes, w)
			case kindRead:
				reads = append(reads, forwardedRead{number: f.number(), count: int(f.number()), body: string(f.bytes())})
			case kindWait:
				number, nodes, millis := f.number(), int(f.number()), f.number()
				if f.err == nil {
					in.wait(ctx, parts, number, nodes, time.Duration(millis)*time.Millisecond)
				}
			default:
				return fmt.Errorf("%w: kind %q", errFrame, kind)
			}
		}
		if f.err != nil {
			return f.err
		}
		if len(writes) > 0 {
			if err := in.r.inbox.put(in, writes); err != nil {
				return err
			}
		}
		if len(reads) > 0 {
			in.mu.Lock()
			in.reads = append(in.reads, reads...)
			in.mu.Unlock()
			notify(in.asked)
		}
	}
}

// answerReads serves the reads that came while the last ones were served.
func (in *inbound) answerReads(ctx context.Context) {
	for {
		select {
		case <-in.asked:
		case <-ctx.Done():
			return
		}
		in.mu.Lock()
		reads := in.reads
		in.reads = nil
		in.mu.Unlock()
		deadline := time.Now().Add(in.r.config.Timing.Command)
		err := in.r.confirmAsLeader(ctx)
		for i := range reads {
			var replies []protocol.Value
			e := err
			if e == nil {
				replies, e = in.r.readHere(reads[i].body, reads[i].count, deadline)
			}
			in.answer(reads[i].number, replies, e)
		}
		notify(in.wake)
	}
}

// confirmAsLeader is a leadership check that waits until this node serves.
func (r *Replica) confirmAsLeader(ctx context.Context) error {
	for r.serving.Load() == nil {
		// Elected, and its first entry is not applied yet: that comes, or the
		// link is shut.
		if err := r.serves.wait(ctx); err != nil {
			return err
		}
	}
	return r.rounds.confirm()
}

// answer appends the reply to one read.
func (in *inbound) answer(number uint64, replies []protocol.Value, err error) {
	if errors.Is(err, errReroute) || errors.Is(err, context.Canceled) {
		return // the link is about to be shut, and the follower asks elsewhere
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	start := len(in.out)
	var row *protocol.Error
	if err != nil && !errors.As(err, &row) {
		row = errInternal
	}
	if row == nil {
		in.out = binary.AppendUvarint(append(in.out, kindAnswer), number)
		in.out = appendValues(in.out, replies)
		if len(in.out)-start <= in.r.config.Limits.ReplyBytes {
			in.overflow()
			return
		}
		in.out, row = in.out[:start], errReplyTooLarge
	}
	in.out = binary.AppendUvarint(append(in.out, kindRefuse), number)
	in.out = binary.AppendUvarint(in.out, uint64(row.Outcome))
	in.out = appendBytes(appendBytes(in.out, row.Prefix), row.Text)
}

// replyWrite appends the reply to one write. The caller notifies in.wake.
func (in *inbound) replyWrite(seq uint64, replies []protocol.Value) {
	in.mu.Lock()
	defer in.mu.Unlock()
	start := len(in.out)
	in.out = binary.AppendUvarint(append(in.out, kindWrote), seq)
	in.out = appendValues(in.out, replies)
	if len(in.out)-start > in.r.config.Limits.ReplyBytes {
		in.out = in.out[:start] // the follower gets it from its own log
	}
	in.overflow()
}

// overflow ends the link of a follower that does not take its replies.
func (in *inbound) overflow() {
	if len(in.out) > 2*in.r.config.Limits.ReplyBytes {
		in.out = in.out[:frameHead]
		_ = in.conn.Close()
	}
}

// send writes what is there to be sent, and a beacon now and then.
func (in *inbound) send(ctx context.Context) {
	spare := make([]byte, frameHead, 4096)
	beacon := time.NewTicker(beaconEvery)
	defer beacon.Stop()
	in.beacon()
	for {
		in.mu.Lock()
		frame := in.out
		in.out = spare[:frameHead]
		in.mu.Unlock()
		if len(frame) > frameHead {
			if _, err := in.conn.Write(sealFrame(frame)); err != nil {
				_ = in.conn.Close()
				return
			}
		}
		if spare = frame; cap(spare) > 4*frameGather {
			spare = make([]byte, frameHead, 4096)
		}
		select {
		case <-in.wake:
		case <-beacon.C:
			in.beacon()
		case <-ctx.Done():
			return
		}
	}
}

// beacon says that the leader is there, how far it is, and where clients find whom.
func (in *inbound) beacon() {
	members := in.r.addresses.all()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.out = binary.AppendUvarint(append(in.out, kindBeacon), in.r.raft.CurrentTerm())
	in.out = binary.AppendUvarint(in.out, in.r.raft.CommitIndex())
	in.out = binary.AppendUvarint(in.out, uint64(len(members)))
	for _, m := range members {
		in.out = appendBytes(appendBytes(in.out, m.Name), m.ClientAddr)
	}
}

// wait answers a WAIT on a goroutine of its own: it may take as long as its client likes.
func (in *inbound) wait(ctx context.Context, parts *sync.WaitGroup, number uint64, nodes int, timeout time.Duration) {
	in.mu.Lock()
	tooMany := in.waits >= maxWaits
	if !tooMany {
		in.waits++
	}
	in.mu.Unlock()
	respond := func(n int) {
		in.mu.Lock()
		in.out = binary.AppendUvarint(append(in.out, kindWaited), number)
		in.out = binary.AppendUvarint(in.out, uint64(n))
		in.mu.Unlock()
		notify(in.wake)
	}
	if tooMany {
		respond(in.r.acks.quorum)
		return
	}
	parts.Go(func() {
		respond(in.r.waitHere(ctx, nodes, timeout))
		in.mu.Lock()
		in.waits--
		in.mu.Unlock()
	})
}
