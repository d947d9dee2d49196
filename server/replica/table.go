package replica

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// table holds the batches that wait on this node, in the order of their numbers.
//
// One table is for writes: the number is the batch's sequence in this node's
// session, and base is the session's low-water mark. Another is for reads that
// wait for a leader elsewhere: there the number only pairs replies with batches.
//
// A consumer (the proposer, or the link to the leader) takes batches between
// cursor and next, in order. A batch that was taken stays in the table until its
// reply is there, so that when the consumer dies the next one takes it again:
// rewind is all that a failover does.
//
// A batch that has replies for its first requests only, because the rest was more work than its
// entry had room for, goes to the end of the table, with what is left: see again.go.
//
// Invariant: base <= cursor <= next; ring holds exactly the waiting batches, all
// in [base, next); when there are any, the one at base is among them.
type table struct {
	origin               protocol.Origin // this node's session
	maxBatches, maxBytes int
	// inTime is what must be left of a batch's time for it to be proposed again.
	inTime time.Duration

	mu      sync.Mutex
	ring    []*slot // length is a power of two; a batch is at its number modulo that
	base    uint64
	cursor  uint64
	next    uint64
	batches int
	bytes   int
	// consumer takes batches; nil while there is none. wake is how it is told of more.
	consumer any
	wake     chan<- struct{}
	refuse   error // what new batches are answered, if not nil
	closed   bool  // refuse stays
	// emptied is closed when nothing waits any more; nil while nobody waits for that.
	emptied chan struct{}

	poke func() // there is something to sweep
	pool sync.Pool
}

// slot is one waiting batch.
type slot struct {
	batch    *Batch
	piece    piece
	deadline time.Time
	// handed is set once a consumer took the batch: from then on nobody can say
	// that it surely was not applied.
	handed bool
	err    error
	done   chan struct{}
}

// maxSpan bounds next-base: one batch that hangs must not make the ring grow for ever.
const maxSpan = 1 << 20

func newTable(origin protocol.Origin, l Limits, poke func()) *table {
	return &table{
		origin:     origin,
		maxBatches: l.PendingBatches, maxBytes: l.PendingBytes,
		ring: make([]*slot, 64), base: 1, cursor: 1, next: 1,
		poke: poke,
		pool: sync.Pool{New: func() any { return &slot{done: make(chan struct{}, 1)} }},
	}
}

// run puts u into the table and waits until it is answered, at the deadline if not before.
func (t *table) run(u *Batch, deadline time.Time) error {
	s := t.pool.Get().(*slot)
	s.batch, s.piece, s.handed, s.err, s.deadline = u, whole(u), false, nil, deadline
	if err := t.add(s); err != nil {
		return err
	}
	<-s.done
	err := s.err
	u.Number = s.piece.Seq // of the last piece, which was applied after the others
	s.batch, s.piece = nil, piece{}
	t.pool.Put(s)
	return err
}

func (t *table) add(s *slot) error {
	t.mu.Lock()
	switch {
	case t.refuse != nil:
		defer t.mu.Unlock()
		return t.refuse
	case t.batches >= t.maxBatches || t.next-t.base >= maxSpan,
		t.batches > 0 && t.bytes+len(s.batch.Body) > t.maxBytes:
		t.mu.Unlock()
		return protocol.ErrBusy
	}
	t.place(s)
	t.batches++
	t.bytes += len(s.batch.Body)
	wake := t.wake
	t.mu.Unlock()
	if wake != nil {
		notify(wake)
	}
	t.poke()
	return nil
}

// place gives s the next number.
func (t *table) place(s *slot) {
	if t.next-t.base == uint64(len(t.ring)) {
		t.grow()
	}
	s.piece.Origin, s.piece.Seq = t.origin, t.next
	t.next++
	*t.at(s.piece.Seq) = s
}

func (t *table) at(number uint64) **slot { return &t.ring[number&uint64(len(t.ring)-1)] }

func (t *table) grow() {
	old := t.ring
	t.ring = make([]*slot, 2*len(old))
	for n := t.base; n < t.next; n++ {
		*t.at(n) = old[n&uint64(len(old)-1)]
	}
}

// Take hands all waiting batches to consumer, see take.
func (t *table) Take(consumer any, visit func(*forward.Batch) bool) {
	t.take(consumer, math.MaxUint64, visit)
}

// take hands the waiting batches below limit to consumer alone, in order, until
// visit returns false for one: that one stays for the next time. visit is called
// while the table is locked and must not keep the batch. Another consumer gets nothing.
func (t *table) take(consumer any, limit uint64, visit func(*forward.Batch) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.consumer != consumer {
		return
	}
	for ; t.cursor < min(limit, t.next); t.cursor++ {
		s := *t.at(t.cursor)
		if s == nil {
			continue
		}
		s.piece.Low = t.base
		if !visit(&s.piece.Batch) {
			return
		}
		s.handed = true
	}
}

