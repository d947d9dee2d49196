package keys

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func scanOp(c *command.Call) protocol.Value {
	cursor, ok := command.ParseCursor(c.Args[1])
	if !ok {
		return protocol.ErrInvalidCursor.Value()
	}
	o, problem, ok := command.ParseScanOptions(c.Args[2:])
	if !ok {
		return problem
	}
	c.NoteDueKeys()
	keys, next := scan(c, cursor, &o)
	if !c.Fits(0) {
		return command.ErrOverWork
	}
	if o.Matcher.IsExhausted() {
		return command.ErrPattern
	}
	return protocol.Array(protocol.Bulk(next), protocol.Array(keys...))
}

// scan returns the matching keys among the next o.Count keys, and the next cursor, which is "0" at the end. It reads
// more keys if several share a cursor.
func scan(c *command.Call, cursor uint64, o *command.ScanOptions) (keys []protocol.Value, next string) {
	next = "0"
	if cursor >= 1<<53 {
		return nil, next
	}
	var seen int64
	var last uint64
	o.Matcher.Start(c)
	defer o.Matcher.Charge(c)
	c.Ascend(cursor<<command.CursorShift, func(it *keyspace.Item) bool {
		if seen >= o.Count && command.Position(it) != last {
			next = command.FormatUint(command.Position(it))
			return false
		}
		seen++
		c.SpendScan()
		last = command.Position(it)
		if o.Wants(it) {
			keys = append(keys, protocol.Bulk(it.Key()))
		}
		return !o.Matcher.IsExhausted() && c.Fits(0)
	})
	return keys, next
}

func keysOp(c *command.Call) protocol.Value {
	c.NoteDueKeys()
	var keys []protocol.Value
	m := command.Matcher{Pattern: c.Args[1]}
	m.Start(c)
	c.Ascend(0, func(it *keyspace.Item) bool {
		c.SpendScan()
		if m.Match(it.Key()) {
			keys = append(keys, protocol.Bulk(it.Key()))
		}
		return !m.IsExhausted() && c.Fits(0)
	})
	m.Charge(c)
	if !c.Fits(0) {
		return command.ErrOverWork
	}
	if m.IsExhausted() {
		return command.ErrPattern
	}
	return protocol.Array(keys...)
}

// randomkeyOp returns the first key at or after a random hash.
func randomkeyOp(c *command.Call) protocol.Value {
	c.NoteDueKeys()
	reply := protocol.Null
	first := func(it *keyspace.Item) bool {
		reply = protocol.Bulk(it.Key())
		return false
	}
	c.Ascend(c.Random(), first)
	if reply.IsNull() && c.Fits(0) {
		c.Ascend(0, first)
	}
	if !c.Fits(0) {
		return command.ErrOverWork
	}
	return reply
}

// The commands for hash slots serve tools of Redis Cluster. They read all keys of the database, since no index has the
// keys of a slot.

func countKeysInSlotOp(c *command.Call) protocol.Value {
	slot, ok := protocol.ParseInt(c.Args[1])
	switch {
	case !ok:
		return command.ErrNotInteger
	case slot < 0 || slot >= protocol.Slots:
		return protocol.Err("Invalid slot")
	}
	var n int64
	if !eachInSlot(c, slot, func(string) bool { n++; return true }) {
		return command.ErrOverWork
	}
	return protocol.Integer(n)
}

func getKeysInSlotOp(c *command.Call) protocol.Value {
	slot, ok := protocol.ParseInt(c.Args[1])
	if !ok {
		return command.ErrNotInteger
	}
	limit, ok := protocol.ParseInt(c.Args[2])
	switch {
	case !ok:
		return command.ErrNotInteger
	case slot < 0 || slot >= protocol.Slots || limit < 0:
		return protocol.Err("Invalid slot or number of keys")
	case limit == 0:
		return protocol.Array()
	}
	var keys []protocol.Value
	fits := eachInSlot(c, slot, func(key string) bool {
		if c.Host.MayRead(key) {
			keys = append(keys, protocol.Bulk(key))
		}
		return int64(len(keys)) < limit
	})
	if !fits {
		return command.ErrOverWork
	}
	return protocol.Array(keys...)
}

// eachInSlot calls f with the keys of a slot until f returns false. fits reports whether the request is within its
// budget.
func eachInSlot(c *command.Call, slot int64, f func(key string) bool) (fits bool) {
	c.NoteDueKeys()
	c.Ascend(0, func(it *keyspace.Item) bool {
		c.SpendScan()
		c.Spend(int64(len(it.Key())))
		return c.Fits(0) && (int64(protocol.KeySlot(it.Key())) != slot || f(it.Key()))
	})
	return c.Fits(0)
}
