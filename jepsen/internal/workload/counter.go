package workload

import (
	"context"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
)

var incrementByScript = newLua(`return redis.call("incr", KEYS[1])`)

// counter is INCR, alone, by script and in pipelines, as ids and fencing tokens are drawn.
type counter struct {
	keys *Rotation
}

func newCounter(o *Options) Workload {
	return &counter{NewRotation("counter", max(2, o.Concurrency/4), 200, 8)}
}

func (w *counter) Name() string { return "counter" }

func (w *counter) Checkers() []checker.Func {
	return []checker.Func{
		checker.Increments,
		checker.Linear("linearizable", checker.Counter(), checker.CounterFunctions),
	}
}

func (w *counter) Step(ctx context.Context, c *Client) {
	c.hop()
	n, key := w.keys.Pick(c.rng)
	add := history.Op{F: "add", Key: key, Input: []int64{1}}
	var r result
	switch p := c.rng.Float64(); {
	case p < 0.4:
		r = c.op(ctx, add, func(x exchange) result { return onInteger(x.do("INCR", key)) })
	case p < 0.6:
		r = c.op(ctx, add, func(x exchange) result {
			return onInteger(x.eval(incrementByScript, thenLoad, []string{key}))
		})
	case p < 0.75:
		ops := make([]piped, 2+c.rng.IntN(maxPipe-1))
		for i := range ops {
			ops[i] = piped{add, []string{"INCR", key}, onInteger}
		}
		r = c.pipeline(ctx, ops)
	default:
		r = w.read(ctx, c, key)
	}
	if r.outcome == history.Info {
		w.keys.Unknown(n)
	}
}

func (w *counter) read(ctx context.Context, c *Client, key string) result {
	return c.op(ctx, history.Op{F: "read", Key: key}, func(x exchange) result { return onSum(x.do("GET", key)) })
}

// onSum reads a counter; a missing counter is zero.
func onSum(r wire.Reply) result {
	got := onValue(r)
	if got.outcome == history.OK && len(got.output) == 0 {
		return ok(0)
	}
	return got
}

func (w *counter) Final(ctx context.Context, c *Client) {
	readAll(ctx, c, w.keys, w.read)
}
