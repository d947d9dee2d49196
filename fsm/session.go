package fsm

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// maxRanges limits the memory of a session. A node has a few dozen batches in flight, and so a few dozen gaps. In the
// middle of an entry there are a few hundred gaps at most, since the leader may order batches after later ones.
const maxRanges = 4096

// session remembers the applied batches of an incarnation of a node: all batches below low, and the batches in the
// applied ranges.
//
// Invariant: the ranges are ordered, do not touch, are not empty, and are not below low.
type session struct {
	node    string
	epoch   uint64
	low     uint64 // the node proposes no batch below low any more: see [protocol.Batch]
	applied []appliedRange
}

// appliedRange has the batches from, from+1, …, until-1.
type appliedRange struct{ from, until uint64 }

// sessions has a session for each node that has ever proposed a batch, ordered by name.
type sessions []*session

func (ss sessions) find(node string) (int, bool) {
	return slices.BinarySearchFunc(ss, node, func(s *session, node string) int {
		return strings.Compare(s.node, node)
	})
}

// begin records that batch b is about to be applied. It returns false if b must not be applied: if b was applied
// before, if it is of an earlier incarnation of the node, or if the node has abandoned it.
func (ss *sessions) begin(b *protocol.Batch) bool {
	i, known := ss.find(b.Origin.Node)
	if !known {
		s := &session{node: strings.Clone(b.Origin.Node), epoch: b.Origin.Epoch}
		*ss = slices.Insert(*ss, i, s)
	}
	s := (*ss)[i]
	switch {
	case b.Origin.Epoch < s.epoch:
		return false
	case b.Origin.Epoch > s.epoch:
		s.epoch, s.low, s.applied = b.Origin.Epoch, 0, nil
	}
	s.advance(b.Low)
	return s.add(b.Seq)
}

// nameOf returns the name of a node, in memory that does not belong to the log entry.
func (ss sessions) nameOf(node string) string {
	if i, known := ss.find(node); known {
		return ss[i].node
	}
	return strings.Clone(node)
}

// done reports whether a batch was applied or never will be.
func (ss sessions) done(o protocol.Incarnation, seq uint64) bool {
	i, known := ss.find(o.Node)
	if !known || ss[i].epoch < o.Epoch {
		return false
	}
	return ss[i].epoch > o.Epoch || ss[i].has(seq)
}

// copy returns a copy for a snapshot, since sessions change in place.
func (ss sessions) copy() sessions {
	c := make(sessions, len(ss))
	for i, s := range ss {
		d := *s
		d.applied = slices.Clone(s.applied)
		c[i] = &d
	}
	return c
}

// position returns the index of the first range that ends after seq. It searches from the end, since most batches are
// the newest.
func (s *session) position(seq uint64) int {
	i := len(s.applied)
	for i > 0 && s.applied[i-1].until > seq {
		i--
	}
	return i
}

func (s *session) has(seq uint64) bool {
	if seq < s.low {
		return true
	}
	i := s.position(seq)
	return i < len(s.applied) && s.applied[i].from <= seq
}

// add records seq, and reports whether seq is new.
func (s *session) add(seq uint64) bool {
	if seq < s.low || seq == ^uint64(0) {
		return false
	}
	i := s.position(seq)
	if i < len(s.applied) && s.applied[i].from <= seq {
		return false
	}
	joinsLeft := i > 0 && s.applied[i-1].until == seq
	joinsRight := i < len(s.applied) && s.applied[i].from == seq+1
	switch {
	case joinsLeft && joinsRight:
		s.applied[i-1].until = s.applied[i].until
		s.applied = slices.Delete(s.applied, i, i+1)
	case joinsLeft:
		s.applied[i-1].until = seq + 1
	case joinsRight:
		s.applied[i].from = seq
	default:
		s.applied = slices.Insert(s.applied, i, appliedRange{seq, seq + 1})
	}
	if len(s.applied) > maxRanges {
		// A batch in the oldest gap is then refused.
		s.advance(s.applied[1].from)
	}
	return true
}

// advance raises s.low to low, and to the end of each range that then begins at or below s.low.
func (s *session) advance(low uint64) {
	if low <= s.low {
		return
	}
	s.low = low
	i := 0
	for i < len(s.applied) && s.applied[i].from <= s.low {
		s.low = max(s.low, s.applied[i].until)
		i++
	}
	s.applied = slices.Delete(s.applied, 0, i)
}
