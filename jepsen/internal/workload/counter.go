package workload

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
)

var incrementByScript = newLua(`return redis.call("incr", KEYS[1])`)

// counter increments counters alone, by script and in pipelines, as clients draw ids and fencing tokens.
type counter struct {
	keys *Rotation
}

func newCounter(o *Options) Workload {
	return &counter{NewRotation(o.name, max(2, o.Concurrency/4), 200, 8)}
}

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

// onSum reads a counter; a missing one is zero.
func onSum(r wire.Reply) result {
	got := onValue(r)
	if got.outcome == history.OK && len(got.output) == 0 {
		return ok(0)
	}
	return got
}

func (w *counter) Final(ctx context.Context, c *Client) { readAll(ctx, c, w.keys, w.read) }

// elementWidth is the length of an element of a list in a string: "00000042,".
const elementWidth = 9

func element(n int64) string { return fmt.Sprintf("%08d,", n) }

// parseList parses a list in a string.
func parseList(s string) ([]int64, error) {
	list := []int64{}
	for word := range strings.SplitSeq(strings.TrimSuffix(s, ","), ",") {
		if word == "" {
			continue
		}
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parse list: %w", err)
		}
		list = append(list, n)
	}
	return list, nil
}

// appender appends to a list in a string, with APPEND and GET.
type appender struct {
	keys *Rotation
	next *atomic.Int64
}

func newAppend(o *Options) Workload {
	return &appender{NewRotation(o.name, max(2, o.Concurrency/4), 300, 50), new(atomic.Int64)}
}

func (w *appender) Checkers() []checker.Func { return []checker.Func{checker.List} }

func (w *appender) Step(ctx context.Context, c *Client) {
	c.hop()
	n, key := w.keys.Pick(c.rng)
	var r result
	switch p := c.rng.Float64(); {
	case p < 0.5:
		one := w.one(key)
		r = c.op(ctx, one.op, func(x exchange) result { return one.result(x.do(one.words...)) })
	case p < 0.65:
		ops := make([]piped, 2+c.rng.IntN(maxPipe-1))
		for i := range ops {
			ops[i] = w.one(key)
		}
		r = c.pipeline(ctx, ops)
	default:
		r = w.read(ctx, c, key)
	}
	if r.outcome == history.Info {
		w.keys.Unknown(n)
	}
}

func (w *appender) one(key string) piped {
	n := w.next.Add(1)
	return piped{
		history.Op{F: "append", Key: key, Input: []int64{n}},
		[]string{"APPEND", key, element(n)},
		onLength,
	}
}

// onLength converts the length of the string to the number of elements.
func onLength(r wire.Reply) result {
	got := onInteger(r)
	if got.outcome != history.OK {
		return got
	}
	if got.output[0]%elementWidth != 0 {
		return unexpected(r)
	}
	return ok(got.output[0] / elementWidth)
}

func (w *appender) read(ctx context.Context, c *Client, key string) result {
	return c.op(ctx, history.Op{F: "read-list", Key: key}, func(x exchange) result {
		r := x.do("GET", key)
		if r.Outcome != history.OK {
			return not(r)
		}
		list, err := parseList(r.Value.Str)
		if err != nil {
			return unexpected(r)
		}
		return ok(list...)
	})
}

func (w *appender) Final(ctx context.Context, c *Client) { readAll(ctx, c, w.keys, w.read) }
