package workload

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
)

// lateBound bounds how long a key may outlive its TTL without faults.
const lateBound = time.Second

// ttlKeys is the number of keys watched at a time.
const ttlKeys = 24

// expiry has keys with a TTL, whose expiry clients watch.
type expiry struct {
	o *Options

	mu    sync.Mutex
	next  int
	alive []string // the latest keys
}

func newTTL(o *Options) Workload { return &expiry{o: o} }

func (w *expiry) Checkers() []checker.Func {
	return []checker.Func{checker.TTL(checker.TTLBounds{
		Clocks: checker.Clocks{Drift: w.o.Drift}, Late: lateBound, Settle: w.o.Settle,
	})}
}

var ttlChoices = []int64{150, 400, 1000, 3000}

func (w *expiry) Step(ctx context.Context, c *Client) {
	c.hop()
	if c.chance(0.2) {
		w.create(ctx, c)
		return
	}
	if key := w.pick(c); key != "" {
		w.look(ctx, c, key)
	}
}

// create sets a key in one of several ways, and sometimes extends its TTL once.
func (w *expiry) create(ctx context.Context, c *Client) {
	ttl := ttlChoices[c.rng.IntN(len(ttlChoices))]
	w.mu.Lock()
	key := fmt.Sprintf("ttl:%d", w.next)
	w.next++
	w.mu.Unlock()
	r := c.op(ctx, history.Op{F: "set", Key: key, Input: []int64{ttl}}, setWithTTL(c, key, ttl))
	if r.outcome != history.OK {
		return
	}
	w.mu.Lock()
	w.alive = append(w.alive, key)
	if len(w.alive) > ttlKeys {
		w.alive = w.alive[1:]
	}
	w.mu.Unlock()
	if c.chance(0.3) && Sleep(ctx, c.between(0, time.Duration(ttl)*time.Millisecond)) {
		c.hop()
		more := ttlChoices[c.rng.IntN(len(ttlChoices))]
		// The TTL is only extended: no order of replies tells what a shorter one means to a concurrent reader.
		if more < ttl {
			return
		}
		c.op(ctx, history.Op{F: "expire", Key: key, Input: []int64{more}}, func(x exchange) result {
			return onFlag(x.do("PEXPIRE", key, decimal(more)))
		})
	}
}

func setWithTTL(c *Client, key string, ttl int64) func(exchange) result {
	kind := c.rng.IntN(4)
	return func(x exchange) result {
		switch kind {
		case 0:
			return onOK(x.do("PSETEX", key, decimal(ttl), "v"))
		case 1:
			return onOK(x.do("SET", key, "v", "PX", decimal(ttl), "NX"))
		case 2:
			replies := x.conn.Pipeline([][]string{{"MULTI"}, {"SET", key, "v"}, {"PEXPIRE", key, decimal(ttl)}, {"EXEC"}})
			if r := replies[3]; r.Outcome != history.OK {
				x.conn.Close()
				return not(r)
			}
			return ok()
		default:
			return onOK(x.do("SET", key, "v", "PX", decimal(ttl)))
		}
	}
}

func (w *expiry) pick(c *Client) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.alive) == 0 {
		return ""
	}
	return w.alive[c.rng.IntN(len(w.alive))]
}

func (w *expiry) look(ctx context.Context, c *Client, key string) {
	kind := c.rng.IntN(3)
	if kind == 0 {
		c.op(ctx, history.Op{F: "pttl", Key: key}, func(x exchange) result { return onInteger(x.do("PTTL", key)) })
		return
	}
	c.op(ctx, history.Op{F: "alive", Key: key}, func(x exchange) result {
		if kind == 1 {
			return onInteger(x.do("EXISTS", key))
		}
		return onPresence(x.do("GET", key))
	})
}

func onPresence(r wire.Reply) result {
	switch {
	case r.Outcome != history.OK:
		return not(r)
	case r.Value.IsNull():
		return ok(0)
	case r.Value.Str == "v":
		return ok(1)
	}
	return unexpected(r)
}

// Final reads the last keys again when all have expired.
func (w *expiry) Final(ctx context.Context, c *Client) {
	longest := time.Duration(ttlChoices[len(ttlChoices)-1]) * time.Millisecond
	if !Sleep(ctx, longest+lateBound) {
		return
	}
	w.mu.Lock()
	keys := w.alive
	w.mu.Unlock()
	for _, key := range keys {
		c.hop()
		w.look(ctx, c, key)
	}
}
