package fsm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"math/bits"
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// ErrCorruptSnapshot is the error for a stream that is not a complete, valid snapshot.
var ErrCorruptSnapshot = errors.New("corrupt snapshot")

// snapshotReader reads a snapshot stream, and computes its checksum. The first error is sticky; later reads return zero
// values.
type snapshotReader struct {
	in        *bufio.Reader
	sum       hash.Hash
	err       error
	one       [1]byte // memory of ReadByte
	buf       []byte
	readError error // the error of a failed read; a varint that is too long sets only err
	taken     int   // the bytes of the current varint that were read
	// marked has the items that mark native locks. read is the number of those whose locks were read.
	marked []markedLock
	read   int
}

// markedLock is an item that marks a native lock.
type markedLock struct {
	db   int
	text keyspace.LockText
}

// fail records that the stream is corrupt at the value what.
func (r *snapshotReader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrCorruptSnapshot, what)
	}
}

// broke records that the read of the value what failed. A stream that is too short is corrupt; other errors are those
// of the underlying reader.
func (r *snapshotReader) broke(what string, err error) {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		r.fail(what + " is cut off")
		return
	}
	if r.err == nil {
		r.err = fmt.Errorf("read %s: %w", what, err)
	}
}

// ReadByte implements io.ByteReader, for the varints.
func (r *snapshotReader) ReadByte() (byte, error) {
	b, err := r.in.ReadByte()
	if err != nil {
		r.readError = err
		return 0, err
	}
	r.taken++
	r.one[0] = b
	r.sum.Write(r.one[:])
	return b, nil
}

func (r *snapshotReader) uint(what string) uint64 {
	if r.err != nil {
		return 0
	}
	r.taken = 0
	n, err := binary.ReadUvarint(r)
	switch {
	case r.readError != nil:
		r.broke(what, r.readError)
		return 0
	case err != nil, r.taken != (bits.Len64(n|1)+6)/7: // each number has only one valid encoding, the shortest
		r.fail(what)
		return 0
	}
	return n
}

func (r *snapshotReader) int(what string) int64 {
	n := r.uint(what)
	return int64(n>>1) ^ -int64(n&1)
}

func (r *snapshotReader) string(what string) string {
	r.buf = r.buf[:0]
	r.bytes(what)
	return string(r.buf)
}

// bytes reads a length, and appends that many bytes of the stream to r.buf. It grows r.buf in steps, so that a wrong
// length allocates little memory.
func (r *snapshotReader) bytes(what string) {
	n := r.uint(what)
	for n > 0 && r.err == nil {
		step := int(min(n, 1<<20))
		r.buf = slices.Grow(r.buf, step)
		chunk := r.buf[len(r.buf) : len(r.buf)+step]
		if _, err := io.ReadFull(r.in, chunk); err != nil {
			r.broke(what, err)
			return
		}
		r.sum.Write(chunk)
		r.buf = r.buf[:len(r.buf)+step]
		n -= uint64(step)
	}
}

// version reads the version of a key, which must not exceed the last version that was issued.
func (r *snapshotReader) version(st *state, what string) uint64 {
	n := r.uint(what)
	if n > st.Versions {
		r.fail(what)
	}
	return n
}

func (r *snapshotReader) deadlineAndVersion(st *state, it *keyspace.Item) {
	deadline, version := r.uint("deadline"), r.version(st, "key version")
	switch {
	case r.err != nil:
	case deadline > math.MaxInt64:
		r.fail("deadline")
	case version == 0:
		r.fail("key version")
	}
	it.DeadlineMillis = int64(deadline)
	it.SetVersion(version)
}

// snapshotWriter writes a snapshot stream, and computes its checksum. The first error is sticky.
type snapshotWriter struct {
	sum     hash.Hash
	out     *bufio.Writer
	written int64
	err     error
	buf     []byte
}

func (w *snapshotWriter) raw(b []byte) {
	if w.err != nil {
		return
	}
	n, err := w.out.Write(b)
	w.written += int64(n)
	w.err = err
}

// flush writes the buffer to the stream if the buffer has at least limit bytes.
func (w *snapshotWriter) flush(limit int) {
	if len(w.buf) < limit {
		return
	}
	w.sum.Write(w.buf)
	w.raw(w.buf)
	w.buf = w.buf[:0]
}

func (w *snapshotWriter) uint(n uint64) { w.buf = binary.AppendUvarint(w.buf, n) }

func (w *snapshotWriter) int(n int64) { w.buf = binary.AppendVarint(w.buf, n) }

func (w *snapshotWriter) string(s string) {
	w.uint(uint64(len(s)))
	w.buf = append(w.buf, s...)
	w.flush(1 << 15)
}
