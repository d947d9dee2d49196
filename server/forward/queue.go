package forward

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// Queue is the leader's end of all links: what followers forward. Queue is open from when this node
// is elected; until the node serves, writes wait in the queue and reads for their first check.
type Queue struct {
	config QueueConfig

	mu    sync.Mutex
	term  uint64 // of the leadership that the queue is open for; 0 while shut
	peers map[string]*Peer
	queue []Batch // the head of the queue at first
	first int
	taken uint64 // the number of the batch at first: batches are counted as they come
	bytes int
	room  sync.Cond // bytes fell, or the queue was shut
}

// QueueConfig is what a [Queue] needs. All fields must be set. The functions must be safe for many goroutines.
type QueueConfig struct {
	Self     Identity
	Listener net.Listener
	// Other is shown the first frame of a connection. Other reports whether the frame is no
	// greeting of a link, and was answered.
	Other func(conn net.Conn, frame []byte) bool
	// Member reports whether conn comes from the other member of that name.
	Member func(conn net.Conn, name string) bool
	// Met is told where clients reach a node.
	Met func(node, clientAddr string)
	// Beacon returns what to tell each follower, at the start of a link and then every second.
	Beacon func() Beacon
	// Claims reports whether a write only takes a free key.
	Claims func(body []byte) bool
	// Wake gets a word when writes have come.
	Wake chan<- struct{}

	// Confirm returns nil when this node's state is at least what the state was anywhere when
	// Confirm was called. On a node that is elected and does not serve yet, Confirm waits.
	Confirm func(ctx context.Context) error
	// Glance reads what takes no longer than a glance, and returns the rest of body. ReadOn makes the rest.
	Glance func(body string, count int, deadline time.Time) (replies []protocol.Value, rest string, err error)
	ReadOn func(replies []protocol.Value, rest string, count int, deadline time.Time) ([]protocol.Value, error)
	// Wait waits until so many other nodes have what is committed, and returns how many have.
	// Quorum is the least that Wait returns.
	Wait   func(ctx context.Context, nodes int, timeout time.Duration) int
	Quorum func() int

	// CommandTimeout is how long a command may take.
	CommandTimeout time.Duration
	// BatchBytes is the largest batch that is taken, ReplyBytes bounds the replies to a batch.
	// QueueBytes bounds the writes that wait, and the reads; each of so many Followers has an equal
	// share for reads.
	BatchBytes, ReplyBytes, QueueBytes, Followers int

	Logger *slog.Logger
}

// NewQueue returns a queue that is shut.
func NewQueue(c QueueConfig) *Queue {
	q := &Queue{config: c, peers: make(map[string]*Peer)}
	q.room.L = &q.mu
	return q
}

// Run accepts links until ctx ends.
func (q *Queue) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, q.Shut) // whatever waits in put goes on
	defer stop()
	return wire.Accept(ctx, q.config.Listener, q.receive)
}

