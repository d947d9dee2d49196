package replica

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// ofWork returns a batch of writes whose estimated work is work.
func ofWork(name string, work int64) *Batch {
	b := numbered(name, 1)
	b.Work = work - b.estimate()
	return b
}

// TestTurns: of batches that arrive together, one with less work goes first, and equal ones go in the order of arrival.
// A later batch passes a larger one only until the larger one has had its share of turns. After patience, the oldest
// batch goes first.
func TestTurns(t *testing.T) {
	all := turns{patience: time.Hour}
	add := func(name string, work int64) {
		all.add(&pending{batch: &Batch{Body: []byte(name)}, piece: piece{Batch: forward.Batch{Work: work}}})
	}
	next := func(n int) (names string) {
		for range n {
			s := all.first(time.Now())
			require.True(t, s.waits)
			all.take(s)
			names += string(s.batch.Body)
		}
		return names
	}
	require.Nil(t, all.first(time.Now()))
	add("A", 1000)
	add("b", 100)
	add("c", 100)
	require.Equal(t, "bc", next(2))
	for range 3 { // each batch that is taken brings A nearer to its turn
		add("d", 100)
		add("e", 100)
		require.Equal(t, "de", next(2))
	}
	require.InDelta(t, 4*(100./3+100./2), all.round, 1, "what is left of a division is not lost")
	names := ""
	for !strings.Contains(names, "A") {
		add("f", 500)
		names += next(1)
		require.Less(t, len(names), 10, "A has its turn")
	}
	require.Equal(t, "fA", names)
	add("g", 1)
	removed := all.remove(func(s *pending) error {
		if string(s.batch.Body) == "g" {
			return protocol.ErrBusy
		}
		return nil
	})
	require.Len(t, removed, 1)
	require.ErrorIs(t, removed[0].err, protocol.ErrBusy)
	require.Equal(t, "f", next(1))
	require.Nil(t, all.first(time.Now()))
	add("A", 1000)
	add("B", 900)
	add("c", 100)
	require.Equal(t, "c", next(1))
	all.patience = 0 // all have waited for longer than patience
	time.Sleep(time.Nanosecond)
	add("d", 100)
	require.Equal(t, "AB", next(2), "the oldest first")
	all.patience = time.Hour
	require.Equal(t, "d", next(1))
	require.Empty(t, all.arrived)
}

// TestLargestBatchHasItsTurnInTime: many clients send large batches again and again, and another client sends a still
// larger one. It gets its replies within the time limit.
func TestLargestBatchHasItsTurnInTime(t *testing.T) {
	for name, c := range map[string]struct {
		loops     int
		each, one int64
	}{
		"2,000 commands among 1,000 pipelines of 64": {1000, 64 * (requestWork + 160), 2000 * (requestWork + 160)},
		"8 MiB among 64 pipelines of 1,000":          {64, 1000 * (requestWork + 160), 8 << 20 * byteWork},
	} {
		synctest.Test(t, func(t *testing.T) {
			limits := Limits{PendingBatches: math.MaxInt, PendingBytes: math.MaxInt}
			q := newQueue(protocol.Incarnation{}, limits, func() {})
			q.turns.patience = DefaultCommandTimeout / 4
			q.Attach("consumer", make(chan struct{}, 1))
			var refused, done, others atomic.Int64
			loop := func(work int64, count *atomic.Int64) {
				for {
					switch q.run(ofWork("", work), time.Now().Add(DefaultCommandTimeout)) {
					case nil:
						count.Add(1)
					case protocol.ErrStopping:
						return
					default:
						refused.Add(1)
					}
				}
			}
			for range c.loops {
				go loop(c.each, &others)
			}
			go loop(c.one, &done)
			for start := time.Now(); time.Since(start) < 3*time.Second; {
				synctest.Wait()
				var cs []forward.Completion
				var work int64
				q.take("consumer", q.waiting("consumer", entryWork, true).Until, func(b *forward.Batch) bool {
					cs = append(cs, forward.Completion{Number: b.Seq, Replies: places(b.Count)})
					work += b.Work
					return true
				})
				time.Sleep(time.Duration(work)) // one nanosecond for each unit of work
				q.Complete(cs)
				q.expire(time.Now())
			}
			require.Greater(t, done.Load(), int64(3), name)
			require.Zero(t, refused.Load(), name)
			q.close(protocol.ErrStopping)
		})
	}
}

