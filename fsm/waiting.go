package fsm

import (
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// Waits reports whether a client of that life of a node waits under the ticket.
func (m *Machine) Waits(o protocol.Origin, ticket uint64) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.waits.Find(waits.Name{Origin: o, Ticket: ticket}) != nil
}

// WaitingLives returns the lives of nodes from which clients wait, ordered by node and epoch.
func (m *Machine) WaitingLives() []protocol.Origin {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.waits.Lives()
}

// Waiting reports whether some client waits, of whatever node.
func (m *Machine) Waiting() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.waits.Len() > 0
}
