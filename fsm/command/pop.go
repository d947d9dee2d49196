package command

import (
	"math"
	"math/big"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// Pops describes how commands pop elements from one end of lists or sorted sets.
type Pops struct {
	Kind keyspace.Kind
	// Take removes count elements from the collection of a key, and notifies. The collection has at least count elements.
	Take func(c *Call, key string, count int) (elems []protocol.Value, problem protocol.Value, ok bool)
	// Reply returns the elements for the reply to LMPOP or ZMPOP.
	Reply func(elems ...protocol.Value) protocol.Value
}

// count returns the number of elements at a key, or 0 if the key is missing. ok is false if the key has another kind.
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

// PopCount parses the count of LPOP and similar commands. counted reports whether the command has one.
func (c *Call) PopCount() (count int64, counted, ok bool) {
	if len(c.Args) == 2 {
		return 1, false, true
	}
	count, ok = protocol.ParseInt(c.Args[2])
	return count, true, ok && count >= 0
}

// manyKeys has the arguments of LMPOP or ZMPOP: keys, end, and the most elements to pop.
type manyKeys struct {
	Pops
	keys []string
	most int64
}

// parseManyKeys parses the words of LMPOP and ZMPOP after the name: numkeys, keys, end, and COUNT.
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

// parseCount parses COUNT and its number.
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

// PopManyNow runs LMPOP and ZMPOP.
func (c *Call) PopManyNow(parseEnd func(word string) (p Pops, ok bool)) protocol.Value {
	m, problem, ok := parseManyKeys(c.Args[1:], parseEnd)
	if !ok {
		return problem
	}
	reply, _ := c.popMany(&m)
	return reply
}

// popMany pops elements from the first key that has any. none reports that there is no such key.
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

// PopFirst runs BLPOP and similar commands: "<key>… <timeout>".
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

// PopManyOrWait runs BLMPOP and BZMPOP: "<timeout> <numkeys> <key>… <end> [COUNT <n>]".
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

// WaitUntil parses the timeout of a blocking command, in seconds with a fraction, and returns the deadline.
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

// parseSeconds parses a timeout in seconds, and rounds it up to milliseconds. As in Redis, a negative timeout above -1
// ms is 0.
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

// Unserved describes what a blocking command waits for: a value of a kind at one of the keys Args[From : From+Count].
// If Count is 0, no command waits.
type Unserved struct {
	Kind           keyspace.Kind
	From, Count    int
	DeadlineMillis int64
}

// Wait ends a blocking command that cannot be served now. If the request may wait, the machine adds it to the waiters.
// Otherwise the reply is none.
func (c *Call) Wait(kind keyspace.Kind, from, count int, deadlineMillis int64, none protocol.Value) protocol.Value {
	c.Unserved = Unserved{Kind: kind, From: from, Count: count, DeadlineMillis: deadlineMillis}
	return none
}
