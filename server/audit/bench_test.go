package audit

import (
	"io"
	"testing"

	"github.com/holdfast/holdfast/fsm/event"
)

// BenchmarkChange is what a change costs, from the entry to the write, in entries of 64.
func BenchmarkChange(b *testing.B) {
	l := &Log{room: waitingBytes, out: &pipe{io.Discard}, wake: make(chan struct{}, 1), full: make(chan struct{}, 1)}
	w := &writer{Log: l}
	l.Begin("5f7a3c2e9d1b4a60")
	l.SetClient(7, Client{Addr: "10.0.0.1:54321", Name: "worker", User: "default"})
	var entry []event.Event
	for range 64 {
		e := changed("bench:lock:000000000123", "0123456789abcdef", event.LockGranted)
		e.Change.Own, e.Change.Stock = true, true
		entry = append(entry, e)
	}
	b.ReportAllocs()
	for i := 0; i < b.N; i += len(entry) {
		l.Events(uint64(1+i), entry)
		if i%(16*len(entry)) == 0 {
			w.writeWaiting()
		}
	}
}
