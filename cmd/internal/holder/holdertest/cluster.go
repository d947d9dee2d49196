// Package holdertest has nodes for tests of clients of native locks: one lock table without a log, behind
// as many addresses as a test wants. A node can be killed and frozen.
//
// It promises of native locks what package holder and `holdfast lock` use: sessions that live with a
// connection, a queue, notices, fences that grow. Leases are counted by the machine's clock.
package holdertest

import (
	"bufio"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Cluster is a lock table with nodes.
type Cluster struct {
	Password string // that clients must give

	mu       sync.Mutex
	nodes    []*node
	locks    map[string]*lock
	sessions map[int64]*session
	last     int64 // fence or session given out
	sent     []string
	refusing string
	unsaid   string
	cutting  string
}

type node struct {
	c        *Cluster
	listener net.Listener
	conns    map[*conn]bool
	frozen   bool
	stalled  bool
}

type lock struct {
	holder string
	fence  int64
	on     int64 // session
	queue  []*waiter
}

type waiter struct {
	owner string
	on    int64
	at    *conn
	timer *time.Timer
}

type session struct {
	id    int64
	lease time.Duration
	at    *conn
	ends  time.Time // once its node is dead
	beats bool      // signs of life are demanded of the client
}

type conn struct {
	node  *node
	nc    net.Conn
	known bool
}

// Start starts n nodes, which end with the test.
func Start(t *testing.T, n int) *Cluster {
	t.Helper()
	c := &Cluster{locks: map[string]*lock{}, sessions: map[int64]*session{}}
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		nd := &node{c: c, listener: l, conns: map[*conn]bool{}}
		c.nodes = append(c.nodes, nd)
		go nd.accept()
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.Kill(i)
		}
	})
	return c
}

// Addrs are the nodes' addresses.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.listener.Addr().String())
	}
	return addrs
}

// Kill ends a node. Its sessions keep their lease.
func (c *Cluster) Kill(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[i]
	_ = n.listener.Close()
	for _, s := range c.sessions {
		if s.at != nil && s.at.node == n {
			s.at, s.ends = nil, time.Now().Add(s.lease)
		}
	}
	for at := range n.conns {
		delete(n.conns, at)
		_ = at.nc.Close()
	}
}

// Freeze has a node say nothing more; its connections stay open, and its sessions keep their lease.
func (c *Cluster) Freeze(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[i].frozen = true
	for _, s := range c.sessions {
		if s.at != nil && s.at.node == c.nodes[i] {
			s.ends = time.Now().Add(s.lease)
		}
	}
}

// Stall has a node say nothing more. Unlike a frozen one it sees connections end.
func (c *Cluster) Stall(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[i].stalled = true
}

// Swallow has the connection end instead of a reply to the next command of that name.
func (c *Cluster) Swallow(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsaid = name
}

// Cut has the connection end behind the reply to the next command of that name, and its sessions with it.
func (c *Cluster) Cut(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cutting = name
}

// Refuse has all nodes answer every command with an error; "" ends that.
func (c *Cluster) Refuse(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusing = line
}

// Break breaks a lock, for reason.
func (c *Cluster) Break(name, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose(name, reason)
}

// Fail ends the waits for a lock, as a node does that lost sight of the cluster.
func (c *Cluster) Fail(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lock(name)
	for _, w := range l.queue {
		w.at.send(push("failed", name, w.owner, "UNCERTAIN The outcome is not known"))
	}
	l.queue = nil
}

// Take takes a lock for a stranger; a holder is not told.
func (c *Cluster) Take(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	c.lock(name).holder, c.lock(name).fence = "stranger", c.last
}

// Holder is who holds a lock; "": nobody.
func (c *Cluster) Holder(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	return c.lock(name).holder
}

// Demands reports whether the client that holds a lock has to send signs of life.
func (c *Cluster) Demands(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[c.lock(name).on]
	return s != nil && s.beats
}

// Waiters is how many stand in line for a lock.
func (c *Cluster) Waiters(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lock(name).queue)
}

// Sent are the commands that the nodes got, by name.
func (c *Cluster) Sent() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.sent...)
}

func (n *node) accept() {
	for {
		nc, err := n.listener.Accept()
		if err != nil {
			return
		}
		at := &conn{node: n, nc: nc}
		n.c.mu.Lock()
		n.conns[at] = true
		n.c.mu.Unlock()
		go at.serve()
	}
}

func (at *conn) serve() {
	c := at.node.c
	r := bufio.NewReader(at.nc)
	for {
		v, err := protocol.ReadValue(r)
		if err != nil {
			break
		}
		words := make([]string, len(v.Elems))
		for i, e := range v.Elems {
			words[i] = e.Str
		}
		c.mu.Lock()
		at.answer(words)
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.node.conns[at] && !at.node.frozen { // the client closed it
		delete(at.node.conns, at)
		c.endAll(at)
	}
	_ = at.nc.Close()
}

// endAll ends the sessions that live with a connection.
func (c *Cluster) endAll(at *conn) {
	for id, s := range c.sessions {
		if s.at == at {
			c.end(id)
		}
	}
}

func (at *conn) answer(words []string) {
	if at.node.frozen || at.node.stalled {
		return
	}
	v := at.node.c.do(at, words)
	if words[0] == at.node.c.unsaid {
		at.node.c.unsaid = ""
		_ = at.nc.Close()
		return
	}
	at.send(v)
	if words[0] == at.node.c.cutting {
		at.node.c.cutting = ""
		at.node.c.endAll(at)
		_ = at.nc.Close()
	}
}

func (at *conn) send(v protocol.Value) {
	if at != nil && !at.node.frozen && !at.node.stalled {
		_, _ = at.nc.Write(v.AppendTo(nil, protocol.RESP3))
	}
}
