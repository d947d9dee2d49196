package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
)

// maxPipe is the largest number of operations in a pipeline; each is a separate process in the history.
const maxPipe = 5

// Slots returns the number of processes in the history that a number of clients needs.
func Slots(clients int) int { return clients * maxPipe }

// hopChance is the probability that a client changes its node without a reason.
const hopChance = 0.2

// Client is a client with a few connections, used in turn.
type Client struct {
	o      *Options
	worker int
	rng    *rand.Rand
	conns  map[string]*wire.Conn
	node   string
	user   *user // nil: the default user
	moved  bool  // the node redirected the client

	locks  map[string]*lockConn // for native locks
	driver *driver              // of a client library
}

func newClient(o *Options, worker int) *Client {
	return &Client{
		o:      o,
		worker: worker,
		rng:    rand.New(rand.NewPCG(o.Seed, uint64(worker)+1)),
		conns:  map[string]*wire.Conn{},
	}
}

func (c *Client) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
	for _, l := range c.locks {
		l.close()
	}
	if c.driver != nil {
		c.driver.close()
	}
}

// chance is true with probability p.
func (c *Client) chance(p float64) bool { return c.rng.Float64() < p }

// between returns a random duration in [low, high).
func (c *Client) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.rng.Float64()*float64(high-low))
}

// Sleep sleeps, and reports whether ctx is still alive.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// hop changes the client's node at random, or after an error.
func (c *Client) hop() {
	conn := c.conns[c.node]
	if c.node == "" || c.moved || conn == nil || conn.Broken() || c.chance(hopChance) {
		c.moved = false
		nodes := c.o.Service.Nodes()
		c.node = nodes[c.rng.IntN(len(nodes))]
	}
}

// conn returns the connection to the client's node, dialing if necessary.
func (c *Client) conn(ctx context.Context) (*wire.Conn, error) {
	if conn := c.conns[c.node]; conn != nil && !conn.Broken() {
		return conn, nil
	}
	delete(c.conns, c.node)
	conn, err := c.dial(ctx)
	if err == nil {
		c.conns[c.node] = conn
	}
	return conn, err
}

// dial returns a new connection to the client's node, which the caller closes.
func (c *Client) dial(ctx context.Context) (*wire.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	nc, err := c.o.Service.Dial(ctx, c.worker%c.o.Service.Sides(), c.node)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", c.node, err)
	}
	conn := wire.New(nc, c.o.Timeout)
	if c.user == nil {
		return conn, nil
	}
	if r := conn.Do("AUTH", c.user.name, c.user.password); r.Outcome != history.OK {
		conn.Close()
		return nil, fmt.Errorf("authenticate at %s: %s", c.node, r.Why)
	}
	return conn, nil
}

// become authenticates the client as a user, and so its connection.
func (c *Client) become(u *user) {
	for node, conn := range c.conns {
		if node != c.node {
			conn.Close()
		}
	}
	c.user = u
	if conn := c.conns[c.node]; conn != nil && conn.Do("AUTH", u.name, u.password).Outcome != history.OK {
		conn.Close()
	}
}

// invoke records the start of an operation on the present node.
func (c *Client) invoke(slot int, o history.Op) *history.Pending {
	o.Node = c.node
	return c.o.Recorder.Invoke(c.worker*maxPipe+slot, o)
}

// exchange lets a dialect send commands on a connection and read the replies.
type exchange struct {
	conn *wire.Conn
	c    *Client
}

func (x exchange) do(words ...string) wire.Reply { return x.conn.Do(words...) }

// result is an operation's result before it is recorded.
type result struct {
	outcome history.Outcome
	why     string
	output  []int64
	txn     []history.Micro
	retried bool // a stock client would retry the command
}

func ok(output ...int64) result { return result{outcome: history.OK, output: output} }

func failed(why string) result { return result{outcome: history.Fail, why: why} }

// not returns the result of a reply that is not OK.
func not(r wire.Reply) result { return result{outcome: r.Outcome, why: r.Why, retried: r.Retried} }

// unexpected returns the result of an invalid reply: the outcome is unknown.
func unexpected(r wire.Reply) result {
	return result{outcome: history.Info, why: fmt.Sprintf("unexpected reply %+v", r.Value)}
}

// op performs and records an operation on the client's node.
func (c *Client) op(ctx context.Context, o history.Op, do func(exchange) result) result {
	p := c.invoke(0, o)
	conn, err := c.conn(ctx)
	if err != nil {
		p.Complete(history.Fail, err.Error())
		return result{outcome: history.Fail, why: err.Error(), retried: true}
	}
	return c.opOn(p, conn, o, do)
}

// opOn performs a recorded operation on a connection.
func (c *Client) opOn(p *history.Pending, conn *wire.Conn, o history.Op, do func(exchange) result) result {
	r := do(exchange{conn, c})
	c.complete(p, r)
	if r.retried {
		// A replica of Redis answers READONLY; clients of Sentinel then reconnect.
		c.moved = true
		if strings.HasPrefix(r.why, "READONLY") {
			conn.Close()
		}
	}
	// State that an operation left on the connection (MULTI, WATCH) must not affect the next.
	if r.outcome != history.OK && !conn.Broken() && o.Txn != nil {
		conn.Close()
	}
	return r
}

func (c *Client) complete(p *history.Pending, r result) {
	switch {
	case r.outcome != history.OK:
		p.Complete(r.outcome, r.why)
	case r.txn != nil:
		p.OKTxn(r.txn)
	default:
		p.OK(r.output...)
	}
}

// piped is one command of a pipeline, with the function that reads its reply.
type piped struct {
	op    history.Op
	words []string
	read  func(wire.Reply) result
}

// pipeline sends several operations in one write and records them. It returns the worst of their results.
func (c *Client) pipeline(ctx context.Context, ops []piped) (worst result) {
	pipe := c.o.Recorder.NewPipe()
	pending := make([]*history.Pending, len(ops))
	commands := make([][]string, len(ops))
	for i := range ops {
		ops[i].op.Pipe = pipe
		pending[i] = c.invoke(i, ops[i].op)
		commands[i] = ops[i].words
	}
	conn, err := c.conn(ctx)
	if err != nil {
		for _, p := range pending {
			p.Complete(history.Fail, err.Error())
		}
		return failed(err.Error())
	}
	for i, reply := range conn.Pipeline(commands) {
		r := ops[i].result(reply)
		c.complete(pending[i], r)
		if i == 0 || r.outcome == history.Info {
			worst = r
		}
	}
	return worst
}

func (p piped) result(r wire.Reply) result {
	if r.Outcome != history.OK {
		return not(r)
	}
	return p.read(r)
}
