package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
)

// countingWrites are the commands that read a key and write another, or the same, and count what they read. SET
// and BITFIELD count with some arguments.
var countingWrites = map[string]bool{
	"bitop": true, "copy": true, "getdel": true, "getex": true, "getset": true, "sort": true,
	"sdiffstore": true, "sinterstore": true, "sunionstore": true,
	"zdiffstore": true, "zinterstore": true, "zrangestore": true, "zunionstore": true,
}

// countLookups adds the lookups of a call, which starts anew.
func (m *machine) countLookups(c *call) {
	if c.Hits > 0 {
		m.hits.Add(c.Hits)
	}
	if c.Misses > 0 {
		m.misses.Add(c.Misses)
	}
	c.Lookups = command.Lookups{}
}
