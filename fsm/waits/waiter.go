package waits

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// Never is the deadline of a waiter that waits without end.
const Never = 0

// Name is how the node of a waiter's client calls the waiter. Tickets of an incarnation of a node grow.
type Name struct {
	Origin protocol.Incarnation
	Ticket uint64
}

// Compare orders names by incarnation and ticket.
func (n Name) Compare(m Name) int {
	if c := n.Origin.Compare(m.Origin); c != 0 {
		return c
	}
	return cmp.Compare(n.Ticket, m.Ticket)
}

// Waiter is a request that waits. Invariant: never changed once in a [Table].
type Waiter struct {
	Name
	// Order is the waiter's place among all waiters. The table gives it out.
	Order uint64
	DB    int
	// Kind is the kind of value that the waiter takes.
	Kind keyspace.Kind
	// DeadlineMillis is the last instant of cluster time at which the waiter may be served, or [Never].
	DeadlineMillis int64
	// Words are the request, which is tried when one of the keys is ready.
	Words []string
	// KeyFrom and KeyCount say which of the words are the keys.
	KeyFrom, KeyCount int
	// Account is the owner's number of what the waiter counts for, 0: nothing. See [Counts].
	Account int
}

// Keys are the keys that the waiter waits for, perhaps one twice.
func (w *Waiter) Keys() []string { return w.Words[w.KeyFrom : w.KeyFrom+w.KeyCount] }

// Own makes the words a copy that shares no memory with a log entry, in one allocation of text.
func (w *Waiter) Own() {
	var text strings.Builder
	for _, word := range w.Words {
		text.WriteString(word)
	}
	all := text.String()
	w.Words = slices.Clone(w.Words)
	for i, word := range w.Words {
		w.Words[i], all = all[:len(word)], all[len(word):]
	}
}

// What a waiter counts for, in bytes: measured by TestMemory, and rounded up.
const (
	waiterBytes = 320
	placeBytes  = 96
	wordBytes   = 16
)

// Bytes is what the waiter counts for.
func (w *Waiter) Bytes() int64 {
	n := int64(waiterBytes + len(w.Origin.Node) + w.KeyCount*placeBytes + len(w.Words)*wordBytes)
	for _, word := range w.Words {
		n += int64(len(word))
	}
	return n
}
