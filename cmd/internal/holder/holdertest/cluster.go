// Package holdertest has nodes for tests of clients of native locks: a node of a cluster of one, behind as many doors
// as a test wants. A door is a node as the client sees it, and can be killed, frozen and made to say less than it should.
//
// What a killed or frozen door was connected to stays connected: to the node behind it, the client has become silent,
// as a client is whose node died. Its sessions keep their lease.
package holdertest

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	s, err := server.New(c, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return c.Addr
}

// Cluster is a node behind doors.
type Cluster struct {
	t        *testing.T
	Password string // that clients must give
	addr     string // of the node
	admin    *protocol.Conn

	mu        sync.Mutex
	doors     []*door
	sent      []string
	heartbeat bool
	refusing  string
	swallowed string
	cut       string
	deaf      bool // clients get no pushes
}

type door struct {
	c        *Cluster
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
	asked        chan string // the commands that the node has not answered
}

// Start starts a node with n doors, which end with the test.
func Start(t *testing.T, n int, password ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, Password: strings.Join(password, "")}
	c.addr = StartNode(t, func(config *server.Config) { config.Password = c.Password })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, fleet.Await(ctx, func(context.Context) error { return c.login() }))
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		d := &door{c: c, listener: l, conns: map[*conn]bool{}}
		c.doors = append(c.doors, d)
		go d.accept()
	}
	t.Cleanup(func() {
		for i, d := range c.doors {
			c.Kill(i)
			c.mu.Lock()
			for at := range d.conns {
				at.node.Close()
			}
			c.mu.Unlock()
		}
	})
	return c
}

// login connects the tests themselves, once the node can execute commands.
func (c *Cluster) login() error {
	nc, err := net.Dial("tcp", c.addr)
	if err != nil {
		return err
	}
	c.admin = protocol.NewConn(nc)
	if c.Password != "" {
		_, err = c.admin.Do("AUTH", c.Password)
	}
	v, doErr := c.admin.Do("EXISTS", "ready")
	if err == nil && doErr == nil && !v.IsError() {
		c.t.Cleanup(func() { nc.Close() })
		return nil
	}
	nc.Close()
	return protocol.ErrLoading
}

// do executes a command for the tests themselves.
func (c *Cluster) do(words ...string) protocol.Value {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.admin.Do(words...)
	require.NoError(c.t, err)
	require.False(c.t, v.IsError(), v.Str)
	return v
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

// Stall has a door say nothing more. Unlike a frozen one it sees connections end.
func (c *Cluster) Stall(i int) { c.shut(i, stalled) }

func (c *Cluster) shut(i int, s doorState) { c.set(func() { c.doors[i].state = s }) }

func (c *Cluster) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// Swallow has the connection end instead of a reply to the next command of that name.
func (c *Cluster) Swallow(name string) { c.set(func() { c.swallowed = name }) }

// Cut has the connection end behind the reply to the next command of that name, and its sessions with it.
func (c *Cluster) Cut(name string) { c.set(func() { c.cut = name }) }

// Refuse has all doors answer every command but HELLO with an error; "" ends that.
func (c *Cluster) Refuse(line string) { c.set(func() { c.refusing = line }) }

// Break breaks a lock.
func (c *Cluster) Break(name string) { c.do("LOCK.BREAK", name) }

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

// Sent are the commands that the node got, by name.
func (c *Cluster) Sent() (sent []string) {
	c.set(func() { sent = slices.Clone(c.sent) })
	return sent
}

func (d *door) accept() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}
		node, err := net.Dial("tcp", d.c.addr)
		if err != nil {
			client.Close()
			continue
		}
		at := &conn{door: d, client: client, node: node, asked: make(chan string, 64)}
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
	if at.door.state <= stalled {
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
	c.sent = append(c.sent, name)
	if c.refusing != "" && name != "HELLO" {
		_, _ = at.client.Write(protocol.ErrValue(c.refusing).AppendTo(nil, protocol.RESP3))
		return
	}
	if name == "SESSION.OPEN" || name == "SESSION.ATTACH" {
		c.heartbeat = slices.ContainsFunc(v.Elems, func(e protocol.Value) bool { return e.Str == "HEARTBEAT" })
	}
	at.asked <- name
	_, _ = at.node.Write(v.AppendTo(nil, protocol.RESP2))
}

// readNode hands replies and pushes to the client.
func (at *conn) readNode() {
	defer at.client.Close()
	r := bufio.NewReader(at.node)
	for {
		v, err := protocol.ReadValue(r)
		if err != nil {
			return
		}
		at.door.c.set(func() { at.answer(v) })
	}
}

// answer hands a reply or a push to the client, unless the door has another task; c.mu is held.
func (at *conn) answer(v protocol.Value) {
	c := at.door.c
	name := ""
	if v.Kind != protocol.KindPush {
		name = <-at.asked
	}
	switch {
	case at.door.state != open, name == "" && c.deaf:
		return
	case name != "" && name == c.swallowed:
		c.swallowed = ""
		_ = at.client.Close()
		return
	}
	_, _ = at.client.Write(v.AppendTo(nil, protocol.RESP3))
	if name != "" && name == c.cut {
		c.cut = ""
		_ = at.node.Close()
	}
}
