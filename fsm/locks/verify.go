package locks

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// Verify loads the table from a snapshot of itself. [Load] proves each record and what records say of each other, and
// makes all else anew: trees, counts, and when locks are due. Verify returns the first difference. No call may be under
// way.
func (t *Table) Verify() error { return t.verify(true) }

// verify is Verify. served: also check that no waiter could be granted now.
func (t *Table) verify(served bool) error {
	var out tape
	t.Save(&out)
	again, err := Load(&player{words: out})
	if err != nil {
		return fmt.Errorf("locks: %w", err)
	}
	v := verifier{Table: t, served: served, where: "all"}
	v.tables(again)
	for i, d := range t.live {
		v.require(d.flush == nil, "database %d is live and flushed", i)
		v.database(d, again.makeDatabase(i))
	}
	for i, d := range t.flushed {
		v.database(d, again.flushed[i])
	}
	t.byID.Scan(func(s *session) bool {
		v.session(s, again.session(s.id))
		return v.err == nil
	})
	return v.err
}

// tape is a snapshot in memory. A player reads it.
type tape []any

func (p *tape) Uint(n uint64)   { *p = append(*p, n) }
func (p *tape) Int(n int64)     { *p = append(*p, n) }
func (p *tape) String(s string) { *p = append(*p, s) }

type player struct {
	words tape
	err   error
}

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

// verifier compares a table with the one that its snapshot makes.
type verifier struct {
	*Table
	served bool
	where  string
	err    error
}

func (v *verifier) require(ok bool, format string, args ...any) {
	if !ok && v.err == nil {
		v.err = fmt.Errorf("locks: %s: "+format, append([]any{v.where}, args...)...)
	}
}

// same requires that a value of the table is equal to the value of the loaded one.
func (v *verifier) same(what string, kept, made any) {
	v.require(kept == made, "%s: %v, but %v when loaded", what, kept, made)
}

// tables compares the counts over all, and the sizes of the trees.
func (v *verifier) tables(again *Table) {
	t := v.Table
	v.require(len(t.touched) == 0, "%d locks are touched", len(t.touched))
	v.same("stats", t.Stats(), again.Stats())
	v.same("bytes of waiters", t.waitingBytes, again.waitingBytes)
	v.require(t.counts.Equal(again.counts), "accounts with %d waiters, but %d when loaded", t.counts, again.counts)
	v.require(slices.Equal(t.incarnations, again.incarnations), "incarnations %v, but %v when loaded", t.incarnations,
		again.incarnations)
	v.same("places", t.places.Len(), again.places.Len())
	v.same("places by owner", t.byOwner.Len(), again.byOwner.Len())
	v.same("ends of waits", t.waitEnds.Len(), again.waitEnds.Len())
	v.same("waiters by name", t.names.Len(), again.names.Len())
	v.same("waiters by session", t.waitsOf.Len(), again.waitsOf.Len())
	v.same("leases of sessions", t.ends.Len(), again.ends.Len())
	v.same("sessions of nodes", t.attached.Len(), again.attached.Len())
	v.same("sessions of connections", t.connections.Len(), again.connections.Len())
	v.same("holds by session", t.holdsOf.Len(), again.holdsOf.Len())
}

// database compares the locks of two databases.
func (v *verifier) database(d, made *database) {
	v.same("agenda", d.agenda.Len(), made.agenda.Len())
	d.locks.Scan(func(l *lock) bool {
		v.where = l.key()
		m, ok := made.locks.Get(l)
		if v.require(ok, "is in the wrong database"); ok {
			v.lock(d, l, m)
			v.queue(l)
		}
		return v.err == nil
	})
}

// lock compares a lock with the loaded one.
func (v *verifier) lock(d *database, l, made *lock) {
	v.same("flags", l.head&flagBits, made.head&flagBits)
	v.same("due", l.due, made.due)
	if l.scheduled() {
		same, _ := d.agenda.Get(l)
		v.require(same == l, "is not on the agenda")
	}
	v.require((l.hold == nil) == (made.hold == nil), "one hold alone is %v", l.hold != nil)
	for _, h := range l.holds() {
		v.require(l.holdOf(h.owner) == h, "%q does not have its hold", h.owner)
		if h.session() != 0 {
			same, _ := v.holdsOf.Get(h)
			v.require(same == h, "%q does not have its hold by session", h.owner)
		}
	}
	if l.ext == nil {
		return
	}
	m, n := *l.ext, *made.ext
	if m.holds != nil && n.holds != nil {
		v.require(slices.IsSortedFunc(m.holds.byOwner, compareOwners) && slices.IsSortedFunc(m.holds.byEnd, compareEnds),
			"has holds out of order")
		v.same("holds by owner", len(m.holds.byOwner), len(n.holds.byOwner))
		v.same("holds by end", len(m.holds.byEnd), len(n.holds.byEnd))
		m.holds, n.holds = nil, nil
	}
	v.same("extension", m, n)
}

// queue checks that each waiter of a lock is in every tree it belongs in, and that none could be granted now, unless
// something is due at the lock.
func (v *verifier) queue(l *lock) {
	t, places := v.Table, 0
	served := v.served && l.due >= v.now && v.flushOf(l) == nil && l.ext != nil && l.ext.sessionHolds == 0
	v.require(!served || v.nextInLine(l) == nil, "is not granted to the first in line")
	t.eachWaiter(l, func(w *waiter) bool {
		places++
		q, own := w.request(), l.holdOf(w.owner)
		v.require(!served || own == nil || w.absent || w.keys()[w.blocked] != l.key() || !covers(own, &q),
			"%q waits for what it holds", w.owner)
		i := slices.Index(w.keys(), l.key())
		if v.require(i >= 0, "%q waits for other locks", w.owner); i < 0 {
			return false
		}
		p, _ := t.places.Get(placeAt(l, w.rankAt(i), w.order))
		v.require(p.waiter == w, "%q does not stand in line by rank", w.owner)
		v.require(w == t.waiterOf(l, w.owner), "%q does not stand in line by owner", w.owner)
		if i == 0 && w.deadline != never {
			k, _ := t.waitEnds.Get(queueKey{l.id(), w})
			v.require(k.waiter == w, "%q does not stand among the ends of waits", w.owner)
		}
		if named, _ := t.names.Get(w); !w.absent {
			v.require(named == w, "%q is not known by its ticket", w.owner)
		}
		if bound, _ := t.waitsOf.Get(w); w.session != 0 {
			v.require(bound == w, "%q is not known by its session", w.owner)
		}
		return v.err == nil
	})
	v.same("places", places, l.waiters())
}

// session compares the counts of a session with those of the loaded one, and looks for its end.
func (v *verifier) session(s, made *session) {
	v.where = fmt.Sprint("session ", s.id)
	v.same("holds", s.holds, made.holds)
	v.same("waiters", s.waiters, made.waiters)
	v.same("places", s.places, made.places)
	_, leased := v.ends.Get(s.endKey())
	v.same("lease of its own", leased, s.leased)
	if s.origin == nil {
		return
	}
	_, attached := v.attached.Get(sessionKey{s.origin, s.lease, s.id})
	v.same("end with its node", attached, !s.leased)
	_, connected := v.connections.Get(sessionKey{s.origin, s.conn, s.id})
	v.same("connection", connected, !s.closed)
}
