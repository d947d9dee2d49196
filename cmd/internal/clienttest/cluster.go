// Package clienttest has nodes for tests of clients of native locks: a node of a cluster of one, behind as many doors
// as a test wants, or the nodes of a cluster of three, each behind a door. A door is a node as the client sees it, and
// can be killed, frozen and made to say less than it should.
//
// What a killed or frozen door was connected to stays connected: to the node behind it, the client has become silent,
// as a client is whose node died. Its sessions keep their lease.
package clienttest

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/fleet"
	"github.com/holdfast/holdfast/server"
)

// StartNode starts a cluster of one, which ends with the test, and waits until it serves.
func StartNode(t testing.TB, change ...func(*server.Config)) (addr string) {
	t.Helper()
	addrs, err := fleet.Reserve(1)
	require.NoError(t, err)
	c := server.DefaultConfig()
	c.Addr, c.PeerAddr, c.DataDir, c.MaxMemory = addrs[0], "127.0.0.1:0", t.TempDir(), "1gb"
	for _, f := range change {
		f(&c)
	}
	t.Cleanup(run(t, c))
	return c.Addr
}

// run starts a node, until stop.
func run(t testing.TB, c server.Config) (stop func()) {
	t.Helper()
	s, err := server.New(c, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// Listen runs serve in a goroutine of its own for each connection to a port, until the test ends. It returns the
// address of the port. The end of the test closes the connections.
func Listen(t testing.TB, serve func(nc net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { nc.Close() })
			go serve(nc)
		}
	}()
	return l.Addr().String()
}

// Cluster is nodes behind doors.
type Cluster struct {
	t        *testing.T
	Password string // that clients must give
	nodes    []*node
	operator sync.Mutex // one command of the tests at a time

	mu        sync.Mutex
	doors     []*door
	sent      map[string]int // how many commands of a name came
	heartbeat bool
	refusing  string
	swallowed string
	cut, held string // see Cut
	deaf      bool   // clients get no pushes
	heldBack  string
	instead   map[string]string // replies to commands, by name
}

type node struct {
	config server.Config
	stop   func()
	links  []*link  // to and from the other nodes
	conn   net.Conn // of the tests themselves; nil: none
	resp   *protocol.Conn
}

type door struct {
	c        *Cluster
	node     *node
	listener net.Listener
	state    doorState
	conns    map[*conn]bool
}

type doorState int

const (
	open doorState = iota
	stalled
	frozen
	killed
)

// conn is a client's connection, and the door's to the node.
type conn struct {
	door         *door
	client, node net.Conn
	asked        chan question    // the commands that the node has not answered
	in, out      []protocol.Value // commands, and replies with pushes, that HoldBack keeps; empty: none
	held         string           // the lock of the session that ends with a cut connection; empty: not cut
}

type question struct{ name, instead string }

// Start starts a node with n doors, which end with the test.
func Start(t *testing.T, n int, password ...string) *Cluster {
	t.Helper()
	c := newCluster(t, strings.Join(password, ""))
	of := &node{}
	of.config.Addr = StartNode(t, func(config *server.Config) { config.Password = c.Password })
	c.nodes = []*node{of}
	for range n {
		c.open(of)
	}
	c.do("EXISTS", "ready")
	return c
}

func newCluster(t *testing.T, password string) *Cluster {
	return &Cluster{t: t, Password: password, sent: map[string]int{}, instead: map[string]string{}}
}

// StartThree starts a cluster of three nodes, each behind a door, which end with the test.
func StartThree(t *testing.T, password string) *Cluster {
	t.Helper()
	const size = 3
	c := newCluster(t, password)
	addrs, err := fleet.Reserve(2 * size)
	require.NoError(t, err)
	var members []string
	for i := range size {
		config := server.DefaultConfig()
		config.Name, config.Addr, config.PeerAddr = "n"+strconv.Itoa(i+1), addrs[i], addrs[size+i]
		config.DataDir, config.MaxMemory, config.Debug = t.TempDir(), "1gb", true
		config.Password = password
		members = append(members, config.Name+"="+config.PeerAddr)
		c.nodes = append(c.nodes, &node{config: config})
	}
	for _, n := range c.nodes {
		var ways []string
		for _, to := range c.nodes {
			if to != n {
				l := startLink(t, to.config.PeerAddr)
				n.links, to.links = append(n.links, l), append(to.links, l)
				ways = append(ways, to.config.PeerAddr+"="+l.Addr())
			}
		}
		n.config.DebugPeerDial, n.config.InitialCluster = strings.Join(ways, ","), strings.Join(members, ",")
		n.stop = run(t, n.config)
		t.Cleanup(func() { n.stop() })
		c.open(n)
	}
	for i := range c.nodes {
		c.doAt(i, "EXISTS", "ready")
	}
	return c
}

