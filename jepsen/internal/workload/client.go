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

// maxPipe is the largest number of operations of a pipeline: each is a process of its own in
// the history.
const maxPipe = 5

// Slots is the number of processes that so many clients need in the history.
func Slots(clients int) int { return clients * maxPipe }

// hopChance is how often a client changes to another node though nothing is wrong.
const hopChance = 0.2

// Client is a client: a few connections, used in turn.
type Client struct {
	o      *Options
	worker int
	rng    *rand.Rand
	conns  map[string]*wire.Conn
	node   string
	user   *user // nil: the default user
	moved  bool  // the node said that another is to be asked

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

// between is a random duration.
func (c *Client) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.rng.Float64()*float64(high-low))
}

// Sleep waits, and reports whether ctx goes on.
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

// hop makes the client change its node, now and then, or when the last node was no good.
func (c *Client) hop() {
	conn := c.conns[c.node]
	if c.node == "" || c.moved || conn == nil || conn.Broken() || c.chance(hopChance) {
		c.moved = false
		nodes := c.o.Service.Nodes()
		c.node = nodes[c.rng.IntN(len(nodes))]
	}
}

// conn is the connection to the client's node, made when there is none.
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

// dial makes a connection of its own to the client's node, which the caller closes.
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

// become makes the client the user's, and the connection to its node with it.
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

// invoke records that the client is about to do o on the present node.
func (c *Client) invoke(slot int, o history.Op) *history.Pending {
	o.Node = c.node
	return c.o.Recorder.Invoke(c.worker*maxPipe+slot, o)
}

// exchange is what a dialect may do: send commands on a connection and see the replies.
type exchange struct {
	conn *wire.Conn
	c    *Client
}

func (x exchange) do(words ...string) wire.Reply { return x.conn.Do(words...) }

// result is what an operation came to, before the recording.
type result struct {
	outcome history.Outcome
	why     string
	output  []int64
	txn     []history.Micro
	retried bool // a stock client would send the command again
}

func ok(output ...int64) result { return result{outcome: history.OK, output: output} }

func failed(why string) result { return result{outcome: history.Fail, why: why} }

// not is the result of a reply that is not OK.
func not(r wire.Reply) result { return result{outcome: r.Outcome, why: r.Why, retried: r.Retried} }

// unexpected is the result of a reply that the command never gives: nothing is known.
func unexpected(r wire.Reply) result {
	return result{outcome: history.Info, why: fmt.Sprintf("unexpected reply %+v", r.Value)}
}

// op does an operation on the client's node and records both.
func (c *Client) op(ctx context.Context, o history.Op, do func(exchange) result) result {
	p := c.invoke(0, o)
	conn, err := c.conn(ctx)
	if err != nil {
		p.Complete(history.Fail, err.Error())
		return result{outcome: history.Fail, why: err.Error(), retried: true}
	}
	return c.opOn(p, conn, o, do)
}

// opOn does an operation that is on record on a connection.
func (c *Client) opOn(p *history.Pending, conn *wire.Conn, o history.Op, do func(exchange) result) result {
	r := do(exchange{conn, c})
	c.complete(p, r)
	if r.retried {
		// Redis' replicas answer READONLY: clients of Sentinel connect anew.
		c.moved = true
		if strings.HasPrefix(r.why, "READONLY") {
			conn.Close()
		}
	}
	// What an operation left half done on the connection (MULTI, WATCH) must not reach the next.
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

// piped is an operation of a pipeline: a single command and the meaning of the reply.
type piped struct {
	op    history.Op
	words []string
	read  func(wire.Reply) result
}

// pipeline does several operations in one write, and records them. The result is the worst among theirs.
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