// receive runs a link that another node opened.
func (q *Queue) receive(ctx context.Context, conn net.Conn) {
	br := bufio.NewReaderSize(conn, 64<<10)
	_ = conn.SetDeadline(time.Now().Add(greetWithin))
	frame, err := wire.Read(br, nil, wire.Short)
	if err == nil && q.config.Other(conn, frame) {
		return
	}
	p, err := q.greet(conn, frame)
	if err != nil {
		q.config.Logger.Debug("refuse link", "error", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	p.parts.Go(func() { p.send(ctx) })
	p.parts.Go(func() { p.answerReads(ctx) })
	err = p.listen(ctx, br, func(bs []Batch) error { return q.put(p, bs) })
	q.dismiss(p)
	cancel()
	_ = conn.Close()
	p.parts.Wait()
	q.config.Logger.Debug("link ended", "from", p.origin.Node, "error", err)
}

// greet finds out which node is at the other end, and admits the node if this node leads.
func (q *Queue) greet(conn net.Conn, frame []byte) (*Peer, error) {
	hello, err := parseGreeting(frame, kindHello)
	if err != nil {
		return nil, err
	}
	p := newPeer(&q.config, conn, hello)
	welcome := greeting{version: linkVersion, name: q.config.Self.Name, clientAddr: q.config.Self.ClientAddr}
	switch {
	case hello.version != linkVersion:
		welcome.verdict = verdictVersion
	case !q.config.Member(conn, hello.name):
		welcome.verdict = verdictStranger
	case !q.admit(p):
		welcome.verdict = verdictNotLeading
	}
	if _, err := conn.Write(wire.Seal(welcome.append(make([]byte, wire.Head), kindWelcome))); err != nil {
		q.dismiss(p)
		return nil, err
	}
	if welcome.verdict != verdictOK {
		return nil, fmt.Errorf("refuse node %q: verdict %d", hello.name, welcome.verdict)
	}
	_ = conn.SetDeadline(time.Time{})
	q.config.Met(hello.name, hello.clientAddr)
	return p, nil
}

// Open lets followers in, for the leadership of term.
func (q *Queue) Open(term uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.term = term
}

// Shut ends all links. The followers find out where to forward next; what became
// of their batches they see in the log, or send again.
func (q *Queue) Shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.term, q.queue, q.first, q.bytes = 0, nil, 0, 0
	for name, p := range q.peers {
		_ = p.conn.Close()
		delete(q.peers, name)
	}
	q.room.Broadcast()
}

// admit makes p the link of p's node, in place of an older link.
func (q *Queue) admit(p *Peer) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.term == 0 {
		return false
	}
	if old := q.peers[p.origin.Node]; old != nil {
		_ = old.conn.Close()
	}
	q.peers[p.origin.Node] = p
	return true
}

func (q *Queue) dismiss(p *Peer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.peers[p.origin.Node] == p {
		delete(q.peers, p.origin.Node)
	}
	q.room.Broadcast()
}

// Peer returns the link of the session, or nil.
func (q *Queue) Peer(o protocol.Origin) *Peer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.peers[o.Node]; p != nil && p.origin == o {
		return p
	}
	return nil
}

// put queues writes of p, all or none, and waits while the queue is too long. It returns an error
// when p is no longer the link of p's node.
func (q *Queue) put(p *Peer, bs []Batch) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.bytes > q.config.QueueBytes && q.peers[p.origin.Node] == p {
		q.room.Wait()
	}
	if q.peers[p.origin.Node] != p {
		return net.ErrClosed
	}
	for i := range bs {
		q.bytes += len(bs[i].Body)
	}
	q.queue = append(q.queue, bs...)
	notify(q.config.Wake)
	return nil
}

// Waiting returns the numbers between which the leader of term finds something to take.
func (q *Queue) Waiting(term uint64) (from, until uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.term != term {
		return 0, 0
	}
	return q.taken, q.taken + uint64(len(q.queue)-q.first)
}

// Look shows the leader of term the batches with the numbers from to until that the leader could
// take, until see returns false. See is called while the queue is locked and must not keep a batch.
func (q *Queue) Look(term, from, until uint64, see func(*Batch) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.term != term {
		return
	}
	for i := q.first + int(max(from, q.taken)-q.taken); i < len(q.queue) && q.number(i) < until && see(&q.queue[i]); i++ {
	}
}

// number returns the number of the batch at i.
func (q *Queue) number(i int) uint64 { return q.taken + uint64(i-q.first) }

// Take moves batches up to number until to the leader of term, in order, until visit returns false.
func (q *Queue) Take(term, until uint64, visit func(*Batch) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.term != term {
		return
	}
	for ; q.first < len(q.queue) && q.taken < until && visit(&q.queue[q.first]); q.first++ {
		q.bytes -= len(q.queue[q.first].Body)
		q.queue[q.first].Body = nil
		q.taken++
	}
	if q.first == len(q.queue) {
		q.queue, q.first = q.queue[:0], 0
	} else if q.first > 1024 && q.first > len(q.queue)/2 {
		n := copy(q.queue, q.queue[q.first:])
		clear(q.queue[n:])
		q.queue, q.first = q.queue[:n], 0
	}
	q.room.Broadcast()
}
