package forward

import (
	"bufio"
	"encoding/binary"
	"fmt"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// The stream of a link consists of frames of package wire. A message is its kind and then its fields.
//
// The first frame of each side is its greeting:
//
//	follower  hello    version, bytes ID, epoch, bytes client address, bytes sentinel address, bytes release,
//	                   newest version of the log, held version
//	leader    welcome  version, verdict, bytes ID, bytes client address, bytes sentinel address, bytes release
//
// Then, from the follower:
//
//	write      sequence, low-water mark, hints (protocol.Hints; above its 8 bits 1 if the batch is large, and then
//	           its work), bytes body
//	read       number, count of requests, bytes body
//	wait       number, nodes wanted, milliseconds
//	subscribe  1 if this node wants commit notifications, and 2 more if its disk is nearly full (0 before the first)
//	census     number, bytes question to every node
//	report     number, bytes value: the answer to an inquiry
//
// and from the leader:
//
//	wrote      sequence, count, values (protocol.AppendValue); requests without a value were not applied
//	answer     number, count, values
//	refuse     number, outcome, bytes prefix, bytes text     (of a read)
//	waited     number, nodes
//	inquiry    number, bytes question about the follower's clients
//	status     term, commit index, count, (bytes ID, bytes client address, bytes sentinel address, 1 if silent and 2
//	           more if the disk is nearly full, log index, bytes release, newest version of the log, held version)*
//	part       kind (wrote or answer), state (more, last, dropped), number, then up to the frame's end
//
// A large wrote or answer is sent in parts, with other messages between them: its bytes after the number are split. A
// reply is dropped, and the rest of it not sent, once its deadline has passed.
//
// [ReceiverConfig.Other] handles a connection whose first frame has another kind.
//
// The leader proposes writes in the order of the stream, except that small ones pass large ones. Answers come in any
// order; a census is answered like a read. A write may get no answer: its outcome is in the follower's own log.
//
// A follower of another version is refused. Additional fields at the end of a greeting are ignored: a later build may
// announce there which messages it understands.
const linkVersion = 1

const (
	kindHello     = 'h'
	kindWelcome   = 'H'
	kindWrite     = 'w'
	kindRead      = 'r'
	kindWait      = 'n'
	kindSubscribe = 'e'
	kindCensus    = 'c'
	kindReport    = 'o'
	kindWrote     = 'W'
	kindAnswer    = 'A'
	kindRefuse    = 'E'
	kindWaited    = 'N'
	kindInquiry   = 'I'
	kindStatus    = 'C'
	kindPart      = 'P'
)

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

// packHints returns a batch's hints, size class and work as one number. An earlier release reads only the hints.
func packHints(b *Batch) uint64 {
	if !b.Large {
		return uint64(b.Hints)
	}
	return uint64(b.Work)<<9 | 1<<8 | uint64(b.Hints)
}

func unpackHints(b *Batch, n uint64) {
	b.Hints, b.Large, b.Work = protocol.Hints(n), n>>8&1 == 1, int64(n>>9)
}

// bits returns a number of two bits.
func bits(first, second bool) (n uint64) {
	if first {
		n = 1
	}
	if second {
		n |= 2
	}
	return n
}

// values reads a count and that many values.
func values(f *wire.Fields[string]) []protocol.Value {
	n := f.Number()
	if n > uint64(len(f.Rest)) { // n is 0 after an error, which stays
		f.Err = fmt.Errorf("%w: count", wire.ErrCorrupt)
	}
	if f.Err != nil {
		return nil
	}
	vs := make([]protocol.Value, n)
	for i := range vs {
		if vs[i], f.Rest, f.Err = protocol.DecodeValue(f.Rest); f.Err != nil {
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
	version uint64
	verdict uint64 // of a welcome
	id      string
	epoch   uint64 // of a hello
	about   About
}

func (g greeting) append(dst []byte, kind byte) []byte {
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, g.version)
	if kind == kindWelcome {
		dst = binary.AppendUvarint(dst, g.verdict)
	}
	dst = wire.AppendBytes(dst, g.id)
	if kind == kindHello {
		dst = binary.AppendUvarint(dst, g.epoch)
	}
	dst = wire.AppendBytes(wire.AppendBytes(dst, g.about.ClientAddr), g.about.SentinelAddr)
	dst = wire.AppendBytes(dst, g.about.Release)
	if kind == kindHello {
		dst = appendVersions(dst, &g.about)
	}
	return dst
}

func appendVersions(dst []byte, a *About) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, a.NewestVersion), a.HoldVersion)
}

// readGreeting reads a frame that holds a greeting of the given kind.
func readGreeting(r *bufio.Reader, kind byte) (g greeting, err error) {
	frame, err := wire.Read(r, nil, wire.Short)
	if err != nil {
		return g, err
	}
	return parseGreeting(frame, kind)
}

func parseGreeting(frame []byte, kind byte) (g greeting, err error) {
	f := wire.Fields[string]{Rest: string(frame)}
	if !f.More() || f.Kind() != kind {
		return g, fmt.Errorf("%w: greeting", wire.ErrCorrupt)
	}
	g.version = f.Number()
	if kind == kindWelcome {
		g.verdict = f.Number()
	}
	g.id = f.Bytes()
	if kind == kindHello {
		g.epoch = f.Number()
	}
	g.about.ClientAddr, g.about.SentinelAddr, g.about.Release = f.Bytes(), f.Bytes(), f.Bytes()
	if kind == kindHello {
		g.about.NewestVersion, g.about.HoldVersion = f.Number(), f.Number()
	}
	return g, f.Err
}