// Restart ends a node of three as an operator does, and starts it again. It returns when the node serves.
func (c *Cluster) Restart(i int) {
	n := c.nodes[i]
	n.stop()
	n.stop = run(c.t, n.config)
	c.doAt(i, "EXISTS", "ready")
}

// Isolate has nothing come through between a node of three and the others.
func (c *Cluster) Isolate(i int) {
	for _, l := range c.nodes[i].links {
		l.isCut.Store(true)
	}
}

// open opens a door to a node.
func (c *Cluster) open(of *node) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(c.t, err)
	d := &door{c: c, node: of, listener: l, conns: map[*conn]bool{}}
	i := len(c.doors)
	c.doors = append(c.doors, d)
	go d.accept(l)
	c.t.Cleanup(func() {
		c.Kill(i)
		c.mu.Lock()
		defer c.mu.Unlock()
		for at := range d.conns {
			at.node.Close()
		}
	})
}

// answerWithin is how long tests wait for a node.
const answerWithin = 20 * time.Second

// do executes a command for the tests themselves, at the last node, as soon as that can execute commands.
func (c *Cluster) do(words ...string) protocol.Value { return c.doAt(len(c.nodes)-1, words...) }

func (c *Cluster) doAt(i int, words ...string) (v protocol.Value) {
	c.operator.Lock()
	defer c.operator.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	require.NoError(c.t, fleet.Await(ctx, func(context.Context) (err error) {
		v, err = c.nodes[i].do(c.Password, words)
		return err
	}))
	return v
}

// do executes a command on a connection that is made anew when it has ended.
func (n *node) do(password string, words []string) (v protocol.Value, err error) {
	if n.conn == nil {
		if n.conn, err = net.Dial("tcp", n.config.Addr); err != nil {
			n.conn = nil
			return v, err
		}
		n.resp = protocol.NewConn(n.conn)
		if password != "" {
			_, _ = n.resp.Do("AUTH", password)
		}
		_, _ = n.resp.Do("CLIENT", "SETNAME", "operator")
	}
	if v, err = n.resp.Do(words...); err != nil {
		n.conn.Close()
		n.conn = nil
	} else if v.IsError() {
		err = errors.New(v.Str)
	}
	return v, err
}

// Addrs are the addresses of the doors.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, d := range c.doors {
		addrs = append(addrs, d.listener.Addr().String())
	}
	return addrs
}

// Kill closes a door for good, and ends its connections to clients.
func (c *Cluster) Kill(i int) {
	_ = c.doors[i].listener.Close()
	c.shut(i, killed)
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := range c.doors[i].conns {
		at.client.Close()
	}
}

// Freeze has a door say nothing more; its connections stay open.
func (c *Cluster) Freeze(i int) { c.shut(i, frozen) }

// Thaw ends Freeze for connections that come from now on.
func (c *Cluster) Thaw(i int) { c.shut(i, open) }

// Revive ends Kill.
func (c *Cluster) Revive(i int) {
	l, err := net.Listen("tcp", c.doors[i].listener.Addr().String())
	require.NoError(c.t, err)
	c.doors[i].listener = l
	c.Thaw(i)
	go c.doors[i].accept(l)
}

// Stall has a door say nothing more. Unlike a frozen one it sees connections end.
func (c *Cluster) Stall(i int) { c.shut(i, stalled) }

func (c *Cluster) shut(i int, s doorState) { c.set(func() { c.doors[i].state = s }) }

func (c *Cluster) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// Swallow has the connection end instead of a reply to the next command of that name, or of the next push of that kind.
func (c *Cluster) Swallow(name string) { c.set(func() { c.swallowed = name }) }

// Cut has the connection end behind the reply to the next command of that name, and the session that holds the lock
// with it. The client sees the end after that: else it could attach the session to another connection first.
func (c *Cluster) Cut(name, lock string) { c.set(func() { c.cut, c.held = name, lock }) }

