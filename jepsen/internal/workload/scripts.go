package workload

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
)

// copies is the number of keys to which a script writes the same value.
const copies = 4

var (
	writeCopies = newLua(`for i = 1, #KEYS do redis.call("set", KEYS[i], ARGV[1]) end return redis.status_reply("OK")`)
	readCopies  = newLua(`local r = {} for i = 1, #KEYS do r[i] = redis.call("get", KEYS[i]) end return r`)
	casCopies   = newLua(`for i = 1, #KEYS do if redis.call("get", KEYS[i]) ~= ARGV[1] then return 0 end end
for i = 1, #KEYS do redis.call("set", KEYS[i], ARGV[2]) end return 1`)
	// writeAndSpin writes, and then exceeds every budget.
	writeAndSpin = newLua(`for i = 1, #KEYS do redis.call("set", KEYS[i], ARGV[1]) end while true do end`)
)

// scripted has a register of several copies that scripts change: a client that reads two values has seen half a script.
// A script that exceeds a budget must leave no change.
type scripted struct {
	o    *Options
	keys *Rotation
}

func newScript(o *Options) Workload {
	return &scripted{o, NewRotation(o.name, max(2, o.Concurrency/4), 150, 6)}
}

func (w *scripted) Checkers() []checker.Func { return registerChecker("all or nothing") }

func copiesOf(key string) []string {
	keys := make([]string, copies)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s/%d", key, i)
	}
	return keys
}

func (w *scripted) Step(ctx context.Context, c *Client) {
	c.hop()
	n, key := w.keys.Pick(c.rng)
	f := fallback(c.rng.IntN(2))
	keys := copiesOf(key)
	value := c.rng.Int64N(registerValues)
	var r result
	switch p := c.rng.Float64(); {
	case p < 0.45:
		r = w.read(ctx, c, key)
	case p < 0.7:
		r = c.op(ctx, history.Op{F: "write", Key: key, Input: []int64{value}}, func(x exchange) result {
			return onOK(x.eval(writeCopies, f, keys, decimal(value)))
		})
	case p < 0.705 && w.o.Features.Budget:
		// The value is unique: reading it proves that the script left a change.
		spun := registerValues + c.rng.Int64N(1e6)
		r = c.op(ctx, history.Op{F: "write", Key: key, Input: []int64{spun}}, func(x exchange) result {
			return onOK(x.eval(writeAndSpin, f, keys, decimal(spun)))
		})
	default:
		to := c.rng.Int64N(registerValues)
		r = c.op(ctx, history.Op{F: "cas", Key: key, Input: []int64{value, to}}, func(x exchange) result {
			return onFlag(x.eval(casCopies, f, keys, decimal(value), decimal(to)))
		})
	}
	if r.outcome == history.Info {
		w.keys.Unknown(n)
	}
}

// read reads all copies: by script, with MGET, or in a transaction.
func (w *scripted) read(ctx context.Context, c *Client, key string) result {
	keys := copiesOf(key)
	kind := c.rng.IntN(3)
	return c.op(ctx, history.Op{F: "read", Key: key}, func(x exchange) result {
		var r wire.Reply
		switch kind {
		case 0:
			r = x.eval(readCopies, thenEval, keys)
		case 1:
			r = x.do(append([]string{"MGET"}, keys...)...)
		default:
			commands := [][]string{{"MULTI"}}
			for _, k := range keys {
				commands = append(commands, []string{"GET", k})
			}
			replies := x.conn.Pipeline(append(commands, []string{"EXEC"}))
			r = replies[len(replies)-1]
			if r.Outcome != history.OK {
				x.conn.Close()
			}
		}
		return onCopies(r)
	})
}

// onCopies reads all copies; a missing one counts as a value of its own.
func onCopies(r wire.Reply) result {
	if r.Outcome != history.OK {
		return not(r)
	}
	if len(r.Value.Elems) != copies {
		return unexpected(r)
	}
	got := result{outcome: history.OK}
	for _, e := range r.Value.Elems {
		one := onValue(wire.Reply{Value: e, Outcome: history.OK})
		switch {
		case one.outcome != history.OK:
			return unexpected(r)
		case len(one.output) == 0:
			got.output = append(got.output, -1)
		default:
			got.output = append(got.output, one.output...)
		}
	}
	return got
}

func (w *scripted) Final(ctx context.Context, c *Client) { readAll(ctx, c, w.keys, w.read) }

// script is a Lua script with its SHA1 for EVALSHA.
type script struct{ source, sha string }

func newLua(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// fallback is a library's reaction to NOSCRIPT.
type fallback uint8

const (
	// thenEval sends the source with EVAL (redsync, node-redlock, ioredis).
	thenEval fallback = iota
	// thenLoad sends SCRIPT LOAD, then EVALSHA again (redis-py, Redisson, redlock-rb).
	thenLoad
)

// eval runs a script as libraries do, first by its hash. A NOSCRIPT reply means that nothing was done.
func (x exchange) eval(s script, f fallback, keys []string, args ...string) wire.Reply {
	words := evalWords("EVALSHA", s.sha, keys, args)
	r := x.do(words...)
	if !r.NoScript() {
		return r
	}
	if f == thenEval {
		return x.do(evalWords("EVAL", s.source, keys, args)...)
	}
	if load := x.do("SCRIPT", "LOAD", s.source); load.Value.Str != s.sha {
		return r // still NOSCRIPT: nothing was done
	}
	return x.do(words...)
}

func evalWords(command, script string, keys, args []string) []string {
	words := append([]string{command, script, strconv.Itoa(len(keys))}, keys...)
	return append(words, args...)
}