// waiting returns the numbers between which consumer would find something to take.
func (t *table) waiting(consumer any) (from, until uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.consumer != consumer {
		return 0, 0
	}
	return t.cursor, t.next
}

// look shows consumer the bodies of the batches with the numbers from to until that it would take,
// until see returns false. See is called while the table is locked and must not keep them.
func (t *table) look(consumer any, from, until uint64, see func(*forward.Batch) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.consumer != consumer {
		return
	}
	for n := max(from, t.cursor); n < min(until, t.next); n++ {
		if s := *t.at(n); s != nil && !see(&s.piece.Batch) {
			return
		}
	}
}

// Attach makes consumer the one that takes batches, from the first that waits.
func (t *table) Attach(consumer any, wake chan<- struct{}) {
	t.mu.Lock()
	t.consumer, t.wake, t.cursor = consumer, wake, t.base
	t.mu.Unlock()
	notify(wake)
}

// Detach removes consumer, unless another one is attached.
func (t *table) Detach(consumer any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.consumer == consumer {
		t.consumer, t.wake, t.cursor = nil, nil, t.base
	}
}

// divert has all that waits, and from now on all that comes, answered with err.
// A nil err ends that.
func (t *table) divert(err error) {
	t.mu.Lock()
	if !t.closed {
		t.refuse = err
	}
	t.mu.Unlock()
	if err != nil {
		t.each(func(*slot) error { return err })
	}
}

// Has reports whether the batch still waits.
func (t *table) Has(number uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.find(number) != nil
}

func (t *table) find(number uint64) *slot {
	if number < t.base || number >= t.next {
		return nil
	}
	return *t.at(number)
}

// numbers returns the numbers of all batches that wait.
func (t *table) numbers() []uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ns []uint64
	for n := t.base; n < t.next; n++ {
		if *t.at(n) != nil {
			ns = append(ns, n)
		}
	}
	return ns
}

// Complete answers batches; those that no longer wait are passed over.
func (t *table) Complete(cs []forward.Completion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var again []*slot
	for i := range cs {
		s := t.find(cs[i].Number)
		if s == nil {
			continue
		}
		if cs[i].Err == nil && !s.piece.take(s.batch, cs[i].Replies) {
			again = append(again, s)
			continue
		}
		t.finish(s, cs[i].Err)
	}
	if again != nil {
		t.again(again)
	}
	t.trim()
}

// finish takes s out of the table and wakes its waiter. The caller trims.
func (t *table) finish(s *slot, err error) {
	*t.at(s.piece.Seq) = nil
	if err != nil {
		err = s.piece.fill(s.batch, err)
	}
	t.batches--
	t.bytes -= len(s.batch.Body)
	if t.batches == 0 && t.emptied != nil {
		close(t.emptied)
		t.emptied = nil
	}
	s.err = err
	s.done <- struct{}{}
}

// trim restores the invariant that the batch at base waits.
func (t *table) trim() {
	for t.base < t.next && *t.at(t.base) == nil {
		t.base++
	}
	t.cursor = max(t.cursor, t.base)
}

// each answers every waiting batch for which answer returns an error.
func (t *table) each(answer func(s *slot) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := t.base; n < t.next; n++ {
		if s := *t.at(n); s != nil {
			if err := answer(s); err != nil {
				t.finish(s, err)
			}
		}
	}
	t.trim()
}

// expire answers what has waited for too long.
func (t *table) expire(now time.Time) {
	t.each(func(s *slot) error {
		if s.deadline.After(now) {
			return nil
		}
		return s.outcome(protocol.ErrNoLeader)
	})
}

// empty reports whether nothing waits.
func (t *table) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.batches == 0
}

// outcome is the answer for a batch that gets no reply: surely, when no consumer ever took it.
func (s *slot) outcome(none *protocol.Error) error {
	if s.handed && s.batch.Write {
		return protocol.ErrUncertain
	}
	return none
}

// close answers everything and refuses whatever comes.
func (t *table) close(none *protocol.Error) {
	t.mu.Lock()
	t.refuse, t.closed = none, true
	t.mu.Unlock()
	t.each(func(s *slot) error { return s.outcome(none) })
}

// notify wakes whoever listens on c, a channel with a buffer of one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// drained waits until nothing waits in the table, or ctx ends.
func (t *table) drained(ctx context.Context) {
	t.mu.Lock()
	if t.batches == 0 {
		t.mu.Unlock()
		return
	}
	if t.emptied == nil {
		t.emptied = make(chan struct{})
	}
	emptied := t.emptied
	t.mu.Unlock()
	select {
	case <-emptied:
	case <-ctx.Done():
	}
}
