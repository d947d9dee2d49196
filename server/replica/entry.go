package replica

import (
	"bytes"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// entryBuilder makes log entries out of batches.
//
// No batch has an answer yet, so the batches of an entry may take effect in any order. Claims come
// last (fsm.Claim): a lock that is released in this entry goes to a client that waits for the lock
// already, and not an entry later to the next client that asks.
type entryBuilder struct {
	limit  int // where gathering stops, in bytes
	writer *protocol.EntryWriter
	empty  int    // the entry's length without batches
	buf    []byte // what entries are made in, and copied out of

	claims []byte // batches that are not in the entry yet
	count  int    // how many
	add    func(*forward.Batch) bool
}

const (
	// maxClaims bounds how many batches are put behind others at a time. Each can leave a gap in a
	// session's numbers while the entry is applied, and the session remembers a bounded number of
	// gaps.
	maxClaims = 256
	// keepBuffer is how big a buffer may stay, in bytes.
	keepBuffer = 64 << 10
)

func newEntryBuilder(limit int) *entryBuilder {
	b := &entryBuilder{limit: limit}
	b.add = b.append // made once: each use of a method as a value would allocate
	return b
}

// begin starts an entry.
func (b *entryBuilder) begin(version byte, stampMillis, wallOffsetMillis int64, memoryLimitBytes uint64) {
	b.writer = protocol.NewEntry(b.buf[:0], version, stampMillis, wallOffsetMillis, memoryLimitBytes)
	b.empty = b.writer.Len()
}

// append puts a batch into the entry, and reports whether there was room. An empty entry always has
// room.
func (b *entryBuilder) append(batch *forward.Batch) bool {
	if size := b.writer.Len() + len(b.claims); size > b.empty && size+len(batch.Body) > b.limit {
		return false
	}
	if !batch.Claim {
		b.writer.Add(batch.Origin, batch.Low, batch.Seq, batch.Body)
		return true
	}
	b.claims = protocol.AppendBatch(b.claims, batch.Origin, batch.Low, batch.Seq, batch.Body)
	if b.count++; b.count == maxClaims {
		b.flushClaims()
	}
	return true
}

// flushClaims puts the claims into the entry.
func (b *entryBuilder) flushClaims() {
	b.writer.AddBatches(b.claims)
	b.claims, b.count = b.claims[:0], 0
}

// end returns the entry, and whether there are batches in the entry. The log keeps the entry, so it takes the memory
// that it needs; a large one is not copied.
func (b *entryBuilder) end() (entry []byte, some bool) {
	b.flushClaims()
	if cap(b.claims) > keepBuffer {
		b.claims = nil
	}
	entry, b.writer, b.buf = b.writer.Bytes(), nil, nil
	if cap(entry) <= keepBuffer {
		b.buf, entry = entry, bytes.Clone(entry)
	}
	return entry, len(entry) > b.empty
}

// uncounted is the flag of a leadership's first entry.
const uncounted byte = 1

// check is the flag of an entry at whose index every member captures its state. The entry is empty. A release that does
// not know the flag applies the entry all the same.
const check byte = 2
