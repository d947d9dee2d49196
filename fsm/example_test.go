package fsm_test

import (
	"fmt"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// printer is a sink that prints the replies of every batch.
type printer struct{}

func (printer) Wanted(protocol.Incarnation, uint64) bool { return true }

func (printer) Done(o protocol.Incarnation, seq uint64, replies []protocol.Value, applied bool) {
	fmt.Printf("%s/%d applied=%t", o.Node, seq, applied)
	for _, reply := range replies {
		fmt.Printf(" %q", reply.AppendTo(nil, protocol.RESP2))
	}
	fmt.Println()
}

func (printer) Events([]event.Event) {}

// Two nodes want one lock in one log entry. The second batch is proposed twice, and applied once. The lease ends when
// the cluster time of the entries has passed its deadline.
func Example() {
	acquire := func(token string) []byte {
		return protocol.AppendRequest(nil, protocol.Head{}, "set", [][]byte{
			[]byte("lock"), []byte(token), []byte("NX"), []byte("PX"),
			[]byte("30000"),
		})
	}
	n1, n2 := protocol.Incarnation{Node: "n1", Epoch: 1}, protocol.Incarnation{Node: "n2", Epoch: 1}
	m := fsm.New()
	apply := func(stampMillis int64, add func(*protocol.EntryWriter)) {
		entry := protocol.NewEntry(nil, protocol.EntryVersion, stampMillis, 0, protocol.EntryLimits{})
		add(entry)
		if err := m.Apply(entry.Bytes(), printer{}); err != nil {
			fmt.Println(err)
		}
	}
	apply(1000, func(entry *protocol.EntryWriter) {
		entry.Add(n1, 1, 1, acquire("a"))
		entry.Add(n2, 1, 1, acquire("b"))
		entry.Add(n2, 1, 1, acquire("b"))
	})
	apply(31_001, func(entry *protocol.EntryWriter) {
		entry.Add(n2, 1, 2, acquire("b"))
	})
	due, _ := m.NextDue()
	fmt.Println("the next lease ends at", due)
	// Output:
	// n1/1 applied=true "+OK\r\n"
	// n2/1 applied=true "$-1\r\n"
	// n2/1 applied=false
	// n2/2 applied=true "+OK\r\n"
	// the next lease ends at 61002
}
