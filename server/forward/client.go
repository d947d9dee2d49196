package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// The pause between two attempts to reach the leader doubles up to maxRedialPause.
const (
	minRedialPause = 5 * time.Millisecond
	maxRedialPause = 100 * time.Millisecond
	dialTimeout    = 2 * time.Second
)

// Client sends a follower's batches to the leader, over a single connection. When the connection breaks, all batches
// without a reply are sent again over the next one: the state machine applies each batch at most once.
type Client struct {
	config  ClientConfig
	changed chan struct{} // signals that leader changed

	mu     sync.Mutex
	leader string // the node to follow, "" for none
	wanted wanted
	cancel context.CancelFunc
	conn   *connection // nil while no batch can be sent
}

// ClientConfig configures a [Client]. All fields must be set. The functions must be safe for concurrent use.
type ClientConfig struct {
	Self Identity
	// Dial connects to the forward port of a node.
	Dial func(ctx context.Context, node string) (net.Conn, error)
	// Writes and Reads wait for the leader's replies.
	Writes, Reads Batches
	// ReplyBytes bounds the replies to one batch.
	ReplyBytes int
	// Reached and Refused are called when the leader's port accepts and when it refuses a connection.
	Reached, Refused func(leader string)
	// Up is called when a link opens, and Down when it has ended.
	Up   func(leader string)
	Down func(leader string, err error)
	// OnGreeting is called with the greeting of a leader, which has its addresses for clients.
	OnGreeting func(Member)
	// Report answers an inquiry of the leader about this node's clients.
	Report func(question string) protocol.Value
	// OnStatus is called with each status message.
	OnStatus func(Status)
	Logger   *slog.Logger
}

// NewClient returns a client that follows no node yet.
func NewClient(c ClientConfig) *Client { return &Client{config: c, changed: make(chan struct{}, 1)} }

// Follow sets the node to follow, "" for none. Once Follow has returned, no batch is sent to another node.
func (c *Client) Follow(leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if leader == c.leader {
		return
	}
	c.leader = leader
	if c.cancel != nil {
		c.cancel()
	}
	c.detach()
	notify(c.changed)
}

// SubscribeCommits sets whether this node wants commit notifications.
func (c *Client) SubscribeCommits(yes bool) { c.want(func(w *wanted) { w.commits = yes }) }

// SetDiskFull sets whether the leader is told that this node's disk is nearly full.
func (c *Client) SetDiskFull(yes bool) { c.want(func(w *wanted) { w.diskFull = yes }) }

func (c *Client) want(change func(*wanted)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.wanted
	if change(&c.wanted); c.wanted != was && c.conn != nil {
		c.conn.subscribe(c.wanted)
	}
}

// detach stops sending batches over the connection.
func (c *Client) detach() {
	if c.conn != nil {
		c.config.Writes.Detach(c.conn)
		c.config.Reads.Detach(c.conn)
		c.conn = nil
	}
}

// Run keeps a connection to the leader until ctx ends.
func (c *Client) Run(ctx context.Context) error {
	pause := minRedialPause
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		attempt, cancel := context.WithCancel(ctx)
		c.mu.Lock()
		leader := c.leader
		c.cancel = cancel
		c.mu.Unlock()
		var again <-chan time.Time // nil if there is no leader
		if leader != "" {
			up, err := c.connect(attempt, leader)
			if up {
				pause = minRedialPause
				c.config.Down(leader, err)
			}
			timer.Reset(pause)
			again = timer.C
			pause = min(2*pause, maxRedialPause)
		}
		cancel()
		select {
		case <-again:
		case <-c.changed:
			pause = minRedialPause
		case <-ctx.Done():
		}
	}
	return nil
}

// connect serves one connection to leader until it breaks or ctx ends. up reports whether batches could be sent.
func (c *Client) connect(ctx context.Context, leader string) (up bool, err error) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	dialed, err := c.config.Dial(dialing, leader)
	cancel()
	if errors.Is(err, syscall.ECONNREFUSED) {
		c.config.Refused(leader)
	}
	if err != nil {
		return false, err
	}
	c.config.Reached(leader)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := context.AfterFunc(ctx, func() { _ = dialed.Close() })
	defer stop()
	defer dialed.Close()
	br := bufio.NewReaderSize(timeoutReader{dialed}, 64<<10)
	if err := c.greet(dialed, br, leader); err != nil {
		return false, err
	}
	conn := newConnection(&c.config, leader, dialed)
	if !c.attach(conn) {
		return false, nil
	}
	c.config.Up(leader)
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		end(conn.listen(br))
	}()
	end(conn.send(ctx)) // closes dialed
	c.mu.Lock()
	if c.conn == conn {
		c.detach()
	}
	c.mu.Unlock()
	<-listened
	err = context.Cause(ctx) // the first error caused the others
	if errors.Is(err, errUnanswered) || errors.Is(err, os.ErrDeadlineExceeded) {
		wire.Stuck(dialed)
	}
	conn.hangUp()
	conn.reporting.Wait()
	return true, err
}

// attach starts sending batches over conn, and returns false if the leader has changed meanwhile.
func (c *Client) attach(conn *connection) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != conn.leader {
		return false
	}
	c.conn = conn
	if c.wanted != (wanted{}) {
		conn.subscribe(c.wanted)
	}
	c.config.Writes.Attach(conn, conn.wake)
	c.config.Reads.Attach(conn, conn.wake)
	return true
}

func (c *Client) greet(conn net.Conn, br *bufio.Reader, leader string) error {
	_ = conn.SetWriteDeadline(time.Now().Add(greetTimeout))
	self := c.config.Self
	hello := greeting{version: linkVersion, id: self.ID, epoch: self.Epoch, about: self.About}
	if _, err := conn.Write(wire.Seal(hello.append(make([]byte, wire.Head), kindHello))); err != nil {
		return err
	}
	welcome, err := readGreeting(br, kindWelcome)
	if err != nil {
		return err
	}
	_ = conn.SetWriteDeadline(time.Time{})
	switch {
	case welcome.verdict == verdictNotLeading:
		return errNotLeading
	case welcome.verdict != verdictOK:
		err := fmt.Errorf("node %s refuses the link: verdict %d, it speaks version %d, this node %d", leader,
			welcome.verdict, welcome.version, linkVersion)
		if welcome.verdict == verdictStranger {
			err = fmt.Errorf("node %s refuses the link: this node is no member in its configuration", leader)
		}
		c.config.Logger.Warn("link to leader", "error", err)
		return err
	case welcome.id != leader:
		return fmt.Errorf("the node at the address of %q is %q", leader, welcome.id)
	}
	c.config.OnGreeting(Member{ID: leader, About: welcome.about})
	return nil
}

var errNotLeading = errors.New("that node does not lead")

// timeoutReader fails if no byte arrives within SilenceTimeout.
type timeoutReader struct{ conn net.Conn }

func (p timeoutReader) Read(b []byte) (int, error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(SilenceTimeout))
	return p.conn.Read(b)
}

// Wait sends a WAIT to the leader. It returns nil if there is no connection. The channel is closed without a number if
// the connection breaks.
func (c *Client) Wait(nodes int, timeout time.Duration) <-chan int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return nil
	}
	return c.conn.sendWait(nodes, timeout)
}
