package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// creations remember, by a hash of database and key, when a key last came that
// had not been there: the number of its version. A key that was missing at WATCH
// and is missing at EXEC may have been there between; this tells. Two keys
// can share a place, and then EXEC fails without cause, as it may.
type creations [1 << 14]uint64

// place is where the creation of a key is noted.
func (cs *creations) place(db int, hash uint64) uint16 {
	return uint16((hash + uint64(db)) % uint64(len(cs)))
}

// count is how many places have a note.
func (cs *creations) count() (n uint64) {
	for _, version := range cs {
		if version != 0 {
			n++
		}
	}
	return n
}

// remembers reports whether creations and swaps are noted, and EXEC looks at them: from
// version 2 of the entry on.
func (c *call) remembers() bool { return c.entryVersion != 1 }

// noteCreation notes that it came where nothing was.
func (c *call) noteCreation(db int, it *keyspace.Item) {
	if !c.remembers() {
		return
	}
	place := c.st.creations.place(db, it.Hash)
	if c.undo != nil {
		c.undo.noteCreation(place, c.st.creations[place])
	}
	c.st.creations[place] = it.Version
}

// noteSwap notes that two databases were exchanged. It takes a version, as a store does.
func (c *call) noteSwap(a, b int) {
	if !c.remembers() || a == b {
		return
	}
	version := c.st.nextVersion()
	c.st.swaps[a], c.st.swaps[b] = version, version
}

// mark is what WATCH answers for a key, and what EXEC compares: how many versions
// had been given out, doubled, and one more if the key was missing. It is good on every node.
type mark uint64

func newMark(versions uint64, missing bool) mark {
	m := mark(versions << 1)
	if missing {
		m++
	}
	return m
}

func (m mark) versions() uint64 { return uint64(m >> 1) }
func (m mark) missing() bool    { return m&1 != 0 }

// watchOp answers the marks of keys.
func watchOp(c *call) protocol.Value {
	elems := make([]protocol.Value, len(c.args)-1)
	for i, key := range c.args[1:] {
		elems[i] = protocol.Integer(int64(newMark(c.st.versions, c.find(key) == nil)))
	}
	return protocol.Array(elems...)
}

// watchedChanged reports whether a watched key is not what it was when WATCH saw
// it, or was not in between. It returns ok false if the list cannot be read.
func (c *call) watchedChanged(watches string) (changed, ok bool) {
	var w protocol.Watch
	for watches != "" {
		rest, err := protocol.NextWatch(watches, &w)
		if err != nil {
			return false, false
		}
		watches = rest
		if c.entryVersion >= versionBudgets {
			c.spend(watchWork)
			if !c.fits(0) {
				return false, true
			}
		}
		if c.remembers() {
			changed = changed || c.changedSince(&w, mark(w.Mark))
		} else {
			changed = changed || c.versionOf(&w) != w.Mark
		}
	}
	return changed, true
}

// changedSince reports whether the key has come, gone, or got another value or
// deadline since m was made, or its database was swapped: for then an item may stand here that is older
// than m and came from elsewhere.
func (c *call) changedSince(w *protocol.Watch, m mark) bool {
	it := c.findIn(w.DB, w.Key)
	switch {
	case c.st.swaps[w.DB] > m.versions():
		return true
	case m.missing():
		return it != nil || c.st.creations[c.st.creations.place(w.DB, c.hashOf(w.Key))] > m.versions()
	default:
		return it == nil || it.Version > m.versions()
	}
}

// versionOf is the version of the watched key, 0 if it is missing: what entries of
// version 1 compare.
func (c *call) versionOf(w *protocol.Watch) uint64 {
	if it := c.findIn(w.DB, w.Key); it != nil {
		return it.Version
	}
	return 0
}
