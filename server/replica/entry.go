package replica

import (
	"bytes"
	"slices"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// entryBuilder makes log entries out of batches.
//
// No batch has an answer yet, so the batches of an entry may take effect in any order. Those with the hint
// [protocol.CreateIfAbsent] come last: a lock that is released in this entry goes to a client that waits for the lock
// already, and not an entry later to the next client that asks.
type entryBuilder struct {
	limit  int // where gathering stops, in bytes
	writer *protocol.EntryWriter
	empty  int    // the entry's length without batches
	large  int    // the bytes of large batches
	buf    []byte // what entries are made in, and copied out of

	creates []byte // the batches that come last
	count   int    // how many
	scripts bool   // the entry has a batch with [protocol.LargeScript]
	add     func(*forward.Batch) bool
}

const (
	// maxCreates bounds how many batches are put behind others at a time. Each can leave a gap in a
	// session's numbers while the entry is applied, and the session remembers a bounded number of
	// gaps.
	maxCreates = 256
	// keepBuffer is how big a buffer may stay, in bytes.
	keepBuffer = 64 << 10
)

func newEntryBuilder(limit int) *entryBuilder {
	b := &entryBuilder{limit: limit}
	b.add = b.append // made once: each use of a method as a value would allocate
	return b
}

// begin starts an entry.
func (b *entryBuilder) begin(version byte, stampMillis, wallOffsetMillis int64, limits protocol.EntryLimits) {
	b.writer = protocol.NewEntry(b.buf[:0], version, stampMillis, wallOffsetMillis, limits)
	b.empty, b.large, b.scripts = b.writer.Len(), 0, false
}

// append puts a batch into the entry, and reports whether there was room. An empty entry always has
// room, and each for the large batches that were admitted to it.
func (b *entryBuilder) append(batch *forward.Batch) bool {
	if batch.Large && batch.Work >= fsm.MuchWork { // else it must only not pass such batches
		b.large += len(batch.Body)
	} else if size := b.writer.Len() + len(b.creates) - b.large; size > b.empty && size+len(batch.Body) > b.limit {
		return false
	}
	b.scripts = b.scripts || batch.Hints.Has(protocol.LargeScript)
	if !batch.Hints.Has(protocol.CreateIfAbsent) {
		b.writer.Add(batch.Origin, batch.Low, batch.Seq, batch.Body)
		return true
	}
	b.creates = protocol.AppendBatch(b.creates, batch.Origin, batch.Low, batch.Seq, batch.Body)
	if b.count++; b.count == maxCreates {
		b.flushCreates()
	}
	return true
}

// flushCreates puts the batches that come last into the entry.
func (b *entryBuilder) flushCreates() {
	b.writer.AddBatches(b.creates)
	b.creates, b.count = b.creates[:0], 0
}

// some reports whether there are batches in the entry.
func (b *entryBuilder) some() bool { return b.writer.Len() > b.empty || b.count > 0 }

// end returns the entry with its flags. The log keeps the entry, so it takes the memory that it needs; a large one is not
// copied.
func (b *entryBuilder) end() (entry, flags []byte) {
	b.flushCreates()
	if cap(b.creates) > keepBuffer {
		b.creates = nil
	}
	entry, b.writer, b.buf = b.writer.Bytes(), nil, nil
	if cap(entry) <= keepBuffer {
		b.buf, entry = entry, bytes.Clone(entry)
	}
	if b.scripts {
		flags = []byte{scripts}
	}
	return entry, flags
}

// Flags of entries. A release that does not know a flag applies the entry all the same.
const (
	// uncounted: the first entry of a leadership.
	uncounted byte = 1
	// check: every member captures its state at the index of the entry, which is empty.
	check byte = 2
	// scripts: the entry has large sources of scripts, which are compiled before the entry is applied.
	scripts byte = 3
)

// counts reports whether an entry with these flags is one of a proposer's, and so counts as in flight.
func counts(flags []byte) bool {
	return !slices.Contains(flags, uncounted) && !slices.Contains(flags, check)
}
