package fsm

import (
	"cmp"
	"slices"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// Waits reports whether a client of that life of a node waits under the ticket, for a key or for a lock.
func (m *Machine) Waits(o protocol.Origin, ticket uint64) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	name := waits.Name{Origin: o, Ticket: ticket}
	return m.st.waits.Find(name) != nil || m.st.locks.Waits(name)
}

// WaitingLives returns the lives of nodes from which clients wait, ordered by node and epoch.
func (m *Machine) WaitingLives() []protocol.Origin {
	m.mu.RLock()
	defer m.mu.RUnlock()
	lives := append(m.st.waits.Lives(), m.st.locks.Lives()...)
	slices.SortFunc(lives, func(a, b protocol.Origin) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Epoch, b.Epoch))
	})
	return slices.Compact(lives)
}

// Waiting reports whether some client waits, of whatever node.
func (m *Machine) Waiting() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.waits.Len() > 0 || m.st.locks.Stats().Waiters > 0
}
