package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// clusterOps look for the keys of a hash slot, for tools of Redis Cluster. Keys are not kept by slot,
// so each key of the database is looked at.
var clusterOps = map[string]op{
	"cluster|countkeysinslot": countKeysInSlotOp,
	"cluster|getkeysinslot":   getKeysInSlotOp,
}

func countKeysInSlotOp(c *call) protocol.Value {
	slot, ok := protocol.ParseInt(c.Args[1])
	switch {
	case !ok:
		return command.ErrNotInteger
	case slot < 0 || slot >= protocol.Slots:
		return protocol.Err("Invalid slot")
	}
	var n int64
	if !c.eachInSlot(slot, func(string) bool { n++; return true }) {
		return command.ErrOverWork
	}
	return protocol.Integer(n)
}

func getKeysInSlotOp(c *call) protocol.Value {
	slot, ok := protocol.ParseInt(c.Args[1])
	if !ok {
		return command.ErrNotInteger
	}
	most, ok := protocol.ParseInt(c.Args[2])
	switch {
	case !ok:
		return command.ErrNotInteger
	case slot < 0 || slot >= protocol.Slots || most < 0:
		return protocol.Err("Invalid slot or number of keys")
	case most == 0:
		return protocol.Array()
	}
	var keys []protocol.Value
	fits := c.eachInSlot(slot, func(key string) bool {
		keys = append(keys, protocol.Bulk(key))
		return int64(len(keys)) < most
	})
	if !fits {
		return command.ErrOverWork
	}
	return protocol.Array(keys...)
}

// eachInSlot calls f with the keys of a slot until f returns false. The result is false if the request
// is over its budget.
func (c *call) eachInSlot(slot int64, f func(key string) bool) (fits bool) {
	c.MeetAll()
	c.Ascend(0, func(it *keyspace.Item) bool {
		c.SpendScan()
		c.Spend(int64(len(it.Key())))
		return c.Fits(0) && (int64(protocol.KeySlot(it.Key())) != slot || f(it.Key()))
	})
	return c.Fits(0)
}
