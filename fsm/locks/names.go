package locks

import (
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// Waits reports whether a client waits under a name.
func (t *Table) Waits(name waits.Name) bool {
	w, ok := t.names.Get(new(probe).named(name))
	return ok && !t.dropped(w)
}

// Incarnations returns the incarnations of nodes from which clients wait, ordered by node and epoch.
func (t *Table) Incarnations() (incarnations []protocol.Incarnation) {
	next := waits.Name{}
	for {
		w, ok := seek(t.names, new(probe).named(next))
		if !ok {
			return incarnations
		}
		next = w.name()
		if t.dropped(w) {
			next.Ticket++
			continue
		}
		incarnations = append(incarnations, next.Origin)
		next.Ticket = ^uint64(0)
	}
}

// Known is Has, and says yes of a lock that was flushed and is not worked off, too.
func (t *Table) Known(db int, key string) bool { return t.peek(db, key) != nil }

// Standing is how many locks [Table.Has] says are there, in time in proportion to the table.
func (t *Table) Standing() (n int) {
	t.locks.Scan(func(l *lock) bool {
		if l.head&flagPresent != 0 && t.pendingFlush(l) == nil {
			n++
		}
		return true
	})
	return n
}
