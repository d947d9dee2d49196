package fsm

import (
	"github.com/zeebo/xxh3"

	"github.com/holdfast/holdfast/fsm/command"
)

// versionSeeded is the first version of the entry in which every script has a separate seed for
// math.random. Before, all scripts drew the same numbers.
const versionSeeded = 3

// scriptSeed is the seed of math.random for a script: another seed in each script, since scripts
// make tokens with random numbers, and the same on all nodes.
//
// A script in an entry is named by the batch, which is applied once, and the place among the
// batch's scripts. Scripts that only read are counted apart, as a node skips them if no client
// waits.
func (c *call) scriptSeed(readOnly bool) uint64 {
	now, versions := uint64(c.NowMillis), c.st.Versions
	if c.Reading {
		return command.HashNumbers(now, versions, c.Seed) | 1
	}
	if c.EntryVersion < versionSeeded {
		return 0
	}
	kind := 0
	if readOnly {
		kind = 1
	}
	c.scripted[kind]++
	node := xxh3.HashString(c.origin.Node)
	return command.HashNumbers(now, versions, node, c.origin.Epoch, c.seq, uint64(kind), c.scripted[kind]) | 1
}
