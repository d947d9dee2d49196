package audit

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// BenchmarkChange measures one change of a lock, from the event to the write, with 64 changes in an entry.
func BenchmarkChange(b *testing.B) {
	l := &Log{room: waitingBytes, out: &pipe{io.Discard}, wake: make(chan struct{}, 1), full: make(chan struct{}, 1)}
	w := &writer{Log: l}
	l.Begin("5f7a3c2e9d1b4a60")
	l.SetClient(7, Client{Addr: "10.0.0.1:54321", Name: "worker", User: "default"})
	var entry []event.LockChange
	for range 64 {
		e := changed("bench:lock:000000000123", "0123456789abcdef", event.LockGranted)
		e.Own, e.Stock = true, true
		entry = append(entry, e)
	}
	b.ReportAllocs()
	for i := 0; i < b.N; i += len(entry) {
		l.Changes(uint64(1+i), entry)
		if i%(16*len(entry)) == 0 {
			w.writeWaiting()
		}
	}
}

// BenchmarkPair measures an acquisition and a release on a node that applies entries of 16 such pairs, with the audit
// log written to a file, and without an audit log. Before each entry other data fills the caches of the processor, as
// the other work of a server does.
func BenchmarkPair(b *testing.B) {
	for _, name := range []string{"off", "on"} {
		b.Run(name, func(b *testing.B) {
			out, _, err := openFiles(filepath.Join(b.TempDir(), "audit.log"), 1<<30, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			defer out.close()
			l := newLog(Config{})
			l.out = out
			w, m, sink := &writer{Log: l}, fsm.New(), &auditing{Log: l}
			l.Begin("5f7a3c2e9d1b4a60")
			other := make([]byte, 1<<20)
			if name == "on" {
				m.Listen(event.InLocks)
			}
			const pairs = 16
			var entry []byte
			var bodies [1000][]byte
			for i := range bodies {
				for j := range pairs {
					key := fmt.Sprintf("bench:lock:%012d", i*pairs+j)
					bodies[i] = append(bodies[i], words(7, 0, "set", key, "0123456789abcdef", "NX", "PX", "30000")...)
					bodies[i] = append(bodies[i], words(8, 0, "eval", compareAndDelete, "1", key, "0123456789abcdef")...)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += pairs {
				sink.index++
				for j := 0; j < len(other); j += 64 {
					other[j]++
				}
				e := protocol.NewEntry(entry, protocol.EntryVersion, int64(sink.index), wallOffset, protocol.EntryLimits{})
				e.Add(protocol.Incarnation{Node: "n1@abc", Epoch: 1}, sink.index, sink.index, bodies[i/pairs%len(bodies)])
				entry = e.Bytes()
				if err := m.Apply(entry, sink); err != nil {
					b.Fatal(err)
				}
				if len(l.pending) >= chunkBytes {
					w.writeWaiting()
				}
			}
		})
	}
}

// auditing is a sink that passes events to a log.
type auditing struct {
	heard
	*Log
	index uint64
}

func (a *auditing) Events(events []event.Event) {
	a.Log.Changes(a.index, events[len(events)-1].Changes)
}
