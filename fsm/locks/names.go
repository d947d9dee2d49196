package locks

import (
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// Waits reports whether a client waits under a name.
func (t *Table) Waits(name waits.Name) bool {
	w, ok := t.names.Get(named(name))
	return ok && !t.dropped(w)
}

// Lives returns the lives of nodes from which clients wait, ordered by node and epoch.
func (t *Table) Lives() (lives []protocol.Origin) {
	next := waits.Name{}
	for {
		w, ok := seek(t.names, named(next))
		if !ok {
			return lives
		}
		next = w.name()
		if t.dropped(w) {
			next.Ticket++
			continue
		}
		lives = append(lives, next.Origin)
		next.Ticket = ^uint64(0)
	}
}
