package replica

import "github.com/holdfast/holdfast/server/forward"

// source has batches that wait for the leader, in order: those of this node, or those of other nodes.
type source interface {
	// waiting returns the batches that the leader can take. It admits large batches whose work fits into room. If any is
	// set, it admits one in any case.
	waiting(l *leaderTerm, room int64, any bool) forward.Span
	// scan passes the batches with these numbers to see, until see returns false.
	scan(l *leaderTerm, from, until uint64, see func(*forward.Batch) bool)
	// take passes batches below the number until to visit, until visit returns false for a batch, which stays.
	take(l *leaderTerm, until uint64, visit func(*forward.Batch) bool)
}

// own has this node's batches.
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

// forwarded has other nodes' batches.
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
