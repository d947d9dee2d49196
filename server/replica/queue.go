package replica

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// queue holds the batches that wait on this node, in the order of their numbers.
//
// One queue is for writes: the number is the batch's sequence in this node's session, and low is
// the session's low-water mark. Another is for reads that wait for a leader elsewhere: there the
// number only pairs replies with batches.
//
// A consumer (the proposer, or the link to the leader) takes batches between cursor and next, in
// order. A batch that was taken stays in the queue until the reply is there. When the consumer dies
// the next consumer takes the batch again: a failover rewinds the cursor, and does no more.
//
// A batch that has replies for the first requests only, because the rest was more work than the
// entry had room for, goes to the end of the queue, with what is left: see piece.go.
//
// Large batches wait in turns, without numbers, until the consumer has room for some of them: see admit. Small batches
// pass them, and are taken in the order of arrival.
//
// Invariant: low <= cursor <= next; ring holds exactly the batches with numbers, all in [low, next);
// when it holds any, one is at low.
type queue struct {
	origin               protocol.Incarnation // this node's session
	maxBatches, maxBytes int
	// inTime is how much of a batch's time must be left for another proposal.
	inTime time.Duration

	mu      sync.Mutex
	ring    []*pending // length is a power of two; a batch is at its number modulo the length
	low     uint64
	cursor  uint64
	next    uint64
	batches int // in the ring
	bytes   int // of them
	turns   turns
	// admitted is the work of the large batches in the ring, and lastAdmitted the number of the newest.
	admitted     int64
	lastAdmitted uint64
	// doubtful is the newest batch that was answered with an error after the link had taken it as a large one. While its
	// number may still be applied, no later batch of this node may pass it on the leader.
	doubtful uint64
	// consumer takes batches, and is nil while there is none. A word on wake says that there are
	// more.
	consumer any
	wake     chan<- struct{}
	// unanswered is since when the link, as consumer, has had no answer to anything that it took; zero: it waits for none.
	// It says nothing while there is no consumer.
	// Batches that run out of time answer nothing. After patience, unless it is 0, the link gets no more batches.
	unanswered time.Time
	patience   time.Duration
	// running is the number of the batch that the state machine is running or ran last; 0: another node's. That batch does
	// not run out of time: it is committed, its budget bounds the run, and its reply follows.
	running atomic.Uint64
	refuse  error // what new batches are answered, if not nil
	closed  bool  // refuse stays
	// emptied is closed when no batch waits any more; nil while no caller waits for this.
	emptied chan struct{}

	poke func() // something waits, and has a time limit
	pool sync.Pool
}

// pending is one waiting batch.
type pending struct {
	batch    *Batch
	piece    piece
	deadline time.Time
	large    bool  // it takes a turn
	waits    bool  // for its turn, without a number
	turn     int64 // see turns
	since    time.Time
	// handed is set once a consumer took the batch: from then on "surely not applied" cannot be
	// said of the batch.
	handed bool
	err    error
	done   chan struct{}
}

// maxSpan bounds next-low: a single batch that hangs must not make the ring grow for ever.
const maxSpan = 1 << 20

func newQueue(origin protocol.Incarnation, l Limits, poke func()) *queue {
	return &queue{
		origin:     origin,
		maxBatches: l.PendingBatches, maxBytes: l.PendingBytes,
		ring: make([]*pending, 64), low: 1, cursor: 1, next: 1,
		poke: poke,
		pool: sync.Pool{New: func() any { return &pending{done: make(chan struct{}, 1)} }},
	}
}

// run puts b into the queue and waits until b is answered, at the deadline at the latest.
func (q *queue) run(b *Batch, deadline time.Time) error {
	s := q.pool.Get().(*pending)
	s.batch, s.piece, s.handed, s.large, s.err, s.deadline = b, whole(b), false, false, nil, deadline
	if err := q.add(s); err != nil {
		return err
	}
	<-s.done
	err := s.err
	b.Number = s.piece.Seq // of the last piece, which was applied after the others
	s.batch, s.piece = nil, piece{}
	q.pool.Put(s)
	return err
}

