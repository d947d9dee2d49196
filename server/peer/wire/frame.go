// Package wire is what all streams between nodes have in common: frames and their fields,
// writes that end when the other side takes nothing, and the loop that accepts connections.
//
// It promises:
//   - no room is made for bytes that have not come, whatever length a frame announces;
//   - reading fields of any bytes ends, without a panic;
//   - a write to a [Steady] connection fails only when the other side takes nothing for a while;
//   - [Accept] returns when all goroutines that it started have ended.
//
// What the messages in a frame mean is known to the packages that own a stream.
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

// A frame is a length in four bytes, then messages until the end. A message is fields:
// numbers are uvarints, bytes = uvarint length, then that many bytes.

// ErrCorrupt is the error of a frame that says what no node writes.
var ErrCorrupt = errors.New("corrupt frame")

const (
	// Head is how many bytes stand before the messages of a frame. [Seal] fills them.
	Head = 4
	// Gather is where gathering of messages into one frame stops.
	Gather = 256 << 10
	// Step is how much room a frame gets before its bytes are there; later as much again as has come.
	Step = 1 << 20
	// Short bounds a frame that holds a greeting or an answer.
	Short = 4096
)

// Read reads a frame's messages into buf, which may be replaced.
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

// Kept is a buffer of a frame to be used again, nil if it has become large: most frames are small.
func Kept(buf []byte) []byte {
	if cap(buf) > 4*Gather {
		return nil
	}
	return buf
}

// Seal writes the length of what follows into the frame's head.
func Seal(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-Head))
	return frame
}

// AppendBytes appends a field of bytes.
func AppendBytes[T string | []byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// Fields reads a message's fields one after the other. After an error, which
// stays, everything reads as zero.
type Fields[T string | []byte] struct {
	Rest T // what is not read yet
	Err  error
}

// More reports whether there is another field.
func (f *Fields[T]) More() bool { return f.Err == nil && len(f.Rest) > 0 }

// Kind reads a byte. The caller has asked [Fields.More].
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

// Bytes reads a field of bytes, which shares memory with the frame.
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
