package replica

import "github.com/holdfast/holdfast/server/forward"

// source holds batches that wait for the leader, in order: this node's own, or other nodes'.
type source interface {
	// waiting returns what the leader finds to take. It admits large batches whose work fits into room; with any, one in
	// any case.
	waiting(l *leaderTerm, room int64, any bool) forward.Span
	// scan shows the leader the batches with these numbers, until see returns false.
	scan(l *leaderTerm, from, until uint64, see func(*forward.Batch) bool)
	// take moves batches up to number until to the leader, until visit returns false: that batch
	// stays.
	take(l *leaderTerm, until uint64, visit func(*forward.Batch) bool)
}

// own are this node's batches.
type own struct{ batches *queue }

func (s own) waiting(l *leaderTerm, room int64, any bool) forward.Span {
	return s.batches.waiting(l, room, any)
}

func (s own) scan(l *leaderTerm, from, until uint64, see func(*forward.Batch) bool) {
	s.batches.scan(l, from, until, see)
}

func (s own) take(l *leaderTerm, until uint64, visit func(*forward.Batch) bool) {
	s.batches.take(l, until, visit)
}

// forwarded are other nodes' batches.
type forwarded struct{ queue *forward.Receiver }

func (s forwarded) waiting(l *leaderTerm, room int64, any bool) forward.Span {
	return s.queue.Waiting(l.term, room, any)
}

func (s forwarded) scan(l *leaderTerm, from, until uint64, see func(*forward.Batch) bool) {
	s.queue.Scan(l.term, from, until, see)
}

func (s forwarded) take(l *leaderTerm, until uint64, visit func(*forward.Batch) bool) {
	s.queue.Take(l.term, until, visit)
}
