package workload

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
)

// waitChoices are the timeouts of waits for an element in milliseconds.
var waitChoices = []int64{100, 500, 1500, 3000}

// queue has clients that push to one end of lists and pop at the other: BLPOP, BLMOVE, BLMPOP, and the commands that do
// not block. Moved elements go to the list of done ones.
type queue struct {
	o    *Options
	keys *Rotation
	next atomic.Int64
}

func newQueue(o *Options) Workload {
	return &queue{o: o, keys: NewRotation(o.name, max(2, o.Concurrency/3), 120, 6)}
}

func (w *queue) Checkers() []checker.Func {
	clocks := checker.Clocks{Drift: w.o.Drift}
	return []checker.Func{
		checker.Deliveries(clocks),
		checker.Queue(clocks),
	}
}

// done returns the list of elements moved out of a queue.
func done(key string) string { return key + "/done" }

var (
	pushByScript = newLua(
		`for i = 1, #ARGV do redis.call("rpush", KEYS[1], ARGV[i]) end return redis.call("llen", KEYS[1])`)
	popByScript = newLua(`return redis.call("blpop", KEYS[1], 0)`)
)

func (w *queue) Step(ctx context.Context, c *Client) {
	c.hop()
	n, key := w.keys.Pick(c.rng)
	r := result{}
	switch p := c.rng.Float64(); {
	case p < 0.45:
		r = w.push(ctx, c, key)
	case p < 0.9:
		r = w.pop(ctx, c, key)
	default:
		r = w.try(ctx, c, key)
	}
	if r.outcome == history.Info {
		w.keys.Unknown(n)
	}
}

// push pushes one to three elements, alone, by script or in a transaction.
func (w *queue) push(ctx context.Context, c *Client, key string) result {
	op := history.Op{F: "push", Key: key}
	words := []string{}
	for range 1 + c.rng.IntN(3) {
		op.Input = append(op.Input, w.next.Add(1))
		words = append(words, decimal(op.Input[len(op.Input)-1]))
	}
	way := c.rng.IntN(4)
	return c.op(ctx, op, func(x exchange) result {
		switch way {
		case 0:
			return onInteger(x.eval(pushByScript, thenEval, []string{key}, words...))
		case 1:
			commands := [][]string{{"MULTI"}}
			for _, word := range words {
				commands = append(commands, []string{"RPUSH", key, word})
			}
			replies := x.conn.Pipeline(append(commands, []string{"EXEC"}))
			return onLast(replies[len(replies)-1], x.conn)
		}
		return onInteger(x.do(append([]string{"RPUSH", key}, words...)...))
	})
}

// onLast reads the last number of a transaction's replies.
func onLast(r wire.Reply, conn *wire.Conn) result {
	if r.Outcome != history.OK {
		conn.Close() // an open MULTI must not affect the next operation
		return not(r)
	}
	if len(r.Value.Elems) == 0 {
		return unexpected(r)
	}
	return onInteger(wire.Reply{Value: r.Value.Elems[len(r.Value.Elems)-1], Outcome: history.OK})
}

// pop waits for an element. A wait must not time out early.
func (w *queue) pop(ctx context.Context, c *Client, key string) result {
	wait := waitChoices[c.rng.IntN(len(waitChoices))]
	seconds := strconv.FormatFloat(float64(wait)/1000, 'f', -1, 64)
	way := c.rng.IntN(4)
	words := [][]string{
		{"BLMOVE", key, done(key), "LEFT", "RIGHT", seconds},
		{"BLPOP", key, seconds},
		{"BLPOP", key + "/none", key, seconds},
		{"BLMPOP", seconds, "1", key, "LEFT", "COUNT", "1"},
	}[way]
	return c.op(ctx, popOp(key, wait, way == 0), func(x exchange) result {
		return onElement(x.conn.DoWithin(time.Duration(wait)*time.Millisecond, words...))
	})
}

// try pops an element without waiting.
func (w *queue) try(ctx context.Context, c *Client, key string) result {
	way := c.rng.IntN(4)
	return c.op(ctx, popOp(key, 0, way == 0), func(x exchange) result {
		switch way {
		case 0:
			return onElement(x.do("LMOVE", key, done(key), "LEFT", "RIGHT"))
		case 1:
			return onElement(x.do("LPOP", key))
		case 2: // scripts do not block
			return onElement(x.eval(popByScript, thenLoad, []string{key}))
		}
		r := x.conn.Pipeline([][]string{{"MULTI"}, {"BLPOP", key, "0"}, {"EXEC"}})[2]
		if r.Outcome != history.OK {
			x.conn.Close()
			return not(r)
		}
		if len(r.Value.Elems) != 1 {
			return unexpected(r)
		}
		return onElement(wire.Reply{Value: r.Value.Elems[0], Outcome: history.OK})
	})
}

func popOp(key string, waitMillis int64, moves bool) history.Op {
	op := history.Op{F: "pop", Key: key, Input: []int64{waitMillis, 0}}
	if moves {
		op.Input[1] = 1
	}
	return op
}

// onElement reads the popped element from any form of reply; null is no element.
func onElement(r wire.Reply) result {
	if r.Outcome != history.OK {
		return not(r)
	}
	v := r.Value
	for len(v.Elems) > 0 {
		v = v.Elems[len(v.Elems)-1]
	}
	return onValue(wire.Reply{Value: v, Outcome: history.OK})
}

// Final reads the remaining and the moved elements.
func (w *queue) Final(ctx context.Context, c *Client) {
	readAll(ctx, c, w.keys, func(ctx context.Context, c *Client, key string) result {
		w.list(ctx, c, key, "done", done(key))
		return w.list(ctx, c, key, "left", key)
	})
}

func (w *queue) list(ctx context.Context, c *Client, key, f, list string) result {
	return c.op(ctx, history.Op{F: f, Key: key}, func(x exchange) result {
		return onElements(x.do("LRANGE", list, "0", "-1"))
	})
}

// onElements reads a list of numbers.
func onElements(r wire.Reply) result {
	if r.Outcome != history.OK {
		return not(r)
	}
	got := result{outcome: history.OK}
	for _, e := range r.Value.Elems {
		n, err := strconv.ParseInt(strings.TrimSpace(e.Str), 10, 64)
		if err != nil {
			return unexpected(r)
		}
		got.output = append(got.output, n)
	}
	return got
}
