package locks

import (
	"cmp"
	"math"
	"strings"
)

// lock is a key that an owner holds or waits for, or whose delay runs.
//
// A lock is changed between take and finish alone. A lock that another generation of the table may know is
// copied by take.
type lock struct {
	key  string
	hash uint64
	// head is the lock's id, which is a number of the table's and the database, and the flags.
	head       uint64
	generation uint64
	due        int64 // as in the tree timers; never: in none
	hold       *hold // the only hold, if there is one only
	// more is what a lock needs beyond one hold. Nil: no request waits, no delay runs, nothing is unfinished.
	more *extension
}

// extension is what a lock has beyond one hold.
type extension struct {
	holders int
	// sessionHolds and sessionWaits are how many of the holds and the waiters are bound to sessions.
	sessionHolds, sessionWaits int
	delays                     int   // of the holds ask for a delay
	many                       int   // of the waiters want other locks, too
	permits                    int64 // held
	ranks                      [rankCount]int
	// delay is the last instant at which no request is granted; 0: no delay.
	delay int64
	// unfinished: a waiter could be granted as of this instant, and there were no steps left. 0: no.
	unfinished int64
	// createdFence is the last fence when the extension was made, or the flush that the lock went through last.
	createdFence uint64
	// lost: the holds with lower fences are lost, and not worked off.
	lost loss
}

// loss is what ends the holds with lower fences.
type loss struct {
	below  uint64
	reason Reason
	at     int64
	delays bool // delay is the delay afterwards, whatever the holds asked for
	delay  int64
	cause  uint64
}

const (
	flagTouched = 1 << iota // the lock is in Table.touched
	flagWake                // a waiter in the queue may be granted
	flagPresent             // Came was told
	flagQueued              // the lock is in Table.queued
	flagBits    = 0xff
	databases   = 256
)

// never is the due of what is not due.
const never = math.MaxInt64

// past is the due of what is unfinished.
const past = math.MinInt64

func (l *lock) id() uint64 { return l.head &^ flagBits }
func (l *lock) db() int    { return int(l.head >> 8 & (databases - 1)) }

func lockBefore(a, b *lock) bool {
	return cmp.Or(cmp.Compare(a.db(), b.db()), cmp.Compare(a.hash, b.hash), strings.Compare(a.key, b.key)) < 0
}

func dueBefore(a, b *lock) bool {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.db(), b.db()), cmp.Compare(a.hash, b.hash),
		strings.Compare(a.key, b.key)) < 0
}

// holders is the number of holds.
func (l *lock) holders() int {
	switch {
	case l.more != nil:
		return l.more.holders
	case l.hold != nil:
		return 1
	default:
		return 0
	}
}

// waiters is the length of the queue.
func (l *lock) waiters() (n int) {
	if l.more != nil {
		for _, count := range l.more.ranks {
			n += count
		}
	}
	return n
}

func (l *lock) delayed() bool { return l.more != nil && l.more.delay != 0 }

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
		key: cloned(key), hash: t.near.hash, due: never, generation: t.generation,
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

// finish does what follows from the changes of a call: it grants, removes locks without a purpose, and
// notes when locks are due. Every call that takes locks ends with it.
func (t *Table) finish() {
	for i := 0; i < len(t.woken); i++ {
		t.pump(t.woken[i]) // may wake more
	}
	clear(t.woken)
	t.woken = t.woken[:0]
	for _, l := range t.touched {
		l.head &^= flagTouched
		t.settleDown(l)
	}
	clear(t.touched)
	t.touched = t.touched[:0]
	t.as, t.near = t.now, near{}
}

// settleDown puts a lock into its least form, and tells whether it is there.
func (t *Table) settleDown(l *lock) {
	m := l.more
	idle := m == nil || m.delay == 0 && m.unfinished == 0 && m.ranks == [rankCount]int{}
	if idle && m != nil && m.holders <= 1 && (l.hold == nil || l.hold.fence >= m.lost.below) {
		l.more = nil
		t.bytes -= extensionBytes
	}
	gone := idle && l.holders() == 0
	due := int64(never)
	if !gone {
		due = t.dueOf(l)
	}
	if due != l.due {
		if l.due != never {
			t.timers.Delete(l)
		}
		if l.due = due; due != never {
			t.timers.Set(l)
		}
	}
	if inLine := m != nil && m.ranks != [rankCount]int{}; inLine != (l.head&flagQueued != 0) {
		if l.head ^= flagQueued; inLine {
			t.queued.Set(l)
		} else {
			t.queued.Delete(l)
		}
	}
	if gone {
		t.locks.Delete(l)
		t.bytes -= l.bytes()
	}
	present := !gone && !t.hollow(l)
	if present == (l.head&flagPresent != 0) {
		return
	}
	kind := Went
	if l.head ^= flagPresent; present {
		kind = Came
	}
	t.tell(Effect{Kind: kind, DB: l.db(), Key: l.key})
}

// dueOf is the first instant behind which something is to be done with the lock. What sessions do to it is
// not among that.
func (t *Table) dueOf(l *lock) int64 { return min(t.grantsDueOf(l), t.waitsDueOf(l)) }

// waitsDueOf is the first end of a wait.
func (t *Table) waitsDueOf(l *lock) int64 {
	if l.waiters() > 0 {
		if w := t.firstWaitEnd(l); w != nil {
			return w.deadline
		}
	}
	return never
}

// grantsDueOf is dueOf without the ends of waits: what may let a waiter be granted.
func (t *Table) grantsDueOf(l *lock) int64 {
	due := int64(never)
	if l.hold != nil {
		due = l.hold.deadline
	}
	m := l.more
	if m == nil {
		return due
	}
	if t.lostOf(l) != nil {
		return past
	}
	if m.holders > 1 {
		due = t.firstEnd(l)
	}
	if m.delay != 0 {
		due = min(due, m.delay)
	}
	if m.unfinished != 0 {
		due = min(due, m.unfinished-1)
	}
	return due
}