// Refuse has all doors answer every command but HELLO with an error; "" ends that.
func (c *Cluster) Refuse(line string) { c.set(func() { c.refusing = line }) }

// Answer has the next command of that name answered with an error. The node executes it only if that is UNCERTAIN.
func (c *Cluster) Answer(name, line string) { c.set(func() { c.instead[name] = line }) }

// HoldBack keeps back the next command of that name, or the next push of that kind, and what follows it on its
// connection, until Deliver.
func (c *Cluster) HoldBack(name string) { c.set(func() { c.heldBack = name }) }

// IsHeldBack reports whether what HoldBack named has come.
func (c *Cluster) IsHeldBack() (is bool) {
	c.set(func() { is = c.heldBack == "" })
	return is
}

// Deliver ends HoldBack, and returns when a node has answered the commands that were held back.
func (c *Cluster) Deliver() {
	var late []*conn
	c.set(func() {
		c.heldBack = ""
		for _, d := range c.doors {
			for at := range d.conns {
				in, out := at.in, at.out
				at.in, at.out = nil, nil
				for _, v := range in {
					at.hand(v)
				}
				for _, v := range out {
					at.answer(v)
				}
				if len(in) > 0 {
					late = append(late, at)
				}
			}
		}
	})
	waits := func(at *conn) bool { return len(at.asked) > 0 }
	require.Eventually(c.t, func() bool { return !slices.ContainsFunc(late, waits) }, answerWithin, time.Millisecond)
}

// Break breaks a lock.
func (c *Cluster) Break(name string, options ...string) {
	c.do(append([]string{"LOCK.BREAK", name}, options...)...)
}

// Fail tells an owner that its wait for a lock has failed, as a node does that lost sight of the cluster.
func (c *Cluster) Fail(name, owner string) {
	failed := protocol.Push(protocol.Bulk("lock"), protocol.Bulk("failed"), protocol.Bulk(name), protocol.Bulk(owner),
		protocol.Bulk("UNCERTAIN The outcome is not known"))
	c.set(func() {
		for _, d := range c.doors {
			for at := range d.conns {
				_, _ = at.client.Write(failed.AppendTo(nil, protocol.RESP3))
			}
		}
	})
}

// Take takes a lock for a stranger. A holder is not told, nor is any client told anything from then on.
func (c *Cluster) Take(name string) {
	if c.Holder(name) != "" {
		c.set(func() { c.deaf = true })
		c.Break(name)
	}
	c.do("LOCK.ACQUIRE", name, "stranger", "PX", "3600000")
}

// info is a field of LOCK.INFO; null without such a lock.
func (c *Cluster) info(name, field string) protocol.Value {
	return fieldOf(c.do("LOCK.INFO", name), field)
}

func fieldOf(v protocol.Value, field string) protocol.Value {
	for i := 0; i+1 < len(v.Elems); i += 2 {
		if v.Elems[i].Str == field {
			return v.Elems[i+1]
		}
	}
	return protocol.Null
}

// Holder is who holds a lock; "": nobody.
func (c *Cluster) Holder(name string) string {
	holders := c.info(name, "holders").Elems
	if len(holders) == 0 {
		return ""
	}
	return fieldOf(holders[0], "owner").Str
}

// Waiter is who is first in line for a lock.
func (c *Cluster) Waiter(name string) string {
	return fieldOf(c.info(name, "waiters").Elems[0], "owner").Str
}

// Cancel ends an owner's wait for a lock.
func (c *Cluster) Cancel(name, owner string) { c.do("LOCK.CANCEL", name, owner) }

// CloseSession closes the session that holds a lock.
func (c *Cluster) CloseSession(name string) {
	c.do("SESSION.CLOSE", strconv.FormatInt(fieldOf(c.info(name, "holders").Elems[0], "session").Num, 10))
}

// Waiters is how many stand in line for a lock.
func (c *Cluster) Waiters(name string) int { return int(c.info(name, "waiters-count").Num) }

// Demands reports whether the client that spoke of its session last has to send signs of life.
func (c *Cluster) Demands() (demands bool) {
	c.set(func() { demands = c.heartbeat })
	return demands
}

// Sent is how many commands of that name came.
func (c *Cluster) Sent(name string) (n int) {
	c.set(func() { n = c.sent[name] })
	return n
}

