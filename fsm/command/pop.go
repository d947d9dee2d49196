package command

import (
	"math"
	"math/big"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// Pops is how elements are taken off an end of lists, or of sorted sets.
type Pops struct {
	Kind keyspace.Kind
	// Take takes count elements off the collection of key, which has as many, and tells so.
	Take func(c *Call, key string, count int) (elems []protocol.Value, problem protocol.Value, ok bool)
	// Reply is the elements in the reply to LMPOP or ZMPOP.
	Reply func(elems ...protocol.Value) protocol.Value
}

// count is how many elements the collection of key has, 0 if the key is absent. ok is false if the key is of
// another kind.
func (c *Call) count(key string, kind keyspace.Kind) (n int, ok bool) {
	it := c.Find(key)
	switch {
	case it == nil:
		return 0, true
	case it.Kind() != kind:
		return 0, false
	}
	return it.Collection().Len(), true
}

// PopCount reads the count of LPOP and its like. counted: there is one.
func (c *Call) PopCount() (count int64, counted, ok bool) {
	if len(c.Args) == 2 {
		return 1, false, true
	}
	count, ok = protocol.ParseInt(c.Args[2])
	return count, true, ok && count >= 0
}

// manyKeys are the words of LMPOP and ZMPOP: the keys, the end, and how many elements are asked for.
type manyKeys struct {
	Pops
	keys []string
	most int64
}

// parseManyKeys reads the words of LMPOP and ZMPOP behind the name: numkeys, keys, which end, and COUNT.
func parseManyKeys(words []string, parseEnd func(word string) (p Pops, ok bool)) (m manyKeys, problem protocol.Value,
	ok bool,
) {
	n, ok := protocol.ParseInt(words[0])
	if !ok || n < 1 {
		return m, ErrNumKeys, false
	}
	if n > int64(len(words)-2) {
		return m, ErrSyntax, false
	}
	m.keys, m.most = words[1:1+n], 1
	problem = m.parseCount(words[2+n:])
	if m.Pops, ok = parseEnd(words[1+n]); !ok {
		return m, ErrSyntax, false
	}
	return m, problem, !problem.IsError()
}

// parseCount reads COUNT and a number.
func (m *manyKeys) parseCount(words []string) (problem protocol.Value) {
	if len(words) == 0 {
		return problem
	}
	if len(words) < 2 || !IsWord(words[0], "COUNT") {
		return ErrSyntax
	}
	n, ok := protocol.ParseInt(words[1])
	if !ok || n < 1 {
		return protocol.Err("count should be greater than 0")
	}
	if len(words) > 2 {
		return ErrSyntax
	}
	m.most = min(n, math.MaxInt32)
	return problem
}

// PopManyNow is LMPOP and ZMPOP.
func (c *Call) PopManyNow(parseEnd func(word string) (p Pops, ok bool)) protocol.Value {
	m, problem, ok := parseManyKeys(c.Args[1:], parseEnd)
	if !ok {
		return problem
	}
	reply, _ := c.popMany(&m)
	return reply
}

// popMany takes elements off the first collection that is there. none: there is none.
func (c *Call) popMany(m *manyKeys) (reply protocol.Value, none bool) {
	for _, key := range m.keys {
		n, ok := c.count(key, m.Kind)
		if !ok {
			return ErrWrongType, false
		}
		if n == 0 {
			continue
		}
		elems, problem, ok := m.Take(c, key, int(min(m.most, int64(n))))
		if !ok {
			return problem, false
		}
		return protocol.Array(protocol.Bulk(key), m.Reply(elems...)), false
	}
	return protocol.NullArray, true
}

// PopFirst is BLPOP and its like: "<key>… <timeout>".
func (c *Call) PopFirst(p Pops) protocol.Value {
	last := len(c.Args) - 1
	deadlineMillis, problem, ok := c.WaitUntil(c.Args[last])
	if !ok {
		return problem
	}
	for _, key := range c.Args[1:last] {
		n, ok := c.count(key, p.Kind)
		if !ok {
			return ErrWrongType
		}
		if n > 0 {
			elems, problem, ok := p.Take(c, key, 1)
			if !ok {
				return problem
			}
			return protocol.Array(append([]protocol.Value{protocol.Bulk(key)}, elems...)...)
		}
	}
	return c.Wait(p.Kind, 1, last-1, deadlineMillis, protocol.NullArray)
}

// PopManyOrWait is BLMPOP and BZMPOP: "<timeout> <numkeys> <key>… <end> [COUNT <n>]".
func (c *Call) PopManyOrWait(parseEnd func(word string) (p Pops, ok bool)) protocol.Value {
	m, problem, ok := parseManyKeys(c.Args[2:], parseEnd)
	if !ok {
		return problem
	}
	deadlineMillis, problem, ok := c.WaitUntil(c.Args[1])
	if !ok {
		return problem
	}
	reply, none := c.popMany(&m)
	if !none {
		return reply
	}
	return c.Wait(m.Kind, 3, len(m.keys), deadlineMillis, protocol.NullArray)
}

// WaitUntil reads the timeout of a blocking command, in seconds with a fraction, as the deadline.
func (c *Call) WaitUntil(word string) (deadlineMillis int64, problem protocol.Value, ok bool) {
	millis, problem, ok := parseSeconds(word)
	if !ok {
		return 0, problem, false
	}
	if millis == 0 {
		return waits.Never, problem, true
	}
	if now := c.WallNow(); now > 0 && millis > math.MaxInt64-now {
		return 0, errTimeoutRange, false
	}
	deadlineMillis = SaturatingAdd(c.NowMillis, millis)
	if deadlineMillis == waits.Never {
		deadlineMillis = 1
	}
	return deadlineMillis, problem, true
}

// parseSeconds reads a timeout in seconds, rounded up to milliseconds as in Redis: a timeout above -1 ms is
// none.
func parseSeconds(word string) (millis int64, problem protocol.Value, ok bool) {
	f, ok := ParseLongDouble(word)
	if !ok {
		return 0, errTimeoutNoFloat, false
	}
	f.Mul(f, big.NewFloat(1000))
	if f.IsInf() && !f.Signbit() {
		return 0, errTimeoutRange, false
	}
	if f.Sign() < 0 && f.Cmp(big.NewFloat(-1)) > 0 {
		return 0, problem, true
	}
	if f.Sign() < 0 {
		return 0, ErrTimeoutNegative, false
	}
	millis, accuracy := f.Int64()
	switch {
	case accuracy == big.Below && millis < 1<<63-1:
		millis++
	case accuracy == big.Below:
		return 0, errTimeoutRange, false
	}
	return millis, problem, true
}

var (
	errTimeoutNoFloat  = protocol.Err("timeout is not a float or out of range")
	ErrTimeoutNegative = protocol.Err("timeout is negative")
	errTimeoutRange    = protocol.Err("timeout is out of range")
)

// Unserved is what a blocking command found nowhere: a value of a kind under the words Args[From : From+Count]. Count is
// 0 if no command did.
type Unserved struct {
	Kind           keyspace.Kind
	From, Count    int
	DeadlineMillis int64
}

// Wait is the last thing that a blocking command does, if it cannot be served. The machine has the request wait where
// it may; elsewhere the reply is none.
func (c *Call) Wait(kind keyspace.Kind, from, count int, deadlineMillis int64, none protocol.Value) protocol.Value {
	c.Unserved = Unserved{Kind: kind, From: from, Count: count, DeadlineMillis: deadlineMillis}
	return none
}
