package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

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
	elems := make([]protocol.Value, len(c.Args)-1)
	for i, key := range c.Args[1:] {
		elems[i] = protocol.Integer(int64(newMark(c.st.Versions, c.Find(key) == nil)))
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
		if c.EntryVersion >= command.VersionBudgets {
			c.Spend(watchWork)
			if !c.Fits(0) {
				return false, true
			}
		}
		if c.Remembers() {
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
	it := c.FindIn(w.DB, w.Key)
	switch {
	case c.st.Swaps[w.DB] > m.versions():
		return true
	case m.missing():
		return it != nil || c.st.NewKeys[c.st.NewKeys.Place(w.DB, c.HashOf(w.Key))] > m.versions()
	default:
		return it == nil || it.Version() > m.versions()
	}
}

// versionOf is the version of the watched key, 0 if the key is missing. Entries of version 1 compare
// nothing else.
func (c *call) versionOf(w *protocol.Watch) uint64 {
	if it := c.FindIn(w.DB, w.Key); it != nil {
		return it.Version()
	}
	return 0
}
