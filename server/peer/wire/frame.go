// Package wire has what all streams between nodes share: frames and their fields, writes that fail if the other end
// takes nothing, and the loop that accepts connections.
//
// It promises:
//   - memory is allocated for bytes that have arrived, whatever length a frame announces;
//   - reading fields of any bytes ends, without a panic;
//   - a write to a [Steady] connection fails only if the other end takes nothing for a while;
//   - [Accept] returns when all goroutines that it started have ended.
//
// The packages that own a stream know the meaning of its messages.
//
// Goroutines: one for each connection that [Accept] serves. There are no locks.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A frame is a length in four bytes, and then messages. A message has fields: a number is a uvarint, bytes are a
// uvarint length and then that many bytes.

// ErrCorrupt is the error of a frame that no node writes.
var ErrCorrupt = errors.New("corrupt frame")

const (
	// Head is the number of bytes before the messages of a frame. [Seal] sets them.
	Head = 4
	// Gather is the size from which no more messages are added to a frame.
	Gather = 256 << 10
	// Step is the first allocation for a frame; each further one doubles what has arrived.
	Step = 1 << 20
	// Short bounds a frame with a greeting or an answer.
	Short = 4096
)

// Read reads the messages of a frame into buf, which may be replaced.
func Read(r *bufio.Reader, buf []byte, limit int) ([]byte, error) {
	var head [Head]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return buf, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > limit {
		return buf, fmt.Errorf("%w: %d bytes, the limit is %d", ErrCorrupt, n, limit)
	}
	buf = buf[:0]
	for len(buf) < n {
		start, step := len(buf), min(n-len(buf), max(Step, len(buf)))
		buf = append(buf, make([]byte, step)...)
		if _, err := io.ReadFull(r, buf[start:]); err != nil {
			return buf, err
		}
	}
	return buf, nil
}

// Kept returns the buffer of a frame for reuse, or nil if it is large, since most frames are small.
func Kept(buf []byte) []byte {
	if cap(buf) > 4*Gather {
		return nil
	}
	return buf
}

// Seal sets the length of the frame in its head.
func Seal(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-Head))
	return frame
}

// AppendBytes appends a field of bytes.
func AppendBytes[T string | []byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// Fields reads the fields of a message. The first error is sticky; later reads return zero values.
type Fields[T string | []byte] struct {
	Rest T // the fields that are not read yet
	Err  error
}

// More reports whether there is another field.
func (f *Fields[T]) More() bool { return f.Err == nil && len(f.Rest) > 0 }

// Kind reads a byte. Requires: [Fields.More] reported true.
func (f *Fields[T]) Kind() byte {
	k := f.Rest[0]
	f.Rest = f.Rest[1:]
	return k
}

// Number reads a number.
func (f *Fields[T]) Number() (n uint64) {
	if f.Err != nil {
		return 0
	}
	for i := 0; i < len(f.Rest) && i < binary.MaxVarintLen64; i++ {
		b := f.Rest[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			f.Rest = f.Rest[i+1:]
			return n
		}
	}
	f.Err = fmt.Errorf("%w: number", ErrCorrupt)
	return 0
}

// Bytes reads a field of bytes. It shares memory with the frame.
func (f *Fields[T]) Bytes() (s T) {
	n := f.Number()
	if f.Err == nil && n > uint64(len(f.Rest)) {
		f.Err = fmt.Errorf("%w: length", ErrCorrupt)
	}
	if f.Err != nil {
		return s
	}
	s, f.Rest = f.Rest[:n], f.Rest[n:]
	return s
}
