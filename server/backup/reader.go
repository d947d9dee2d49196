package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/holdfast/holdfast/fsm"
)

// Reader reads the state in a file, and proves all of the file.
type Reader struct {
	Meta Meta

	in      io.Reader
	sum     hash.Hash
	left    []byte // of the state, proved
	body    []byte
	state   int64
	blocks  int64
	taken   int64
	err     error
	summary Summary
}

// NewReader reads the beginning of a file.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: in, sum: sha256.New()}
	head := make([]byte, headBytes)
	n, err := io.ReadFull(in, head)
	if n >= len(magic) && string(head[:len(magic)]) != magic || n < len(magic) && !bytes.HasPrefix([]byte(magic),
		head[:n]) {
		if bytes.HasPrefix(head, []byte("REDIS")) {
			return nil, fmt.Errorf("%w but a dump of Redis: holdfast import copies from a Redis server that runs", ErrNoBackup)
		}
		return nil, ErrNoBackup
	}
	if err != nil {
		return nil, readError(err)
	}
	r.took(head)
	switch version := binary.LittleEndian.Uint32(head[len(magic):]); {
	case version == 0:
		return nil, damaged("version 0 does not exist")
	case version > Version:
		return nil, fmt.Errorf("%w: the format has version %d, this release knows %d", ErrNewer, version, Version)
	}
	kind, body, err := r.block()
	if err != nil {
		return nil, err
	}
	if kind != blockMeta || json.Unmarshal(body, &r.Meta) != nil {
		return nil, damaged("it does not say where it comes from")
	}
	return r, nil
}

// Read gives out the state. After [io.EOF] all of the file has been proved.
func (r *Reader) Read(b []byte) (int, error) {
	for len(r.left) == 0 && r.err == nil {
		r.err = r.advance()
	}
	if len(r.left) == 0 {
		return 0, r.err
	}
	n := copy(b, r.left)
	r.left = r.left[n:]
	return n, nil
}

// Summary is what the file's end says, after Read has returned [io.EOF].
func (r *Reader) Summary() Summary { return r.summary }

// advance reads the next block.
func (r *Reader) advance() error {
	sum := r.sum.Sum(nil)
	kind, body, err := r.block()
	switch {
	case err != nil:
		return err
	case kind == blockState && len(body) > 0:
		r.left = body
		r.state += int64(len(body))
		return nil
	case kind == blockEnd && len(body) == endBytes:
		return r.end(body, sum)
	default:
		return damaged("it has a block that does not belong there")
	}
}

// end proves what the last block says of the blocks before, and that nothing follows.
func (r *Reader) end(body, sum []byte) error {
	before := r.blocks - 1
	if binary.LittleEndian.Uint64(body) != uint64(r.state) || binary.LittleEndian.Uint64(body[8:]) != uint64(before) {
		return damaged("parts are missing")
	}
	if !bytes.Equal(body[16:], sum) {
		return damaged("its checksum differs")
	}
	switch n, err := io.ReadFull(r.in, make([]byte, 1)); {
	case n > 0:
		return damaged("something follows its end")
	case !errors.Is(err, io.EOF):
		return err
	}
	r.summary = Summary{StateBytes: r.state, Blocks: before, FileBytes: r.taken, SHA256: hex.EncodeToString(sum)}
	return io.EOF
}

// block reads and proves a block. The body is good until the next call.
func (r *Reader) block() (kind byte, body []byte, err error) {
	var head [blockHeadBytes]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return 0, nil, readError(err)
	}
	length := binary.LittleEndian.Uint32(head[1:])
	if length > maxBody {
		return 0, nil, damaged("a block has an impossible length")
	}
	if cap(r.body) < int(length) {
		r.body = make([]byte, length)
	}
	body = r.body[:length]
	if _, err := io.ReadFull(r.in, body); err != nil {
		return 0, nil, readError(err)
	}
	if blockSum(head[:5], body) != binary.LittleEndian.Uint32(head[5:]) {
		return 0, nil, damaged("the checksum of a block differs")
	}
	r.took(head[:])
	r.took(body)
	r.blocks++
	return head[0], body, nil
}

func (r *Reader) took(b []byte) {
	r.sum.Write(b)
	r.taken += int64(len(b))
}

func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCutOff
	}
	return err
}

// Report is what is in a file.
type Report struct {
	Meta    Meta
	Summary Summary
	Survey  fsm.Survey
}

// Inspect reads a whole file, proves it, and looks at the state, with at most so many keys that look like fences.
func Inspect(in io.Reader, fenceKeys int) (Report, error) {
	r, m, err := load(in)
	if err != nil {
		return Report{}, err
	}
	return Report{Meta: r.Meta, Summary: r.Summary(), Survey: m.Survey(fenceKeys)}, nil
}

// load reads a whole file into a machine. The machine refuses what is no state, and reads to the end.
func load(in io.Reader) (*Reader, fsm.Machine, error) {
	r, err := NewReader(in)
	if err != nil {
		return nil, nil, err
	}
	m := fsm.New()
	err = m.Restore(r)
	switch {
	case err == nil:
		return r, m, nil
	case r.err != nil && !errors.Is(r.err, io.EOF):
		return nil, nil, r.err // which is the reason
	case errors.Is(err, fsm.ErrCorruptSnapshot):
		return nil, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	default:
		return nil, nil, fmt.Errorf("%w: %w", ErrNewer, err)
	}
}
