package raftnode

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// The messages of fast failover, each alone in its frame (package wire). They travel over the stream that also carries
// clients' requests to the leader, which tells them apart by the first byte. Nodes of older releases leave out
// the last number of the answer.
//
//	question  kind, version, bytes ID, length of log, bytes leader, term, whether to nominate
//	answer    kind, whether that node agrees, length of its log, how much of it is applied
const (
	proposalKind    = 'b'
	proposalVersion = 2
)

// proposal is the question that a node asks another. The answer says whether the other node sees
// the same, and describes that node as a candidate.
type proposal struct {
	candidate
	deadLeader      // as the asking node found
	nominate   bool // send TimeoutNow to the asking node
}

func (p proposal) append(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, proposalKind), proposalVersion)
	dst = binary.AppendUvarint(wire.AppendBytes(dst, p.id), p.length)
	dst = binary.AppendUvarint(wire.AppendBytes(dst, p.leader), p.term)
	if p.nominate {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func isProposal(frame []byte) bool { return len(frame) > 0 && frame[0] == proposalKind }

// send asks a node.
func (f *fastFailover) send(ctx context.Context, id string, p proposal) (c candidate, agrees bool, err error) {
	conn, err := f.dial(ctx, id)
	if err != nil {
		return c, false, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write(wire.Seal(p.append(make([]byte, wire.Head)))); err != nil {
		return c, false, err
	}
	frame, err := wire.Read(bufio.NewReader(conn), nil, wire.Short)
	if err != nil {
		return c, false, err
	}
	in := wire.Fields[string]{Rest: string(frame)}
	if !in.More() || in.Kind() != proposalKind {
		return c, false, fmt.Errorf("%w: answer to a proposal", wire.ErrCorrupt)
	}
	agrees = in.Number() == 1
	c = candidate{id: id, length: in.Number()}
	if c.tells = in.More(); c.tells {
		c.applied = in.Number()
	}
	return c, agrees, in.Err
}

// answer takes part in another node's question.
func (f *fastFailover) answer(conn net.Conn, frame []byte) error {
	in := wire.Fields[string]{Rest: string(frame)}
	in.Kind()
	version := in.Number()
	p := proposal{candidate: candidate{id: in.Bytes(), length: in.Number()}, deadLeader: deadLeader{
		leader: in.Bytes(),
		term:   in.Number(),
	}}
	p.nominate = in.Number() == 1
	switch {
	case in.Err != nil:
		return in.Err
	case version != proposalVersion || !f.fromOther(conn, p.id):
		return fmt.Errorf("proposal of %q, version %d: not taken", p.id, version)
	}
	reply := append(make([]byte, wire.Head), proposalKind, 0)
	if dead := f.vacant(); dead == p.deadLeader && dead != (deadLeader{}) && f.configurations.view().voter {
		reply[len(reply)-1] = 1
		if p.nominate {
			_ = f.nominate(p.id) // the asking node sees whether it leads
		}
	}
	own := f.candidate()
	reply = binary.AppendUvarint(binary.AppendUvarint(reply, own.length), own.applied)
	_, err := conn.Write(wire.Seal(reply))
	return err
}

// fromOther reports whether conn comes from the other voter of that ID.
func (f *fastFailover) fromOther(conn net.Conn, id string) bool {
	return wire.MayBe(conn, id) && id != f.self && f.configurations.view().IsVoter(id)
}
