package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func position(it *keyspace.Item) uint64 { return it.Hash >> command.CursorShift }

func scanOp(c *call) protocol.Value {
	cursor, ok := command.ParseCursor(c.Args[1])
	if !ok {
		return protocol.ErrInvalidCursor.Value()
	}
	o, problem, ok := command.ParseScanOptions(c.Args[2:])
	if !ok {
		return problem
	}
	c.MeetAll()
	keys, next := c.scan(cursor, &o)
	if !c.Fits(0) {
		return command.ErrOverWork
	}
	if o.Matcher.Tired() {
		return command.ErrPattern
	}
	return protocol.Array(protocol.Bulk(next), protocol.Array(keys...))
}

// scan returns the matching keys among the next o.count, and the next cursor: "0" at the end.
func (c *call) scan(cursor uint64, o *command.ScanOptions) (keys []protocol.Value, next string) {
	next = "0"
	if cursor >= 1<<53 {
		return nil, next
	}
	var seen int64
	var last uint64
	o.Matcher.Start(&c.Call)
	defer o.Matcher.Charge(&c.Call)
	c.Ascend(cursor<<command.CursorShift, func(it *keyspace.Item) bool {
		if seen >= o.Count && position(it) != last {
			next = command.FormatUint(position(it))
			return false
		}
		seen++
		c.SpendScan()
		last = position(it)
		if o.Wants(it) {
			keys = append(keys, protocol.Bulk(it.Key()))
		}
		return !o.Matcher.Tired() && c.Fits(0)
	})
	return keys, next
}

func keysOp(c *call) protocol.Value {
	c.MeetAll()
	var keys []protocol.Value
	m := command.Matcher{Pattern: c.Args[1]}
	m.Start(&c.Call)
	c.Ascend(0, func(it *keyspace.Item) bool {
		c.SpendScan()
		if m.Match(it.Key()) {
			keys = append(keys, protocol.Bulk(it.Key()))
		}
		return !m.Tired() && c.Fits(0)
	})
	m.Charge(&c.Call)
	if !c.Fits(0) {
		return command.ErrOverWork
	}
	if m.Tired() {
		return command.ErrPattern
	}
	return protocol.Array(keys...)
}

// randomkeyOp returns the first key at or after a position drawn by [Call.Random]. The ended keys that
// wait to be swept play no part.
func randomkeyOp(c *call) protocol.Value {
	c.MeetAll()
	reply := protocol.Null
	take := func(it *keyspace.Item) bool {
		reply = protocol.Bulk(it.Key())
		return false
	}
	c.Ascend(c.Random(), take)
	if reply.IsNull() && c.Fits(0) {
		c.Ascend(0, take)
	}
	if !c.Fits(0) {
		return command.ErrOverWork
	}
	return reply
}
