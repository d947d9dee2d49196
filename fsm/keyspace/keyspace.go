package keyspace

// Keyspace has the items of one database, by key hash and by deadline.
//
// Invariant: deadlines has an entry for each item with a deadline, and no other entries.
//
// An item that has ended may remain for a while, since [Keyspace.Sweep] removes a bounded number. The owner treats it
// as missing.
type Keyspace struct {
	items     directory
	deadlines deadlineIndex
	// clockMillis is the owner's clock. bytes is the estimated memory of the items that have not ended by that clock.
	clockMillis int64
	bytes       int64
	// marks counts the stored items with a mark.
	marks int
	// usage has the usage of each account, by number. Element 0 is unused, and usage is nil before the first item with an
	// account.
	usage []Usage
}

// Usage is the usage of an account, including ended items that are not swept.
type Usage struct{ Keys, Bytes int64 }

// Usage returns the usage of an account.
func (k *Keyspace) Usage(account int) Usage {
	if account >= len(k.usage) {
		return Usage{}
	}
	return k.usage[account]
}

// HasAccounts reports whether any item may have an account.
func (k *Keyspace) HasAccounts() bool { return k.usage != nil }

// countUsage adds an item of a class to its account if by is 1, and subtracts it if by is -1.
func (k *Keyspace) countUsage(it *Item, class sizeClass, by int64) {
	account := it.Account()
	if account == 0 {
		return
	}
	if account >= len(k.usage) {
		k.usage = append(k.usage, make([]Usage, account+1-len(k.usage))...)
	}
	k.usage[account].Keys += by
	k.usage[account].Bytes += by * class.bytes()
}

// New returns an empty keyspace.
func New(clockMillis int64) *Keyspace {
	return &Keyspace{items: newDirectory(), clockMillis: clockMillis}
}

// Find returns the item of a key, or nil. The item may have ended. The pointer is valid until the next change.
func (k *Keyspace) Find(hash uint64, key string) *Item { return k.items.find(hash, key) }

// Put stores an item, and returns the item that it replaced. Both may share a collection that was changed in place
// since the replaced item was stored.
func (k *Keyspace) Put(it *Item) (prev Item, replaced bool) {
	prev, replaced = k.items.put(it)
	k.countMarks(it, 1)
	k.countMarks(&prev, -1)
	var was sizeClass
	if replaced {
		was = prev.class() // before measure, since both may have the same object
		k.bytes -= k.countOf(&prev, was)
		k.countUsage(&prev, was, -1)
	}
	is := it.measure()
	k.bytes += k.countOf(it, is)
	k.countUsage(it, is, 1)
	if prev.DeadlineMillis == it.DeadlineMillis && (it.DeadlineMillis == Never || was == is) {
		return prev, replaced
	}
	if prev.DeadlineMillis != Never {
		k.deadlines.remove(prev.deadlineAs(was))
	}
	if it.DeadlineMillis != Never {
		k.deadlines.add(it.deadlineAs(is))
	}
	return prev, replaced
}

// Remove removes the item of a key, and returns it. Requires: the item exists.
func (k *Keyspace) Remove(hash uint64, key string) (prev Item) {
	prev, _ = k.items.remove(hash, key)
	k.countMarks(&prev, -1)
	k.bytes -= k.countOf(&prev, prev.class())
	k.countUsage(&prev, prev.class(), -1)
	if prev.DeadlineMillis != Never {
		k.deadlines.remove(prev.deadline())
	}
	return prev
}

// Ascend calls f with the items whose hash is at least fromHash and that have not ended at nowMillis, in the order of
// (hash, key), until f returns false, or until Ascend has skipped more than most ended items. It returns the number of
// skipped items. f must not keep the pointer.
func (k *Keyspace) Ascend(fromHash uint64, nowMillis int64, most int, f func(it *Item) bool) (ended int) {
	k.items.ascend(fromHash, func(it *Item) bool {
		if it.Ended(nowMillis) {
			ended++
			return ended <= most
		}
		return f(it)
	})
	return ended
}

// Advance sets the clock, which must not decrease. Items that have ended by then are not counted any more.
func (k *Keyspace) Advance(clockMillis int64) {
	if first, ok := k.deadlines.first(); ok && first.millis < clockMillis {
		k.bytes -= k.deadlines.bytesBefore(clockMillis) - k.deadlines.bytesBefore(k.clockMillis)
	}
	k.clockMillis = clockMillis
}

// countOf returns the present contribution of an item to bytes.
func (k *Keyspace) countOf(it *Item, class sizeClass) int64 {
	if it.Ended(k.clockMillis) {
		return 0
	}
	return class.bytes()
}

// Bytes returns the estimated memory of the items that have not ended by the clock.
func (k *Keyspace) Bytes() int64 { return k.bytes }

func (k *Keyspace) countMarks(it *Item, by int) {
	if it.IsMarked() {
		k.marks += by
	}
}

// Marks counts the items with a [Mark], including ended items that are not swept.
func (k *Keyspace) Marks() int { return k.marks }

// Stored counts the items, including ended items that are not swept.
func (k *Keyspace) Stored() int { return k.items.count }

// Len counts the items that have not ended at nowMillis.
func (k *Keyspace) Len(nowMillis int64) int { return k.items.count - k.deadlines.before(nowMillis) }

// Expires counts the items with a deadline that have not ended at nowMillis.
func (k *Keyspace) Expires(nowMillis int64) int {
	return k.deadlines.count - k.deadlines.before(nowMillis)
}

// FirstDeadline returns the earliest deadline, including those of ended items.
func (k *Keyspace) FirstDeadline() (millis int64, ok bool) {
	first, ok := k.deadlines.first()
	return first.millis, ok
}

// EndsBetween reports whether some item has afterMillis <= deadline < untilMillis.
func (k *Keyspace) EndsBetween(afterMillis, untilMillis int64) bool {
	if untilMillis <= afterMillis {
		return false
	}
	millis, ok := k.deadlines.next(afterMillis)
	return ok && millis < untilMillis
}

// Expect announces that n items will be added in the order of their hashes; 0 ends that. Otherwise the hashes of the
// first items, which begin alike, would look like an attack.
func (k *Keyspace) Expect(n int) { k.items.expected = n }

// Captured has the items of a keyspace at one moment, including ended items. It is immutable.
type Captured struct {
	items directory
	count int
}

// Capture captures the items in constant time. The first later change in a segment or a bucket copies it.
func (k *Keyspace) Capture() Captured { return Captured{items: k.items.copy(), count: k.Stored()} }

// Len counts the captured items.
func (c *Captured) Len() int { return c.count }

// Ascend calls f with the captured items in order, until f returns false. f must not keep the pointer.
func (c *Captured) Ascend(f func(it *Item) bool) { c.items.ascend(0, f) }