// TestDutiesTakeNoTurn: a batch of the node itself goes into the next entry, whatever its size.
func TestDutiesTakeNoTurn(t *testing.T) {
	inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
		submit(ofWork("L", entryWork))
		duty := ofWork("d", entryWork)
		duty.Duty = true
		submit(duty)
		require.Equal(t, []string{"d0"}, e.taken(0, false))
		e.queue.close(protocol.ErrStopping)
	})
}

// taken returns the batches that a proposer takes for an entry. room bounds the work of the large ones. If any is set,
// the first large one is taken in any case.
func (e *entries) taken(room int64, any bool) []string {
	e.queue.waiting("consumer", room, any)
	return e.take()
}

// TestSmallBatchPassesLargeOnes: a small batch goes into the next entry, whatever waits before it. Large batches have
// their own room in that entry.
func TestSmallBatchPassesLargeOnes(t *testing.T) {
	inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
		for i := range 4 {
			submit(ofWork(fmt.Sprint("L", i), entryWork/2))
		}
		huge := submit(ofWork("H", 3*entryWork))
		script := ofWork("S", fsm.MuchWork)
		require.Less(t, len(script.Body), 100, "a script is large by what it did when it ran last")
		submit(script)
		small := submit(ofWork("s", fsm.MuchWork-1))
		require.Equal(t, []string{"s0", "S0", "L00"}, e.taken(entryWork, true), "the smaller first, as far as there is room")
		e.queue.Complete([]forward.Completion{e.ran("s", 0, 1), e.ran("S", 0, 1), e.ran("L0", 0, 1)})
		require.NoError(t, <-small)

		submit(ofWork("t", 1))
		require.Equal(t, forward.Span{From: 4, Large: 5, Until: 6, Work: entryWork / 2},
			e.queue.waiting("consumer", 0, true), "one in any case")
		submit(ofWork("u", 1))
		require.Equal(t, forward.Span{From: 4, Large: 7, Until: 7}, e.queue.waiting("consumer", entryWork, true),
			"the one before is not taken yet")
		require.Equal(t, []string{"t0", "L10", "u0"}, e.take())

		require.Equal(t, []string{"L20", "L30"}, e.taken(entryWork, false))
		require.Empty(t, e.taken(entryWork, false))
		require.Equal(t, []string{"H0"}, e.taken(entryWork, true))
		e.queue.Complete([]forward.Completion{e.ran("H", 0, 1)})
		require.NoError(t, <-huge)
		e.queue.close(protocol.ErrStopping)
	})
}

