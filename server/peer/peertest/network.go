// Package peertest is a network in memory with the faults of a real one, for
// tests of nodes in virtual time.
//
// It promises:
//   - connections behave like TCP: buffered up to a limit, ordered, half-closed in either order, with deadlines, resets
//     and refused dials;
//   - a partition, in one direction or both, is silent: bytes stop arriving, also on existing connections, writers
//     notice only full buffers, and dials hang until their context ends. After it heals, the delayed bytes arrive, like
//     TCP's retransmissions, so that tests include minutes-old requests of a former leader;
//   - no goroutine and no timer outlives a call, and all waits are on channels, as a testing/synctest bubble requires.
//
// Within a connection no byte is lost, reordered or duplicated. A limit of bytes per second applies to each connection
// separately.
//
// A Network must be created in the bubble that uses it. Start reading at [Network].
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

// Network connects nodes. The name of a node is the part of its addresses before the last colon: "n1:7379" and
// "n1:6379" are two ports of the node "n1". Methods that make faults take nodes or addresses, and may be called at any
// time.
type Network struct {
	mu        sync.Mutex // guards all of the network: topology, connections, bytes
	listeners map[string]*listener
	streams   map[*stream]struct{}
	cut       map[link]bool
	delayed   map[link]time.Duration
	rates     map[link]int // limits in bytes per second
	largest   map[link]int // the largest writes, in bytes, that are not lost
	isolated  map[string]bool
	resends   bool   // see ResendAsTCP
	writes    int    // the number of successful writes
	changed   signal // signals dials that the topology has changed
}

// link is one direction between two nodes.
type link struct{ from, to string }

// New returns a network without faults.
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

// Listen opens addr, and fails if it is in use.
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

// Dial returns the dial function of a node. While the way there or back is cut, a dial waits, like TCP's SYN
// retransmissions, until the way is mended or the context ends. Without a listener it is refused at once.
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

// connect returns a new connection, or ECONNREFUSED without a listener that accepts it. Requires: n.mu is held.
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

// wait releases n.mu until changed fires, the instant comes, if it is not zero, or ctx ends.
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
			return os.ErrDeadlineExceeded // a net.Error with Timeout() true
		}
		return ctx.Err()
	}
}

// Cut stops all bytes from one node to another, in that direction only, silently for the writer. Like TCP's
// retransmissions, they arrive after the way is mended, unless the connection was closed.
func (n *Network) Cut(from, to string) {
	n.change(func() { n.cut[link{nodeOf(from), nodeOf(to)}] = true })
}

// ResendAsTCP delays bytes, and dials, after the way is mended until TCP's next retransmission, which takes up to as
// long as the way was cut. Otherwise they arrive at once.
func (n *Network) ResendAsTCP() { n.change(func() { n.resends = true }) }

// Mend undoes Cut, but not Isolate.
func (n *Network) Mend(from, to string) {
	n.change(func() { delete(n.cut, link{nodeOf(from), nodeOf(to)}) })
}

// Partition cuts all ways between nodes of different groups. It does not affect nodes in no group, and keeps earlier
// cuts.
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

// Isolate cuts a node off from all others, including later ones.
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

// Limit bounds the bytes per second of each connection from one node to another, 0 for no limit. Bytes in transit keep
// their time of arrival.
func (n *Network) Limit(from, to string, bytesPerSecond int) {
	n.change(func() { n.rates[link{nodeOf(from), nodeOf(to)}] = bytesPerSecond })
}

// LoseAbove loses writes of more than that many bytes from one node to another, and all later bytes of the same
// connection, as TCP retransmits the lost packet forever. A connection with segments that are small enough loses
// nothing. 0 ends the fault for connections that have lost nothing.
func (n *Network) LoseAbove(from, to string, bytes int) {
	n.change(func() { n.largest[link{nodeOf(from), nodeOf(to)}] = bytes })
}

// Delay delays bytes from one node to another by d. Bytes in transit keep their time of arrival.
func (n *Network) Delay(from, to string, d time.Duration) {
	n.change(func() { n.delayed[link{nodeOf(from), nodeOf(to)}] = d })
}

// Crash closes a node's listeners and connections, as the death of its process does. Its bytes in transit are lost. The
// other ends see a reset once the way to them is open.
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

// Break resets all connections between two nodes, like a middlebox that has lost its state. New connections are
// possible.
func (n *Network) Break(a, b string) {
	there, back := link{nodeOf(a), nodeOf(b)}, link{nodeOf(b), nodeOf(a)}
	n.change(func() {
		n.reset(func(s *stream) bool { return s.link == there || s.link == back })
	})
}

// Connections returns the number of connections that are open at one end at least.
func (n *Network) Connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.streams) / 2
}

// Writes returns the number of successful writes of all connections.
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
			s.changed.fire() // now, as change does not signal a removed stream
			s.reverse.changed.fire()
			s.forgetIfDone()
		}
	}
}

// change runs f, which changes the faults, and signals all waiters. Packets that arrived before stay readable.
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

// blocked reports whether a link is cut. A node always reaches itself. Requires: n.mu is held.
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

// signal wakes all waiters. The owner's mutex guards it.
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