func (q *queue) add(s *pending) error {
	q.mu.Lock()
	switch {
	case q.refuse != nil:
		defer q.mu.Unlock()
		return q.refuse
	case s.isLarge():
		q.turns.add(s)
	case !q.fits(s):
		q.mu.Unlock()
		return protocol.ErrBusy
	default:
		q.number(s)
	}
	wake := q.wake
	q.mu.Unlock()
	if wake != nil {
		notify(wake)
	}
	q.poke()
	return nil
}

// isLarge reports whether what is proposed of s takes a turn.
func (s *pending) isLarge() bool {
	s.large = s.piece.Work >= fsm.MuchWork && !s.batch.Duty
	return s.large
}

// fits reports whether the ring has room for s. An empty one has.
func (q *queue) fits(s *pending) bool {
	return q.batches < q.maxBatches && q.next-q.low < maxSpan &&
		(q.batches == 0 || q.bytes+len(s.batch.Body) <= q.maxBytes)
}

// admit gives numbers to the large batches whose turn it is, as far as their work fits into room; with any, to the
// first in any case. It returns their work.
func (q *queue) admit(room int64, any bool) (work int64) {
	if q.turns.empty() {
		return 0
	}
	for now := time.Now(); ; {
		s := q.turns.first(now)
		if s == nil || !q.fits(s) || work+s.piece.Work > room && !(any && work == 0) {
			return work
		}
		work += s.piece.Work
		q.turns.take(s)
		q.number(s)
		q.admitted += s.piece.Work
		q.lastAdmitted = s.piece.Seq
	}
}

// number gives s the next number, and puts it into the ring.
func (q *queue) number(s *pending) {
	if q.next-q.low == uint64(len(q.ring)) {
		q.grow()
	}
	s.piece.Origin, s.piece.Seq, s.waits = q.origin, q.next, false
	q.next++
	*q.at(s.piece.Seq) = s
	q.batches++
	q.bytes += len(s.batch.Body)
	if s.batch.OnNumber != nil && s.batch.Write {
		s.batch.OnNumber(s.piece.Seq)
	}
}

func (q *queue) at(number uint64) **pending { return &q.ring[number&uint64(len(q.ring)-1)] }

func (q *queue) grow() {
	old := q.ring
	q.ring = make([]*pending, 2*len(old))
	for n := q.low; n < q.next; n++ {
		*q.at(n) = old[n&uint64(len(old)-1)]
	}
}

// Take hands all waiting batches to consumer, see take, unless consumer gets no answers any more: what stays here is
// surely not applied, and what would stand behind lost packets might be.
func (q *queue) Take(consumer any, visit func(*forward.Batch) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumer != consumer || q.cursor == q.next && q.turns.empty() {
		return
	}
	now := time.Now()
	if q.patience > 0 && !q.unanswered.IsZero() && now.Sub(q.unanswered) >= q.patience {
		return
	}
	q.admit(2*entryWork-q.admitted, q.admitted == 0) // the present entry, and the next
	if q.takeBelow(math.MaxUint64, visit) && q.unanswered.IsZero() {
		q.unanswered = now
	}
}

// Unanswered is how long consumer, a link, has waited for an answer to anything that it took; 0: it waits for none.
func (q *queue) Unanswered(consumer any) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumer != consumer || q.unanswered.IsZero() {
		return 0
	}
	return time.Since(q.unanswered)
}

// answered notes that the link gets answers: the batch of that number, or a later one, was taken.
func (q *queue) answered() {
	switch {
	case q.unanswered.IsZero():
		return
	case q.low < q.cursor: // more was taken, and waits
		q.unanswered = time.Now()
	default:
		q.unanswered = time.Time{}
	}
	if q.wake != nil && (q.cursor < q.next || !q.turns.empty()) {
		notify(q.wake)
	}
}