// TestLinkHasFewLargeBatches: a link takes large batches with the work of two entries at most, or a single larger one.
// Small batches pass those that wait. A large batch that is answered or times out makes room for others.
func TestLinkHasFewLargeBatches(t *testing.T) {
	inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
		wake := make(chan struct{}, 1)
		e.queue.Attach("consumer", wake)
		number := uint64(0)
		sent := func() (names []string) {
			woken(wake)
			e.queue.Take("consumer", func(b *forward.Batch) bool {
				var r protocol.Request
				_, err := protocol.NextRequest(string(b.Body), &r)
				require.NoError(t, err)
				require.Equal(t, r.Args[0] != "s", b.Large)
				names, number = append(names, r.Args[0]), b.Seq
				return true
			})
			return names
		}
		for i := range 4 {
			submit(ofWork(fmt.Sprint("L", i), entryWork))
		}
		submit(ofWork("H", 5*entryWork))
		require.Equal(t, []string{"L0", "L1"}, sent())
		submit(ofWork("s", 1))
		require.Equal(t, []string{"s"}, sent())
		require.Empty(t, sent())
		e.queue.Complete([]forward.Completion{{Number: 1, Replies: places(1)}})
		require.True(t, woken(wake))
		require.Equal(t, []string{"L2"}, sent())
		e.queue.Complete([]forward.Completion{{Number: 2, Replies: places(1)}, {Number: 3, Replies: places(1)}})
		require.Equal(t, []string{"L3"}, sent())
		time.Sleep(2 * time.Second)
		late := submit(ofWork("L5", 6*entryWork))
		require.Empty(t, sent(), "H, whose turn is next, is more than there is room for")
		time.Sleep(time.Second)
		e.queue.expire(time.Now())
		require.Empty(t, e.queue.numbers())
		require.True(t, woken(wake))
		require.Equal(t, []string{"L5"}, sent(), "H ran out of time")
		e.queue.Complete([]forward.Completion{{Number: number, Replies: places(1)}})
		require.NoError(t, <-late)
		require.Zero(t, e.queue.admitted)
	})
}

// TestEndOfAWaitForATurn: a batch that waits for its turn gets an error that says that it was not applied, whatever
// ends the wait.
func TestEndOfAWaitForATurn(t *testing.T) {
	for want, end := range map[*protocol.Error]func(q *queue){
		protocol.ErrBusy: func(q *queue) { q.expire(time.Now()) },
		protocol.ErrNoLeader: func(q *queue) {
			q.Detach("consumer")
			q.expire(time.Now())
		},
		protocol.ErrStopping: func(q *queue) { q.close(protocol.ErrStopping) },
		protocol.ErrNoRoom:   func(q *queue) { q.divert(protocol.ErrNoRoom) },
	} {
		inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
			ended := submit(ofWork("L", entryWork))
			drained := make(chan struct{})
			go func() { e.queue.drained(context.Background()); close(drained) }()
			time.Sleep(3*time.Second - 1)
			e.queue.expire(time.Now())
			require.Empty(t, ended)
			require.False(t, e.queue.empty())
			time.Sleep(time.Nanosecond)
			end(e.queue)
			require.Equal(t, want, <-ended)
			require.Equal(t, protocol.OutcomeNone, want.Outcome)
			<-drained
			require.True(t, e.queue.empty())
			require.Zero(t, e.queue.bytes)
			require.Equal(t, uint64(1), e.queue.next, "it never had a number")
		})
	}
}

// TestNothingPassesADoubtfulBatch: a large batch that timed out behind the link may still wait on the leader. No later
// batch may pass it until the low-water mark is above its number, which rules it out.
func TestNothingPassesADoubtfulBatch(t *testing.T) {
	inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
		large := func() (all []bool) {
			e.queue.Take("consumer", func(b *forward.Batch) bool {
				all = append(all, b.Large)
				return true
			})
			return all
		}
		e.hold("o")
		doubtful := submit(ofWork("L", entryWork))
		require.Equal(t, []bool{false, true}, large())
		time.Sleep(3 * time.Second)
		e.queue.expire(time.Now())
		require.Equal(t, protocol.ErrUncertain, <-doubtful)
		e.hold("p") // number 3
		behind := submit(ofWork("s", 1))
		require.Equal(t, []bool{true, true}, large())
		e.queue.Complete([]forward.Completion{{Number: 1, Replies: places(1)}})
		submit(ofWork("s", 1))
		require.Equal(t, []bool{false}, large())
		e.queue.Attach("consumer", make(chan struct{}, 1))
		require.Equal(t, []bool{false, false, false}, large(), "nor the earlier ones, for another leader")

		doubtful = submit(ofWork("L", entryWork))
		require.Equal(t, []bool{true}, large())
		time.Sleep(3 * time.Second)
		e.queue.expire(time.Now())
		require.Equal(t, protocol.ErrUncertain, <-doubtful)
		require.Equal(t, protocol.ErrUncertain, <-behind)
		first := submit(ofWork("s", 1)) // number 7; number 6 is doubtful
		require.Equal(t, []bool{true}, large())
		e.hold("q")
		time.Sleep(3 * time.Second)
		e.queue.expire(time.Now())
		require.Equal(t, protocol.ErrUncertain, <-first)
		require.Equal(t, uint64(7), e.queue.doubtful, "it is behind the large one on the leader")
		e.queue.close(protocol.ErrStopping)
	})
}

