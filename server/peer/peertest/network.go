// Package peertest is a network in memory with the faults of a real one, for
// tests of nodes in virtual time.
//
// It promises:
//   - connections that behave as TCP does where a program can tell: buffered up
//     to a limit, ordered, half-closed in either order, with deadlines, with
//     resets and refused dials;
//   - partitions without a notice: bytes stop arriving, writers notice only
//     when buffers are full, dials hang until their context ends. One way or both;
//     existing connections are affected too. After a partition heals, bytes that
//     were under way arrive late, as TCP's retransmissions do: a request that an
//     old leader sent minutes ago is one of the faults worth testing;
//   - no goroutine and no timer of its own outlives a call, and everything that
//     waits, waits on channels: it works in a testing/synctest bubble.
//
// Nothing is lost, reordered or doubled within a connection: TCP does not.
// A limit on the bytes a second is each connection's own: connections do not share a bandwidth.
//
// A Network must be made inside the bubble that it is for. Start reading at [Network].
package peertest

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// Network joins nodes. A node is what stands before the last colon of an
// address: "n1:7379" and "n1:6379" are two ports of the node "n1". All methods
// that break something take nodes or addresses, and may be called at any time.
type Network struct {
	mu        sync.Mutex // guards all of the network: topology, connections, bytes
	listeners map[string]*listener
	streams   map[*stream]struct{}
	cut       map[link]bool
	delayed   map[link]time.Duration
	rates     map[link]int // bytes a second
	largest   map[link]int // bytes that are written at a time and arrive
	isolated  map[string]bool
	resends   bool   // see ResendAsTCP
	writes    int    // that did not fail
	changed   signal // topology changed: dials look again
}

// link is one direction between two nodes.
type link struct{ from, to string }

// New returns a network without faults. A network for a synctest bubble is made inside.
func New() *Network {
	return &Network{
		listeners: make(map[string]*listener),
		streams:   make(map[*stream]struct{}),
		cut:       make(map[link]bool),
		delayed:   make(map[link]time.Duration),
		rates:     make(map[link]int),
		largest:   make(map[link]int),
		isolated:  make(map[string]bool),
	}
}

// Listen opens addr. Listen fails when addr is taken.
func (n *Network) Listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, opError("listen", address(addr), syscall.EADDRINUSE)
	}
	l := &listener{net: n, addr: address(addr)}
	n.listeners[addr] = l
	return l, nil
}

// Dial returns the dial function of a node. While a way there or back is cut a
// dial waits, as SYN packets are sent again and again, until the way is mended
// or the context ends. Without a listener the dial is refused at once.
func (n *Network) Dial(from string) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := n.dial(ctx, from, addr)
		if err != nil {
			return nil, opError("dial", address(addr), err)
		}
		return c, nil
	}
}

func (n *Network) dial(ctx context.Context, from, addr string) (*conn, error) {
	there, back := link{nodeOf(from), nodeOf(addr)}, link{nodeOf(addr), nodeOf(from)}
	begun, sent := time.Now(), time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for lost := false; ; {
		blocked := n.blocked(there) || n.blocked(back)
		if n.resends && lost && !blocked {
			sent = retransmitted(begun, firstSYN)
		}
		lost = blocked
		ready := sent.Add(n.delayed[there] + n.delayed[back])
		if !blocked && !time.Now().Before(ready) {
			segment := math.MaxInt
			if wire.HasSmallSegments(ctx) {
				segment = wire.Segment
			}
			return n.connect(from, addr, segment)
		}
		if blocked {
			ready = time.Time{}
		}
		if err := n.wait(ctx, n.changed.wait(), ready); err != nil {
			return nil, err
		}
	}
}

// connect requires n.mu.
func (n *Network) connect(from, addr string, segment int) (*conn, error) {
	l := n.listeners[addr]
	if l == nil || len(l.backlog) >= backlogLimit {
		return nil, syscall.ECONNREFUSED
	}
	there := &stream{net: n, link: link{nodeOf(from), nodeOf(addr)}, segment: segment}
	back := &stream{net: n, link: link{nodeOf(addr), nodeOf(from)}, segment: segment}
	there.reverse, back.reverse = back, there
	n.streams[there], n.streams[back] = struct{}{}, struct{}{}
	l.backlog = append(l.backlog, &conn{net: n, local: address(addr), remote: address(from), in: there, out: back})
	l.changed.fire()
	return &conn{net: n, local: address(from), remote: address(addr), in: back, out: there}, nil
}

// wait gives n.mu up until changed fires, the instant comes (the zero time
// never does), or ctx ends.
func (n *Network) wait(ctx context.Context, changed <-chan struct{}, instant time.Time) error {
	var timer <-chan time.Time
	if !instant.IsZero() {
		t := time.NewTimer(time.Until(instant))
		defer t.Stop()
		timer = t.C
	}
	n.mu.Unlock()
	defer n.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-timer:
		return nil
	case <-ctx.Done():
		if ctx.Err() == context.DeadlineExceeded {
			return os.ErrDeadlineExceeded // a net.Error that says Timeout
		}
		return ctx.Err()
	}
}

// Cut stops what goes from one node to another, that way only. Bytes that are
// under way or written later do not arrive, and the writer does not notice.
// They are not lost to the connection: like TCP's retransmissions they arrive
// after the way is mended, unless the connection was closed.
func (n *Network) Cut(from, to string) {
	n.change(func() { n.cut[link{nodeOf(from), nodeOf(to)}] = true })
}

