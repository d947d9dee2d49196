package keys

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func objectEncodingOp(c *command.Call) protocol.Value {
	it := c.Find(c.Args[1])
	if it == nil {
		return protocol.Null
	}
	if v := it.Collection(); v != nil {
		return protocol.Bulk(v.Encoding())
	}
	return protocol.Bulk(encodingName(it))
}

// objectFreqOp refuses, as Redis does unless the limit of memory has a policy of frequency.
func objectFreqOp(c *command.Call) protocol.Value {
	if c.Find(c.Args[1]) == nil {
		return protocol.Null
	}
	return protocol.Err("An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when " +
		"switching between policies at runtime LRU and LFU data will take some time to adjust.")
}

// objectIdletimeOp answers that the value is in use: a read leaves no trace in the state.
func objectIdletimeOp(c *command.Call) protocol.Value {
	if c.Find(c.Args[1]) == nil {
		return protocol.Null
	}
	return command.Zero
}

// Redis shares the objects of small integers.
const (
	sharedIntegers = 10_000
	sharedCount    = 1<<31 - 1
)

func objectRefcountOp(c *command.Call) protocol.Value {
	it := c.Find(c.Args[1])
	if it == nil {
		return protocol.Null
	}
	if it.IsString() && encodingName(it) == "int" {
		if n, _ := protocol.ParseInt(it.Value()); n >= 0 && n < sharedIntegers {
			return protocol.Integer(sharedCount)
		}
	}
	return command.One
}

// maxEmbedded is the length up to which Redis embeds a string in its object.
const maxEmbedded = 44

func encodingName(it *keyspace.Item) string {
	_, isInt := protocol.ParseInt(it.Value())
	switch {
	case it.Encoding() == keyspace.EncodingRaw:
		return "raw"
	case it.Encoding() == keyspace.EncodingAuto && isInt:
		return "int"
	case len(it.Value()) <= maxEmbedded:
		return "embstr"
	}
	return "raw"
}

// standerWork is what MEMORY USAGE does with a hold or a waiter of a lock.
const standerWork = 64

// memoryUsageOp answers with the bytes that the key counts against the limit. Nothing is sampled.
func memoryUsageOp(c *command.Call) protocol.Value {
	for i := 2; i < len(c.Args); i += 2 {
		if !command.IsWord(c.Args[i], "SAMPLES") || i+1 >= len(c.Args) {
			return command.ErrSyntax
		}
		n, ok := protocol.ParseInt(c.Args[i+1])
		switch {
		case !ok:
			return command.ErrNotInteger
		case n < 0:
			return command.ErrSyntax
		}
	}
	it := c.FindIn(c.DB, c.Args[1]) // which Redis does not count
	if it == nil {
		return protocol.Null
	}
	bytes := it.Bytes()
	if it.IsLock() {
		work := int64(c.Keys.Locks.HoldersAndWaiters(c.DB, c.Args[1])) * standerWork
		if !c.Fits(work) {
			return command.ErrOverWork
		}
		c.Spend(work)
		bytes += c.Keys.Locks.Usage(c.DB, c.Args[1])
	}
	return protocol.Integer(bytes)
}