// TestDoubtfulCreateStaysBeforeLaterBatches: a SET NX that timed out behind the link may still be in the entry of its
// client's next batch, since an earlier batch of the node keeps the low-water mark below it. The SET NX stays before
// that batch.
func TestDoubtfulCreateStaysBeforeLaterBatches(t *testing.T) {
	for _, c := range []struct{ work, next int64 }{{1, 1}, {1, entryWork}, {entryWork, 1}, {entryWork, entryWork}} {
		inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
			var arrived []forward.Batch
			forwarded := func() {
				e.queue.Take("consumer", func(b *forward.Batch) bool {
					arrived = append(arrived, *b)
					return true
				})
			}
			e.hold("o")
			create := ofWork("c", c.work)
			create.Hints = protocol.CreateIfAbsent
			doubtful := submit(create)
			forwarded()
			time.Sleep(3 * time.Second)
			e.queue.expire(time.Now())
			require.Equal(t, protocol.ErrUncertain, <-doubtful)
			submit(ofWork("next", c.next))
			forwarded()
			slices.SortStableFunc(arrived, func(a, b forward.Batch) int { // in the order in which the leader takes them
				switch {
				case a.Large == b.Large:
					return 0
				case b.Large:
					return -1
				}
				return 1
			})
			b := newEntryBuilder(1 << 20)
			b.begin(protocol.EntryVersion, 0, 0, protocol.EntryLimits{})
			for i := range arrived {
				require.True(t, b.add(&arrived[i]))
			}
			entry, _ := b.end()
			require.Equal(t, []uint64{1, 2, 3}, numbersIn(t, entry), c)
			e.queue.close(protocol.ErrStopping)
		})
	}
}

// hold adds a small batch with a time limit of an hour. It keeps the low-water mark at its own number.
func (e *entries) hold(name string) {
	require.NoError(e.t, e.queue.add(&pending{
		batch: ofWork(name, 1), piece: whole(ofWork(name, 1)), deadline: time.Now().Add(time.Hour),
		done: make(chan struct{}, 1),
	}))
}

// TestEntryOfDoubtfulBatchesIsBounded: small batches that must not pass a doubtful one are marked as large. When their
// node has become the leader, they still count for the size limit of an entry.
func TestEntryOfDoubtfulBatchesIsBounded(t *testing.T) {
	inTable(t, func(e *entries, submit func(*Batch) <-chan error) {
		e.queue.maxBatches, e.queue.maxBytes = math.MaxInt, math.MaxInt
		e.hold("o")
		doubtful := submit(ofWork("L", entryWork))
		e.queue.Take("consumer", func(*forward.Batch) bool { return true })
		time.Sleep(3 * time.Second)
		e.queue.expire(time.Now())
		require.Equal(t, protocol.ErrUncertain, <-doubtful)
		const size, limit = 10_000, 50_000
		for range 20 {
			b := numbered("s", 1)
			b.Body = protocol.AppendRequest(nil, protocol.Head{}, "SET", [][]byte{[]byte("k"), make([]byte, size)})
			submit(b)
		}
		l := &leaderTerm{}
		e.queue.Attach(l, make(chan struct{}, 1))
		b := newEntryBuilder(limit)
		b.begin(protocol.EntryVersion, 0, 0, protocol.EntryLimits{})
		e.queue.take(l, e.queue.waiting(l, entryWork, true).Until, b.add)
		entry, _ := b.end()
		require.Greater(t, len(entry), limit-2*size)
		require.LessOrEqual(t, len(entry), limit)
		e.queue.close(protocol.ErrStopping)
	})
}

