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

// queue has the batches that wait on this node, in the order of their numbers.
//
// One queue is for writes: the number is the batch's sequence in this node's session, and low is the low-water mark of
// the session. Another queue is for reads that wait for another leader: there a number only pairs replies with batches.
//
// A consumer (the proposer, or the link to the leader) takes batches between cursor and next, in order. A batch stays
// in the queue until it has its reply. If the consumer dies, the next one takes the batch again: a failover only
// rewinds the cursor.
//
// If the work of a batch exceeds the room of an entry, the rest of the batch moves to the end of the queue: see
// piece.go.
//
// Large batches wait in turns, without numbers, until the consumer has room for some of them: see admit. Small batches
// pass them, and are taken in the order of arrival.
//
// Invariant: low <= cursor <= next. ring has exactly the batches with numbers, all in [low, next). If it is not empty,
// a batch is at low.
type queue struct {
	origin               protocol.Incarnation // the session of this node
	maxBatches, maxBytes int
	// inTime is the time that a batch must have left for another proposal.
	inTime time.Duration

	mu      sync.Mutex
	ring    []*pending // its length is a power of two; the index of a batch is its number modulo the length
	low     uint64
	cursor  uint64
	next    uint64
	batches int // the batches in the ring
	bytes   int // their bytes
	turns   turns
	// admitted is the work of the large batches in the ring, and lastAdmitted the number of the newest.
	admitted     int64
	lastAdmitted uint64
	// doubtful is the number of the newest batch that got an error after a consumer had taken it, and that the leader may
	// put behind later ones: a large one, or one that creates an absent key. While it may still be applied, no later batch
	// of this node may pass it.
	doubtful uint64
	// consumer takes batches. It is nil if there is none. wake signals more batches.
	consumer any
	wake     chan<- struct{}
	// unanswered is the time since which the link, as consumer, has had no answer to the batches that it took. It is zero
	// if there are none, and has no meaning without a consumer. A timeout of a batch is no answer. After patience, unless
	// that is 0, the link gets no more batches.
	unanswered time.Time
	patience   time.Duration
	// running is the number of this node's batch that the state machine is running or ran last, or 0. Such a batch does
	// not time out: it is committed, its budget bounds the run, and its reply follows.
	running atomic.Uint64
	refuse  error // the error for new batches, or nil
	closed  bool  // refuse is final
	// emptied is closed when the queue is empty. It is nil if no caller waits for that.
	emptied chan struct{}

	poke func() // called after a batch with a time limit was added
	pool sync.Pool
}

// pending is a waiting batch.
type pending struct {
	batch    *Batch
	piece    piece
	deadline time.Time
	large    bool  // the batch takes a turn
	waits    bool  // the batch waits for its turn, and has no number
	turn     int64 // see turns
	since    time.Time
	// handed is set once a consumer has taken the batch. The outcome "surely not applied" is then impossible.
	handed bool
	err    error
	done   chan struct{}
}

// maxSpan bounds next-low, so that a single batch that hangs does not make the ring grow forever.
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

// run adds b to the queue, and waits until b has replies or an error, but not after the deadline.
func (q *queue) run(b *Batch, deadline time.Time) error {
	s := q.pool.Get().(*pending)
	s.batch, s.piece, s.handed, s.large, s.err, s.deadline = b, whole(b), false, false, nil, deadline
	if err := q.add(s); err != nil {
		return err
	}
	<-s.done
	err := s.err
	b.Number = s.piece.Seq // of the last piece, which is applied last
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

// isLarge reports whether the current piece of s takes a turn.
func (s *pending) isLarge() bool {
	s.large = s.piece.Work >= fsm.MuchWork && !s.batch.Duty
	return s.large
}

// fits reports whether the ring has room for s. An empty ring has room for any batch.
func (q *queue) fits(s *pending) bool {
	return q.batches < q.maxBatches && q.next-q.low < maxSpan &&
		(q.batches == 0 || q.bytes+len(s.batch.Body) <= q.maxBytes)
}

// admit numbers the next large batches in turn, as far as their work fits into room. If any is set, the first is
// numbered in any case. admit returns their work.
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

// number gives s the next number, and adds it to the ring.
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

// Take passes all waiting batches to consumer: see take. If consumer gets no answers any more, Take passes none:
// batches that stay here are surely not applied, while the outcome of those behind lost packets would be unknown.
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
	q.admit(2*entryWork-q.admitted, q.admitted == 0) // for the present entry, and the next
	if q.takeBelow(math.MaxUint64, visit) && q.unanswered.IsZero() {
		q.unanswered = now
	}
}

