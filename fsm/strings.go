package fsm

import (
	"strings"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// maxValueBytes bounds the length of a value. Nodes must agree on the bound, so it is no option.
const maxValueBytes = 32 << 20

func tooLong(value string) bool { return len(value) > maxValueBytes }

func getOp(c *call) protocol.Value {
	it, ok := c.findString(c.args[1])
	if !ok {
		return errWrongType
	}
	if it == nil {
		return protocol.Null
	}
	return protocol.Bulk(it.Value())
}

func getdelOp(c *call) protocol.Value {
	it, ok := c.findString(c.args[1])
	if !ok {
		return errWrongType
	}
	if it == nil {
		return protocol.Null
	}
	value := it.Value()
	c.remove(it)
	c.notify(classGeneric, "del", c.args[1])
	return protocol.Bulk(value)
}

// getexOp reads the instant only if the key is there, as Redis does.
func getexOp(c *call) protocol.Value {
	o, ok := parseOptions(c.args[2:], takesPersist)
	if !ok {
		return errSyntax
	}
	it, ok := c.findString(c.args[1])
	if !ok {
		return errWrongType
	}
	if it == nil {
		return protocol.Null
	}
	value := it.Value()
	if o.unit != expiryNone {
		deadlineMillis, problem, ok := c.deadline(o.unit, o.amount)
		if !ok {
			return problem
		}
		c.expire(it, deadlineMillis)
	} else if o.persist && it.DeadlineMillis != never {
		c.expire(it, never)
	}
	return protocol.Bulk(value)
}

func mgetOp(c *call) protocol.Value {
	elems := make([]protocol.Value, len(c.args)-1)
	for i, key := range c.args[1:] {
		if it, ok := c.findString(key); ok && it != nil {
			elems[i] = protocol.Bulk(it.Value())
		}
	}
	return protocol.Array(elems...)
}

func msetOp(c *call) protocol.Value {
	pairs := c.args[1:]
	if len(pairs)%2 != 0 {
		return errArity(c.args[0])
	}
	return c.setAll(pairs, &options{}, protocol.OK)
}

func msetnxOp(c *call) protocol.Value {
	pairs := c.args[1:]
	if len(pairs)%2 != 0 {
		return errArity(c.args[0])
	}
	return c.setAll(pairs, &options{condition: ifMissing}, one)
}

// msetexOp is MSETEX numkeys key value … with options, as Redis 8.4 has it.
func msetexOp(c *call) protocol.Value {
	n, ok := protocol.ParseInt(c.args[1])
	if !ok || n < 1 || n > 1<<31-1 {
		return protocol.Err("invalid numkeys value")
	}
	if n > int64(len(c.args)-2)/2 {
		return protocol.Err("wrong number of key-value pairs")
	}
	end := 2 + 2*int(n)
	o, ok := parseOptions(c.args[end:], takesExistence|takesKeepTTL)
	if !ok {
		return errSyntax
	}
	return c.setAll(c.args[2:end], &o, one)
}

// setAll sets pairs of keys and values, all or none. It returns done, or 0.
func (c *call) setAll(pairs []string, o *options, done protocol.Value) protocol.Value {
	if !c.affords(len(pairs) / 2) {
		return errOverWork
	}
	deadlineMillis := int64(never)
	if o.unit != expiryNone {
		d, problem, ok := c.deadline(o.unit, o.amount)
		if !ok {
			return problem
		}
		deadlineMillis = d
	}
	for i := 0; i < len(pairs); i += 2 {
		if tooLong(pairs[i+1]) {
			return errTooLong
		}
		if o.condition != always && (c.find(pairs[i]) == nil) != (o.condition == ifMissing) {
			return zero
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		ends := deadlineMillis
		if o.keepTTL {
			if old := c.find(pairs[i]); old != nil {
				ends = old.DeadlineMillis
			}
		}
		if o.condition == ifMissing {
			c.claim(pairs[i], pairs[i+1], ends)
		} else {
			c.set(pairs[i], pairs[i+1], ends)
		}
		c.notifySet(pairs[i], o, ends)
	}
	return done
}

func strlenOp(c *call) protocol.Value {
	it, ok := c.findString(c.args[1])
	if !ok {
		return errWrongType
	}
	if it == nil {
		return zero
	}
	return protocol.Integer(int64(len(it.Value())))
}

func appendOp(c *call) protocol.Value {
	key, tail := c.args[1], c.args[2]
	it, ok := c.findString(key)
	if !ok {
		return errWrongType
	}
	if it == nil {
		if tooLong(tail) {
			return errTooLong
		}
		c.set(key, tail, never)
		c.notify(classString, "append", key)
		return protocol.Integer(int64(len(tail)))
	}
	length := len(it.Value()) + len(tail)
	if length > maxValueBytes {
		return errTooLong
	}
	if !c.fits(int64(length)) {
		return errOverWork
	}
	c.store(c.db, c.newItem(key, it.Value()+tail, it.DeadlineMillis, keyspace.EncodingRaw))
	c.notify(classString, "append", key)
	return protocol.Integer(int64(length))
}

func getrangeOp(c *call) protocol.Value {
	first, last, ok := parseIndexes(c.args[2], c.args[3])
	if !ok {
		return errNotInteger
	}
	it, ok := c.findString(c.args[1])
	if !ok {
		return errWrongType
	}
	if it == nil {
		return protocol.Bulk("")
	}
	value := it.Value()
	if first < 0 && last < 0 && first > last {
		return protocol.Bulk("")
	}
	from, to := stretchOfBytes(first, last, len(value))
	return protocol.Bulk(value[from:to])
}

func setrangeOp(c *call) protocol.Value {
	key, patch := c.args[1], c.args[3]
	offset, ok := protocol.ParseInt(c.args[2])
	if !ok {
		return errNotInteger
	}
	if offset < 0 {
		return protocol.Err("offset is out of range")
	}
	var value string
	deadlineMillis := int64(never)
	it, ok := c.findString(key)
	if !ok {
		return errWrongType
	}
	if it != nil {
		value, deadlineMillis = it.Value(), it.DeadlineMillis
	}
	if patch == "" {
		return protocol.Integer(int64(len(value)))
	}
	if offset > maxValueBytes || int(offset)+len(patch) > maxValueBytes {
		return errTooLong
	}
	at := int(offset)
	length := max(len(value), at+len(patch))
	if !c.fits(int64(length)) {
		return errOverWork
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
	c.store(c.db, c.newItem(key, b.String(), deadlineMillis, keyspace.EncodingRaw))
	c.notify(classString, "setrange", key)
	return protocol.Integer(int64(b.Len()))
}
