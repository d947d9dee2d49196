package forward

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// Receiver is the leader's end of all links: what followers forward. Receiver is open from when this node
// is elected; until the node serves, writes wait in the queue and reads for their first check.
type Receiver struct {
	config ReceiverConfig

	mu    sync.Mutex
	term  uint64 // of the leadership that the queue is open for; 0 while shut
	peers map[string]*Peer
	queue []Batch // the head of the queue at first
	first int
	taken uint64 // the number of the batch at first: batches are counted as they come into the queue
	// large are the large batches, in the order of arrival. They come into the queue as the leader has room for them:
	// admitted is the number behind the newest there.
	large    []Batch
	admitted uint64
	bytes    int       // of both
	room     sync.Cond // bytes fell, or the queue was shut
}

// ReceiverConfig is what a [Receiver] needs. All fields must be set. The functions must be safe for many goroutines.
type ReceiverConfig struct {
	Self     Identity
	Listener net.Listener
	// Other is shown the first frame of a connection. Other reports whether the frame is no
	// greeting of a link, and was answered.
	Other func(conn net.Conn, frame []byte) bool
	// IsMember reports whether conn comes from the other member of that ID.
	IsMember func(conn net.Conn, id string) bool
	// OnGreeting is called with the greeting of a follower: where clients reach the node.
	OnGreeting func(Member)
	// Status returns the status message for each follower, at the start of a link and then every second.
	Status func() Status
	// Prepare compiles the sources in the body of a batch.
	Prepare func(body []byte)
	// Subscribed is called when a follower subscribes to commit notifications, or ends that. A follower without a
	// link is not subscribed. Subscribed is called while the queue is locked.
	Subscribed func(id string, yes bool)
	// Wake gets a word when writes have come.
	Wake chan<- struct{}

	// Confirm returns nil when this node's state is at least what the state was anywhere when
	// Confirm was called, or an error at the deadline. On a node that is elected and does not serve yet, Confirm waits
	// until ctx ends.
	Confirm func(ctx context.Context, deadline time.Time) error
	// ReadShort makes the reads that fit into a short read, and returns the rest of body. ReadLong makes the rest.
	ReadShort func(body string, count int, deadline time.Time) (replies []protocol.Value, rest string, err error)
	ReadLong  func(replies []protocol.Value, rest string, count int, deadline time.Time) ([]protocol.Value, error)
	// Census has every node answer the question of a node.
	Census func(from protocol.Incarnation, question string, deadline time.Time) ([]protocol.Value, error)
	// Wait waits until so many other nodes have what is committed, and returns how many have.
	// Quorum is the least that Wait returns.
	Wait   func(ctx context.Context, nodes int, timeout time.Duration) int
	Quorum func() int

	// CommandTimeout is how long a command may take.
	CommandTimeout time.Duration
	// BatchBytes is the largest batch that is taken, ReplyBytes bounds the replies to a batch.
	// QueueBytes bounds the writes that wait, and the reads; each of the Followers has an equal
	// share for reads.
	BatchBytes, ReplyBytes, QueueBytes int
	// Followers is how many other members there are.
	Followers func() int

	Logger *slog.Logger
}

// NewReceiver returns a receiver that is shut.
func NewReceiver(c ReceiverConfig) *Receiver {
	r := &Receiver{config: c, peers: make(map[string]*Peer)}
	r.room.L = &r.mu
	return r
}

// Run accepts links until ctx ends.
func (r *Receiver) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, r.Shut) // whatever waits in put goes on
	defer stop()
	return wire.Accept(ctx, r.config.Listener, r.receive)
}