// Unanswered returns how long consumer, a link, has waited for an answer to the batches that it took, or 0 if it waits
// for none.
func (q *queue) Unanswered(consumer any) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumer != consumer || q.unanswered.IsZero() {
		return 0
	}
	return time.Since(q.unanswered)
}

// answered records that the leader took the batch with this number, or a later one.
func (q *queue) answered() {
	switch {
	case q.unanswered.IsZero():
		return
	case q.low < q.cursor: // more batches were taken, and wait
		q.unanswered = time.Now()
	default:
		q.unanswered = time.Time{}
	}
	if q.wake != nil && (q.cursor < q.next || !q.turns.empty()) {
		notify(q.wake)
	}
}

// take passes the waiting batches below limit to consumer, in order, until visit returns false for a batch, which
// stays. visit is called while the queue is locked, and must not keep the batch. Any other consumer gets nothing.
func (q *queue) take(consumer any, limit uint64, visit func(*forward.Batch) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumer == consumer {
		q.takeBelow(limit, visit)
	}
}

// takeBelow reports whether it has passed on a batch.
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

// waiting returns the batches that consumer can take, after it has admitted large ones: see admit. It admits none while
// earlier ones are not taken.
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

// scan calls see with each queued batch whose number is in [from, until), while see returns true. It skips batches that
// consumer has taken, and does nothing if consumer is detached. The queue is locked meanwhile, and see must not keep a
// body.
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

// Attach sets the consumer. It takes batches from the first that waits.
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

// divert answers all waiting and new batches with err. A nil err ends that.
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

// Has reports whether the batch is waiting.
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

// numbers returns the numbers of all waiting batches.
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

// Complete answers batches. It ignores batches that do not wait any more.
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

// finish removes s, which has a number, and answers it. The caller trims.
func (q *queue) finish(s *pending, err error) {
	if err != nil && s.handed && (s.piece.Large || s.piece.Hints.Has(protocol.CreateIfAbsent)) {
		q.doubtful = max(q.doubtful, s.piece.Seq)
	}
	q.leaveRing(s)
	q.answer(s, err)
}

// leaveRing removes s from the ring.
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

// answer wakes the goroutine in run. s is in neither the ring nor turns any more.
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

// trim restores the invariant that there is a batch at low.
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

// expire answers the batches whose time limit has passed.
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

// empty reports whether no batch waits.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isEmpty()
}

func (q *queue) isEmpty() bool { return q.batches == 0 && q.turns.empty() }

// outcome returns the error for a batch without replies: ErrUncertain if it has writes and a consumer has taken it,
// otherwise none.
func (s *pending) outcome(none *protocol.Error) error {
	if s.handed && s.batch.Write {
		return protocol.ErrUncertain
	}
	return none
}

// close answers all batches, and refuses new ones.
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

// drained waits until no batch waits, or ctx ends.
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

// again proposes the rest of ps: first the pieces that were not tried.
func (q *queue) again(ps []*pending) {
	now := time.Now()
	for _, ran := range [...]bool{false, true} {
		for i, s := range ps {
			if s != nil && s.piece.ran > 0 == ran {
				ps[i] = nil // a piece that has ended belongs to the waiter
				q.requeue(s, now)
			}
		}
	}
	if q.wake != nil {
		notify(q.wake)
	}
}

// requeue moves s to the end of the queue, if there is time.
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