func (d *door) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		node, err := net.Dial("tcp", d.node.config.Addr)
		if err != nil {
			client.Close()
			continue
		}
		at := &conn{door: d, client: client, node: node, asked: make(chan question, 64)}
		d.c.set(func() { d.conns[at] = true })
		go at.readClient()
		go at.readNode()
	}
}

// readClient hands commands to the node.
func (at *conn) readClient() {
	c := at.door.c
	r := bufio.NewReader(at.client)
	for {
		v, err := protocol.ReadValue(r)
		if err != nil {
			break
		}
		c.set(func() { at.hand(v) })
	}
	_ = at.client.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.door.state <= stalled && len(at.in) == 0 {
		_ = at.node.Close()
	}
}

// hand hands a command to the node, unless the door has another task; c.mu is held.
func (at *conn) hand(v protocol.Value) {
	c := at.door.c
	if at.door.state != open || len(v.Elems) == 0 {
		return
	}
	name := strings.ToUpper(v.Elems[0].Str)
	if at.isHeldBack(&at.in, name, v) {
		return
	}
	c.sent[name]++
	instead := c.instead[name]
	delete(c.instead, name)
	if c.refusing != "" && name != "HELLO" {
		instead = c.refusing
	}
	if instead != "" && !strings.HasPrefix(instead, "UNCERTAIN") {
		_, _ = at.client.Write(protocol.ErrValue(instead).AppendTo(nil, protocol.RESP3))
		return
	}
	if name == "SESSION.OPEN" || name == "SESSION.ATTACH" {
		c.heartbeat = slices.ContainsFunc(v.Elems, func(e protocol.Value) bool { return e.Str == "HEARTBEAT" })
	}
	at.asked <- question{name, instead}
	_, _ = at.node.Write(v.AppendTo(nil, protocol.RESP2))
}

// isHeldBack reports whether v, of that name, is held back, and keeps it. c.mu is held.
func (at *conn) isHeldBack(kept *[]protocol.Value, name string, v protocol.Value) bool {
	c := at.door.c
	if len(*kept) == 0 && (name == "" || name != c.heldBack) {
		return false
	}
	if name == c.heldBack {
		c.heldBack = ""
	}
	*kept = append(*kept, v)
	return true
}

// readNode hands replies and pushes to the client.
func (at *conn) readNode() {
	defer at.client.Close()
	r := bufio.NewReader(at.node)
	for {
		v, err := protocol.ReadValue(r)
		if err != nil {
			break
		}
		at.door.c.set(func() { at.answer(v) })
	}
	for range 10_000 {
		if at.held == "" || at.door.c.Holder(at.held) == "" {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// answer hands a reply or a push to the client, unless the door has another task; c.mu is held.
func (at *conn) answer(v protocol.Value) {
	c := at.door.c
	push := v.Kind == protocol.KindPush
	name := ""
	if push && len(v.Elems) > 1 {
		name = v.Elems[1].Str
	}
	if at.isHeldBack(&at.out, name, v) {
		return
	}
	if !push {
		q := <-at.asked
		if name = q.name; q.instead != "" {
			v = protocol.ErrValue(q.instead)
		}
	}
	switch {
	case at.door.state != open, push && c.deaf:
		return
	case name != "" && name == c.swallowed:
		c.swallowed = ""
		_ = at.client.Close()
		return
	}
	_, _ = at.client.Write(v.AppendTo(nil, protocol.RESP3))
	if name != "" && name == c.cut {
		at.held, c.cut = c.held, ""
		_ = at.node.(*net.TCPConn).CloseWrite()
	}
}

// link is the way from one node to another. While it is cut, what comes is lost.
type link struct {
	*fleet.Relay
	isCut atomic.Bool
}

func startLink(t *testing.T, to string) (l *link) {
	t.Helper()
	l = &link{}
	var err error
	l.Relay, err = fleet.NewRelay(func(context.Context) (net.Conn, fleet.Carry, error) {
		out, err := net.Dial("tcp", to)
		return out, l.carry, err
	})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func (l *link) carry(to, from net.Conn) error {
	for data := make([]byte, 32<<10); ; {
		n, err := from.Read(data)
		if err != nil {
			return err
		}
		if !l.isCut.Load() {
			_, _ = to.Write(data[:n])
		}
	}
}
