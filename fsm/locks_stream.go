package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
)

// The section of locks, since version 4 of the snapshot, is the lock table's own: see [locks.Table.Save].
// Each lock has an item among the keys of its database, for the item's version.

// versionOfLocks is the first version of the snapshot with locks.
const versionOfLocks = 4

// lockWriter writes the section.
type lockWriter struct{ w *snapshotWriter }

func (l lockWriter) Uint(n uint64)   { l.w.uint(n); l.w.flush(1 << 15) }
func (l lockWriter) Int(n int64)     { l.w.int(n); l.w.flush(1 << 15) }
func (l lockWriter) String(s string) { l.w.string(s) }

// lockReader reads the section.
type lockReader struct{ r *snapshotReader }

func (l lockReader) Uint() uint64   { return l.r.uint("lock table") }
func (l lockReader) Int() int64     { return l.r.int("lock table") }
func (l lockReader) String() string { return l.r.string("lock table") }
func (l lockReader) Err() error     { return l.r.err }

// locks reads the section, and compares the locks with the items that stand for them.
func (r *snapshotReader) locks(st *state) {
	t, err := locks.Load(lockReader{r})
	if err != nil {
		r.fail("lock table: " + err.Error())
	}
	if r.err != nil {
		return
	}
	st.locks = t
	for _, at := range r.marked {
		if !t.Has(at.db, at.key) {
			r.fail("an item stands for no lock")
			return
		}
	}
	if len(r.marked) != t.Standing() {
		r.fail("no item stands for a lock")
	}
}

// marker reads the rest of the item of a lock. The key is in r.buf.
func (r *snapshotReader) marker(st *state) (it keyspace.Item) {
	key := string(r.buf)
	words := r.uint("number of words")
	it = keyspace.NewLock(keyspace.Hash(key), key)
	r.deadlineAndVersion(st, &it)
	if r.err == nil && (words != 0 || it.DeadlineMillis != never) {
		r.fail("item of a lock")
	}
	return it
}