// receive runs a link that another node opened.
func (r *Receiver) receive(ctx context.Context, conn net.Conn) {
	br := bufio.NewReaderSize(conn, 64<<10)
	_ = conn.SetDeadline(time.Now().Add(greetWithin))
	frame, err := wire.Read(br, nil, wire.Short)
	if err == nil && r.config.Other(conn, frame) {
		return
	}
	p, err := r.greet(conn, frame)
	if err != nil {
		r.config.Logger.Debug("refuse link", "error", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	p.parts.Go(func() { p.send(ctx) })
	p.parts.Go(func() { p.answerReads(ctx) })
	put := func(bs ...Batch) error { return r.put(p, bs) }
	p.parts.Go(func() { p.prepare(ctx, put) })
	err = p.listen(ctx, br, put, func(yes bool) { r.subscribe(p, yes) })
	r.dismiss(p)
	close(p.ended)
	cancel()
	_ = conn.Close()
	p.parts.Wait()
	r.config.Logger.Debug("link ended", "from", p.origin.Node, "error", err)
}

// greet finds out which node is at the other end, and admits the node if this node leads.
func (r *Receiver) greet(conn net.Conn, frame []byte) (*Peer, error) {
	hello, err := parseGreeting(frame, kindHello)
	if err != nil {
		return nil, err
	}
	p := newPeer(&r.config, conn, hello)
	welcome := greeting{version: linkVersion, id: r.config.Self.ID, about: r.config.Self.About}
	switch {
	case hello.version != linkVersion:
		welcome.verdict = verdictVersion
	case !r.config.IsMember(conn, hello.id):
		welcome.verdict = verdictStranger
	case !r.admit(p):
		welcome.verdict = verdictNotLeading
	}
	if _, err := conn.Write(wire.Seal(welcome.append(make([]byte, wire.Head), kindWelcome))); err != nil {
		r.dismiss(p)
		return nil, err
	}
	if welcome.verdict != verdictOK {
		return nil, fmt.Errorf("refuse node %q: verdict %d", hello.id, welcome.verdict)
	}
	if !r.config.IsMember(conn, hello.id) { // removed, and Cut did not see the link yet
		r.dismiss(p)
		return nil, fmt.Errorf("refuse node %q: it was removed", hello.id)
	}
	_ = conn.SetDeadline(time.Time{})
	r.config.OnGreeting(Member{ID: hello.id, About: hello.about})
	return p, nil
}

// Open lets followers in, for the leadership of term.
func (r *Receiver) Open(term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term = term
}

// Shut ends all links. The followers find out where to forward next; what became
// of their batches they see in the log, or send again.
func (r *Receiver) Shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term, r.queue, r.large, r.first, r.bytes = 0, nil, nil, 0, 0
	r.admitted = r.taken // what was admitted and not taken is gone
	for name, p := range r.peers {
		_ = p.conn.Close()
		delete(r.peers, name)
		r.config.Subscribed(name, false)
	}
	r.room.Broadcast()
}

// Cut ends the links of nodes that are members no more.
func (r *Receiver) Cut(member func(id string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, p := range r.peers {
		if !member(id) {
			_ = p.conn.Close() // which ends the link: see receive
		}
	}
}

// subscribe notes whether p's node wants commit notifications.
func (r *Receiver) subscribe(p *Peer, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peers[p.origin.Node] == p {
		r.config.Subscribed(p.origin.Node, yes)
	}
}

// admit makes p the link of p's node, in place of an older link.
func (r *Receiver) admit(p *Peer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.term == 0 {
		return false
	}
	if old := r.peers[p.origin.Node]; old != nil {
		_ = old.conn.Close()
		r.config.Subscribed(p.origin.Node, false)
		r.room.Broadcast() // the old link may wait in put
	}
	r.peers[p.origin.Node] = p
	return true
}

func (r *Receiver) dismiss(p *Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peers[p.origin.Node] == p {
		delete(r.peers, p.origin.Node)
		r.config.Subscribed(p.origin.Node, false)
	}
	r.room.Broadcast()
}

// Usable is the newest version of the log that the cluster may go over to for a node's sake; 0: the node has no link. A
// link is of the node's present process, so that a node that goes back to an earlier release says so first.
func (r *Receiver) Usable(id string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[id]; p != nil {
		return p.usable
	}
	return 0
}

// Peer returns the link of the session, or nil.
func (r *Receiver) Peer(o protocol.Incarnation) *Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[o.Node]; p != nil && p.origin == o {
		return p
	}
	return nil
}

// Inquire has a follower answer a question about its clients.
func (r *Receiver) Inquire(ctx context.Context, id, question string) (protocol.Value, error) {
	r.mu.Lock()
	p := r.peers[id]
	r.mu.Unlock()
	if p == nil {
		return protocol.Value{}, net.ErrClosed
	}
	return p.inquire(ctx, question)
}

// put queues writes of p, all or none, and waits while the queue is too long. It returns an error
// when p is no longer the link of p's node.
func (r *Receiver) put(p *Peer, bs []Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropAbandoned(&bs[len(bs)-1])
	for r.bytes > r.config.QueueBytes && r.peers[p.origin.Node] == p {
		r.room.Wait()
	}
	if r.peers[p.origin.Node] != p {
		return net.ErrClosed
	}
	for i := range bs {
		r.bytes += len(bs[i].Body)
		if bs[i].Large {
			r.large = append(r.large, bs[i])
		} else {
			r.queue = append(r.queue, bs[i])
		}
	}
	notify(r.config.Wake)
	return nil
}

// dropAbandoned drops large batches that b's node has given up: they are below the low of b. The state machine would skip
// them, and they hold the memory of their frames.
func (r *Receiver) dropAbandoned(b *Batch) {
	before := len(r.large)
	r.large = slices.DeleteFunc(r.large, func(old Batch) bool {
		abandoned := old.Origin == b.Origin && old.Seq < b.Low
		if abandoned {
			r.bytes -= len(old.Body)
		}
		return abandoned
	})
	if len(r.large) < before {
		r.room.Broadcast()
	}
}

// Span is the numbers of batches that wait, from From until Until. From Large on are the large batches that the call
// which returned the span has admitted. Work is theirs.
type Span struct {
	From, Large, Until uint64
	Work               int64
}

// Waiting returns what the leader of term finds to take. It admits large batches whose work fits into room; with any,
// the first in any case. While earlier ones are not taken it admits none.
func (r *Receiver) Waiting(term uint64, room int64, any bool) (w Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.term != term {
		return w
	}
	w.From, w.Large = r.taken, r.number(len(r.queue))
	if len(r.large) > 0 && r.admitted <= r.taken {
		n := 0
		for n < len(r.large) && (w.Work+r.large[n].Work <= room || any && n == 0) {
			w.Work += r.large[n].Work
			n++
		}
		r.queue = append(r.queue, r.large[:n]...)
		r.large = slices.Delete(r.large, 0, n)
		r.admitted = r.number(len(r.queue))
	}
	w.Until = r.number(len(r.queue))
	return w
}

// Scan shows the leader of term the batches with the numbers from to until that the leader could
// take, until see returns false. See is called while the queue is locked and must not keep a batch.
func (r *Receiver) Scan(term, from, until uint64, see func(*Batch) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.term != term {
		return
	}
	for i := r.first + int(max(from, r.taken)-r.taken); i < len(r.queue) && r.number(i) < until && see(&r.queue[i]); i++ {
	}
}

func (r *Receiver) number(i int) uint64 { return r.taken + uint64(i-r.first) }

// Take moves batches up to number until to the leader of term, in order, until visit returns false.
func (r *Receiver) Take(term, until uint64, visit func(*Batch) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.term != term {
		return
	}
	for ; r.first < len(r.queue) && r.taken < until && visit(&r.queue[r.first]); r.first++ {
		r.bytes -= len(r.queue[r.first].Body)
		r.queue[r.first].Body = nil
		r.taken++
	}
	if r.first == len(r.queue) {
		r.queue, r.first = r.queue[:0], 0
	} else if r.first > 1024 && r.first > len(r.queue)/2 {
		n := copy(r.queue, r.queue[r.first:])
		clear(r.queue[n:])
		r.queue, r.first = r.queue[:n], 0
	}
	r.room.Broadcast()
}
