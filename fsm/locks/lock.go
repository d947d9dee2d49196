package locks

import "github.com/holdfast/holdfast/fsm/keyspace"

// take is a lock to be changed, nil if there is none.
func (t *Table) take(db int, key string) *lock {
	l := t.find(db, key)
	if l == nil {
		return nil
	}
	return t.own(l)
}

// takeNew is take, and makes a lock that is missing.
func (t *Table) takeNew(db int, key string) *lock {
	if l := t.take(db, key); l != nil {
		return l
	}
	t.lockIDs++
	l := &lock{
		text: keyspace.NewLockText(key), hash: t.near.hash, due: never, generation: t.generation,
		head: t.lockIDs<<16 | uint64(db)<<8 | flagTouched,
	}
	t.locks.Set(l)
	t.near.lock = l
	t.bytes += l.bytes()
	t.touched = append(t.touched, l)
	return l
}

// own is the lock l of the table to be changed.
func (t *Table) own(l *lock) *lock {
	if l.generation != t.generation {
		c := *l
		c.generation = t.generation
		if l.more != nil {
			more := *l.more
			c.more = &more
		}
		if t.near.lock == l {
			t.near.lock = &c
		}
		l = &c
		t.locks.Set(l)
		if l.due != never {
			t.timers.Set(l)
		}
		if l.head&flagQueued != 0 {
			t.queued.Set(l)
		}
	}
	if l.head&flagTouched == 0 {
		l.head |= flagTouched
		t.touched = append(t.touched, l)
		t.flushed(l)
	}
	return l
}

// extensionOf is the lock's extension, which is made if need be.
func (t *Table) extensionOf(l *lock) *extension {
	if l.more == nil {
		l.more = &extension{createdFence: t.fences, holders: l.holders()}
		if l.hold != nil {
			l.more.permits = l.hold.permits()
			l.more.sessionHolds = l.hold.sessions()
			l.more.delays = l.hold.delays()
			l.more.createdFence = l.hold.fence
		}
		t.bytes += extensionBytes
	}
	return l.more
}

// wake notes that a waiter in the queue may be granted.
func (t *Table) wake(l *lock) {
	if l.head&flagWake == 0 {
		l.head |= flagWake
		t.woken = append(t.woken, l)
	}
}

// flushed is called with each lock that is to be changed: the lock goes through the flush that waits for it.
func (t *Table) flushed(l *lock) {
	f := t.pendingFlush(l)
	if f == nil {
		return
	}
	m := t.extensionOf(l)
	m.createdFence = f.mark
	m.delay = 0
	t.mark(l, loss{below: f.mark, reason: Flushed, at: f.at, delays: true, cause: f.cause})
	l.head &^= flagPresent
	t.wake(l)
}

// mark ends all holds of a lock together. What has ended them before counts.
func (t *Table) mark(l *lock, why loss) {
	before := t.lostOf(l)
	m := t.extensionOf(l)
	if before != nil {
		why.reason, why.at, why.cause = m.lost.reason, m.lost.at, m.lost.cause
		why.delays = why.delays || m.lost.delays
	}
	m.lost = why
}
