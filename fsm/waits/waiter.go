package waits

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// Never is the deadline of a waiter without a timeout.
const Never = 0

// Name identifies a waiter. The node of the client issues the ticket; the tickets of an incarnation ascend.
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

// Waiter is a request that waits. A waiter in a [Table] is immutable.
type Waiter struct {
	Name
	Order          uint64 // the position among all waiters; the table issues it
	DB             int
	Kind           keyspace.Kind // the kind of value that the request takes
	DeadlineMillis int64         // the last instant of cluster time at which the waiter may be served, or [Never]
	Words          []string      // the request
	KeyFrom        int           // the index of the first key in Words
	KeyCount       int
	Account        int // the account that the waiter counts for, or 0; see [Counts]
}

// Keys returns the keys that the waiter waits for. A key may be repeated.
func (w *Waiter) Keys() []string { return w.Words[w.KeyFrom : w.KeyFrom+w.KeyCount] }

// Own replaces the words by copies that share no memory with a log entry. All copies share one allocation.
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

// The counted sizes of records in bytes. They are rounded up from the sizes that TestMemory measures.
const (
	waiterBytes = 320
	placeBytes  = 96
	wordBytes   = 16
)

// Bytes returns the estimated memory of the waiter.
func (w *Waiter) Bytes() int64 {
	n := int64(waiterBytes + len(w.Origin.Node) + w.KeyCount*placeBytes + len(w.Words)*wordBytes)
	for _, word := range w.Words {
		n += int64(len(word))
	}
	return n
}
