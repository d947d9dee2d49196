package fsm

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// maxSpans bounds a session's memory. A node has a few dozen batches on their
// way at once, and so a few dozen gaps; while an entry is applied a few hundred at the very
// most, as its leader may have put batches behind later ones.
const maxSpans = 4096

// session remembers which batches of one node's life were applied.
//
// A batch counts as done if its number is below floor, or in one of spans.
// Invariant: spans are ordered, do not touch, are not empty, and lie at or above floor.
type session struct {
	node  string
	epoch uint64
	floor uint64
	spans []span
}

// span is the batches from, from+1, …, until-1.
type span struct{ from, until uint64 }

// sessions is ordered by node name. There is one for every node that ever
// proposed: a handful.
type sessions []*session

func (ss sessions) find(node string) (int, bool) {
	return slices.BinarySearchFunc(ss, node, func(s *session, node string) int {
		return strings.Compare(s.node, node)
	})
}

// begin notes that batch b is about to be applied. It returns false when it must
// not be: it was before, or belongs to a former life of its node, or is one that
// its node has given up.
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
		s.epoch, s.floor, s.spans = b.Origin.Epoch, 0, nil
	}
	s.advance(b.Low)
	return s.add(b.Seq) || !appliesOnce
}

// done reports whether the batch counts as applied.
func (ss sessions) done(o protocol.Origin, seq uint64) bool {
	i, known := ss.find(o.Node)
	if !known || ss[i].epoch < o.Epoch {
		return false
	}
	return ss[i].epoch > o.Epoch || ss[i].has(seq)
}

// copy is for a snapshot: sessions change in place.
func (ss sessions) copy() sessions {
	c := make(sessions, len(ss))
	for i, s := range ss {
		d := *s
		d.spans = slices.Clone(s.spans)
		c[i] = &d
	}
	return c
}

// position is the index of the first span that ends after seq.
func (s *session) position(seq uint64) int {
	i := len(s.spans)
	for i > 0 && s.spans[i-1].until > seq {
		i-- // from the end: what arrives is almost always the newest
	}
	return i
}

func (s *session) has(seq uint64) bool {
	if seq < s.floor {
		return true
	}
	i := s.position(seq)
	return i < len(s.spans) && s.spans[i].from <= seq
}

// add notes seq and reports whether it is new.
func (s *session) add(seq uint64) bool {
	if seq < s.floor || seq == ^uint64(0) {
		return false
	}
	i := s.position(seq)
	if i < len(s.spans) && s.spans[i].from <= seq {
		return false
	}
	joinsLeft := i > 0 && s.spans[i-1].until == seq
	joinsRight := i < len(s.spans) && s.spans[i].from == seq+1
	switch {
	case joinsLeft && joinsRight:
		s.spans[i-1].until = s.spans[i].until
		s.spans = slices.Delete(s.spans, i, i+1)
	case joinsLeft:
		s.spans[i-1].until = seq + 1
	case joinsRight:
		s.spans[i].from = seq
	default:
		s.spans = slices.Insert(s.spans, i, span{seq, seq + 1})
	}
	if len(s.spans) > maxSpans {
		// Giving up the oldest gap can refuse a batch, never apply one twice.
		s.advance(s.spans[1].from)
	}
	return true
}

// advance raises the floor to low, and over what is done right above it.
func (s *session) advance(low uint64) {
	if low <= s.floor {
		return
	}
	s.floor = low
	i := 0
	for i < len(s.spans) && s.spans[i].from <= s.floor {
		s.floor = max(s.floor, s.spans[i].until)
		i++
	}
	s.spans = slices.Delete(s.spans, 0, i)
}
