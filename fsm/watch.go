package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// newKeyVersions remembers, by a hash of database and key, the version at which a new key came last:
// a key that had not been there. EXEC needs it for a key that was missing at WATCH and is missing
// again. Two keys can share a place; EXEC may then fail without cause, which is allowed.
type newKeyVersions [1 << 14]uint64

// place is the index for a key.
func (vs *newKeyVersions) place(db int, hash uint64) uint16 {
	return uint16((hash + uint64(db)) % uint64(len(vs)))
}

// count is the number of places with a version.
func (vs *newKeyVersions) count() (n uint64) {
	for _, version := range vs {
		if version != 0 {
			n++
		}
	}
	return n
}

// remembers reports whether new keys and swaps are noted, and EXEC looks at them: from version 2 of
// the entry on.
func (c *call) remembers() bool { return c.entryVersion != 1 }

// noteNewKey notes that an item came where nothing was.
func (c *call) noteNewKey(db int, it *keyspace.Item) {
	if !c.remembers() {
		return
	}
	place := c.st.newKeys.place(db, it.Hash)
	if c.undo != nil {
		c.undo.noteNewKey(place, c.st.newKeys[place])
	}
	c.st.newKeys[place] = it.Version()
}

// noteSwap notes that two databases were exchanged. A swap takes a version, as a store does.
func (c *call) noteSwap(a, b int) {
	if !c.remembers() || a == b {
		return
	}
	version := c.st.nextVersion()
	c.st.swaps[a], c.st.swaps[b] = version, version
}

// mark is the answer of WATCH for a key, which EXEC compares: the number of versions given out,
// doubled, and one more if the key was missing. A mark is good on every node.
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

// watchOp answers with the marks of keys.
func watchOp(c *call) protocol.Value {
	elems := make([]protocol.Value, len(c.args)-1)
	for i, key := range c.args[1:] {
		elems[i] = protocol.Integer(int64(newMark(c.st.versions, c.find(key) == nil)))
	}
	return protocol.Array(elems...)
}

// watchedChanged reports whether a watched key has changed since WATCH, even if only in between. ok is
// false if the list cannot be read.
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

// changedSince reports whether the key has come, gone, or got another value or deadline since m was
// made. A swap of the database counts as a change, as an item from there may be older than m.
func (c *call) changedSince(w *protocol.Watch, m mark) bool {
	it := c.findIn(w.DB, w.Key)
	switch {
	case c.st.swaps[w.DB] > m.versions():
		return true
	case m.missing():
		return it != nil || c.st.newKeys[c.st.newKeys.place(w.DB, c.hashOf(w.Key))] > m.versions()
	default:
		return it == nil || it.Version() > m.versions()
	}
}

// versionOf is the version of the watched key, 0 if the key is missing. Entries of version 1 compare
// nothing else.
func (c *call) versionOf(w *protocol.Watch) uint64 {
	if it := c.findIn(w.DB, w.Key); it != nil {
		return it.Version()
	}
	return 0
}
