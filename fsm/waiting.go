package fsm

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

func (m *machine) Waits(o protocol.Origin, ticket uint64) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	name := waits.Name{Origin: o, Ticket: ticket}
	return m.st.Waits.Find(name) != nil || m.st.Locks.Waits(name)
}

func (m *machine) WaitingIncarnations() []protocol.Origin {
	m.mu.RLock()
	defer m.mu.RUnlock()
	incarnations := append(m.st.Waits.Incarnations(), m.st.Locks.Incarnations()...)
	slices.SortFunc(incarnations, func(a, b protocol.Origin) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Epoch, b.Epoch))
	})
	return slices.Compact(incarnations)
}

func (m *machine) Waiting() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.Waits.Len() > 0 || m.st.Locks.Stats().Waiters > 0
}

func parseTicket(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && n != ^uint64(0)
}
