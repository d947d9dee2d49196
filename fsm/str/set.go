package str

import (
	"encoding/hex"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func setOp(c *command.Call) protocol.Value {
	o, ok := parseOptions(c.Args[3:], takesExistence|takesComparison|takesGet|takesKeepTTL)
	if !ok {
		return command.ErrSyntax
	}
	return setWith(c, c.Args[1], c.Args[2], &o)
}

func setnxOp(c *command.Call) protocol.Value {
	if it := c.Find(c.Args[1]); it != nil {
		c.EmitRefused(it, c.Args[2])
		return command.Zero
	}
	if command.TooLong(c.Args[2]) {
		return command.ErrTooLong
	}
	claim(c, c.Args[1], c.Args[2], command.Never)
	c.Notify(event.ClassString, "set", c.Args[1])
	return command.One
}

func setexOp(c *command.Call) protocol.Value {
	return setWith(c, c.Args[1], c.Args[3], &options{unit: command.ExpirySeconds, amount: c.Args[2]})
}

func psetexOp(c *command.Call) protocol.Value {
	return setWith(c, c.Args[1], c.Args[3], &options{unit: command.ExpiryMillis, amount: c.Args[2]})
}

func getsetOp(c *command.Call) protocol.Value {
	return setWith(c, c.Args[1], c.Args[2], &options{get: true})
}

// setWith runs SET with its options.
func setWith(c *command.Call, key, value string, o *options) protocol.Value {
	deadlineMillis := int64(command.Never)
	if o.unit != command.ExpiryNone {
		d, problem, ok := c.Deadline(o.unit, o.amount)
		if !ok {
			return problem
		}
		deadlineMillis = d
	}
	if command.TooLong(value) {
		return command.ErrTooLong
	}
	var old *keyspace.Item
	if o.condition != always || o.get || o.keepTTL {
		c.Counting = o.get && !c.Quiet
		old = c.Find(key)
	}
	if (o.get || o.condition.compares()) && old != nil && !old.IsString() {
		return command.ErrWrongType
	}
	meets, problem := meets(c, old, o.condition, o.match)
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
		setOrMark(c, key, value, deadlineMillis, o, old)
		notifySet(c, key, o, deadlineMillis)
	} else if o.condition == ifMissing {
		c.EmitRefused(old, value)
	}
	return reply
}

// notifySet emits the keyspace events of a SET with these options.
func notifySet(c *command.Call, key string, o *options, deadlineMillis int64) {
	c.Notify(event.ClassString, "set", key)
	if o.unit == command.ExpiryNone {
		return
	}
	c.Notify(event.ClassGeneric, "expire", key)
	if deadlineMillis != command.Never && deadlineMillis < c.NowMillis {
		c.Notify(event.ClassExpired, "expired", key)
	}
}

// meets reports whether an item, or nil for a missing key, meets a condition.
func meets(c *command.Call, it *keyspace.Item, cond condition, match string) (bool, protocol.Value) {
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
	if !c.Fits(int64(len(it.Value()))) {
		return false, command.ErrOverWork
	}
	c.Spend(int64(len(it.Value())))
	same := strings.EqualFold(digest(it.Value()), match)
	return same == (cond == ifDigestEqual), none
}

// digest returns the reply to DIGEST: XXH3 in 16 hexadecimal digits.
func digest(value string) string {
	h := xxh3.HashString(value)
	var b [8]byte
	for i := range b {
		b[i] = byte(h >> (56 - 8*i))
	}
	return hex.EncodeToString(b[:])
}

func digestOp(c *command.Call) protocol.Value {
	it, reply, ok := c.FindStringOr(c.Args[1], protocol.Null)
	if !ok {
		return reply
	}
	if !c.Fits(int64(len(it.Value()))) {
		return command.ErrOverWork
	}
	c.Spend(int64(len(it.Value())))
	return protocol.Bulk(digest(it.Value()))
}

// delexOp runs DELEX, which is DEL with a condition. As in Redis 8.4, an unknown condition is an error only if the key
// exists.
func delexOp(c *command.Call) protocol.Value {
	if n := len(c.Args); n != 2 && n != 4 {
		return command.ErrArity(c.Args[0])
	}
	it := c.Find(c.Args[1])
	if it == nil {
		if len(c.Args) == 4 && comparison(c.Args[2]) == ifEqual {
			c.EmitMismatched(c.Args[1], c.Args[3])
		}
		return command.Zero
	}
	if len(c.Args) == 4 {
		if !it.IsString() {
			return protocol.Err("Key should be of string type if conditions are specified")
		}
		cond := comparison(c.Args[2])
		if cond == always {
			return protocol.Err("Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")
		}
		meets, problem := meets(c, it, cond, c.Args[3])
		if problem.IsError() {
			return problem
		}
		if !meets {
			if cond == ifEqual {
				c.EmitMismatched(c.Args[1], c.Args[3])
			}
			return command.Zero
		}
	}
	c.Remove(it)
	c.Notify(event.ClassGeneric, "del", c.Args[1])
	return command.One
}

func delifeqOp(c *command.Call) protocol.Value {
	it, ok := c.FindString(c.Args[1])
	if !ok {
		return command.ErrWrongType
	}
	if it == nil || it.Value() != c.Args[2] {
		c.EmitMismatched(c.Args[1], c.Args[2])
		return command.Zero
	}
	c.Remove(it)
	c.Notify(event.ClassGeneric, "del", c.Args[1])
	return command.One
}

// claim stores a string at a missing key, for SET NX and similar commands.
func claim(c *command.Call, key, value string, deadlineMillis int64) {
	setMarked(c, key, value, deadlineMillis, c.Host.NewMark(deadlineMillis))
	c.EmitClaimed(key, value, deadlineMillis)
}

// setMarked is [command.Call.Set] for an item with a mark.
func setMarked(c *command.Call, key, value string, deadlineMillis int64, m keyspace.Mark) {
	c.Spend(int64(len(key) + len(value)))
	c.Store(c.DB, keyspace.NewMarked(c.HashOf(key), key, value, deadlineMillis, m))
}

// setOrMark stores the string of SET. old is the former item, if SET has looked it up, or nil.
func setOrMark(c *command.Call, key, value string, deadlineMillis int64, o *options, old *keyspace.Item) {
	if o.unit != command.ExpiryNone || o.condition == ifMissing {
		if old == nil && o.condition != ifMissing {
			old = c.FindIn(c.DB, key)
		}
		switch {
		case old == nil && (o.condition == ifMissing || c.OnlyClaims()):
			claim(c, key, value, deadlineMillis)
			return
		case old != nil && old.IsMarked() && old.IsString() && old.Value() == value:
			m, _ := old.Mark()
			setMarked(c, key, value, deadlineMillis, c.RenewedMark(m, deadlineMillis))
			return
		}
	}
	c.Set(key, value, deadlineMillis)
}
