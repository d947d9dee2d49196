package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/peertest"
)

const (
	clientPort   = ":6379"
	sentinelPort = ":26379"
)

// patience is how long a client waits for a reply: no time at all outside of the bubble.
const patience = time.Minute

// Errors of a client that gets no reply.
var (
	ErrRefused = errors.New("connection refused")
	ErrLost    = errors.New("connection lost")
	ErrSilent  = errors.New("no reply")
)

// Client is a connection to a node, opened at the first use and again after a loss. A plain client
// sends nothing twice. A Client is for a single goroutine at a time.
type Client struct {
	Node *Node
	// RESP is the protocol's version: 2 or 3.
	RESP int
	// Sentinel: the client connects to the port for Sentinel's clients.
	Sentinel bool

	net     *peertest.Network
	addr    string
	conn    net.Conn
	resp    *protocol.Conn
	replies chan protocol.Value
	lost    chan struct{} // closed when the other end is gone; replies that came before are in replies
}

// Client returns a client of node n that speaks RESP version resp, not yet connected. The method is
// safe for many goroutines.
func (c *Cluster) Client(n *Node, resp int) *Client {
	return &Client{Node: n, RESP: resp, net: c.Net, addr: fmt.Sprintf("client%d:1", c.clients.Add(1))}
}

// window is how many replies may be on their way to a client.
const window = 4096

func (c *Client) connect() error {
	if c.Connected() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	port := clientPort
	if c.Sentinel {
		port = sentinelPort
	}
	conn, err := c.net.Dial(c.addr)(ctx, c.Node.Name+port)
	if err != nil {
		return ErrRefused
	}
	c.conn, c.resp, c.replies, c.lost = conn, protocol.NewConn(conn), make(chan protocol.Value, window),
		make(chan struct{})
	go receive(conn, c.resp, c.replies, c.lost)
	if c.RESP == protocol.RESP3 {
		if _, err := c.exchange([]string{"HELLO", "3"}); err != nil {
			return err
		}
	}
	return nil
}

// Connected reports whether the client has a connection, which still stands as far as the client
// knows.
func (c *Client) Connected() bool {
	if c.conn == nil {
		return false
	}
	select {
	case <-c.lost:
		return false
	default:
		return true
	}
}

func receive(conn net.Conn, resp *protocol.Conn, replies chan<- protocol.Value, lost chan<- struct{}) {
	defer close(lost)
	defer conn.Close()
	for {
		v, err := resp.Receive()
		if err != nil {
			return
		}
		replies <- v
	}
}

// Close hangs up.
func (c *Client) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// HangUp closes the connection under a command that another goroutine waits for.
func (c *Client) HangUp() {
	if c.conn != nil {
		c.conn.Close()
	}
}

// Send sends commands in a single write.
func (c *Client) Send(commands ...[]string) error {
	if err := c.connect(); err != nil {
		return err
	}
	return c.write(commands)
}

func (c *Client) write(commands [][]string) error {
	for _, words := range commands {
		c.resp.Append(words...)
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := c.resp.Flush(); err != nil {
		return ErrLost
	}
	return nil
}

// Receive returns the next reply.
func (c *Client) Receive() (protocol.Value, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-c.replies:
		return v, nil
	case <-c.lost:
	case <-timer.C:
		return protocol.Value{}, ErrSilent
	}
	select {
	case v := <-c.replies:
		return v, nil
	default:
		return protocol.Value{}, ErrLost
	}
}

// Heard returns what has come that nobody has received, and whether the connection is lost.
func (c *Client) Heard() (values []protocol.Value, lost bool) {
	for {
		select {
		case v := <-c.replies:
			values = append(values, v)
			continue
		default:
			return values, !c.Connected()
		}
	}
}

// Do sends a command and returns the reply.
func (c *Client) Do(words ...string) (protocol.Value, error) {
	if err := c.connect(); err != nil {
		return protocol.Value{}, err
	}
	return c.exchange(words)
}

// Pipeline sends commands in a single write and returns their replies.
func (c *Client) Pipeline(commands ...[]string) ([]protocol.Value, error) {
	if err := c.Send(commands...); err != nil {
		return nil, err
	}
	var replies []protocol.Value
	for range commands {
		v, err := c.Receive()
		if err != nil {
			return replies, err
		}
		replies = append(replies, v)
	}
	return replies, nil
}

func (c *Client) exchange(words []string) (protocol.Value, error) {
	if err := c.write([][]string{words}); err != nil {
		return protocol.Value{}, err
	}
	return c.Receive()
}

// Raw sends bytes that need not be commands; what is answered, and that the
// server hangs up, is passed over.
func (c *Client) Raw(b []byte) error {
	if err := c.connect(); err != nil {
		return err
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := c.conn.Write(b); err != nil {
		return ErrLost
	}
	return nil
}
