package memberrpc

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/holdfast/holdfast/server/peer/wire"
)

const (
	// maxStreams bounds the streams that are sent at a time.
	maxStreams = 2
	// flowWithin is how long a stream may bring nothing: its sender may have frozen, and another has the state, too.
	flowWithin = 2 * time.Second
	// streamFrame bounds a frame of a stream, in bytes.
	streamFrame = 256 << 10
)

// A stream follows the reply on the same connection: frames of bytes, an empty frame, and a frame with the checksum of
// all bytes.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// HandleStream is [Handle] with a stream of bytes behind the answer; nil: none. The stream is closed when it was sent,
// or when the caller has gone.
func HandleStream[Q, R any](s *Server, op string, h func(ctx context.Context, from Caller, q Q) (R, io.ReadCloser,
	error),
) {
	s.handlers[op] = handler{stream: func(ctx context.Context, from Caller, body []byte) (any, io.ReadCloser, error) {
		q, err := decode[Q](body)
		if err != nil {
			return nil, nil, err
		}
		return h(ctx, from, q)
	}}
}

// send sends a stream to its end. The caller takes a stream that ends early for a broken one.
func send(ctx context.Context, conn net.Conn, stream io.ReadCloser) error {
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	w := &wire.Steady{Conn: conn}
	frame, sum := make([]byte, wire.Head+streamFrame), crc32.New(castagnoli)
	for {
		n, err := io.ReadFull(stream, frame[wire.Head:])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		_, _ = sum.Write(frame[wire.Head : wire.Head+n])
		if n > 0 {
			if _, err := w.Write(wire.Seal(frame[:wire.Head+n])); err != nil {
				return err
			}
		}
		if err != nil {
			break
		}
	}
	last := wire.Seal(binary.BigEndian.AppendUint32(make([]byte, wire.Head), sum.Sum32()))
	_, err := w.Write(append(wire.Seal(make([]byte, wire.Head)), last...))
	return err
}

// CallStreamAt is [CallAt] with the stream behind the answer, which is the caller's to close. A stream that is not
// whole, or whose checksum is another, ends with an error. The context bounds the stream, too.
func CallStreamAt[R any](ctx context.Context, c *Client, addr, op string, question any) (answer R, stream io.ReadCloser,
	err error,
) {
	conn, err := c.dialer.DialAddr(ctx, addr)
	if err != nil {
		return answer, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	flow := &flowing{Conn: conn}
	r := bufio.NewReaderSize(flow, streamFrame)
	if err := exchangeOver(ctx, conn, r, op, question, &answer); err != nil {
		stop()
		_ = conn.Close()
		return answer, nil, err
	}
	flow.begun = true
	return answer, &received{conn: conn, from: r, stop: stop, sum: crc32.New(castagnoli)}, nil
}

// flowing is a connection whose reads end when nothing comes, once a stream has begun. The answer before it may take
// its time.
type flowing struct {
	net.Conn
	begun bool
}

// Read implements net.Conn.
func (c *flowing) Read(b []byte) (int, error) {
	if c.begun {
		_ = c.SetReadDeadline(time.Now().Add(flowWithin))
	}
	return c.Conn.Read(b)
}

// received reads a stream.
type received struct {
	conn  net.Conn
	from  *bufio.Reader
	stop  func() bool
	sum   hash.Hash32
	frame []byte // kept for the next
	left  []byte // of frame
	err   error
}

// Read implements io.Reader.
func (r *received) Read(p []byte) (int, error) {
	for len(r.left) == 0 && r.err == nil {
		r.next()
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

func (r *received) next() {
	frame, err := wire.Read(r.from, r.frame, streamFrame)
	if err != nil {
		r.err = fmt.Errorf("the stream is cut off: %w", noEOF(err))
		return
	}
	r.frame, r.left = frame, frame
	_, _ = r.sum.Write(frame)
	if len(frame) > 0 {
		return
	}
	var sum []byte
	if sum, err = wire.Read(r.from, nil, wire.Short); err != nil {
		r.err = fmt.Errorf("the stream is cut off: %w", noEOF(err))
	} else if len(sum) != 4 || binary.BigEndian.Uint32(sum) != r.sum.Sum32() {
		r.err = errors.New("the stream is damaged: its checksum is another")
	} else {
		r.err = io.EOF
	}
}

// noEOF is an error that nobody takes for the end of a stream.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Close closes the connection.
func (r *received) Close() error {
	r.stop()
	return r.conn.Close()
}
