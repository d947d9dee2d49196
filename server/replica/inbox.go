package replica

import (
	"context"
	"net"
	"sync"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// inbox is the leader's end of the links: what followers forward. It is open
// from when this node is elected; until it serves, writes wait in the queue and
// reads for their first check.
type inbox struct {
	r *Replica

	mu    sync.Mutex
	term  uint64 // of the leadership that it is open for; 0 while shut
	links map[string]*inbound
	queue []forwarded // head of it at first
	first int
	bytes int
	room  sync.Cond // bytes fell, or the inbox was shut
}

// forwarded is one batch on its way into the log.
type forwarded struct {
	origin   protocol.Origin
	low, seq uint64
	body     []byte
}

func newInbox(r *Replica) *inbox {
	b := &inbox{r: r, links: make(map[string]*inbound)}
	b.room.L = &b.mu
	return b
}

// run accepts links until ctx ends.
func (b *inbox) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, b.shut) // whoever waits in put goes on
	defer stop()
	return wire.Accept(ctx, b.r.config.Peers.Forward, b.receive)
}

// open lets followers in, for the leadership of term.
func (b *inbox) open(term uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.term = term
}

// shut ends all links. The followers find out where to forward next; what became
// of their batches they see in the log, or send again.
func (b *inbox) shut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.term, b.queue, b.first, b.bytes = 0, nil, 0, 0
	for name, in := range b.links {
		_ = in.conn.Close()
		delete(b.links, name)
	}
	b.room.Broadcast()
}

// admit makes in the link of its node, in place of an older one.
func (b *inbox) admit(in *inbound) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.term == 0 {
		return false
	}
	if old := b.links[in.origin.Node]; old != nil {
		_ = old.conn.Close()
	}
	b.links[in.origin.Node] = in
	return true
}

func (b *inbox) dismiss(in *inbound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.links[in.origin.Node] == in {
		delete(b.links, in.origin.Node)
	}
	b.room.Broadcast()
}

// linked returns the link of the session, or nil.
func (b *inbox) linked(o protocol.Origin) *inbound {
	b.mu.Lock()
	defer b.mu.Unlock()
	if in := b.links[o.Node]; in != nil && in.origin == o {
		return in
	}
	return nil
}

// put queues writes of in, all or none, and waits while the queue is too long.
// It returns an error when in is no longer its node's link.
func (b *inbox) put(in *inbound, fs []forwarded) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.bytes > b.r.config.Limits.PendingBytes && b.links[in.origin.Node] == in {
		b.room.Wait()
	}
	if b.links[in.origin.Node] != in {
		return net.ErrClosed
	}
	for i := range fs {
		b.bytes += len(fs[i].body)
	}
	b.queue = append(b.queue, fs...)
	notify(b.r.proposer.wake)
	return nil
}

// waiting returns how many writes wait for the leader of term.
func (b *inbox) waiting(term uint64) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.term != term {
		return 0
	}
	return len(b.queue) - b.first
}

// look shows the leader of term the bodies of up to limit writes in the queue, without the first few of
// them that it is to skip, until see returns false. See is called while the inbox is locked and must not keep them.
func (b *inbox) look(term uint64, skip, limit int, see func(body []byte) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.term != term {
		return
	}
	for i := b.first + skip; i < min(len(b.queue), b.first+limit) && see(b.queue[i].body); i++ {
	}
}

// take moves up to limit writes to the leader of term, in order, until visit returns false.
func (b *inbox) take(term uint64, limit int, visit func(*forwarded) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.term != term {
		return
	}
	start := b.first
	for ; b.first < len(b.queue) && b.first-start < limit && visit(&b.queue[b.first]); b.first++ {
		b.bytes -= len(b.queue[b.first].body)
		b.queue[b.first].body = nil
	}
	if b.first == len(b.queue) {
		b.queue, b.first = b.queue[:0], 0
	} else if b.first > 1024 && b.first > len(b.queue)/2 {
		n := copy(b.queue, b.queue[b.first:])
		clear(b.queue[n:])
		b.queue, b.first = b.queue[:n], 0
	}
	b.room.Broadcast()
}
