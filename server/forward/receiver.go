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

// Receiver is the leader's end of all links. It accepts links from this node's election on. Until the node serves,
// writes are queued, and reads wait for their first leadership check.
type Receiver struct {
	config ReceiverConfig

	mu    sync.Mutex
	term  uint64 // the term of this node's leadership, 0 while the receiver is shut
	peers map[string]*Peer
	queue []Batch // batches from queue[first] on are waiting
	first int
	taken uint64 // the number of queue[first]; numbers count the batches that entered the queue
	// large are large batches in the order of arrival. Waiting moves them into the queue when the leader has room for
	// them; admitted is one above the highest number that it gave.
	large    []Batch
	admitted uint64
	bytes    int       // total body bytes of queue and large
	room     sync.Cond // signals that bytes fell, or a link was dropped
}

// ReceiverConfig configures a [Receiver]. All fields must be set. The functions must be safe for concurrent use.
type ReceiverConfig struct {
	Self     Identity
	Listener net.Listener
	// Other is called with the first frame of a connection. It answers the frame and returns true if the connection is
	// not a link.
	Other func(conn net.Conn, frame []byte) bool
	// IsMember reports whether conn comes from the other member of that ID.
	IsMember func(conn net.Conn, id string) bool
	// OnGreeting is called with the greeting of a follower, which has its addresses for clients.
	OnGreeting func(Member)
	// Status returns the status message, which each link sends at its start and then every second.
	Status func() Status
	// Prepare compiles the sources in the body of a batch.
	Prepare func(body []byte)
	// Subscribed is called when a follower has told whether it wants commit notifications, and whether its disk is
	// nearly full. A follower without a link has neither. The call holds the receiver's lock.
	Subscribed func(id string, commits, diskFull bool)
	// Wake is signalled when writes were queued.
	Wake chan<- struct{}

	// Confirm returns nil once this node's state includes every entry that was committed when Confirm was called, or an
	// error at the deadline. On a node that is elected and does not serve yet, it waits until ctx ends.
	Confirm func(ctx context.Context, deadline time.Time) error
	// ReadShort executes the reads that fit into a short read, and returns the rest of body. ReadLong executes the
	// rest.
	ReadShort func(body string, count int, deadline time.Time) (replies []protocol.Value, rest string, err error)
	ReadLong  func(replies []protocol.Value, rest string, count int, deadline time.Time) ([]protocol.Value, error)
	// Census has every node answer the question of a node.
	Census func(from protocol.Incarnation, question string, deadline time.Time) ([]protocol.Value, error)
	// Wait waits until that many other nodes have all committed entries, and returns the number that have. Quorum
	// returns the smallest result of Wait.
	Wait   func(ctx context.Context, nodes int, timeout time.Duration) int
	Quorum func() int

	CommandTimeout time.Duration
	// BatchBytes bounds a batch, and ReplyBytes the replies to one. QueueBytes bounds the queued writes, and separately
	// the queued reads, of which each follower has an equal share.
	BatchBytes, ReplyBytes, QueueBytes int
	// Followers returns the number of other members.
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
	stop := context.AfterFunc(ctx, r.Shut) // ends the waits in put
	defer stop()
	return wire.Accept(ctx, r.config.Listener, r.receive)
}

// receive runs a link that another node opened.
func (r *Receiver) receive(ctx context.Context, conn net.Conn) {
	br := bufio.NewReaderSize(conn, 64<<10)
	_ = conn.SetDeadline(time.Now().Add(greetTimeout))
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
	err = p.listen(ctx, br, put, func(commits, diskFull bool) { r.subscribe(p, commits, diskFull) })
	r.dismiss(p)
	close(p.ended)
	cancel()
	_ = conn.Close()
	p.parts.Wait()
	r.config.Logger.Debug("link ended", "from", p.origin.Node, "error", err)
}

