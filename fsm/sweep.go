package fsm

import (
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// advance sets the clock to the entry's stamp, and removes some of the keys that have ended. From
// [state.sweeps] on the removal follows from the log alone: it is the same entry on all nodes, and each
// key's removal is told once.
func (c *call) advance(e *protocol.Entry) {
	st := c.st
	if e.Version >= versionSweeps && !st.sweeps {
		st.agreeOnSweeps()
	}
	st.advance(e.StampMillis, e.WallOffsetMillis)
	c.ended = 0
	left := sweepLimit
	for db, d := range st.databases {
		left -= d.Sweep(st.clockMillis, left, func(it *keyspace.Item) { c.goes(db, it) })
	}
}

// goes counts and tells that the stored item of an ended key is removed.
func (c *call) goes(db int, it *keyspace.Item) {
	c.ended++
	if !c.st.sweeps {
		return
	}
	if it.IsMarked() {
		c.watch.watchEnd(db, it)
		c.stockLost(db, it, locks.Expired, 0)
	}
	c.notifyIn(db, classExpired, "expired", it.Key())
	if c.interest&event.InChanges != 0 {
		c.changed(db, it.Key())
	}
}

// came tells that a key came where none was. If over, it took the place of an ended key, before, which goes by
// that.
func (c *call) came(db int, it, before *keyspace.Item, over bool) {
	if over {
		c.goes(db, before)
	}
	if c.scripts.running {
		c.scripts.noteCreated(db, it)
	}
	c.notifyIn(db, classNew, "new", it.Key())
}
