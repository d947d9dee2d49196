package fsm

import (
	"encoding/hex"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func setOp(c *call) protocol.Value {
	o, ok := parseOptions(c.args[3:], takesExistence|takesComparison|takesGet|takesKeepTTL)
	if !ok {
		return errSyntax
	}
	return c.setWith(c.args[1], c.args[2], &o)
}

func setnxOp(c *call) protocol.Value {
	if it := c.find(c.args[1]); it != nil {
		c.watchRefusal(it, c.args[2])
		return zero
	}
	if tooLong(c.args[2]) {
		return errTooLong
	}
	c.claim(c.args[1], c.args[2], never)
	c.notify(classString, "set", c.args[1])
	return one
}

func setexOp(c *call) protocol.Value {
	return c.setWith(c.args[1], c.args[3], &options{unit: expirySeconds, amount: c.args[2]})
}

func psetexOp(c *call) protocol.Value {
	return c.setWith(c.args[1], c.args[3], &options{unit: expiryMillis, amount: c.args[2]})
}

func getsetOp(c *call) protocol.Value {
	return c.setWith(c.args[1], c.args[2], &options{get: true})
}

// setWith is SET with its options.
func (c *call) setWith(key, value string, o *options) protocol.Value {
	deadlineMillis := int64(never)
	if o.unit != expiryNone {
		d, problem, ok := c.deadline(o.unit, o.amount)
		if !ok {
			return problem
		}
		deadlineMillis = d
	}
	if tooLong(value) {
		return errTooLong
	}
	var old *keyspace.Item
	if o.condition != always || o.get || o.keepTTL {
		c.counting = o.get && !c.quiet
		old = c.find(key)
	}
	if (o.get || o.condition.compares()) && old != nil && !old.IsString() {
		return errWrongType
	}
	meets, problem := c.meets(old, o.condition, o.match)
	if problem.IsError() {
		return problem
	}
	reply := protocol.OK
	switch {
	case o.get && old != nil:
		reply = protocol.Bulk(old.Value())
	case o.get || !meets:
		reply = protocol.Null
	}
	if meets {
		if o.keepTTL && old != nil {
			deadlineMillis = old.DeadlineMillis
		}
		c.setOrMark(key, value, deadlineMillis, o, old)
		c.notifySet(key, o, deadlineMillis)
	} else if o.condition == ifMissing {
		c.watchRefusal(old, value)
	}
	return reply
}

// notifySet tells of a SET with these options.
func (c *call) notifySet(key string, o *options, deadlineMillis int64) {
	c.notify(classString, "set", key)
	if o.unit == expiryNone {
		return
	}
	c.notify(classGeneric, "expire", key)
	if deadlineMillis != never && deadlineMillis < c.nowMillis {
		c.notify(classExpired, "expired", key)
	}
}

// meets reports whether an item, nil for a missing key, meets a condition.
func (c *call) meets(it *keyspace.Item, cond condition, match string) (bool, protocol.Value) {
	var none protocol.Value
	switch {
	case cond == always:
		return true, none
	case cond == ifMissing:
		return it == nil, none
	case cond == ifPresent:
		return it != nil, none
	case it == nil:
		return cond == ifNotEqual || cond == ifDigestNotEqual, none
	case cond == ifEqual:
		return it.Value() == match, none
	case cond == ifNotEqual:
		return it.Value() != match, none
	case len(match) != 16:
		return false, protocol.Err("must be exactly 16 hexadecimal characters")
	}
	if !c.fits(int64(len(it.Value()))) {
		return false, errOverWork
	}
	c.spend(int64(len(it.Value())))
	same := strings.EqualFold(digest(it.Value()), match)
	return same == (cond == ifDigestEqual), none
}

// digest is the reply of DIGEST: XXH3 in 16 hexadecimal digits.
func digest(value string) string {
	h := xxh3.HashString(value)
	var b [8]byte
	for i := range b {
		b[i] = byte(h >> (56 - 8*i))
	}
	return hex.EncodeToString(b[:])
}

func digestOp(c *call) protocol.Value {
	it, ok := c.findString(c.args[1])
	if !ok {
		return errWrongType
	}
	if it == nil {
		return protocol.Null
	}
	if !c.fits(int64(len(it.Value()))) {
		return errOverWork
	}
	c.spend(int64(len(it.Value())))
	return protocol.Bulk(digest(it.Value()))
}

// delexOp is DEL of a key under a condition. Checks come in the order of Redis 8.4: an unknown
// condition is an error only if the key is there.
func delexOp(c *call) protocol.Value {
	if n := len(c.args); n != 2 && n != 4 {
		return errArity(c.args[0])
	}
	it := c.find(c.args[1])
	if it == nil {
		if len(c.args) == 4 && comparison(c.args[2]) == ifEqual {
			c.watchMismatch(c.args[1], c.args[3], stockLocks)
		}
		return zero
	}
	if len(c.args) == 4 {
		if !it.IsString() {
			return protocol.Err("Key should be of string type if conditions are specified")
		}
		cond := comparison(c.args[2])
		if cond == always {
			return protocol.Err("Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")
		}
		meets, problem := c.meets(it, cond, c.args[3])
		if problem.IsError() {
			return problem
		}
		if !meets {
			if cond == ifEqual {
				c.watchMismatch(c.args[1], c.args[3], stockLocks)
			}
			return zero
		}
	}
	c.remove(it)
	c.notify(classGeneric, "del", c.args[1])
	return one
}

func delifeqOp(c *call) protocol.Value {
	it, ok := c.findString(c.args[1])
	if !ok {
		return errWrongType
	}
	if it == nil || it.Value() != c.args[2] {
		c.watchMismatch(c.args[1], c.args[2], stockLocks)
		return zero
	}
	c.remove(it)
	c.notify(classGeneric, "del", c.args[1])
	return one
}
