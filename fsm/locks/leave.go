package locks

import (
	"cmp"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// EndNodeWaitsBefore ends the waits of a node whose names are before name: those of earlier incarnations, and those of
// the same incarnation with lower tickets. From now on the waiters are granted nothing; Sweep removes them.
func (t *Table) EndNodeWaitsBefore(name waits.Name) {
	if w := t.firstOf(name.Origin.Node); w != nil && w.name().Compare(name) < 0 {
		name.Origin.Node = w.origin.Node // not the memory of the log entry
		t.nodeEnds.Add(name)
	}
}

// EndNodeWaits ends the waits of a node's incarnations up to an epoch.
func (t *Table) EndNodeWaits(node string, epoch uint64) {
	last := waits.Name{Origin: protocol.Incarnation{Node: node, Epoch: epoch}, Ticket: ^uint64(0)}
	t.names.Descend(nameProbe(last), func(w *waiter) bool {
		if w.origin.Node == node {
			name := w.name()
			name.Ticket++
			t.EndNodeWaitsBefore(name)
		}
		return false
	})
}

// RemoveWaiter removes the waiter with a name from all its queues, since its client has disconnected (LeaveGone), or by
// CLIENT UNBLOCK. ok: it waited.
func (t *Table) RemoveWaiter(name waits.Name, how protocol.Leave) (ok bool) {
	w := t.named(name)
	if w == nil || t.hasNodeEnded(w) {
		return false
	}
	defer t.finish()
	err := t.whyLapsed(w) // its session may have ended
	switch how {
	case protocol.LeaveTimeout:
		t.dismiss(w, err)
	case protocol.LeaveError:
		t.dismiss(w, cmp.Or(err, ErrUnblocked))
	default:
		t.removeQueue(w)
		t.wakeAll(w)
		t.emitLeft(w, Disconnected)
	}
	return err == nil
}

// Cancel removes the owner's waiter at a key from all its queues.
func (t *Table) Cancel(db int, key, owner string) bool {
	defer t.finish()
	w := t.waiterOf(t.settleKey(db, key), owner)
	if w == nil {
		return false
	}
	err := t.whyLapsed(w)
	t.dismiss(w, err)
	return err == nil
}
