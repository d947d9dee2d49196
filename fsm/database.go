package fsm

import "github.com/tidwall/btree"

// database is one of the numbered keyspaces: its items ordered by key hash, and
// those that have a deadline ordered by it. Both trees are copy-on-write.
//
// Invariant: an item stands in deadlines if and only if it stands in keys and
// its deadline is not 0.
//
// An item whose deadline has passed may stand here for a while ([state.sweep]
// removes a bounded number an entry). It counts as absent everywhere, so how
// many of them stand here shows in no reply, no snapshot and no hash.
type database struct {
	keys      *btree.BTreeG[place]
	deadlines *btree.BTreeG[due]
}

// place is an item in the order of keys. The hash is held beside the pointer so
// that a descent touches no item but the one it finds.
type place struct {
	hash uint64
	item *item
}

func placeBefore(a, b place) bool {
	if a.hash != b.hash {
		return a.hash < b.hash
	}
	return a.item.key() < b.item.key()
}

// due is an item in the order of deadlines.
type due struct {
	deadlineMillis int64
	item           *item
}

func dueBefore(a, b due) bool {
	if a.deadlineMillis != b.deadlineMillis {
		return a.deadlineMillis < b.deadlineMillis
	}
	// A nil item stands before all items of its instant: the pivot of searches.
	switch {
	case a.item == b.item || b.item == nil:
		return false
	case a.item == nil:
		return true
	}
	return placeBefore(place{a.item.hash, a.item}, place{b.item.hash, b.item})
}

func newDatabase() *database {
	options := btree.Options{NoLocks: true}
	return &database{
		keys:      btree.NewBTreeGOptions(placeBefore, options),
		deadlines: btree.NewBTreeGOptions(dueBefore, options),
	}
}

// copy is a database that shares all nodes with d; what either writes later the
// other does not see.
func (d *database) copy() *database {
	return &database{keys: d.keys.IsoCopy(), deadlines: d.deadlines.IsoCopy()}
}

// put stores it and returns the item that stood in its place, nil if none did.
func (d *database) put(it *item) (prev *item) {
	old, replaced := d.keys.Set(place{it.hash, it})
	if replaced {
		prev = old.item
		if prev.deadlineMillis != 0 {
			d.deadlines.Delete(due{prev.deadlineMillis, prev})
		}
	}
	if it.deadlineMillis != 0 {
		d.deadlines.Set(due{it.deadlineMillis, it})
	}
	return prev
}

// remove takes out it. Requires: it stands in d.
func (d *database) remove(it *item) {
	d.keys.Delete(place{it.hash, it})
	if it.deadlineMillis != 0 {
		d.deadlines.Delete(due{it.deadlineMillis, it})
	}
}

// dueAt counts the items whose deadline has passed at nowMillis.
func (d *database) dueAt(nowMillis int64) int {
	first, ok := d.deadlines.Min()
	if !ok || first.deadlineMillis >= nowMillis {
		return 0
	}
	low, high := 1, d.deadlines.Len()
	for low < high {
		middle := int(uint(low+high) >> 1)
		if at, _ := d.deadlines.GetAt(middle); at.deadlineMillis < nowMillis {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// lenAt counts the keys present at nowMillis.
func (d *database) lenAt(nowMillis int64) int { return d.keys.Len() - d.dueAt(nowMillis) }

// dueBetween reports whether some key has afterMillis <= deadline < untilMillis.
func (d *database) dueBetween(afterMillis, untilMillis int64) (found bool) {
	if untilMillis <= afterMillis {
		return false
	}
	d.deadlines.Ascend(due{deadlineMillis: afterMillis}, func(next due) bool {
		found = next.deadlineMillis < untilMillis
		return false
	})
	return found
}

// ascend calls f for every key present at nowMillis whose hash is at least
// fromHash, in order, until f returns false. It returns how many items it passed
// whose deadline has passed.
func (d *database) ascend(fromHash uint64, nowMillis int64, f func(it *item) bool) (dead int) {
	// The empty key is the first of its hash.
	pivot := place{hash: fromHash, item: &item{hash: fromHash}}
	d.keys.Ascend(pivot, func(p place) bool {
		if p.item.dead(nowMillis) {
			dead++
			return true
		}
		return f(p.item)
	})
	return dead
}

// sweep removes at most limit items whose deadline has passed at nowMillis.
func (d *database) sweep(nowMillis int64, limit int) (swept int) {
	for swept < limit {
		first, ok := d.deadlines.Min()
		if !ok || first.deadlineMillis >= nowMillis {
			break
		}
		d.remove(first.item)
		swept++
	}
	return swept
}

// sweepAll removes all of them at once: where they are many, by building both
// trees again without them, in one pass and with no search.
func (d *database) sweepAll(nowMillis int64) (swept int) {
	over := d.dueAt(nowMillis)
	if over < d.keys.Len()/rebuildShare {
		return d.sweep(nowMillis, over)
	}
	rebuilt := newDatabase()
	d.ascend(0, nowMillis, func(it *item) bool {
		rebuilt.keys.Load(place{it.hash, it})
		return true
	})
	d.deadlines.Ascend(due{deadlineMillis: nowMillis}, func(next due) bool {
		if next.deadlineMillis >= nowMillis {
			rebuilt.deadlines.Load(next)
		}
		return true
	})
	*d = *rebuilt
	return over
}

// rebuildShare: an item costs about as much to remove as this many to load.
const rebuildShare = 16

// dead reports whether it is absent at nowMillis: when its deadline has passed, as
// in Redis, not when it is reached. A stamp is a whole number of milliseconds that
// the leader cut off, so a grant may have been up to a millisecond later than its stamp says,
// and a lease that ended with its last millisecond's beginning would end early.
func (it *item) dead(nowMillis int64) bool {
	return it.deadlineMillis != 0 && it.deadlineMillis < nowMillis
}
