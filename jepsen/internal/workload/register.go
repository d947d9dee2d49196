package workload

import (
	"context"
	"strconv"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/protocol"
)

// registerValues is the number of values written; it is small, so that compare-and-set often succeeds.
const registerValues = 5

// compareAndSet is the script of every tutorial.
var compareAndSet = newLua(
	`if redis.call("get", KEYS[1]) == ARGV[1] then redis.call("set", KEYS[1], ARGV[2]) return 1 else return 0 end`)

// register has SET, GET and compare-and-set: by script, by WATCH and EXEC, and by SET IFEQ where the server has it.
type register struct {
	o    *Options
	keys *Rotation
}

func newRegister(o *Options) Workload {
	return &register{o, NewRotation(o.name, max(2, o.Concurrency/3), 150, 6)}
}

func (w *register) Checkers() []checker.Func { return registerChecker("linearizable") }

// registerChecker judges a register.
func registerChecker(name string) []checker.Func {
	return []checker.Func{checker.Linear(name, checker.Register(), checker.RegisterFunctions)}
}

func (w *register) Step(ctx context.Context, c *Client) {
	c.hop()
	if c.chance(0.2) {
		w.pipeline(ctx, c)
		return
	}
	n, key := w.keys.Pick(c.rng)
	var r result
	switch p := c.rng.Float64(); {
	case p < 0.45:
		r = w.read(ctx, c, key)
	case p < 0.7:
		value := c.rng.Int64N(registerValues)
		r = c.op(ctx, history.Op{F: "write", Key: key, Input: []int64{value}}, func(x exchange) result {
			return onOK(x.do("SET", key, decimal(value)))
		})
	default:
		from, to := c.rng.Int64N(registerValues), c.rng.Int64N(registerValues)
		r = c.op(ctx, history.Op{F: "cas", Key: key, Input: []int64{from, to}}, w.cas(c, key, decimal(from), decimal(to)))
	}
	if r.outcome == history.Info {
		w.keys.Unknown(n)
	}
}

func (w *register) read(ctx context.Context, c *Client, key string) result {
	return c.op(ctx, history.Op{F: "read", Key: key}, func(x exchange) result {
		return onValue(x.do("GET", key))
	})
}

// pipeline writes and reads several registers in one pipeline.
func (w *register) pipeline(ctx context.Context, c *Client) {
	var ops []piped
	first := c.rng.IntN(len(w.keys.slots))
	for i := range min(maxPipe, len(w.keys.slots)) {
		key := w.keys.Key((first + i) % len(w.keys.slots))
		if c.chance(0.5) {
			ops = append(ops, piped{history.Op{F: "read", Key: key}, []string{"GET", key}, onValue})
			continue
		}
		value := c.rng.Int64N(registerValues)
		ops = append(ops, piped{
			history.Op{F: "write", Key: key, Input: []int64{value}},
			[]string{"SET", key, decimal(value)},
			onOK,
		})
	}
	c.pipeline(ctx, ops)
}

func (w *register) cas(c *Client, key, from, to string) func(exchange) result {
	switch kind := c.rng.IntN(3); {
	case kind == 0 && w.o.Features.IfEq:
		return func(x exchange) result { return onOKOrNull(x.do("SET", key, to, "IFEQ", from)) }
	case kind == 1:
		return func(x exchange) result { return watchAndSet(x, key, from, to) }
	default:
		return func(x exchange) result { return onFlag(x.eval(compareAndSet, thenEval, []string{key}, from, to)) }
	}
}

// watchAndSet is compare-and-set by optimistic locking. After a null from EXEC, the key changed in between and nothing
// was done; the value is unknown.
func watchAndSet(x exchange, key, from, to string) result {
	head := x.conn.Pipeline([][]string{{"WATCH", key}, {"GET", key}})
	for _, r := range head {
		if r.Outcome != history.OK {
			return failed(r.Why) // only reads so far
		}
	}
	if head[1].Value.Str != from {
		if r := x.do("UNWATCH"); r.Outcome != history.OK {
			x.conn.Close()
		}
		return ok(0)
	}
	replies := x.conn.Pipeline([][]string{{"MULTI"}, {"SET", key, to}, {"EXEC"}})
	exec := replies[2]
	switch {
	case exec.Outcome != history.OK:
		return not(exec)
	case exec.Value.IsNull():
		return failed("conflict")
	case len(exec.Value.Elems) == 1 && exec.Value.Elems[0].Str == "OK":
		return ok(1)
	}
	return unexpected(exec)
}

func (w *register) Final(ctx context.Context, c *Client) { readAll(ctx, c, w.keys, w.read) }

// readAll reads every key that existed, each through a random node.
func readAll(ctx context.Context, c *Client, keys *Rotation, read func(context.Context, *Client, string) result) {
	for _, key := range keys.All() {
		c.hop()
		read(ctx, c, key)
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// onOK reads +OK.
func onOK(r wire.Reply) result {
	switch {
	case r.Outcome != history.OK:
		return not(r)
	case r.Value.Str != "OK":
		return unexpected(r)
	}
	return ok()
}

// onOKOrNull reads +OK as 1 and null as 0.
func onOKOrNull(r wire.Reply) result {
	switch {
	case r.Outcome != history.OK:
		return not(r)
	case r.Value.IsNull():
		return ok(0)
	case r.Value.Str == "OK":
		return ok(1)
	}
	return unexpected(r)
}

// onFlag reads an integer: 1 is yes, any other (0; redsync's -1) is no.
func onFlag(r wire.Reply) result {
	switch {
	case r.Outcome != history.OK:
		return not(r)
	case r.Value.Kind != protocol.KindInteger:
		return unexpected(r)
	case r.Value.Num == 1:
		return ok(1)
	}
	return ok(0)
}

// onInteger reads an integer.
func onInteger(r wire.Reply) result {
	switch {
	case r.Outcome != history.OK:
		return not(r)
	case r.Value.Kind != protocol.KindInteger:
		return unexpected(r)
	}
	return ok(r.Value.Num)
}

// onValue reads a decimal; null is no value.
func onValue(r wire.Reply) result {
	if r.Outcome != history.OK {
		return not(r)
	}
	if r.Value.IsNull() {
		return ok()
	}
	n, err := strconv.ParseInt(r.Value.Str, 10, 64)
	if err != nil {
		return unexpected(r)
	}
	return ok(n)
}
