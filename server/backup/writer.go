package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
)

// Writer makes a file of a state that is written to the Writer.
type Writer struct {
	out     io.Writer
	sum     hash.Hash
	piece   []byte
	state   int64
	blocks  int64
	written int64
	err     error
}

// NewWriter begins a file.
func NewWriter(out io.Writer, m Meta) (*Writer, error) {
	text, err := json.Marshal(m)
	if err != nil || len(text) > maxBody {
		return nil, fmt.Errorf("describe backup in %d bytes: %w", len(text), err)
	}
	w := &Writer{out: out, sum: sha256.New(), piece: make([]byte, 0, pieceBytes)}
	w.raw(binary.LittleEndian.AppendUint32([]byte(magic), Version))
	w.block(blockMeta, text)
	return w, w.err
}

// Write takes the next bytes of the state.
func (w *Writer) Write(b []byte) (n int, err error) {
	for len(b) > 0 && w.err == nil {
		step := min(len(b), pieceBytes-len(w.piece))
		w.piece = append(w.piece, b[:step]...)
		b, n = b[step:], n+step
		if len(w.piece) == pieceBytes {
			w.flush()
		}
	}
	return n, w.err
}

// Close ends the file. A file without this end is refused by readers.
func (w *Writer) Close() (Summary, error) {
	if len(w.piece) > 0 {
		w.flush()
	}
	sum := w.sum.Sum(nil)
	s := Summary{StateBytes: w.state, Blocks: w.blocks, SHA256: hex.EncodeToString(sum)}
	end := binary.LittleEndian.AppendUint64(nil, uint64(w.state))
	end = binary.LittleEndian.AppendUint64(end, uint64(w.blocks))
	w.block(blockEnd, append(end, sum...))
	s.FileBytes = w.written
	return s, w.err
}

func (w *Writer) flush() {
	w.state += int64(len(w.piece))
	w.block(blockState, w.piece)
	w.piece = w.piece[:0]
}

func (w *Writer) block(kind byte, body []byte) {
	w.raw(appendBlockHead(make([]byte, 0, blockHeadBytes), kind, body))
	w.raw(body)
	w.blocks++
}

func (w *Writer) raw(b []byte) {
	if w.err != nil {
		return
	}
	var n int
	n, w.err = w.out.Write(b)
	w.sum.Write(b[:n])
	w.written += int64(n)
}