// greet exchanges greetings, and admits the link of a member if this node leads.
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
	if !r.config.IsMember(conn, hello.id) { // Cut may have run before the link was admitted
		r.dismiss(p)
		return nil, fmt.Errorf("refuse node %q: it was removed", hello.id)
	}
	_ = conn.SetDeadline(time.Time{})
	r.config.OnGreeting(Member{ID: hello.id, About: hello.about})
	return p, nil
}

// Open accepts links from now on, for the leadership of term.
func (r *Receiver) Open(term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term = term
}

// Shut closes all links and drops the queued batches. Followers send batches without a reply again to the next leader.
func (r *Receiver) Shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term, r.queue, r.large, r.first, r.bytes = 0, nil, nil, 0, 0
	r.admitted = r.taken // no admitted batch is in the queue
	for name, p := range r.peers {
		_ = p.conn.Close()
		delete(r.peers, name)
		r.config.Subscribed(name, false, false)
	}
	r.room.Broadcast()
}

// Cut closes the links of nodes that are no longer members.
func (r *Receiver) Cut(member func(id string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, p := range r.peers {
		if !member(id) {
			_ = p.conn.Close() // receive then ends the link
		}
	}
}

// subscribe passes on what p's node has told, unless p has been replaced.
func (r *Receiver) subscribe(p *Peer, commits, diskFull bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peers[p.origin.Node] == p {
		r.config.Subscribed(p.origin.Node, commits, diskFull)
	}
}

// admit makes p the link of its node, and closes an older one. It returns false if the receiver is shut.
func (r *Receiver) admit(p *Peer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.term == 0 {
		return false
	}
	if old := r.peers[p.origin.Node]; old != nil {
		_ = old.conn.Close()
		r.config.Subscribed(p.origin.Node, false, false)
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
		r.config.Subscribed(p.origin.Node, false, false)
	}
	r.room.Broadcast()
}

// Usable returns the newest version of the log that a node with a link can use and its operator permits, and else 0. A
// downgraded node greets again, with its older version.
func (r *Receiver) Usable(id string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[id]; p != nil {
		return p.usable
	}
	return 0
}

// Peer returns the link of a node's incarnation, or nil.
func (r *Receiver) Peer(o protocol.Incarnation) *Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[o.Node]; p != nil && p.origin == o {
		return p
	}
	return nil
}

// Inquire sends a follower a question about its clients, and returns the answer.
func (r *Receiver) Inquire(ctx context.Context, id, question string) (protocol.Value, error) {
	r.mu.Lock()
	p := r.peers[id]
	r.mu.Unlock()
	if p == nil {
		return protocol.Value{}, net.ErrClosed
	}
	return p.inquire(ctx, question)
}

// put queues all writes of a frame, once the queue has room. It queues none and returns an error if p is no longer the
// link of its node.
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

// dropAbandoned drops large batches that the node of b has given up, which have numbers below b.Low. The state machine
// would skip them, and they hold the memory of their frames.
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

// Span is a range of waiting batches by number: From up to, not including, Until. Batches from Large on are the large
// ones that the call of [Receiver.Waiting] admitted, with their total Work.
type Span struct {
	From, Large, Until uint64
	Work               int64
}

// Waiting returns the waiting batches, for the leader of term. It admits large batches whose work fits into room, and
// the first of them regardless of room if any is set. It admits none before all admitted earlier are taken.
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

// Scan calls see with the waiting batches of numbers from up to, not including, until, for the leader of term, until
// see returns false. The call holds the receiver's lock, and see must not keep a batch.
func (r *Receiver) Scan(term, from, until uint64, see func(*Batch) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.term != term {
		return
	}
	for i := r.first + int(max(from, r.taken)-r.taken); i < len(r.queue) && r.number(i) < until && see(&r.queue[i]); i++ {
	}
}

// number returns the number of queue[i].
func (r *Receiver) number(i int) uint64 { return r.taken + uint64(i-r.first) }

// Take removes batches with numbers below until from the queue, in order, for the leader of term. It calls visit with
// each first, and stops when visit returns false.
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
