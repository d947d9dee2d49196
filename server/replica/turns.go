package replica

import (
	"slices"
	"sort"
	"time"
)

// turns has the large batches that wait for their turn, by weighted fair queueing (Demers, Keshav and Shenker: Analysis
// and Simulation of a Fair Queueing Algorithm, SIGCOMM 1989). The turn of a batch is the time at which it would be done
// if all waiting batches were served at once, in equal parts. So of batches that arrive together the smallest goes
// first, and the largest goes when each of the others has had as much work done.
//
// A flow in that paper is a connection here. A connection has one batch at a time, so the turn of its next batch
// depends only on the round in which it arrives, and nothing is recorded of connections.
//
// This order bounds no wait: while others keep arriving, a batch waits until each of them has had as much work done. So
// a batch that has waited for patience goes before all that arrived later.
type turns struct {
	patience time.Duration
	waiting  []*pending // by turn; the next is the last
	arrived  []*pending // by arrival; the oldest is the first
	// round is the work that each of the batches would have had by now. rest is the remainder of its division.
	round, rest int64
}

// add gives s its turn, after those with the same turn.
func (t *turns) add(s *pending) {
	s.waits, s.turn, s.since = true, t.round+s.piece.Work, time.Now()
	t.arrived = append(t.arrived, s)
	at := sort.Search(len(t.waiting), func(i int) bool { return t.waiting[i].turn <= s.turn })
	t.waiting = slices.Insert(t.waiting, at, s)
}

func (t *turns) empty() bool { return len(t.waiting) == 0 }

// first returns the batch that goes next, or nil.
func (t *turns) first(now time.Time) *pending {
	switch {
	case t.empty():
		return nil
	case now.Sub(t.arrived[0].since) > t.patience:
		return t.arrived[0]
	}
	return t.waiting[len(t.waiting)-1]
}

// take removes s, which is the first.
func (t *turns) take(s *pending) {
	n := int64(len(t.waiting))
	t.rest += s.piece.Work
	t.round += t.rest / n
	t.rest %= n
	t.waiting, t.arrived = without(t.waiting, s), without(t.arrived, s)
}

func without(all []*pending, s *pending) []*pending {
	i := slices.Index(all, s)
	return slices.Delete(all, i, i+1)
}

// remove removes the batches for which answer returns an error, and sets that error.
func (t *turns) remove(answer func(*pending) error) (removed []*pending) {
	t.waiting = slices.DeleteFunc(t.waiting, func(s *pending) bool {
		if s.err = answer(s); s.err != nil {
			removed = append(removed, s)
		}
		return s.err != nil
	})
	t.arrived = slices.DeleteFunc(t.arrived, func(s *pending) bool { return s.err != nil })
	return removed
}
