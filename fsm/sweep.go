package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// advance sets the clock to the entry's stamp, and removes some of the keys that have ended. From
// [state.sweeps] on the removal follows from the log alone: it is the same entry on all nodes, and each
// key's removal is told once.
func (c *call) advance(e *protocol.Entry) {
	st := c.st
	if e.Version >= versionSweeps && !st.Sweeps {
		st.agreeOnSweeps()
	}
	st.advance(e.StampMillis, e.WallOffsetMillis)
	c.Ended = 0
	left := sweepLimit
	for db, d := range st.Databases {
		left -= d.Sweep(st.ClockMillis, left, func(it *keyspace.Item) { c.Goes(db, it) })
	}
}
