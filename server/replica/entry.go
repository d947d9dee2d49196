package replica

import (
	"bytes"
	"slices"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// entryBuilder makes log entries of batches.
//
// No batch has a reply yet, so the batches of an entry may take effect in any order. Those with the hint
// [protocol.CreateIfAbsent] come last: a lock that this entry releases goes to a client that is waiting for it, instead
// of a client that asks again.
type entryBuilder struct {
	limit  int // the size from which no more batches are added, in bytes
	writer *protocol.EntryWriter
	empty  int    // the entry's length without batches
	large  int    // the bytes of large batches
	buf    []byte // the buffer in which entries are built

	creates []byte // the batches that come last
	count   int    // their number
	scripts bool   // the entry has a batch with [protocol.LargeScript]
	add     func(*forward.Batch) bool
}

const (
	// maxCreates bounds the batches that come last. Each can leave a gap in the numbers of a session while the entry is
	// applied, and a session records a bounded number of gaps.
	maxCreates = 256
	// keepBuffer bounds the kept buffer, in bytes.
	keepBuffer = 64 << 10
)

func newEntryBuilder(limit int) *entryBuilder {
	b := &entryBuilder{limit: limit}
	b.add = b.append // made once, since each method value would allocate
	return b
}

// begin starts an entry.
func (b *entryBuilder) begin(version byte, stampMillis, wallOffsetMillis int64, limits protocol.EntryLimits) {
	b.writer = protocol.NewEntry(b.buf[:0], version, stampMillis, wallOffsetMillis, limits)
	b.empty, b.large, b.scripts = b.writer.Len(), 0, false
}

// append adds a batch to the entry, and reports whether there was room. An empty entry has room for any batch, and
// every entry for the large batches that were admitted to it.
func (b *entryBuilder) append(batch *forward.Batch) bool {
	if batch.Large && batch.Work >= fsm.MuchWork { // a batch with less work is large only to keep its order
		b.large += len(batch.Body)
	} else if size := b.writer.Len() + len(b.creates) - b.large; size > b.empty && size+len(batch.Body) > b.limit {
		return false
	}
	b.scripts = b.scripts || batch.Hints.Has(protocol.LargeScript)
	if batch.Large {
		b.flushCreates() // one of them may have timed out before its client sent this batch: see queue.doubtful
	}
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

// flushCreates adds the batches that come last.
func (b *entryBuilder) flushCreates() {
	b.writer.AddBatches(b.creates)
	b.creates, b.count = b.creates[:0], 0
}

// some reports whether there are batches in the entry.
func (b *entryBuilder) some() bool { return b.writer.Len() > b.empty || b.count > 0 }

// end returns the entry with its flags. The log keeps the entry, so end copies it into memory of its size, unless it is
// large.
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

// Flags of entries. A release that does not know a flag ignores it.
const (
	// uncounted marks the first entry of a leadership.
	uncounted byte = 1
	// check marks an empty entry at whose index every member captures its state.
	check byte = 2
	// scripts marks an entry with large sources of scripts, which are compiled before the entry is applied.
	scripts byte = 3
)

// counts reports whether an entry with these flags was proposed by a proposer, and so counts as in flight.
func counts(flags []byte) bool {
	return !slices.Contains(flags, uncounted) && !slices.Contains(flags, check)
}
