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

// objectFreqOp returns the error that Redis returns without an LFU eviction policy.
func objectFreqOp(c *command.Call) protocol.Value {
	if c.Find(c.Args[1]) == nil {
		return protocol.Null
	}
	return protocol.Err("An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when " +
		"switching between policies at runtime LRU and LFU data will take some time to adjust.")
}

// objectIdletimeOp returns 0. The state has no times of reads.
func objectIdletimeOp(c *command.Call) protocol.Value {
	if c.Find(c.Args[1]) == nil {
		return protocol.Null
	}
	return command.Zero
}

// Redis shares the objects of the integers from 0 to sharedIntegers-1, and reports sharedCount as their reference
// count.
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

// maxEmbedded is the length in bytes of the longest string that Redis embeds in its object.
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

// holderWork is the work of MEMORY USAGE for a hold or a waiter of a lock.
const holderWork = 64

// memoryUsageOp returns the bytes that the key counts against the memory limit. SAMPLES has no effect, since all
// elements are counted.
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
	it := c.FindIn(c.DB, c.Args[1]) // as in Redis, neither a hit nor a miss
	if it == nil {
		return protocol.Null
	}
	bytes := it.Bytes()
	if it.IsLock() {
		work := int64(c.Keys.Locks.HoldersAndWaiters(c.DB, c.Args[1])) * holderWork
		if !c.Fits(work) {
			return command.ErrOverWork
		}
		c.Spend(work)
		bytes += c.Keys.Locks.Usage(c.DB, c.Args[1])
	}
	return protocol.Integer(bytes)
}