// TestTurnsKeepTheLimits: batches that wait for a turn do not count for the queue's limits. They get a number when the
// limits have room for them.
func TestTurnsKeepTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(protocol.Incarnation{}, Limits{PendingBatches: 2, PendingBytes: math.MaxInt}, func() {})
		q.Attach("consumer", make(chan struct{}, 1))
		for _, name := range []string{"L1", "L2", "s", "L3"} {
			work := int64(1)
			if name != "s" {
				work = fsm.MuchWork
			}
			go func() { _ = q.run(ofWork(name, work), time.Now().Add(time.Hour)) }()
			synctest.Wait()
		}
		require.Equal(t, forward.Span{From: 1, Large: 2, Until: 3, Work: fsm.MuchWork}, q.waiting("consumer", entryWork, true))
		require.ErrorIs(t, q.run(ofWork("s", 1), time.Now()), protocol.ErrBusy)
		q.take("consumer", math.MaxUint64, func(*forward.Batch) bool { return true })
		q.Complete([]forward.Completion{{Number: 1, Replies: places(1)}, {Number: 2, Replies: places(1)}})
		require.Equal(t, uint64(5), q.waiting("consumer", entryWork, true).Until)
		q.close(protocol.ErrStopping)
	})
}

// TestSmallBatchesGoBeforeLargeOnes: small batches beside much large work have an entry of their own, which is proposed
// before the entry of the large ones. So the replies to small batches do not wait for large ones. The sources take
// turns.
func TestSmallBatchesGoBeforeLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leaderTerm{clock: newClusterClock(&fakeClock{}, time.Hour, 0, 0), landed: make(chan struct{}, 1)}
		limits := Limits{PendingBatches: 99, PendingBytes: math.MaxInt}
		mine := newQueue(protocol.Incarnation{}, limits, func() {})
		others := newQueue(protocol.Incarnation{}, limits, func() {})
		var entries []string
		trip := time.Duration(0)
		p := newProposer(proposerConfig{
			serving: new(atomic.Pointer[leaderTerm]), wake: make(chan struct{}, 1),
			sources:   [2]source{own{mine}, own{others}},
			roundTrip: func() time.Duration { return trip }, diskFull: new(atomic.Bool),
			proposed: func() {}, version: func(byte) byte { return protocol.EntryVersion },
			propose: func(_ uint64, data []byte, _ ...byte) {
				entry := ""
				e, err := protocol.DecodeEntry(string(data))
				require.NoError(t, err)
				for b := (protocol.Batch{}); ; {
					more, err := e.Next(&b)
					require.NoError(t, err)
					if !more {
						break
					}
					var r protocol.Request
					_, err = protocol.NextRequest(b.Body, &r)
					require.NoError(t, err)
					entry += strings.TrimRight(r.Args[0], "-")
				}
				entries = append(entries, entry)
			},
		}, 1<<20, 0)
		l.version = protocol.EntryVersion
		p.serving.Store(l)
		for _, q := range []*queue{mine, others} {
			q.Attach(l, p.wake)
			defer q.close(protocol.ErrStopping)
		}
		add := func(q *queue, name string, work int64) {
			go func() { _ = q.run(ofWork(name, work), time.Now().Add(time.Hour)) }()
			synctest.Wait()
		}
		// step runs a step of the proposer, and returns the entries that it proposes. If land is set, they are applied
		// at once.
		step := func(land bool) string {
			entries = nil
			require.Equal(t, p.step(), entries != nil)
			for range entries {
				if land {
					p.landed(l.term)
				}
			}
			return strings.Join(entries, " ")
		}
		add(others, "L", entryWork)
		for i := range 3 {
			add(mine, fmt.Sprint("M", i), 2*entryWork)
			add(others, fmt.Sprint("O", i), 2*entryWork)
		}
		var all []string
		for i := range 8 {
			if i%3 == 0 {
				add(mine, "s", 1)
				add(others, "t", 1)
			}
			all = append(all, step(true))
		}
		require.Equal(t, []string{"ts M0", "L", "M1", "st O0", "M2", "O1", "ts O2", ""}, all)

		for range 2 {
			add(mine, "M", entryWork/8*7)
		}
		for range 9 {
			add(others, "o", entryWork/8)
		}
		for i, want := range []string{"Mo", "oooooooo", "M"} {
			require.ElementsMatch(t, []byte(want), []byte(step(true)), "entry %d: who had room first goes second", i)
		}

		add(mine, "P", apartFrom-1)
		add(mine, "s", 1)
		require.Equal(t, "sP", step(true), "little work has no entry of its own")
		add(mine, "P", apartFrom)
		add(mine, "s", 1)
		require.Equal(t, "s P", step(false))
		require.Equal(t, int64(apartFrom), l.work.Load())
		add(mine, "s", 1)
		require.Empty(t, step(true), "they are in flight")
		p.landed(l.term)
		require.Empty(t, step(true))
		p.landed(l.term)
		require.Zero(t, l.work.Load())
		require.Equal(t, "s", step(true))

		for _, q := range []*queue{mine, others} {
			add(q, "B"+strings.Repeat("-", longBytes), entryWork)
			add(mine, "s", 1)
			require.Equal(t, "s", step(false), "raft would send many bytes in one request with the small ones")
			require.Empty(t, step(true))
			add(mine, "t", 1)
			p.landed(l.term)
			require.ElementsMatch(t, []byte("Bt"), []byte(step(true)), "each batch waits once")
			add(q, "B"+strings.Repeat("-", longBytes-1000), entryWork)
			add(mine, "s", 1)
			require.Equal(t, "s B", step(true))
		}

		for want, far := range map[string]time.Duration{"XY": 20 * time.Millisecond, "X": time.Millisecond} {
			trip = far
			add(mine, "X", entryWork)
			add(mine, "Y", entryWork)
			require.Equal(t, want, step(true), "an entry that takes longer anyway has room for more")
			for step(true) != "" {
			}
		}
		trip = 20 * time.Millisecond
		for range 9 {
			add(mine, "X", entryWork)
		}
		all = nil
		for range 4 {
			add(mine, "s", 1)
			time.Sleep(2 * time.Millisecond)
			all = append(all, step(false))
		}
		require.Equal(t, []string{"s XX", "s XX", "s X", "s"}, all, "the work of a round trip and of an entry is in flight")
		for l.inFlight.Load() > 0 {
			p.landed(l.term)
		}
		require.Equal(t, "XX", step(true))
		for step(true) != "" {
		}

		add(others, "X", entryWork)
		require.Equal(t, "X", step(false))
		add(mine, "H", 2*maxEntryWork)
		all = nil
		for range 4 {
			add(others, "X", entryWork)
			add(others, "X", entryWork)
			time.Sleep(2 * time.Millisecond)
			all = append(all, step(false))
			p.landed(l.term)
		}
		require.Contains(t, all, "H", "more than the room, beside others' large work that is always in flight")
		for l.inFlight.Load() > 0 {
			p.landed(l.term)
		}
		for step(true) != "" {
		}

		name := strings.Repeat("s", aloneFrom)
		add(mine, name, 1)
		add(mine, "X", entryWork)
		require.Equal(t, name+" X", step(false))
		add(mine, "s", 1)
		time.Sleep(2 * time.Millisecond)
		require.Empty(t, step(true), "nothing follows beside an entry of many bytes")
		p.landed(l.term)
		p.landed(l.term)
		require.Equal(t, "s", step(false))
		add(mine, "s", 1)
		time.Sleep(2 * time.Millisecond)
		require.Equal(t, "s", step(true))
	})
}
