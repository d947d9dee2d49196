package waits

import (
	"slices"
	"strings"
)

// NodeEnds marks waits that have ended with their nodes and are not all removed yet. It has one name for each such
// node, ordered by node: the waits of the node whose names are lower have ended.
type NodeEnds []Name

// Has reports whether the wait with a name has ended with its node.
func (n NodeEnds) Has(name Name) bool {
	for i := range n {
		if n[i].Origin.Node == name.Origin.Node {
			return name.Compare(n[i]) < 0
		}
	}
	return false
}

// Add ends the waits of a node whose names are lower than before.
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

// HasNodeEnded reports whether the wait of a waiter has ended with its node. Next and First may return such a waiter;
// the caller must not serve it.
func (t *Table) HasNodeEnded(w *Waiter) bool { return t.ended.Has(w.Name) }

// EndNodeWaitsBefore ends the waits of a node whose names are lower than before: those of earlier incarnations, and
// those of the same incarnation with lower tickets. It takes constant time; Sweep removes the waiters.
func (t *Table) EndNodeWaitsBefore(before Name) {
	if w, ok := t.firstOf(before.Origin.Node); ok && w.Compare(before) < 0 {
		t.ended.Add(before)
	}
}

// EndNodeWaits ends the waits of a node's incarnations up to an epoch.
//
// Requires: no waiter of the node has a later epoch.
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

// firstOf returns the waiter with the lowest name of all waiters of a node. ok reports whether there is one.
func (t *Table) firstOf(node string) (first *Waiter, ok bool) {
	var name Name
	name.Origin.Node = node
	t.names.Ascend(&Waiter{Name: name}, func(w *Waiter) bool {
		first, ok = w, w.Origin.Node == node
		return false
	})
	return first, ok
}

// Sweeping reports whether NodeEnds marks waits. Sweep has to be called then.
func (t *Table) Sweeping() bool { return len(t.ended) > 0 }

// Sweep removes a waiter whose wait has ended with its node, and returns the waiter, or nil if there is none.
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
