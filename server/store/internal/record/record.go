// Package record is the format of a raft log entry on a disk, in both kinds of log store.
//
// It promises that an entry is read as it was stored, or as an error: a checksum covers all of it. Zeros in an entry
// are not zeros on the disk, so that a sector that was never written can be distinguished from a written one.
//
// Start reading at [Append].
package record

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

// A record is
//
//	length(4) checksum(4) body padding
//
// little-endian; length counts the body without padding; the checksum is CRC-32C of the
// length, and of body and padding as on the disk; padding makes the whole a multiple of 8
// bytes. Body and padding are masked. Unmasked the body is
//
//	format(1) type(1) index term appendedAt data extensions
//
// with numbers as varints, and data and extensions behind their lengths.
// appendedAt is in nanoseconds since 1970, 0 if unknown.
const (
	HeaderSize = 8
	Alignment  = 8
	format     = 1
)

// ErrDamaged is the error of bytes that are not a record of Append.
var ErrDamaged = errors.New("damaged log record")

// Bound returns an upper bound of the size of l's record.
func Bound(l *raft.Log) int {
	return HeaderSize + 2 + 5*binary.MaxVarintLen64 + len(l.Data) + len(l.Extensions) + Alignment
}

// Append encodes l at the end of dst, whose length must be a multiple of Alignment.
func Append(dst []byte, l *raft.Log) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	dst = append(dst, format, byte(l.Type))
	dst = binary.AppendUvarint(dst, l.Index)
	dst = binary.AppendUvarint(dst, l.Term)
	appendedAt := int64(0)
	if !l.AppendedAt.IsZero() {
		appendedAt = l.AppendedAt.UnixNano()
	}
	dst = binary.AppendVarint(dst, appendedAt)
	dst = binary.AppendUvarint(dst, uint64(len(l.Data)))
	dst = append(dst, l.Data...)
	dst = binary.AppendUvarint(dst, uint64(len(l.Extensions)))
	dst = append(dst, l.Extensions...)
	length := len(dst) - start - HeaderSize
	for len(dst)%Alignment != 0 {
		dst = append(dst, 0)
	}
	body := dst[start+HeaderSize:]
	applyMask(body)
	binary.LittleEndian.PutUint32(dst[start:], uint32(length))
	binary.LittleEndian.PutUint32(dst[start+4:], checksum(dst[start:start+4], body))
	return dst
}

// Check returns the size of the record at the beginning of b.
func Check(b []byte) (size int, err error) {
	if len(b) < HeaderSize {
		return 0, ErrDamaged
	}
	length := int(binary.LittleEndian.Uint32(b))
	if length > len(b)-HeaderSize {
		return 0, ErrDamaged
	}
	size = HeaderSize + (length+Alignment-1)&^(Alignment-1)
	if size > len(b) || checksum(b[:4], b[HeaderSize:size]) != binary.LittleEndian.Uint32(b[4:]) {
		return 0, ErrDamaged
	}
	return size, nil
}

// Decode decodes b, which is one record, into l. It unmasks b in place, and l's data and extensions point into b.
func Decode(b []byte, l *raft.Log) error {
	size, err := Check(b)
	if err != nil || size != len(b) {
		return ErrDamaged
	}
	length := int(binary.LittleEndian.Uint32(b))
	body := b[HeaderSize:]
	applyMask(body)
	r := reader{rest: body[:length]}
	if r.byte() != format {
		return ErrDamaged // the checksum is valid: only a newer release writes this, and store.Open refuses its files
	}
	*l = raft.Log{Type: raft.LogType(r.byte()), Index: r.uvarint(), Term: r.uvarint()}
	if at := r.varint(); at != 0 {
		l.AppendedAt = time.Unix(0, at)
	}
	l.Data = r.bytes()
	l.Extensions = r.bytes()
	if r.failed || len(r.rest) != 0 {
		return ErrDamaged
	}
	return nil
}

// reader reads the fields of a body. After a failure it returns zeros.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.failed, r.rest = true, nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		n = -1
	}
	if r.take(n) == nil {
		return 0
	}
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		n = -1
	}
	if r.take(n) == nil {
		return 0
	}
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n == 0 || n > uint64(len(r.rest)) {
		r.failed = r.failed || n != 0
		return nil
	}
	return r.take(int(n))
}

func checksum(length, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, body)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// applyMask XORs b with a fixed pseudo-random pattern of 512 bytes. Applying it twice restores b. A client can still
// choose data that is masked to zeros; the only effect is that one kind of torn write is mistaken for another.
func applyMask(b []byte) {
	for len(b) > 0 {
		b = b[subtle.XORBytes(b, b, mask[:]):]
	}
}

var mask = makeMask()

// makeMask is splitmix64 from a fixed seed, little-endian. The pattern is part of the format.
func makeMask() (m [512]byte) {
	state := uint64(0x486f6c6466617374) // "Holdfast"
	for at := 0; at < len(m); at += 8 {
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(m[at:], z^z>>31)
	}
	return m
}
