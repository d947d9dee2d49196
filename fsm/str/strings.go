// Package str has the commands for strings, counters, and stock locks, which are keys that a SET NX has created.
package str

import (
	"math"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// Ops has the commands for strings.
var Ops = map[string]command.Op{
	"append":      appendOp,
	"decr":        command.With(increment, -1),
	"decrby":      decrbyOp,
	"delex":       delexOp,
	"delifeq":     delifeqOp,
	"digest":      digestOp,
	"get":         getOp,
	"getdel":      getdelOp,
	"getex":       getexOp,
	"getrange":    getrangeOp,
	"getset":      getsetOp,
	"incr":        command.With(increment, 1),
	"incrby":      incrbyOp,
	"incrbyfloat": incrbyfloatOp,
	"lcs":         lcsOp,
	"mget":        mgetOp,
	"mset":        msetOp,
	"msetex":      msetexOp,
	"msetnx":      msetnxOp,
	"psetex":      psetexOp,
	"set":         setOp,
	"setex":       setexOp,
	"setnx":       setnxOp,
	"setrange":    setrangeOp,
	"strlen":      strlenOp,
	"substr":      getrangeOp,
}

func getOp(c *command.Call) protocol.Value {
	it, reply, ok := c.FindStringOr(c.Args[1], protocol.Null)
	if !ok {
		return reply
	}
	return protocol.Bulk(it.Value())
}

func getdelOp(c *command.Call) protocol.Value {
	it, reply, ok := c.FindStringOr(c.Args[1], protocol.Null)
	if !ok {
		return reply
	}
	value := it.Value()
	c.Remove(it)
	c.Notify(event.ClassGeneric, "del", c.Args[1])
	return protocol.Bulk(value)
}

// getexOp is GETEX. As in Redis, an invalid expiry is an error only if the key exists.
func getexOp(c *command.Call) protocol.Value {
	o, ok := parseOptions(c.Args[2:], takesPersist)
	if !ok {
		return command.ErrSyntax
	}
	it, reply, ok := c.FindStringOr(c.Args[1], protocol.Null)
	if !ok {
		return reply
	}
	value := it.Value()
	if o.unit != command.ExpiryNone {
		deadlineMillis, problem, ok := c.Deadline(o.unit, o.amount)
		if !ok {
			return problem
		}
		c.Expire(it, deadlineMillis)
	} else if o.persist && it.DeadlineMillis != command.Never {
		c.Expire(it, command.Never)
	}
	return protocol.Bulk(value)
}

func mgetOp(c *command.Call) protocol.Value {
	elems := make([]protocol.Value, len(c.Args)-1)
	for i, key := range c.Args[1:] {
		if it, ok := c.FindString(key); ok && it != nil {
			elems[i] = protocol.Bulk(it.Value())
		}
	}
	return protocol.Array(elems...)
}

func msetOp(c *command.Call) protocol.Value {
	pairs := c.Args[1:]
	if len(pairs)%2 != 0 {
		return command.ErrArity(c.Args[0])
	}
	return setAll(c, pairs, &options{}, protocol.OK)
}

func msetnxOp(c *command.Call) protocol.Value {
	pairs := c.Args[1:]
	if len(pairs)%2 != 0 {
		return command.ErrArity(c.Args[0])
	}
	return setAll(c, pairs, &options{condition: ifMissing}, command.One)
}

// msetexOp is MSETEX of Redis 8.4.
func msetexOp(c *command.Call) protocol.Value {
	n, ok := protocol.ParseInt(c.Args[1])
	if !ok || n < 1 || n > 1<<31-1 {
		return protocol.Err("invalid numkeys value")
	}
	if n > int64(len(c.Args)-2)/2 {
		return protocol.Err("wrong number of key-value pairs")
	}
	end := 2 + 2*int(n)
	o, ok := parseOptions(c.Args[end:], takesExistence|takesKeepTTL)
	if !ok {
		return command.ErrSyntax
	}
	return setAll(c, c.Args[2:end], &o, command.One)
}

// setAll sets all pairs of keys and values and returns reply, or sets none and returns 0 or an error.
func setAll(c *command.Call, pairs []string, o *options, reply protocol.Value) protocol.Value {
	if !c.Affords(len(pairs) / 2) {
		return command.ErrOverWork
	}
	deadlineMillis := int64(command.Never)
	if o.unit != command.ExpiryNone {
		d, problem, ok := c.Deadline(o.unit, o.amount)
		if !ok {
			return problem
		}
		deadlineMillis = d
	}
	for i := 0; i < len(pairs); i += 2 {
		if command.TooLong(pairs[i+1]) {
			return command.ErrTooLong
		}
		if o.condition != always && (c.Find(pairs[i]) == nil) != (o.condition == ifMissing) {
			return command.Zero
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		keyDeadlineMillis := deadlineMillis
		if o.keepTTL {
			if old := c.Find(pairs[i]); old != nil {
				keyDeadlineMillis = old.DeadlineMillis
			}
		}
		if o.condition == ifMissing {
			claim(c, pairs[i], pairs[i+1], keyDeadlineMillis)
		} else {
			c.Set(pairs[i], pairs[i+1], keyDeadlineMillis)
		}
		notifySet(c, pairs[i], o, keyDeadlineMillis)
	}
	return reply
}

func strlenOp(c *command.Call) protocol.Value {
	it, reply, ok := c.FindStringOr(c.Args[1], command.Zero)
	if !ok {
		return reply
	}
	return protocol.Integer(int64(len(it.Value())))
}

func appendOp(c *command.Call) protocol.Value {
	key, tail := c.Args[1], c.Args[2]
	it, ok := c.FindString(key)
	if !ok {
		return command.ErrWrongType
	}
	if it == nil {
		if command.TooLong(tail) {
			return command.ErrTooLong
		}
		c.Set(key, tail, command.Never)
		c.Notify(event.ClassString, "append", key)
		return protocol.Integer(int64(len(tail)))
	}
	length := len(it.Value()) + len(tail)
	if length > command.MaxValueBytes {
		return command.ErrTooLong
	}
	if !c.Fits(int64(length)) {
		return command.ErrOverWork
	}
	c.Store(c.DB, c.NewItem(key, it.Value()+tail, it.DeadlineMillis, keyspace.EncodingRaw))
	c.Notify(event.ClassString, "append", key)
	return protocol.Integer(int64(length))
}

func getrangeOp(c *command.Call) protocol.Value {
	first, last, ok := command.ParseIndexes(c.Args[2], c.Args[3])
	if !ok {
		return command.ErrNotInteger
	}
	it, reply, ok := c.FindStringOr(c.Args[1], protocol.Bulk(""))
	if !ok {
		return reply
	}
	value := it.Value()
	if first < 0 && last < 0 && first > last {
		return protocol.Bulk("")
	}
	from, to := command.ByteRange(first, last, len(value))
	return protocol.Bulk(value[from:to])
}

func setrangeOp(c *command.Call) protocol.Value {
	key, patch := c.Args[1], c.Args[3]
	offset, ok := protocol.ParseInt(c.Args[2])
	if !ok {
		return command.ErrNotInteger
	}
	if offset < 0 {
		return protocol.Err("offset is out of range")
	}
	var value string
	deadlineMillis := int64(command.Never)
	it, ok := c.FindString(key)
	if !ok {
		return command.ErrWrongType
	}
	if it != nil {
		value, deadlineMillis = it.Value(), it.DeadlineMillis
	}
	if patch == "" {
		return protocol.Integer(int64(len(value)))
	}
	if offset > command.MaxValueBytes || int(offset)+len(patch) > command.MaxValueBytes {
		return command.ErrTooLong
	}
	at := int(offset)
	length := max(len(value), at+len(patch))
	if !c.Fits(int64(length)) {
		return command.ErrOverWork
	}
	var b strings.Builder
	b.Grow(length)
	b.WriteString(value[:min(at, len(value))])
	for b.Len() < at {
		b.WriteByte(0)
	}
	b.WriteString(patch)
	if b.Len() < len(value) {
		b.WriteString(value[b.Len():])
	}
	c.Store(c.DB, c.NewItem(key, b.String(), deadlineMillis, keyspace.EncodingRaw))
	c.Notify(event.ClassString, "setrange", key)
	return protocol.Integer(int64(b.Len()))
}

func incrbyOp(c *command.Call) protocol.Value {
	by, ok := protocol.ParseInt(c.Args[2])
	if !ok {
		return command.ErrNotInteger
	}
	return increment(c, by)
}

func decrbyOp(c *command.Call) protocol.Value {
	by, ok := protocol.ParseInt(c.Args[2])
	if !ok {
		return command.ErrNotInteger
	}
	if by == math.MinInt64 {
		return protocol.Err("decrement would overflow")
	}
	return increment(c, -by)
}

// increment adds to a counter, which keeps its deadline.
func increment(c *command.Call, by int64) protocol.Value {
	key := c.Args[1]
	var n int64
	deadlineMillis := int64(command.Never)
	it, ok := c.FindString(key)
	if !ok {
		return command.ErrWrongType
	}
	if it != nil {
		if n, ok = protocol.ParseInt(it.Value()); !ok {
			return command.ErrNotInteger
		}
		deadlineMillis = it.DeadlineMillis
	}
	if by < 0 && n < math.MinInt64-by || by > 0 && n > math.MaxInt64-by {
		return protocol.ErrOverflow.Value()
	}
	n += by
	c.Set(key, strconv.FormatInt(n, 10), deadlineMillis)
	c.Notify(event.ClassString, "incrby", key)
	return protocol.Integer(n)
}

func incrbyfloatOp(c *command.Call) protocol.Value {
	key := c.Args[1]
	value := "0"
	deadlineMillis := int64(command.Never)
	it, ok := c.FindString(key)
	if !ok {
		return command.ErrWrongType
	}
	if it != nil {
		value, deadlineMillis = it.Value(), it.DeadlineMillis
	}
	if !c.Fits(command.FloatWork + int64(len(value)+len(c.Args[2]))*command.DigitWork) {
		return command.ErrOverWork
	}
	sum, problem := command.AddFloats(value, c.Args[2])
	c.Spend(command.FloatWork + int64(len(value)+len(sum)+len(c.Args[2]))*command.DigitWork)
	if problem.IsError() {
		return problem
	}
	c.Store(c.DB, c.NewItem(key, sum, deadlineMillis, keyspace.EncodingText))
	c.Notify(event.ClassString, "incrbyfloat", key)
	return protocol.Bulk(sum)
}
