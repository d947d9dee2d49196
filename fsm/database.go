package fsm

// database is one of the numbered keyspaces: its items by key hash, and when those
// of them end that have a deadline.
//
// Invariant: for each item with a deadline, and for nothing else, there is a due
// among deadlines.
//
// An item whose deadline has passed may stand here for a while ([state.sweep]
// removes a bounded number an entry). It counts as absent everywhere, so how
// many of them stand here shows in no reply, no snapshot and no hash.
type database struct {
	keys      keyspace
	deadlines calendar
	// clockMillis is the state's, and bytes what the items count for that have not ended by
	// it. Those that have ended do not count, be they here still or not.
	clockMillis int64
	bytes       int64
}

func newDatabase(clockMillis int64) *database {
	return &database{keys: newKeyspace(), clockMillis: clockMillis}
}

func (it *item) due() due {
	return due{it.deadlineMillis, it.hash&^classMask | uint64(it.class())<<classShift}
}

// advance sets the clock. What ends by it counts no more.
func (d *database) advance(clockMillis int64) {
	if first, ok := d.deadlines.first(); ok && first.deadlineMillis < clockMillis {
		d.bytes -= d.deadlines.bytesBefore(clockMillis) - d.deadlines.bytesBefore(d.clockMillis)
	}
	d.clockMillis = clockMillis
}

// countOf is what it counts for now.
func (d *database) countOf(it *item) int64 {
	if it.dead(d.clockMillis) {
		return 0
	}
	return it.class().bytes()
}

// put stores it and returns the item that stood in its place.
func (d *database) put(it *item) (prev item, replaced bool) {
	prev, replaced = d.keys.put(it)
	d.bytes += d.countOf(it)
	if replaced {
		d.bytes -= d.countOf(&prev)
	}
	if prev.deadlineMillis == it.deadlineMillis && (it.deadlineMillis == never || prev.class() == it.class()) {
		return prev, replaced
	}
	if prev.deadlineMillis != never {
		d.deadlines.remove(prev.due())
	}
	if it.deadlineMillis != never {
		d.deadlines.add(it.due())
	}
	return prev, replaced
}

// remove takes out the item of a key, and returns it. Requires: it is there.
func (d *database) remove(hash uint64, key string) (prev item) {
	prev, _ = d.keys.remove(hash, key)
	d.bytes -= d.countOf(&prev)
	if prev.deadlineMillis != never {
		d.deadlines.remove(prev.due())
	}
	return prev
}

// dueAt counts the items whose deadline has passed at nowMillis.
func (d *database) dueAt(nowMillis int64) int { return d.deadlines.before(nowMillis) }

// lenAt counts the keys present at nowMillis.
func (d *database) lenAt(nowMillis int64) int { return d.keys.len() - d.dueAt(nowMillis) }

// dueBetween reports whether some key has afterMillis <= deadline < untilMillis.
func (d *database) dueBetween(afterMillis, untilMillis int64) bool {
	if untilMillis <= afterMillis {
		return false
	}
	deadlineMillis, ok := d.deadlines.next(afterMillis)
	return ok && deadlineMillis < untilMillis
}

// ascend calls f for every key present at nowMillis whose hash is at least
// fromHash, in order, until f returns false. It returns how many items it passed
// whose deadline has passed.
func (d *database) ascend(fromHash uint64, nowMillis int64, f func(it *item) bool) (dead int) {
	d.keys.ascend(fromHash, func(it *item) bool {
		if it.dead(nowMillis) {
			dead++
			return true
		}
		return f(it)
	})
	return dead
}

// sweep removes at most limit items whose deadline has passed at nowMillis.
func (d *database) sweep(nowMillis int64, limit int) (swept int) {
	for swept < limit {
		first, ok := d.deadlines.first()
		if !ok || first.deadlineMillis >= nowMillis {
			break
		}
		if swept%aheadKeys == 0 {
			d.touchDue(nowMillis)
		}
		it := d.keys.ending(first)
		d.remove(it.hash, it.key())
		swept++
	}
	return swept
}

// touchDue reads what the next steps of a sweep need.
func (d *database) touchDue(nowMillis int64) {
	if d.keys.len() < aheadFrom {
		return
	}
	var hashes [aheadKeys]uint64
	n := d.deadlines.hashesBefore(nowMillis, hashes[:])
	d.keys.touch(hashes[:n])
}

// sweepAll removes all of them at once: where they are many in one pass and with no search.
func (d *database) sweepAll(nowMillis int64) (swept int) {
	over := d.dueAt(nowMillis)
	if over < d.keys.len()/passShare {
		return d.sweep(nowMillis, over)
	}
	d.keys.removeDead(nowMillis)
	d.deadlines.dropBefore(nowMillis)
	return over
}

// passShare: an item costs about as much to remove as this many to pass.
const passShare = 16

// dead reports whether it is absent at nowMillis: when its deadline has passed, as
// in Redis, not when it is reached. A stamp is a whole number of milliseconds that
// the leader cut off, so a grant may have been up to a millisecond later than its stamp says,
// and a lease that ended with its last millisecond's beginning would end early.
func (it *item) dead(nowMillis int64) bool {
	return it.deadlineMillis != 0 && it.deadlineMillis < nowMillis
}
