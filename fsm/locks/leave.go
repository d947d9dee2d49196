package locks

import (
	"cmp"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// EndNodeWaitsBefore takes the name of a wait, and ends all waits of the same node with lower names. These are the
// waits of earlier incarnations of the node, and the waits of the same incarnation with a lower ticket. The waiters
// get no more grants. [Table.Sweep] removes the waiters.
func (t *Table) EndNodeWaitsBefore(name waits.Name) {
	if w := t.firstWaiterOf(name.Origin.Node); w != nil && w.name().Compare(name) < 0 {
		name.Origin.Node = w.origin.Node // an equal string that does not keep the log entry in memory
		t.nodeEnds.Add(name)
	}
}

// EndNodeWaits ends all waits of a node in incarnations with the given epoch or a lower one.
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

// RemoveWaiter ends the wait with a name. The parameter how tells whether the client disconnected
// ([protocol.LeaveGone]), or CLIENT UNBLOCK ended the wait. ok is false if there is no such wait, or if the node or
// the session of the waiter has ended.
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

// Cancel ends the owner's wait for a key, with the waits for all other keys of the same request. It reports false if
// there is no such wait, or if the node or the session of the waiter has ended.
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
