package locks

import (
	"cmp"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// EndNodeWaitsBefore ends the waits of a node that come before a name: the waits of earlier incarnations, and those of
// the same incarnation with a lower ticket. Their waiters get no more grants, and [Table.Sweep] removes them.
func (t *Table) EndNodeWaitsBefore(name waits.Name) {
	if w := t.firstWaiterOf(name.Origin.Node); w != nil && w.name().Compare(name) < 0 {
		name.Origin.Node = w.origin.Node // avoid keeping the memory of the log entry
		t.nodeEnds.Add(name)
	}
}

// EndNodeWaits ends the waits of the node's incarnations up to and including an epoch.
func (t *Table) EndNodeWaits(node string, epoch uint64) {
	last := waits.Name{Origin: protocol.Incarnation{Node: node, Epoch: epoch}, Ticket: ^uint64(0)}
	t.waitersByName.Descend(nameProbe(last), func(w *waiter) bool {
		if w.origin.Node == node {
			name := w.name()
			name.Ticket++
			t.EndNodeWaitsBefore(name)
		}
		return false
	})
}

// RemoveWaiter ends the wait with a name, because its client has disconnected ([protocol.LeaveGone]) or was unblocked
// by CLIENT UNBLOCK. It reports whether there was such a wait.
func (t *Table) RemoveWaiter(name waits.Name, how protocol.Leave) (ok bool) {
	w := t.waiterNamed(name)
	if w == nil || t.hasNodeEnded(w) {
		return false
	}
	defer t.finishStep()
	err := t.lapseError(w)
	switch how {
	case protocol.LeaveTimeout:
		t.dismiss(w, err)
	case protocol.LeaveError:
		t.dismiss(w, cmp.Or(err, ErrUnblocked))
	default:
		t.dequeueWaiter(w)
		t.wakeQueuesOf(w)
		t.emitLeft(w, Disconnected)
	}
	return err == nil
}

// Cancel ends the owner's wait for a key, and for all other keys of the same request. It reports whether there was such
// a wait.
func (t *Table) Cancel(db int, key, owner string) bool {
	defer t.finishStep()
	w := t.waiterOf(t.settleKey(db, key), owner)
	if w == nil {
		return false
	}
	err := t.lapseError(w)
	t.dismiss(w, err)
	return err == nil
}
