package keyspace

// Sweep removes at most limit items that have ended at nowMillis, the earliest deadlines first, and calls f
// with each. Equal keyspaces are swept in the same order.
func (k *Keyspace) Sweep(nowMillis int64, limit int, f func(it *Item)) (swept int) {
	for swept < limit {
		first, ok := k.deadlines.first()
		if !ok || first.millis >= nowMillis {
			break
		}
		if swept%MaxPrefetch == 0 {
			k.prefetchEnded(nowMillis)
		}
		it := k.items.withDeadline(first)
		removed := k.Remove(it.Hash, it.Key())
		f(&removed)
		swept++
	}
	return swept
}

// SweepAll removes all items that have ended at nowMillis. Many items go in a single pass and
// without a search.
func (k *Keyspace) SweepAll(nowMillis int64) (swept int) {
	ended := k.deadlines.before(nowMillis)
	if ended < k.items.count/passShare {
		return k.Sweep(nowMillis, ended, func(*Item) {})
	}
	k.items.removeEnded(nowMillis)
	k.deadlines.dropBefore(nowMillis)
	k.marks = 0
	clear(k.usage)
	k.items.ascend(0, func(it *Item) bool {
		k.countMarks(it, 1)
		k.countUsage(it, it.class(), 1)
		return true
	})
	return ended
}

// passShare: to remove an item costs about as much as to pass this many.
const passShare = 16
