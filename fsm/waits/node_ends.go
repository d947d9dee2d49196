package waits

import "slices"

// nodeEnds has, for each node whose waiters have ended and are not all removed, the name before which they have. The
// names are ordered by node.
type nodeEnds struct{ before []Name }

func (d *nodeEnds) copy() nodeEnds { return nodeEnds{slices.Clone(d.before)} }

// hasNodeEnded reports whether the wait of a waiter ended with its node.
func (d *nodeEnds) hasNodeEnded(w *Waiter) bool {
	for i := range d.before {
		if d.before[i].Origin.Node == w.Origin.Node {
			return w.Compare(d.before[i]) < 0
		}
	}
	return false
}

// HasNodeEnded reports whether the wait of a waiter that Next or First returned ended with its node. Such a waiter must
// not be served.
func (t *Table) HasNodeEnded(w *Waiter) bool { return t.hasNodeEnded(w) }

// EndNodeWaitsBefore ends the waits of a node with lower names: those of earlier incarnations, and those of the same
// incarnation with lower tickets. They have ended from now on; Sweep removes them.
func (t *Table) EndNodeWaitsBefore(before Name) {
	w, ok := t.firstOf(before.Origin.Node)
	if !ok || w.Compare(before) >= 0 {
		return
	}
	i, known := slices.BinarySearchFunc(t.before, before, func(a, b Name) int {
		a.Origin.Epoch, a.Ticket, b.Origin.Epoch, b.Ticket = 0, 0, 0, 0
		return a.Compare(b)
	})
	switch {
	case !known:
		t.before = slices.Insert(t.before, i, before)
	case t.before[i].Compare(before) < 0:
		t.before[i] = before
	}
}

// EndNodeWaits ends the waits of a node's incarnations up to an epoch. Requires: no waiter of the node has a later
// epoch.
func (t *Table) EndNodeWaits(node string, epoch uint64) {
	last := Name{Ticket: ^uint64(0)}
	last.Origin.Node, last.Origin.Epoch = node, epoch
	t.names.Descend(&Waiter{Name: last}, func(w *Waiter) bool {
		if w.Origin.Node == node {
			before := w.Name
			before.Ticket++
			t.EndNodeWaitsBefore(before)
		}
		return false
	})
}

// firstOf returns the waiter of a node with the lowest name.
func (t *Table) firstOf(node string) (first *Waiter, ok bool) {
	var name Name
	name.Origin.Node = node
	t.names.Ascend(&Waiter{Name: name}, func(w *Waiter) bool {
		first, ok = w, w.Origin.Node == node
		return false
	})
	return first, ok
}

// Sweeping reports whether waiters of ended nodes are to be removed.
func (t *Table) Sweeping() bool { return len(t.before) > 0 }

// Sweep removes a waiter of an ended node and returns it, or nil if there is none.
func (t *Table) Sweep() *Waiter {
	for len(t.before) > 0 {
		before := t.before[0]
		if w, ok := t.firstOf(before.Origin.Node); ok && w.Compare(before) < 0 {
			t.Remove(w)
			return w
		}
		t.before = slices.Delete(t.before, 0, 1)
	}
	return nil
}
