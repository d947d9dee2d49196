package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func objectEncodingOp(c *call) protocol.Value {
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
func objectFreqOp(c *call) protocol.Value {
	if c.Find(c.Args[1]) == nil {
		return protocol.Null
	}
	return protocol.Err("An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when " +
		"switching between policies at runtime LRU and LFU data will take some time to adjust.")
}

// objectIdletimeOp answers that the value is in use: a read leaves no trace in the state.
func objectIdletimeOp(c *call) protocol.Value {
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

func objectRefcountOp(c *call) protocol.Value {
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

// encodingName is the encoding of a string.
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