// ResendAsTCP has what was lost arrive with TCP's next retransmission once the way is mended, up to as long after as
// the way was cut; likewise the first packet of a dial. Otherwise it arrives at once.
func (n *Network) ResendAsTCP() { n.change(func() { n.resends = true }) }

// Mend undoes Cut, but not Isolate.
func (n *Network) Mend(from, to string) {
	n.change(func() { delete(n.cut, link{nodeOf(from), nodeOf(to)}) })
}

// Partition cuts all ways between nodes of different groups. Nodes in no group
// are untouched. Earlier cuts stay.
func (n *Network) Partition(groups ...[]string) {
	n.change(func() {
		for i, group := range groups {
			for j, other := range groups {
				if i != j {
					n.cutAll(group, other)
				}
			}
		}
	})
}

func (n *Network) cutAll(from, to []string) {
	for _, a := range from {
		for _, b := range to {
			n.cut[link{nodeOf(a), nodeOf(b)}] = true
		}
	}
}

// Isolate cuts a node off from all others, also those that come later.
func (n *Network) Isolate(node string) {
	n.change(func() { n.isolated[nodeOf(node)] = true })
}

// Rejoin undoes Isolate.
func (n *Network) Rejoin(node string) {
	n.change(func() { delete(n.isolated, nodeOf(node)) })
}

// Heal ends all cuts, isolations, delays and limits.
func (n *Network) Heal() {
	n.change(func() { clear(n.cut); clear(n.isolated); clear(n.delayed); clear(n.rates); clear(n.largest) })
}

// Limit makes each connection carry so many bytes a second at most from one node to another.
// What is already under way keeps its time. 0 ends the limit.
func (n *Network) Limit(from, to string, bytesPerSecond int) {
	n.change(func() { n.rates[link{nodeOf(from), nodeOf(to)}] = bytesPerSecond })
}

// LoseAbove loses whatever more than so many bytes are written at a time from one node to another, and all that follows
// over the same connection: TCP sends the packet that was lost again and again. Connections with small segments lose
// nothing if their segments are small enough. 0 ends that for other connections.
func (n *Network) LoseAbove(from, to string, bytes int) {
	n.change(func() { n.largest[link{nodeOf(from), nodeOf(to)}] = bytes })
}

// Delay makes bytes from one node to another arrive d after they were written.
// What is already under way keeps its time. 0 ends the delay.
func (n *Network) Delay(from, to string, d time.Duration) {
	n.change(func() { n.delayed[link{nodeOf(from), nodeOf(to)}] = d })
}

// Crash is the death of a node's process: the node's listeners and connections close,
// and nothing more that was written arrives. The other ends see a reset, if the
// way there is open; else they see nothing until then.
func (n *Network) Crash(node string) {
	n.change(func() {
		for addr, l := range n.listeners {
			if nodeOf(addr) == nodeOf(node) {
				l.close()
			}
		}
		n.reset(func(s *stream) bool { return s.from == nodeOf(node) })
	})
}

// Break resets all connections between two nodes, as a middlebox that forgot
// them would. New connections can be made.
func (n *Network) Break(a, b string) {
	there, back := link{nodeOf(a), nodeOf(b)}, link{nodeOf(b), nodeOf(a)}
	n.change(func() {
		n.reset(func(s *stream) bool { return s.link == there || s.link == back })
	})
}

// Connections counts the connections that are open at some end.
func (n *Network) Connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.streams) / 2
}

// Writes counts the writes of all connections so far.
func (n *Network) Writes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.writes
}

func (n *Network) reset(chosen func(*stream) bool) {
	for s := range n.streams {
		if chosen(s) {
			s.writerGone = true
			s.reverse.readerGone = true
			s.transit, s.transitBytes = []packet{{end: syscall.ECONNRESET, at: time.Now()}}, 0
			s.settle()
			s.changed.fire() // here, as a forgotten stream hears no more of changes
			s.reverse.changed.fire()
			s.forgetIfDone()
		}
	}
}

// change runs f and lets everybody look again. What arrived before stays arrived.
func (n *Network) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.streams {
		s.settle()
	}
	f()
	for s := range n.streams {
		s.retransmit()
		s.settle()
		s.changed.fire()
	}
	n.changed.fire()
}

// blocked requires n.mu. A node always reaches itself.
func (n *Network) blocked(l link) bool {
	return l.from != l.to && (n.cut[l] || n.isolated[l.from] || n.isolated[l.to])
}

func nodeOf(addr string) string {
	if i := strings.LastIndexByte(addr, ':'); i >= 0 {
		return addr[:i]
	}
	return addr
}

// address is a net.Addr.
type address string

func (a address) Network() string { return "mem" }
func (a address) String() string  { return string(a) }

func opError(op string, addr net.Addr, err error) error {
	return &net.OpError{Op: op, Net: "mem", Addr: addr, Err: err}
}

// signal wakes all waiters. The owner's mutex guards a signal.
type signal struct{ c chan struct{} }

func (s *signal) wait() <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) fire() {
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}

// String draws the faults, for test failures.
func (n *Network) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return fmt.Sprintf("cut %v, isolated %v, delayed %v, limited %v, %d connections", n.cut, n.isolated, n.delayed,
		n.rates, len(n.streams)/2)
}
