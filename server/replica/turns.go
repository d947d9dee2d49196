package replica

import (
	"slices"
	"sort"
)

// turns are the large batches that wait for their turn, by weighted fair queueing (Demers, Keshav and Shenker: Analysis
// and Simulation of a Fair Queueing Algorithm, SIGCOMM 1989): each gets the turn at which it would be done if all that
// wait were served at once, in equal parts. So of batches that come together the smaller goes first, and the largest
// goes when each of the others has had as much work done.
//
// A flow there is a connection here. A connection has one batch under way, so the turn of its next batch depends on
// nothing but the round in which it comes, and nothing is kept about connections.
type turns struct {
	waiting []*pending // the next is the last
	// round is the work that each of the batches would have had by now, and rest is what is left of dividing it.
	round, rest int64
}

// add gives s its turn: behind those with the same.
func (t *turns) add(s *pending) {
	s.waits, s.turn = true, t.round+s.piece.Work
	at := sort.Search(len(t.waiting), func(i int) bool { return t.waiting[i].turn <= s.turn })
	t.waiting = slices.Insert(t.waiting, at, s)
}

// first is the batch whose turn is next, or nil.
func (t *turns) first() *pending {
	if len(t.waiting) == 0 {
		return nil
	}
	return t.waiting[len(t.waiting)-1]
}

// next takes the first out.
func (t *turns) next() {
	n := len(t.waiting)
	t.rest += t.waiting[n-1].piece.Work
	t.round += t.rest / int64(n)
	t.rest %= int64(n)
	t.waiting[n-1] = nil
	t.waiting = t.waiting[:n-1]
}

// remove takes those out for which answer returns an error, which becomes theirs.
func (t *turns) remove(answer func(*pending) error) (removed []*pending) {
	t.waiting = slices.DeleteFunc(t.waiting, func(s *pending) bool {
		if s.err = answer(s); s.err != nil {
			removed = append(removed, s)
		}
		return s.err != nil
	})
	return removed
}
