package replica

import (
	"bufio"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
	"github.com/holdfast/holdfast/server/raftnode"
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
	// readOverhead is what a read that waits takes beside its body.
	readOverhead = 128
)

// inbound is the leader's end of one follower's link.
type inbound struct {
	r      *Replica
	conn   net.Conn
	origin protocol.Origin
	out    *outbox
	wake   chan struct{} // there is something to send
	asked  chan struct{} // there are reads
	parts  sync.WaitGroup

	mu        sync.Mutex
	reads     []forwardedRead
	readBytes int // of the reads that came and are not answered
	waits     int
}

type forwardedRead struct {
	number   uint64
	count    int
	body     string
	deadline time.Time
	size     int // of its reply, when there was no room for it

	read    bool // it took long, and this came of it
	replies []protocol.Value
	err     error
}

func (f forwardedRead) rank() int { return f.size }

// receive runs one link that another node opened.
func (b *inbox) receive(ctx context.Context, conn net.Conn) {
	br := bufio.NewReaderSize(conn, 64<<10)
	_ = conn.SetDeadline(time.Now().Add(greetWithin))
	frame, err := wire.Read(br, nil, wire.Short)
	if err == nil && len(frame) > 0 && frame[0] == raftnode.ProposalKind {
		if err := b.r.node.AnswerProposal(conn, frame); err != nil {
			b.r.config.Logger.Debug("answer proposal", "error", err)
		}
		return
	}
	in, err := b.greet(conn, frame)
	if err != nil {
		b.r.config.Logger.Debug("refuse link", "error", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	in.parts.Go(func() { in.send(ctx) })
	in.parts.Go(func() { in.answerReads(ctx) })
	err = in.listen(ctx, br)
	b.dismiss(in)
	cancel()
	_ = conn.Close()
	in.parts.Wait()
	b.r.config.Logger.Debug("link ended", "from", in.origin.Node, "error", err)
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
		out: newOutbox(b.r.config.Limits.ReplyBytes, hello.features&featureParts == 0),
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
	if _, err := conn.Write(wire.Seal(welcome.append(make([]byte, wire.Head), kindWelcome))); err != nil {
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
	return wire.MayBe(conn, name) && r.config.InitialCluster[name] != "" && name != r.config.Name
}

// listen takes frames until the link breaks.
func (in *inbound) listen(ctx context.Context, br *bufio.Reader) error {
	limit := in.r.config.Limits.BatchBytes + wire.Step
	var writes []forwarded
	for {
		// Bodies stay in the frame until they are in an entry: each frame has memory of its own.
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
				w := forwarded{origin: in.origin, seq: f.Number(), low: f.Number(), body: f.Bytes()}
				writes = append(writes, w)
			case kindRead:
				reads = append(reads, forwardedRead{
					number: f.Number(), count: int(f.Number()), body: string(f.Bytes()), deadline: time.Now().Add(in.r.config.Timing.Command),
				})
			case kindWait:
				number, nodes, millis := f.Number(), int(f.Number()), f.Number()
				if f.Err == nil {
					in.wait(ctx, number, nodes, time.Duration(millis)*time.Millisecond)
				}
			default:
				return fmt.Errorf("%w: kind %q", wire.ErrCorrupt, kind)
			}
		}
		if f.Err != nil {
			return f.Err
		}
		if len(writes) > 0 {
			if err := in.r.inbox.put(in, writes); err != nil {
				return err
			}
		}
		if len(reads) > 0 {
			in.ask(reads)
		}
	}
}

// ask queues reads. One for which there is no room is refused: writes come over the same connection, and go on.
func (in *inbound) ask(reads []forwardedRead) {
	bound := in.r.config.Limits.PendingBytes / max(len(in.r.config.InitialCluster)-1, 1)
	in.mu.Lock()
	var refused []uint64
	for _, f := range reads {
		if cost := len(f.body) + readOverhead; in.readBytes == 0 || in.readBytes+cost <= bound {
			in.readBytes += cost
			in.reads = append(in.reads, f)
		} else {
			refused = append(refused, f.number)
		}
	}
	in.mu.Unlock()
	for _, number := range refused {
		in.refuse(number, protocol.ErrBusy)
	}
	notify(in.asked)
	notify(in.wake)
}

// settled is called when a read is answered, or needs no answer any more.
func (in *inbound) settled(f *forwardedRead) {
	in.mu.Lock()
	in.readBytes -= len(f.body) + readOverhead
	in.mu.Unlock()
}

// answerReads serves the reads that came while the last ones were served. A read for whose reply there is no room
// yet is made again when there is: until then it takes its own bytes alone, and those behind it are not held up.
func (in *inbound) answerReads(ctx context.Context) {
	var later bySize[forwardedRead]
	for {
		select {
		case <-in.asked:
		case <-in.out.eased:
		case <-ctx.Done():
			return
		}
		in.mu.Lock()
		reads := in.reads
		in.reads = nil
		in.mu.Unlock()
		var err error
		if len(reads) > 0 {
			err = in.r.confirmAsLeader(ctx)
		}
		for i := range reads {
			if !in.serve(ctx, &reads[i], err) {
				heap.Push(&later, reads[i])
			}
		}
		for len(later) > 0 && in.out.fits(later[0].size) {
			f := heap.Pop(&later).(forwardedRead)
			if !in.serve(ctx, &f, nil) {
				heap.Push(&later, f)
			}
		}
		notify(in.wake)
	}
}

// serve makes one read, after a leadership check that ended with err. It reports
// whether the read is settled: else there was no room for the reply.
func (in *inbound) serve(ctx context.Context, f *forwardedRead, err error) bool {
	for in.out.holds(shortBytes) {
		notify(in.wake)
		select {
		case <-in.out.eased:
		case <-ctx.Done():
			return true
		}
	}
	var replies []protocol.Value
	switch {
	case err != nil:
	case f.read:
		// Without room for them it is made again.
		replies, err = f.replies, f.err
		f.read, f.replies = false, nil
	case time.Now().Before(f.deadline):
		var rest string
		if replies, rest, err = in.r.readSome(f.body, f.count, f.deadline, fsm.Glance); err == nil && rest != "" {
			in.readOn(*f, replies, rest)
			return true
		}
	default:
		err = protocol.ErrNoLeader
	}
	if err == nil {
		size, ok := protocol.SizesWithin(replies, in.r.config.Limits.ReplyBytes)
		if ok && !in.out.put(kindAnswer, f.number, replies, size, f.deadline) {
			f.size = size
			return false
		}
		if !ok {
			err = errReplyTooLarge
		}
	}
	in.settled(f)
	if err == nil || errors.Is(err, errReroute) || errors.Is(err, context.Canceled) {
		return true // without an answer the link is about to be shut, and the follower asks elsewhere
	}
	var row *protocol.Error
	if !errors.As(err, &row) {
		row = errInternal
	}
	in.refuse(f.number, row)
	return true
}

// readOn makes the rest of a read that takes long. Other reads do not wait for it.
func (in *inbound) readOn(f forwardedRead, replies []protocol.Value, rest string) {
	in.parts.Go(func() {
		f.replies, f.err = in.r.readOn(replies, rest, f.count, f.deadline)
		f.read = true
		in.mu.Lock()
		in.reads = append(in.reads, f)
		in.mu.Unlock()
		notify(in.asked)
	})
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

// refuse answers a read with an error row.
func (in *inbound) refuse(number uint64, row *protocol.Error) {
	in.out.add(func(dst []byte) []byte {
		dst = binary.AppendUvarint(append(dst, kindRefuse), number)
		dst = binary.AppendUvarint(dst, uint64(row.Outcome))
		return wire.AppendBytes(wire.AppendBytes(dst, row.Prefix), row.Text)
	})
}

// replyWrite sends the reply to one write, unless there is no room for it: the follower
// gets it from its own log, too. The caller notifies in.wake.
func (in *inbound) replyWrite(seq uint64, replies []protocol.Value) {
	size, ok := protocol.SizesWithin(replies, in.r.config.Limits.ReplyBytes)
	if ok && !in.out.holds(2*shortBytes) {
		in.out.put(kindWrote, seq, replies, size, time.Now().Add(in.r.config.Timing.Command))
	}
}

// send writes what is there to be sent, and a beacon now and then.
func (in *inbound) send(ctx context.Context) {
	conn := &wire.Steady{Conn: in.conn}
	spare := make([]byte, wire.Head, 4096)
	beacon := time.NewTicker(beaconEvery)
	defer beacon.Stop()
	in.beacon()
	for {
		frame, more := in.out.take(spare)
		if len(frame) > wire.Head {
			if _, err := conn.Write(wire.Seal(frame)); err != nil {
				_ = in.conn.Close()
				return
			}
		}
		if spare = frame; cap(spare) > 4*wire.Gather {
			spare = make([]byte, wire.Head, 4096)
		}
		if more {
			select {
			case <-beacon.C:
				in.beacon()
			default:
			}
			continue
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

// beacon says that the leader is there, how far it is, and where clients find whom. It is also when the leader looks
// whether its followers make progress.
func (in *inbound) beacon() {
	if l := in.r.serving.Load(); l != nil {
		in.r.node.Look(l.term)
	}
	term, commit, members := in.r.node.Term(), in.r.node.Committed(), in.r.addresses.all()
	in.out.add(func(dst []byte) []byte {
		dst = binary.AppendUvarint(append(dst, kindBeacon), term)
		dst = binary.AppendUvarint(dst, commit)
		dst = binary.AppendUvarint(dst, uint64(len(members)))
		for _, m := range members {
			dst = wire.AppendBytes(wire.AppendBytes(dst, m.Name), m.ClientAddr)
		}
		return dst
	})
}

// wait answers a WAIT on a goroutine of its own: it may take as long as its client likes.
func (in *inbound) wait(ctx context.Context, number uint64, nodes int, timeout time.Duration) {
	in.mu.Lock()
	tooMany := in.waits >= maxWaits
	if !tooMany {
		in.waits++
	}
	in.mu.Unlock()
	respond := func(n int) {
		in.out.add(func(dst []byte) []byte {
			return binary.AppendUvarint(binary.AppendUvarint(append(dst, kindWaited), number), uint64(n))
		})
		notify(in.wake)
	}
	if tooMany {
		respond(in.r.node.Quorum())
		return
	}
	in.parts.Go(func() {
		respond(in.r.waitHere(ctx, nodes, timeout))
		in.mu.Lock()
		in.waits--
		in.mu.Unlock()
	})
}