// take hands the waiting batches below limit to consumer alone, in order, until visit returns false
// for a batch, which stays for the next time. visit is called while the queue is locked and must
// not keep the batch. Another consumer gets nothing.
func (q *queue) take(consumer any, limit uint64, visit func(*forward.Batch) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumer == consumer {
		q.takeBelow(limit, visit)
	}
}

// takeBelow reports whether any batch was taken.
func (q *queue) takeBelow(limit uint64, visit func(*forward.Batch) bool) (taken bool) {
	for ; q.cursor < min(limit, q.next); q.cursor++ {
		s := *q.at(q.cursor)
		if s == nil {
			continue
		}
		s.piece.Low = q.low
		s.piece.Large = s.large || q.low <= q.doubtful && q.doubtful < s.piece.Seq
		if !visit(&s.piece.Batch) {
			break
		}
		s.handed, taken = true, true
	}
	return taken
}

// waiting returns what consumer finds to take, after it has admitted large batches: see admit. While earlier ones are
// not taken it admits none.
func (q *queue) waiting(consumer any, room int64, any bool) (w forward.Span) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumer != consumer {
		return w
	}
	w.From, w.Large = q.cursor, q.next
	if q.lastAdmitted < q.cursor {
		w.Work = q.admit(room, any)
	}
	w.Until = q.next
	return w
}

// scan shows consumer the bodies of the batches with the numbers from to until that consumer would
// take, until see returns false. See is called while the queue is locked and must not keep a body.
func (q *queue) scan(consumer any, from, until uint64, see func(*forward.Batch) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumer != consumer {
		return
	}
	for n := max(from, q.cursor); n < min(until, q.next); n++ {
		if s := *q.at(n); s != nil && !see(&s.piece.Batch) {
			return
		}
	}
}

// Attach makes consumer the one that takes batches, from the first that waits.
func (q *queue) Attach(consumer any, wake chan<- struct{}) {
	q.mu.Lock()
	q.consumer, q.wake, q.cursor, q.unanswered = consumer, wake, q.low, time.Time{}
	q.mu.Unlock()
	notify(wake)
}

// Detach removes consumer, unless another consumer is attached.
func (q *queue) Detach(consumer any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumer == consumer {
		q.consumer, q.wake = nil, nil
	}
}

// divert has all that waits, and from now on all that comes, answered with err.
// A nil err ends that.
func (q *queue) divert(err error) {
	q.mu.Lock()
	if !q.closed {
		q.refuse = err
	}
	q.mu.Unlock()
	if err != nil {
		q.each(func(*pending) error { return err })
	}
}

// Has reports whether the batch still waits.
func (q *queue) Has(number uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.find(number) != nil
}

func (q *queue) find(number uint64) *pending {
	if number < q.low || number >= q.next {
		return nil
	}
	return *q.at(number)
}

// numbers returns the numbers of all batches that wait.
func (q *queue) numbers() []uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	var ns []uint64
	for n := q.low; n < q.next; n++ {
		if *q.at(n) != nil {
			ns = append(ns, n)
		}
	}
	return ns
}

// Complete answers batches, and passes over batches that no longer wait.
func (q *queue) Complete(cs []forward.Completion) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var again []*pending
	taken := false
	for i := range cs {
		taken = taken || cs[i].Number < q.cursor
		s := q.find(cs[i].Number)
		if s == nil {
			continue
		}
		if cs[i].Err == nil && !s.piece.take(s.batch, cs[i].Replies) {
			again = append(again, s)
			continue
		}
		q.finish(s, cs[i].Err)
	}
	if again != nil {
		q.again(again)
	}
	q.trim()
	if taken {
		q.answered()
	}
}

// finish takes s, which has a number, out of the queue, and answers it. The caller trims.
func (q *queue) finish(s *pending, err error) {
	if err != nil && s.handed && s.piece.Large {
		q.doubtful = max(q.doubtful, s.piece.Seq)
	}
	q.leaveRing(s)
	q.answer(s, err)
}

