package waits

import (
	"slices"
	"strings"
)

// NodeEnds has, for each node whose waits have ended and are not all removed, the name before which they have. The
// names are ordered by node.
type NodeEnds []Name

// Has reports whether the wait with a name ended with its node.
func (n NodeEnds) Has(name Name) bool {
	for i := range n {
		if n[i].Origin.Node == name.Origin.Node {
			return name.Compare(n[i]) < 0
		}
	}
	return false
}

// Add ends the waits of a node before a name.
func (n *NodeEnds) Add(before Name) {
	i, known := slices.BinarySearchFunc(*n, before, func(a, b Name) int {
		return strings.Compare(a.Origin.Node, b.Origin.Node)
	})
	switch {
	case !known:
		*n = slices.Insert(*n, i, before)
	case (*n)[i].Compare(before) < 0:
		(*n)[i] = before
	}
}

// HasNodeEnded reports whether the wait of a waiter that Next or First returned ended with its node. Such a waiter must
// not be served.
func (t *Table) HasNodeEnded(w *Waiter) bool { return t.ended.Has(w.Name) }

// EndNodeWaitsBefore ends the waits of a node with lower names: those of earlier incarnations, and those of the same
// incarnation with lower tickets. They have ended from now on; Sweep removes them.
func (t *Table) EndNodeWaitsBefore(before Name) {
	if w, ok := t.firstOf(before.Origin.Node); ok && w.Compare(before) < 0 {
		t.ended.Add(before)
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
func (t *Table) Sweeping() bool { return len(t.ended) > 0 }

// Sweep removes a waiter of an ended node and returns it, or nil if there is none.
func (t *Table) Sweep() *Waiter {
	for len(t.ended) > 0 {
		before := t.ended[0]
		if w, ok := t.firstOf(before.Origin.Node); ok && w.Compare(before) < 0 {
			t.Remove(w)
			return w
		}
		t.ended = slices.Delete(t.ended, 0, 1)
	}
	return nil
}
