package locks

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
)

// near is the lock that the call under way looked for last, as most calls look for one lock several times.
// Empty between calls.
type near struct {
	known bool
	db    int
	key   string
	hash  uint64
	lock  *lock // nil: there is none
}

// probe is what trees are searched by. Calls that change the table share one, for what they do most; what only reads
// makes its own, since reads run beside each other.
type probe struct {
	lock   lock
	waiter waiter
	hold   hold
}

// mine is the probe of calls that change the table.
func (t *Table) mine() *probe {
	if t.probe == nil {
		t.probe = new(probe)
	}
	return t.probe
}

// find is the lock of a key for a call that may change it, nil if there is none.
func (t *Table) find(db int, key string) *lock {
	if n := &t.near; !n.known || n.db != db || n.key != key {
		hash := keyspace.Hash(key)
		*n = near{true, db, key, hash, t.search(&t.mine().lock, db, key, hash)}
	}
	return t.near.lock
}

// peek is find for what only reads.
func (t *Table) peek(db int, key string) *lock {
	return t.search(new(lock), db, key, keyspace.Hash(key))
}

func (t *Table) search(p *lock, db int, key string, hash uint64) *lock {
	if t.locks.Len() == 0 {
		return nil
	}
	*p = lock{key: key, hash: hash, head: uint64(db) << 8}
	l, _ := t.locks.Get(p)
	p.key = ""
	return l
}

// The probes for what is first in a lock are never changed.
var (
	firstWaiter = &waiter{deadline: past}
	firstEnding = &hold{deadline: past}
	firstFence  = new(hold)
)

// holdOf is the owner's hold, also if its time is over; nil if there is none.
func (t *Table) holdOf(l *lock, owner string) *hold { return t.searchHold(&t.mine().hold, l, owner) }

func (t *Table) searchHold(p *hold, l *lock, owner string) *hold {
	switch {
	case l.hold != nil && l.hold.owner == owner:
		return l.hold
	case l.hold == nil && l.holders() > 0:
		p.owner = owner
		m, _ := t.byOwner.Get(member{l.id(), p})
		p.owner = ""
		return m.hold
	}
	return nil
}

// waiterOf is the owner's place in a queue, nil if there is none.
func (t *Table) waiterOf(l *lock, owner string) *waiter {
	return t.searchWaiter(&t.mine().waiter, l, owner)
}

func (t *Table) searchWaiter(p *waiter, l *lock, owner string) *waiter {
	if l == nil || l.waiters() == 0 {
		return nil
	}
	p.Owner = owner
	s, _ := t.waiting.Get(stand{l.id(), p})
	p.Owner = ""
	return s.waiter
}

// named makes w a probe for waiters by name.
func (w *waiter) named(n waits.Name) *waiter {
	w.Client.Origin, w.Ticket = n.Origin, n.Ticket
	return w
}
