package fsm

import (
	"cmp"
	"slices"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

func (m *machine) Waits(o protocol.Origin, ticket uint64) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	name := waits.Name{Origin: o, Ticket: ticket}
	return m.st.waits.Find(name) != nil || m.st.locks.Waits(name)
}

func (m *machine) WaitingLives() []protocol.Origin {
	m.mu.RLock()
	defer m.mu.RUnlock()
	lives := append(m.st.waits.Lives(), m.st.locks.Lives()...)
	slices.SortFunc(lives, func(a, b protocol.Origin) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Epoch, b.Epoch))
	})
	return slices.Compact(lives)
}

func (m *machine) Waiting() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.waits.Len() > 0 || m.st.locks.Stats().Waiters > 0
}
