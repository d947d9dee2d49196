package locks

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// Verify returns an error if the table breaks an invariant. It saves the table, loads a second table from the snapshot,
// and compares the two tables. [Load] checks each record and the relations between records, and computes counts and
// trees anew. No call may change the table while Verify runs.
func (t *Table) Verify() error { return t.verify(true) }

// verify does the work of Verify. If the argument served is true, verify also looks for locks that could be granted
// now, and for waiters that are blocked by a lock although the owner's hold of that lock covers the request. It returns
// an error if there is such a lock or waiter.
func (t *Table) verify(served bool) error {
	var out tape
	t.Save(&out)
	loaded, err := Load(&player{words: out})
	switch {
	case err != nil:
		return fmt.Errorf("locks: %w", err)
	case !t.counts.Equal(loaded.counts):
		return fmt.Errorf("locks: accounts with %d waiters, but %d when loaded", t.counts, loaded.counts)
	case !t.sessionCounts.Equal(loaded.sessionCounts), !t.sessionMemory.Equal(loaded.sessionMemory):
		return fmt.Errorf("locks: accounts with %d sessions of %d bytes, but %d of %d when loaded",
			t.sessionCounts, t.sessionMemory, loaded.sessionCounts, loaded.sessionMemory)
	}
	made := loaded.derived()
	for i, kept := range t.derived() {
		if kept != made[i] {
			return fmt.Errorf("locks: %s, but when loaded %s", kept, made[i])
		}
	}
	for l := range t.allLocks() {
		if !served || l.deadline < t.now || t.flushOf(l) != nil || l.ext == nil || l.ext.sessionHolds != 0 {
			continue
		}
		if t.nextInLine(l) != nil {
			return fmt.Errorf("locks: %s is not granted to the first in line", l.key())
		}
		for w := range t.waitersAt(l) {
			q, own := w.request(), l.holdOf(w.owner)
			if own != nil && !w.absent && w.keys()[w.blockingKey] == l.key() && covers(own, &q) {
				return fmt.Errorf("locks: %q waits for %s, which it holds", w.owner, l.key())
			}
		}
	}
	return nil
}

// tape is a snapshot in memory. It implements [Writer].
type tape []any

func (p *tape) Uint(n uint64)   { *p = append(*p, n) }
func (p *tape) Int(n int64)     { *p = append(*p, n) }
func (p *tape) String(s string) { *p = append(*p, s) }

// player reads the values of a tape. It implements [Reader].
type player struct {
	words tape
	err   error
}

// next removes the first value of a player's tape, and returns the value. If the tape is empty or the value does not
// have type T, the read fails.
func next[T any](p *player) (value T) {
	ok := p.err == nil && len(p.words) > 0
	if ok {
		value, ok = p.words[0].(T)
		p.words = p.words[1:]
	}
	if !ok {
		p.err = errors.New("a value is missing, or of another type")
	}
	return value
}

func (p *player) Uint() uint64                   { return next[uint64](p) }
func (p *player) Int() int64                     { return next[int64](p) }
func (p *player) String() string                 { return next[string](p) }
func (p *player) Err() error                     { return p.err }
func (p *player) LockText(int) keyspace.LockText { return keyspace.NewLockText(p.String()) }

// derived describes the data that a snapshot does not contain: counts, flags, and the items of the trees. It returns
// one line of text for each fact. The lines show locks, holds and waiters by name. derived makes a name for each lock,
// and for each hold and waiter that it reaches from a lock. A record that it finds only in an index, for example in
// holdsBySession, gets the empty name.
func (t *Table) derived() (lines []string) {
	names := map[any]string{}
	for l := range t.allLocks() {
		names[l.id()] = fmt.Sprintf("%d/%s", l.db(), l.key())
		names[l] = names[l.id()]
		for _, h := range l.holds() {
			names[h] = fmt.Sprintf("%d@%s", h.fence, names[l])
		}
		for w := range t.waitersAt(l) {
			names[w] = fmt.Sprintf("waiter %d", w.order)
		}
	}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	holdsOf := func(l *lock, by string, holds []*hold) {
		all := names[l] + ", holds by " + by + ":"
		for _, h := range holds {
			all += " " + names[h]
		}
		lines = append(lines, all)
	}
	database := func(label string, d *database) {
		for l := range locksOf([]*database{d}) {
			add("%s, %s, flushed %t", names[l], label, d.flush != nil)
			add("%s: flags %b, deadline %d, one hold %t", names[l], l.idAndFlags&flagBits, l.deadline, l.hold != nil)
			if l.ext == nil {
				continue
			}
			m := *l.ext
			m.holds = nil
			if add("%s: extension %v", names[l], m); l.ext.holds != nil {
				holdsOf(l, "owner", l.ext.holds.byOwner)
				holdsOf(l, "end", l.ext.holds.byEnd)
			}
		}
		if d.locks.Len()+d.agenda.Len() > 0 {
			lines = append(lines, itemsOf("agenda", d.agenda, func(l *lock) string { return names[l] })...)
		}
	}
	for i, d := range t.liveDatabases {
		database(fmt.Sprint("database ", i), d)
	}
	for i, d := range t.flushedDatabases {
		database(fmt.Sprint("flush ", i), d)
	}
	add("stats %v", t.Stats())
	add("%d bytes of waiters, %d locks touched", t.waitingBytes, len(t.touchedLocks))
	add("incarnations %v", t.incarnations)
	t.sessionsByID.Scan(func(s *session) bool {
		add("session %d: %d holds, %d waiters, %d queue entries", s.id, s.holds, s.waiters, s.queueEntries)
		return true
	})
	waiterAt := func(k waiterKey) string { return names[k.lock] + ", " + names[k.waiter] }
	attachedTo := func(k sessionKey) string { return fmt.Sprint(*k.origin, k.leaseOrConn, k.id) }
	return slices.Concat(lines,
		itemsOf("queue entries", t.queueEntries, func(p queueEntry) string {
			return fmt.Sprint(names[p.lockAndRank&^flagBits], " ", p.lockAndRank&flagBits, " ", names[p.waiter])
		}),
		itemsOf("queues by owner", t.waitersByOwner, waiterAt),
		itemsOf("ends of waits", t.waitEnds, waiterAt),
		itemsOf("waiters by name", t.waitersByName, func(w *waiter) string { return names[w] }),
		itemsOf("waiters by session", t.waitersBySession, func(w *waiter) string { return names[w] }),
		itemsOf("ends of sessions", t.sessionEnds, func(e sessionEnd) string { return fmt.Sprint(e) }),
		itemsOf("sessions by node", t.sessionsByNode, attachedTo),
		itemsOf("sessions by connection", t.sessionsByConnection, attachedTo),
		itemsOf("holds by session", t.holdsBySession, func(h *sessionHold) string { return names[&h.hold] }),
	)
}

// itemsOf returns a line of text for each item of a tree, and one more line for each item that is out of order. It
// sorts the lines, because the items may be ordered by lock ids, and equal tables may have different lock ids.
func itemsOf[T any](label string, tree *btree.BTreeG[T], describe func(item T) string) (items []string) {
	var last *T
	tree.Scan(func(item T) bool {
		if items = append(items, label+": "+describe(item)); last != nil && !tree.Less(*last, item) {
			items = append(items, label+": out of order")
		}
		last = &item
		return true
	})
	slices.Sort(items)
	return append(items, "end of "+label)
}
