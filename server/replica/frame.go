package replica

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast/holdfast/protocol"
)

// The forward stream, version 2. A frame is its length in four bytes, then
// messages until its end. A message is its kind, then its fields: numbers are uvarints,
// bytes = uvarint length, then that many bytes.
//
// The first frame of each side is its greeting alone:
//
//	follower  hello    version, bytes name, epoch, bytes client address, features
//	leader    welcome  version, verdict, bytes name, bytes client address
//
// Then, from the follower:
//
//	write  sequence, low-water mark, bytes body
//	read   number, count of requests, bytes body
//	wait   number, nodes wanted, milliseconds
//
// and from the leader:
//
//	wrote   sequence, count, values (protocol.AppendValue); fewer than requests: the rest was not applied
//	answer  number, count, values
//	refuse  number, outcome, bytes prefix, bytes text     (of a read)
//	waited  number, nodes
//	beacon  term, commit index, count, (bytes name, bytes client address)*
//	part    kind (wrote or answer), state (more, last, dropped), its number, then up to the frame's end
//
// A large wrote or answer comes in parts, with other messages between them: what follows its number is cut into pieces. A dropped
// one came too late to be of use, and is not sent to its end. Parts go to followers whose hello says that they know them.
//
// A node that asks who sees a leader's process gone (see succession) sends this
// alone instead of a hello, and gets one message back:
//
//	ballot  version, bytes name, length of log, bytes leader, term, whether to nominate
//	ballot  whether that node agrees, length of its log
//
// The leader proposes writes in the order in which they come. It answers in any
// order, or, for writes, not at all: the follower sees in its own log what became of them.
//
// Version 2 is 1 with other marks of watched keys: a node must not forward those of one to a leader that knows the other.
const linkVersion = 2

const (
	kindHello   = 'h'
	kindWelcome = 'H'
	kindWrite   = 'w'
	kindRead    = 'r'
	kindWait    = 'n'
	kindWrote   = 'W'
	kindAnswer  = 'A'
	kindRefuse  = 'E'
	kindWaited  = 'N'
	kindBeacon  = 'B'
	kindBallot  = 'b'
	kindPart    = 'P'
)

// featureParts, in a hello, says that the follower puts parts together. A hello without features has none.
const featureParts uint64 = 1

// States of a part.
const (
	partMore    = 'm'
	partLast    = 'l'
	partDropped = 'd'
)

// Verdicts of a welcome.
const (
	verdictOK uint64 = iota
	verdictNotLeading
	verdictVersion
	verdictStranger
)

var errFrame = errors.New("corrupt frame")

const (
	frameHead = 4
	// frameGather is where gathering of messages into one frame stops.
	frameGather = 256 << 10
	// frameStep is how much room a frame gets before its bytes are there.
	frameStep = 1 << 20
	// greetingLimit bounds the first frame.
	greetingLimit = 4096
)

// readFrame reads one frame's messages into buf, which it may replace.
func readFrame(r *bufio.Reader, buf []byte, limit int) ([]byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return buf, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > limit {
		return buf, fmt.Errorf("%w: %d bytes, the limit is %d", errFrame, n, limit)
	}
	buf = buf[:0]
	for len(buf) < n {
		start, step := len(buf), min(n-len(buf), frameStep)
		buf = append(buf, make([]byte, step)...)
		if _, err := io.ReadFull(r, buf[start:]); err != nil {
			return buf, err
		}
	}
	return buf, nil
}

// sealFrame writes the length of what follows into the frame's head.
func sealFrame(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-frameHead))
	return frame
}

func appendBytes[T string | []byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// fields reads a message's fields one after the other. After an error, which
// stays, everything reads as zero.
type fields[T string | []byte] struct {
	rest T
	err  error
}

func (f *fields[T]) more() bool { return f.err == nil && len(f.rest) > 0 }

func (f *fields[T]) kind() byte {
	k := f.rest[0]
	f.rest = f.rest[1:]
	return k
}

func (f *fields[T]) number() (n uint64) {
	if f.err != nil {
		return 0
	}
	for i := 0; i < len(f.rest) && i < binary.MaxVarintLen64; i++ {
		b := f.rest[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			f.rest = f.rest[i+1:]
			return n
		}
	}
	f.err = fmt.Errorf("%w: number", errFrame)
	return 0
}

func (f *fields[T]) bytes() (s T) {
	n := f.number()
	if f.err == nil && n > uint64(len(f.rest)) {
		f.err = fmt.Errorf("%w: length", errFrame)
	}
	if f.err != nil {
		return s
	}
	s, f.rest = f.rest[:n], f.rest[n:]
	return s
}

// values reads a count and as many values.
func values(f *fields[string]) []protocol.Value {
	n := f.number()
	if f.err == nil && n > uint64(len(f.rest)) {
		f.err = fmt.Errorf("%w: count", errFrame)
	}
	if f.err != nil {
		return nil
	}
	vs := make([]protocol.Value, n)
	for i := range vs {
		if vs[i], f.rest, f.err = protocol.DecodeValue(f.rest); f.err != nil {
			return nil
		}
	}
	return vs
}

func appendValues(dst []byte, vs []protocol.Value) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(vs)))
	for _, v := range vs {
		dst = protocol.AppendValue(dst, v)
	}
	return dst
}

// greeting is the first message of either side.
type greeting struct {
	version    uint64
	verdict    uint64 // of a welcome
	name       string
	epoch      uint64 // of a hello
	clientAddr string
	features   uint64 // of a hello
}

func (g greeting) append(dst []byte, kind byte) []byte {
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, g.version)
	if kind == kindWelcome {
		dst = binary.AppendUvarint(dst, g.verdict)
	}
	dst = appendBytes(dst, g.name)
	if kind == kindHello {
		dst = binary.AppendUvarint(dst, g.epoch)
		return binary.AppendUvarint(appendBytes(dst, g.clientAddr), g.features)
	}
	return appendBytes(dst, g.clientAddr)
}

// readGreeting reads a frame that holds a greeting of the given kind. Fields
// that a later version adds at the end are passed over.
func readGreeting(r *bufio.Reader, kind byte) (g greeting, err error) {
	frame, err := readFrame(r, nil, greetingLimit)
	if err != nil {
		return g, err
	}
	return parseGreeting(frame, kind)
}

func parseGreeting(frame []byte, kind byte) (g greeting, err error) {
	f := fields[string]{rest: string(frame)}
	if !f.more() || f.kind() != kind {
		return g, fmt.Errorf("%w: greeting", errFrame)
	}
	g.version = f.number()
	if kind == kindWelcome {
		g.verdict = f.number()
	}
	g.name = f.bytes()
	if kind == kindHello {
		g.epoch = f.number()
	}
	g.clientAddr = f.bytes()
	if kind == kindHello && f.more() {
		g.features = f.number()
	}
	return g, f.err
}