// leaveRing takes s out of the ring.
func (q *queue) leaveRing(s *pending) {
	*q.at(s.piece.Seq) = nil
	q.batches--
	q.bytes -= len(s.batch.Body)
	if s.large {
		q.admitted -= s.piece.Work
		if q.wake != nil && !q.turns.empty() {
			notify(q.wake)
		}
	}
}

// answer wakes the goroutine in run. s is neither in the ring nor in turns any more.
func (q *queue) answer(s *pending, err error) {
	if err != nil {
		err = s.piece.fill(s.batch, err)
	}
	if q.isEmpty() && q.emptied != nil {
		close(q.emptied)
		q.emptied = nil
	}
	s.err = err
	s.done <- struct{}{}
}

// trim restores the invariant that the batch at low waits.
func (q *queue) trim() {
	for q.low < q.next && *q.at(q.low) == nil {
		q.low++
	}
	q.cursor = max(q.cursor, q.low)
}

// each answers every waiting batch for which answer returns an error.
func (q *queue) each(answer func(s *pending) error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.turns.remove(answer) {
		q.answer(s, s.err)
	}
	for n := q.low; n < q.next; n++ {
		if s := *q.at(n); s != nil {
			if err := answer(s); err != nil {
				q.finish(s, err)
			}
		}
	}
	q.trim()
}

// expire answers what has waited for too long.
func (q *queue) expire(now time.Time) {
	q.each(func(s *pending) error {
		switch {
		case s.deadline.After(now), !s.waits && s.piece.Seq == q.running.Load():
			return nil
		case s.waits && q.consumer != nil:
			return protocol.ErrBusy
		}
		return s.outcome(protocol.ErrNoLeader)
	})
}

// empty reports whether nothing waits.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isEmpty()
}

func (q *queue) isEmpty() bool { return q.batches == 0 && q.turns.empty() }

// outcome is the answer for a batch that gets no reply: surely, when no consumer ever took it.
func (s *pending) outcome(none *protocol.Error) error {
	if s.handed && s.batch.Write {
		return protocol.ErrUncertain
	}
	return none
}

// close answers everything and refuses whatever comes.
func (q *queue) close(none *protocol.Error) {
	q.mu.Lock()
	q.refuse, q.closed = none, true
	q.mu.Unlock()
	q.each(func(s *pending) error { return s.outcome(none) })
}

// notify wakes the goroutine that listens on c, a channel with a buffer of one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// drained waits until nothing waits in the queue, or ctx ends.
func (q *queue) drained(ctx context.Context) {
	q.mu.Lock()
	if q.isEmpty() {
		q.mu.Unlock()
		return
	}
	if q.emptied == nil {
		q.emptied = make(chan struct{})
	}
	emptied := q.emptied
	q.mu.Unlock()
	select {
	case <-emptied:
	case <-ctx.Done():
	}
}

// again has the rest of ps proposed: first pieces whose turn did not come.
func (q *queue) again(ps []*pending) {
	now := time.Now()
	for _, ran := range [...]bool{false, true} {
		for i, s := range ps {
			if s != nil && s.piece.ran > 0 == ran {
				ps[i] = nil // the waiter owns a piece that has ended
				q.requeue(s, now)
			}
		}
	}
	if q.wake != nil {
		notify(q.wake)
	}
}

// requeue puts s behind all that waits, if there is time.
func (q *queue) requeue(s *pending, now time.Time) {
	switch {
	case q.refuse != nil:
		q.finish(s, q.refuse)
	case s.deadline.Sub(now) < q.inTime, q.next-q.low >= maxSpan:
		q.finish(s, protocol.ErrNoRoom)
	default:
		q.leaveRing(s)
		s.piece.next(s.batch)
		s.handed = false
		if s.isLarge() {
			q.turns.add(s)
		} else {
			q.number(s)
		}
	}
}
