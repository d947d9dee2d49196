package raftnode

import (
	"encoding/binary"

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

// candidate is a node that may be elected.
type candidate struct {
	id           string
	length       uint64 // of the candidate's log
	applied      uint64 // how much of the log, as far as the node knows
	appliedKnown bool   // older releases leave applied out
}

// deadLeader is a leadership whose leader's process is gone. The zero value is none.
type deadLeader struct {
	leader string
	term   uint64
}
