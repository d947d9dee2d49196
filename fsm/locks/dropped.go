package locks

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// dropped reports whether a waiter is gone with its node.
func (t *Table) dropped(w *waiter) bool {
	if w.absent {
		return false // no client waits there; the grace ends it
	}
	for i := range t.drops {
		if t.drops[i].Origin.Node == w.origin.Node {
			return w.name().Compare(t.drops[i]) < 0
		}
	}
	return false
}

// Drop drops the waiters of a node that have a lower name: of an earlier incarnation, or in the same incarnation with a
// lower ticket. They are gone from now on, and removed by Sweep.
func (t *Table) Drop(name waits.Name) {
	w := t.firstOf(name.Origin.Node)
	if w == nil || w.name().Compare(name) >= 0 {
		return
	}
	i, known := slices.BinarySearchFunc(t.drops, name, func(a, b before) int {
		return strings.Compare(a.Origin.Node, b.Origin.Node)
	})
	switch {
	case !known:
		name.Origin.Node = w.origin.Node // memory of the table
		t.drops = slices.Insert(t.drops, i, name)
	case t.drops[i].Compare(name) < 0:
		name.Origin.Node = t.drops[i].Origin.Node
		t.drops[i] = name
	}
}

// DropIncarnation drops all waiters of a node up to an epoch.
func (t *Table) DropIncarnation(node string, epoch uint64) {
	last := waits.Name{Origin: protocol.Incarnation{Node: node, Epoch: epoch}, Ticket: ^uint64(0)}
	t.names.Descend(new(probe).named(last), func(w *waiter) bool {
		if w.origin.Node == node {
			name := w.name()
			name.Ticket++
			t.Drop(name)
		}
		return false
	})
}

// firstOf is the waiter of a node with the lowest name, nil if there is none.
func (t *Table) firstOf(node string) *waiter {
	w, ok := seek(t.names, t.mine().named(waits.Name{Origin: protocol.Incarnation{Node: node}}))
	if !ok || w.origin.Node != node {
		return nil
	}
	return w
}

// Places is in how many queues the waiter with a name stands.
func (t *Table) Places(name waits.Name) int {
	if w, ok := t.names.Get(t.mine().named(name)); ok {
		return len(w.keys())
	}
	return 0
}

// Unblock ends a wait by its name: with LeaveGone no client is told.
func (t *Table) Unblock(name waits.Name, how protocol.Leave) bool {
	w, ok := t.names.Get(t.mine().named(name))
	if !ok || t.dropped(w) {
		return false
	}
	defer t.finish()
	err := t.lapsed(w) // its session may be over
	switch how {
	case protocol.LeaveTimeout:
		t.dismiss(w, err)
	case protocol.LeaveError:
		t.dismiss(w, cmp.Or(err, ErrUnblocked))
	default:
		t.unline(w)
		t.wakeAll(w)
		t.emitLeft(w, Disconnected)
	}
	return err == nil
}

// Cancel takes the owner's request out of the queue of a key, and with it out of those of its other keys.
func (t *Table) Cancel(db int, key, owner string) bool {
	defer t.finish()
	w := t.waiterOf(t.settled(db, key), owner)
	if w == nil {
		return false
	}
	err := t.lapsed(w)
	t.dismiss(w, err)
	return err == nil
}
