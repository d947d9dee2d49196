package workload

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/protocol"
)

// cacheLate bounds the age of a cached value while no fault is active.
const cacheLate = 2500 * time.Millisecond

// caching has clients with a cache of their reads, which their node invalidates (CLIENT TRACKING), and which write
// through other nodes. Values only grow.
type caching struct {
	o    *Options
	keys *Rotation
	next atomic.Int64

	mu     sync.Mutex
	caches map[int]*cache // by worker
}

// cache is a client's cache of one node's keys.
type cache struct {
	conn   *wire.Conn
	node   string
	values map[string]int64
}

// trackings are the options of CLIENT TRACKING.
var trackings = [][]string{{}, {"BCAST", "PREFIX", "cache:"}, {"OPTOUT"}, {"NOLOOP"}}

func newCache(o *Options) Workload {
	return &caching{o: o, keys: NewRotation(o.name, max(2, o.Concurrency), 3000, 3000), caches: map[int]*cache{}}
}

func (w *caching) Checkers() []checker.Func {
	return []checker.Func{checker.Caches(checker.TTLBounds{Late: cacheLate, Settle: w.o.Settle})}
}

func (w *caching) Step(ctx context.Context, c *Client) {
	if c.chance(0.03) {
		_, key := w.keys.Pick(c.rng)
		c.hop()
		w.write(ctx, c, key)
		return
	}
	w.mu.Lock()
	k := w.caches[c.worker]
	if k == nil {
		k = &cache{}
		w.caches[c.worker] = k
	}
	w.mu.Unlock()
	for range 4 {
		_, key := w.keys.Pick(c.rng)
		k.read(ctx, c, key)
	}
}

// raise sets a key to a larger number only, since a write that its client gave up may be applied later.
var raise = newLua(`if tonumber(redis.call("get", KEYS[1]) or 0) < tonumber(ARGV[1]) then redis.call("set", KEYS[1], ARGV[1]) end return 1`)

func (w *caching) write(ctx context.Context, c *Client, key string) {
	n := w.next.Add(1)
	c.op(ctx, history.Op{F: "raise", Key: key, Input: []int64{n}}, func(x exchange) result {
		return onInteger(x.eval(raise, thenEval, []string{key}, decimal(n)))
	})
}

// connect connects to a node with an empty cache.
func (k *cache) connect(ctx context.Context, c *Client) bool {
	c.hop()
	conn, err := c.dial(ctx)
	if err != nil {
		c.moved = true
		return false
	}
	*k = cache{conn: conn, node: c.node, values: map[string]int64{}}
	conn.OnPush = k.receive
	tracking := append([]string{"CLIENT", "TRACKING", "ON"}, trackings[c.rng.IntN(len(trackings))]...)
	for _, words := range [][]string{{"HELLO", "3"}, tracking} {
		if r := conn.Do(words...); r.Outcome != history.OK {
			conn.Close()
			return false
		}
	}
	return true
}

// receive applies an invalidation message.
func (k *cache) receive(v protocol.Value) {
	if v.Elems[0].Str != "invalidate" {
		return
	}
	if v.Elems[1].IsNull() {
		clear(k.values)
	}
	for _, key := range v.Elems[1].Elems {
		delete(k.values, key.Str)
	}
}

// read reads a key, from the cache if possible.
func (k *cache) read(ctx context.Context, c *Client, key string) {
	if (k.conn == nil || k.conn.Broken() || c.chance(0.02)) && !k.connect(ctx, c) {
		return
	}
	if !k.conn.Listen(time.Millisecond, func() bool { return false }) {
		return // the connection is lost, and with it the cache
	}
	if value, cached := k.values[key]; cached {
		op := history.Op{F: "cached", Key: key}
		c.o.Recorder.Invoke(c.worker*maxPipe, op).OK(value)
		if c.chance(0.5) {
			return
		}
		key += "/else"
	}
	k.ask(c, key)
}

// ask reads a key from the node.
func (k *cache) ask(c *Client, key string) {
	p := c.o.Recorder.Invoke(c.worker*maxPipe, history.Op{F: "read", Key: key, Node: k.node})
	r := onSum(k.get(c, key))
	c.complete(p, r)
	if r.outcome != history.OK {
		k.conn.Close()
		return
	}
	k.values[key] = r.output[0]
}

var (
	readByScript = newLua(`return redis.call("get", ARGV[1])`)
	readDeclared = newLua(`return redis.call("get", KEYS[1])`)
)

func (k *cache) get(c *Client, key string) wire.Reply {
	x := exchange{k.conn, c}
	switch c.rng.IntN(4) {
	case 0:
		return x.eval(readByScript, thenEval, nil, key)
	case 1:
		return x.eval(readDeclared, thenEval, []string{key})
	case 2:
		return x.do("EVAL_RO", readByScript.source, "0", key)
	}
	return x.do("GET", key)
}

// Final closes the caches and reads all keys.
func (w *caching) Final(ctx context.Context, c *Client) {
	w.mu.Lock()
	for _, k := range w.caches {
		if k.conn != nil {
			k.conn.Close()
		}
	}
	w.mu.Unlock()
	readAll(ctx, c, w.keys, func(ctx context.Context, c *Client, key string) result {
		return c.op(ctx, history.Op{F: "read", Key: key}, func(x exchange) result { return onSum(x.do("GET", key)) })
	})
}
