package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
)

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
