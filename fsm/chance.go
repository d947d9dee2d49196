package fsm

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// versionSeeded is the first version of the entry in which math.random begins anew in
// every script. Before, it began alike in all.
const versionSeeded = 3

// scriptSeed is where math.random begins in a script: elsewhere in each, for scripts make
// tokens of it, and at the same place on all nodes.
//
// A script in an entry is named by its batch, which is applied once, and its place
// among the batch's scripts. Those that only read are counted for themselves, as nodes
// skip them where nobody waits for the reply.
func (c *call) scriptSeed(readOnly bool) uint64 {
	now, versions := uint64(c.nowMillis), c.st.versions
	if c.reading {
		return hashNumbers(now, versions, c.seed) | 1
	}
	if c.entryVersion < versionSeeded {
		return 0
	}
	kind := 0
	if readOnly {
		kind = 1
	}
	c.scripted[kind]++
	node := xxh3.HashString(c.origin.Node)
	return hashNumbers(now, versions, node, c.origin.Epoch, c.seq, uint64(kind), c.scripted[kind]) | 1
}

// hashNumbers is the same on every processor.
func hashNumbers(numbers ...uint64) uint64 {
	var b [64]byte
	for i, n := range numbers {
		binary.LittleEndian.PutUint64(b[8*i:], n)
	}
	return xxh3.Hash(b[:8*len(numbers)])
}
