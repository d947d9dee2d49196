package replica

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/invariant"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/raftnode"
)

type fakeClock struct {
	monotonic time.Duration
	wall      time.Time
}

func (c *fakeClock) Monotonic() time.Duration { return c.monotonic }
func (c *fakeClock) Wall() time.Time          { return c.wall }

func TestClusterClock(t *testing.T) {
	source := &fakeClock{monotonic: 5 * time.Hour, wall: time.UnixMilli(1_000_000)}
	c := newClusterClock(source, 300*time.Millisecond, 1000, 500)
	reading := func() [2]int64 {
		stamp, offset := c.read()
		return [2]int64{stamp, offset}
	}
	pass := func(d time.Duration) {
		source.monotonic += d
		source.wall = source.wall.Add(d)
	}
	require.Equal(t, [2]int64{1000, 999_000}, reading(), "it starts where the log was, whatever the monotonic clock says")
	pass(200 * time.Millisecond)
	require.Equal(t, [2]int64{1200, 999_000}, reading())
	pass(999 * time.Microsecond)
	require.Equal(t, [2]int64{1200, 999_000}, reading())
	pass(time.Microsecond)
	require.Equal(t, [2]int64{1201, 999_000}, reading())
	source.wall = source.wall.Add(99 * time.Millisecond)
	require.Equal(t, [2]int64{1201, 999_000}, reading(), "the wall clock may wander")
	source.wall = source.wall.Add(-300 * time.Millisecond)
	require.Equal(t, [2]int64{1201, 998_799}, reading(), "but not too far")
	pass(time.Minute)
	require.Equal(t, [2]int64{1501, 998_799 + 59_700}, reading(), "one step is capped")
	source.monotonic -= time.Minute
	require.Equal(t, int64(1501), reading()[0], "the cluster clock never decreases")
}

func TestTableKeepsOrder(t *testing.T) {
	queue := newQueue(protocol.Incarnation{}, Limits{PendingBatches: math.MaxInt, PendingBytes: math.MaxInt}, func() {})
	const batches = 300 // more than the first length of the ring
	answered := make(chan uint64, batches)
	for i := range batches {
		s := &pending{
			batch: &Batch{Body: []byte{byte(i)}, Write: true}, deadline: time.Now().Add(time.Hour),
			done: make(chan struct{}, 1),
		}
		require.NoError(t, queue.add(s))
		go func() { <-s.done; answered <- s.piece.Seq }()
	}
	taken := func(consumer any) (ns []uint64) {
		queue.take(consumer, math.MaxUint64, func(b *forward.Batch) bool {
			require.LessOrEqual(t, b.Low, b.Seq)
			ns = append(ns, b.Seq)
			return true
		})
		return ns
	}
	wake := make(chan struct{}, 1)
	require.Empty(t, taken("a"), "no link is attached")
	queue.Attach("a", wake)
	require.Len(t, taken("a"), batches)
	require.Empty(t, taken("a"))
	// All batches but two are answered. The next consumer gets these two, in order.
	var done []forward.Completion
	for n := uint64(1); n <= batches; n++ {
		if n != 7 && n != 250 {
			done = append(done, forward.Completion{Number: n})
		}
	}
	queue.Complete(done)
	queue.Complete(done) // late copies of replies
	queue.Attach("b", wake)
	require.Empty(t, taken("a"), "it is not the consumer any more")
	require.Equal(t, []uint64{7, 250}, taken("b"))
	require.Equal(t, uint64(7), queue.low)
	queue.Detach("a")
	require.Equal(t, []uint64{7, 250}, queue.numbers())
	queue.close(protocol.ErrStopping)
	for range batches {
		<-answered
	}
	require.Equal(t, queue.next, queue.low)
	require.Zero(t, queue.bytes)
}

// TestLateReply: a second reply to an answered batch completes no other batch, not even the one that has its place in
// the ring.
func TestLateReply(t *testing.T) {
	q := newQueue(protocol.Incarnation{}, Limits{PendingBatches: 10, PendingBytes: 100}, func() {})
	add := func() { require.NoError(t, q.add(&pending{batch: &Batch{Write: true}, done: make(chan struct{}, 1)})) }
	last := uint64(len(q.ring)) + 1
	for number := uint64(1); number < last; number++ {
		add()
		q.Complete([]forward.Completion{{Number: number}})
	}
	add()
	require.False(t, q.Has(1))
	q.Complete([]forward.Completion{{Number: 1}})
	require.Equal(t, []uint64{last}, q.numbers())
}

// TestTableOutcomes: a write that a consumer has taken times out with an unknown outcome. A write that no consumer has
// taken, and a read, time out with the error that nothing was applied.
func TestTableOutcomes(t *testing.T) {
	queue := newQueue(protocol.Incarnation{}, Limits{PendingBatches: 10, PendingBytes: 100}, func() {})
	start := time.Now()
	slots := make([]*pending, 3)
	for i := range slots {
		slots[i] = &pending{
			batch: &Batch{Body: make([]byte, 10), Write: i != 2}, deadline: start.Add(time.Second),
			done: make(chan struct{}, 1),
		}
		require.NoError(t, queue.add(slots[i]))
	}
	queue.Attach("consumer", make(chan struct{}, 1))
	queue.take("consumer", math.MaxUint64, func(b *forward.Batch) bool { return b.Seq != 2 })
	queue.Detach("consumer")
	queue.expire(start.Add(time.Second - 1))
	require.Len(t, queue.numbers(), 3)
	queue.expire(start.Add(time.Second))
	require.True(t, queue.empty())
	require.Equal(t, protocol.ErrUncertain, slots[0].err)
	require.Equal(t, protocol.ErrNoLeader, slots[1].err)
	require.Equal(t, protocol.ErrNoLeader, slots[2].err, "a read has no effect")
}

// TestClosedTableTellsTheTruth: when the queue is closed, a batch that a consumer has taken gets ErrUncertain, since it
// may still be applied. Other batches get the error of the close.
func TestClosedTableTellsTheTruth(t *testing.T) {
	queue := newQueue(protocol.Incarnation{}, Limits{PendingBatches: 10, PendingBytes: 100}, func() {})
	slots := make([]*pending, 2)
	for i := range slots {
		slots[i] = &pending{
			batch: &Batch{Body: []byte("x"), Write: true}, deadline: time.Now().Add(time.Hour),
			done: make(chan struct{}, 1),
		}
		require.NoError(t, queue.add(slots[i]))
	}
	queue.Attach("consumer", make(chan struct{}, 1))
	queue.take("consumer", math.MaxUint64, func(b *forward.Batch) bool { return b.Seq == 1 })
	queue.close(protocol.ErrStopping)
	require.Equal(t, protocol.ErrUncertain, slots[0].err)
	require.Equal(t, protocol.ErrStopping, slots[1].err)
}

// TestTableIsBounded: the waiting batches are bounded by number and by bytes. An empty queue takes any batch.
func TestTableIsBounded(t *testing.T) {
	add := func(queue *queue, bytes int) error {
		return queue.add(&pending{batch: &Batch{Body: make([]byte, bytes)}, done: make(chan struct{}, 1)})
	}
	queue := newQueue(protocol.Incarnation{}, Limits{PendingBatches: 3, PendingBytes: 100}, func() {})
	require.NoError(t, add(queue, 60))
	require.NoError(t, add(queue, 40))
	require.Equal(t, protocol.ErrBusy, add(queue, 1))
	queue.Complete([]forward.Completion{{Number: 1}})
	require.NoError(t, add(queue, 60))
	queue = newQueue(protocol.Incarnation{}, Limits{PendingBatches: 3, PendingBytes: 100}, func() {})
	require.NoError(t, add(queue, 1000))
	require.Equal(t, protocol.ErrBusy, add(queue, 1))
	queue = newQueue(protocol.Incarnation{}, Limits{PendingBatches: 3, PendingBytes: 100}, func() {})
	for range 3 {
		require.NoError(t, add(queue, 1))
	}
	require.Equal(t, protocol.ErrBusy, add(queue, 1))
}

func TestTableIsDrainedWhenNothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(protocol.Incarnation{}, Limits{PendingBatches: 10, PendingBytes: 100}, func() {})
		queue.drained(t.Context()) // returns at once: no batch waits
		for range 2 {
			go func() { _ = queue.run(&Batch{Write: true}, time.Now().Add(time.Second)) }()
		}
		synctest.Wait()
		var drained atomic.Int32
		for range 2 {
			go func() { queue.drained(t.Context()); drained.Add(1) }()
		}
		synctest.Wait()
		numbers := queue.numbers()
		queue.Complete([]forward.Completion{{Number: numbers[0]}})
		synctest.Wait()
		require.Zero(t, drained.Load())
		queue.Complete([]forward.Completion{{Number: numbers[1]}})
		synctest.Wait()
		require.Equal(t, int32(2), drained.Load())

		go func() { _ = queue.run(&Batch{Write: true}, time.Now().Add(time.Second)) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		queue.drained(ctx)
		require.False(t, queue.empty())
		queue.close(protocol.ErrStopping)
	})
}

// TestTimeoutsSleepUntilPoked: the goroutine parks only if there is nothing to check, both before and after it has set
// its flag. A poke wakes it if it is parked.
func TestTimeoutsSleepUntilPoked(t *testing.T) {
	for _, looks := range [][]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
		s, look := newTimeouts(), 0
		parked := s.park(func() bool {
			look++
			return looks[look-1]
		})
		require.Equal(t, looks[0] && looks[1], parked)
		s.poke()
		require.Equal(t, parked, len(s.wake) == 1, "without a timer a poke must wake it: %v", looks)
	}
}

func TestWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w watermark
		require.NoError(t, w.wait(0, nil, nil))
		over := make(chan uint64, 2)
		for _, value := range []uint64{5, 9} {
			go func() {
				require.NoError(t, w.wait(value, nil, nil))
				over <- value
			}()
		}
		for _, c := range []struct{ reach, value, over uint64 }{{3, 3, 0}, {5, 5, 5}, {4, 5, 0}, {9, 9, 9}} {
			synctest.Wait()
			w.reach(c.reach)
			synctest.Wait()
			require.Equal(t, c.value, w.load())
			if c.over > 0 {
				require.Equal(t, c.over, <-over)
			}
			require.Empty(t, over)
		}
		require.NoError(t, w.wait(8, nil, nil))
		ended := make(chan struct{})
		close(ended)
		require.ErrorIs(t, w.wait(10, ended, nil), errReroute)
		require.ErrorIs(t, w.wait(10, nil, ended), errReroute)
		require.Empty(t, w.waiters)
	})
}

// TestSecondCopyIsUncertain: a snapshot that this node has installed has the first copy of a batch. The batch took
// effect, and its reply is lost, so the second copy completes it with ErrUncertain.
func TestSecondCopyIsUncertain(t *testing.T) {
	own := protocol.Incarnation{Node: "n1", Epoch: 1}
	s := sink{writes: newQueue(own, Limits{}, nil)}
	s.Done(own, 7, nil, false)
	require.Len(t, s.own, 1)
	require.Equal(t, uint64(7), s.own[0].Number)
	require.ErrorIs(t, s.own[0].Err, protocol.ErrUncertain)
	s.committed = func() (uint64, bool) { return 0, false }
	s.touched = []*forward.Peer{{}}
	s.flush()
	require.Empty(t, s.own, "each reply is sent once")
	require.Empty(t, s.touched)
	require.Zero(t, s.own[:1][0], "a flush clears the reply")
	require.Nil(t, s.touched[:1][0])
}

// TestDetachedConsumerGetsNothing: a queue passes batches to the attached consumer alone. Detach of another consumer
// has no effect.
func TestDetachedConsumerGetsNothing(t *testing.T) {
	q := newQueue(protocol.Incarnation{}, Limits{PendingBatches: 10, PendingBytes: 100}, func() {})
	require.NoError(t, q.add(&pending{batch: &Batch{Write: true}, done: make(chan struct{}, 1)}))
	link, other := new(int), new(int)
	q.Attach(link, make(chan struct{}, 1))
	q.Detach(other)
	require.True(t, q.Has(1))
	require.False(t, q.Has(1+uint64(len(q.ring))), "another batch has the slot")
	require.Equal(t, uint64(2), q.waiting(link, 0, false).Until)
	for consumer, want := range map[any]int{link: 2, other: 0} {
		shown := 0
		q.scan(consumer, 0, math.MaxUint64, func(*forward.Batch) bool { shown++; return true })
		q.Take(consumer, func(*forward.Batch) bool { shown++; return false })
		require.Equal(t, want, shown)
	}
	q.Detach(link)
	require.Zero(t, q.waiting(link, 0, false))
}

// TestShutGateKeepsItsCallers: a caller that waits at a shut gate continues when the gate opens, even if shut is called
// again meanwhile.
func TestShutGateKeepsItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, over := newGate(), make(chan error, 1)
		go func() { over <- g.wait(t.Context()) }()
		synctest.Wait()
		g.shut()
		g.open()
		synctest.Wait()
		require.Len(t, over, 1)
		require.NoError(t, <-over)
	})
}

// TestReadThatFindsNoLeaderEnds: a read that is always rerouted returns ErrNoLeader at its deadline.
func TestReadThatFindsNoLeaderEnds(t *testing.T) {
	q := newQueue(protocol.Incarnation{}, Limits{PendingBatches: 10, PendingBytes: 100}, func() {})
	q.divert(errReroute)
	r := &reader{serving: new(atomic.Pointer[leaderTerm]), elsewhere: q}
	require.ErrorIs(t, r.read(&Batch{}, time.Now()), protocol.ErrNoLeader)
}

// TestNoReplyBeforeTheCommit: verify returns an error for replies of an entry that is not known to be committed, since
// such an entry may be lost.
func TestNoReplyBeforeTheCommit(t *testing.T) {
	own := protocol.Incarnation{Node: "n1", Epoch: 1}
	known := true
	s := sink{writes: newQueue(own, Limits{}, nil), committed: func() (uint64, bool) { return 7, known }, index: 7}
	s.Done(own, 1, nil, true)
	require.NoError(t, s.verify())
	require.NotPanics(t, s.flush)
	for _, index := range []uint64{8, 0} {
		s.index = index
		s.Done(own, 2, nil, true)
		require.ErrorContains(t, s.verify(), "committed is up to 7")
		if invariant.On {
			require.Panics(t, s.flush)
		}
	}
	known = false
	require.NoError(t, s.verify(), "the node is being opened")
}

// TestTransferWaitsForWhatIsInFlight: raft refuses entries during a transfer, and reports that only to their futures.
// So a transfer does not begin while an entry is in flight.
func TestTransferWaitsForWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Replica{}
		r.proposer = newProposer(proposerConfig{serving: &r.serving, wake: make(chan struct{}, 1)}, 1<<20, 0)
		l := &leaderTerm{gone: make(chan struct{}), landed: make(chan struct{}, 1)}
		l.inFlight.Store(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.transfer(ctx, l, ""), context.DeadlineExceeded) // there is no raft node: to call it would panic
		require.Empty(t, r.proposer.held)
	})
}

// TestTakeoverIsRequestedOnce: a leader does not ask the other voters to take over while an earlier request is under
// way.
func TestTakeoverIsRequestedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Replica{}
		r.asking.Store(true)
		r.giveUp(&leaderTerm{}, time.Minute) // there is no raft node: to ask would panic
		ls := newLeadership(leadershipConfig{
			askOthers: r.askOthers, event: func(Event) {},
			toLeader:      forward.NewClient(forward.ClientConfig{}),
			fromFollowers: forward.NewReceiver(forward.ReceiverConfig{}),
		})
		ls.decline(3)
		synctest.Wait()
		require.True(t, r.asking.Load())
	})
}

// preparing is a state machine that records the calls of Prepare and Apply.
type preparing struct {
	fsm.Machine
	calls []string
}

func (m *preparing) Prepare([]byte) { m.calls = append(m.calls, "prepare") }

func (m *preparing) Apply([]byte, fsm.Sink) error {
	m.calls = append(m.calls, "apply")
	return nil
}

// TestEntriesArePrepared: an entry with a large source of a script is prepared, which compiles the source, before it is
// applied. Other entries are not.
func TestEntriesArePrepared(t *testing.T) {
	m := &preparing{Machine: fsm.New()}
	s := &state{machine: m, stateHooks: stateHooks{entered: func() {}, landed: func(uint64) {}}}
	entries := newEntryBuilder(1 << 20)
	for i, hints := range []protocol.Hints{0, protocol.LargeScript, protocol.CreateIfAbsent | protocol.MayWait} {
		entries.begin(protocol.EntryVersion, 0, 0, protocol.EntryLimits{})
		entries.append(&forward.Batch{Hints: hints})
		entries.append(&forward.Batch{})
		entry, flags := entries.end()
		require.NoError(t, s.Apply(raftnode.Entry{Index: uint64(i + 1), Term: 1, Data: entry, Flags: flags}))
	}
	require.Equal(t, []string{"apply", "prepare", "apply", "apply"}, m.calls)
}

// TestRefusalsAreNotWokenForLongAgo: the proposer is woken at the end of the delay of refusals, unless an entry was
// proposed before.
func TestRefusalsAreNotWokenForLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		d := newRefusalDelay(nil, 10*time.Millisecond, wake)
		l := &leaderTerm{}
		woken := func() bool {
			time.Sleep(time.Second)
			synctest.Wait()
			select {
			case <-wake:
				return true
			default:
				return false
			}
		}
		for range 2 {
			d.land(l)
			d.propose(true)
			d.land(l)
			require.Equal(t, d.delay, d.left())
			d.hold()
			d.propose(true)
			require.False(t, woken())
			d.land(l)
			d.hold()
			time.Sleep(5 * time.Millisecond)
			d.hold()
			require.True(t, woken())
			require.True(t, d.holds, "until something is proposed")
			d.propose(false)
			require.False(t, d.holds)
		}
		require.False(t, woken())
	})
}

// TestAddressesStayWithTheMembers: a change of the configuration keeps what is known of members that stay, and drops
// what is known of members that leave.
func TestAddressesStayWithTheMembers(t *testing.T) {
	var a addresses
	conf := func(ids ...string) members.Configuration {
		var all []members.Member
		for _, id := range ids {
			all = append(all, members.Member{ID: id, Addr: id + ":1", Voter: true})
		}
		return members.NewConfiguration(1, all...)
	}
	self := Member{
		ID: "n1", ClientAddr: "one", SentinelAddr: "guard", Release: "r1", NewestVersion: 7, HoldVersion: 6,
	}
	a.follow(conf("n1", "n2", "n3"), self)
	a.set("n2", forward.About{ClientAddr: "two"})
	a.set("n2", forward.About{})
	a.set("n2", forward.About{ClientAddr: "two", SentinelAddr: "sentinel"})
	a.set("n3", forward.About{ClientAddr: "three"})
	a.setRelease("n2", "r2")
	a.setVersions("n2", forward.About{NewestVersion: 6, HoldVersion: 5})
	a.setProgress("n2", true, 9)
	a.setProgress("n4", true, 9) // no member, as far as this node knows
	a.follow(conf("n1", "n2"), self)
	a.follow(conf("n1", "n2", "n3"), self)
	all := a.all()
	self.Name, self.PeerAddr, self.Voter = members.Name("n1"), "n1:1", true
	require.Equal(t, self, all[0])
	require.Equal(t, []string{"one", "two", ""}, []string{all[0].ClientAddr, all[1].ClientAddr, all[2].ClientAddr})
	require.Equal(t, Member{
		ID: "n2", Name: members.Name("n2"), PeerAddr: "n2:1", ClientAddr: "two", SentinelAddr: "sentinel", Voter: true,
		Release: "r2", NewestVersion: 6, HoldVersion: 5, Silent: true, LogIndex: 9,
	}, all[1])
	named := &addresses{}
	named.follow(members.NewConfiguration(1,
		members.Member{ID: "n10@a", Addr: "n10:1"}, members.Member{ID: "n2@a", Addr: "n2:1"},
		members.Member{ID: "n1@a", Addr: "n1:1"}), Member{})
	var names []string
	for _, m := range named.all() {
		names = append(names, m.Name)
	}
	require.Equal(t, []string{"n1", "n10", "n2"}, names, "by name")
}

// TestWhoseRepliesAreWanted: the sink wants the replies of batches that a client waits for, and of this node's reads
// that must run in any case. A later incarnation of this node is reported.
func TestWhoseRepliesAreWanted(t *testing.T) {
	own := protocol.Incarnation{Node: "n1", Epoch: 5}
	other, before := protocol.Incarnation{Node: "n2", Epoch: 1}, protocol.Incarnation{Node: "n1", Epoch: 4}
	peer, superseded := new(forward.Peer), 0
	s := &sink{
		writes:  newQueue(own, Limits{PendingBatches: 9, PendingBytes: 99}, func() {}),
		lineage: incarnation.Lineage{4, 5}, superseded: func(uint64) { superseded++ },
		followers: func(o protocol.Incarnation) *forward.Peer {
			if o == other {
				return peer
			}
			return nil
		},
		runsReads: func(number uint64) bool { return number == 7 },
	}
	require.NoError(t, s.writes.add(&pending{batch: &Batch{Write: true}, done: make(chan struct{}, 1)}))
	require.True(t, s.Wanted(own, 1))
	require.Equal(t, uint64(1), s.writes.running.Load())
	require.False(t, s.Wanted(own, 2))
	require.True(t, s.Wanted(own, 7))
	require.Equal(t, uint64(7), s.writes.running.Load())
	require.True(t, s.Wanted(other, 1))
	require.Zero(t, s.writes.running.Load(), "another node's batch runs")
	require.Same(t, peer, s.peer)
	require.False(t, s.Wanted(before, 1))
	require.Zero(t, superseded)
	before.Epoch = 6
	require.False(t, s.Wanted(before, 1))
	require.Equal(t, 1, superseded, "the node's folder was put back")
}

// TestDuplicateOfAnotherNode: the second copy of another node's batch gets no reply, since the first copy had the
// replies. The second copy of an own batch is uncertain.
func TestDuplicateOfAnotherNode(t *testing.T) {
	s := &sink{writes: newQueue(protocol.Incarnation{Node: "n1", Epoch: 1}, Limits{PendingBatches: 9, PendingBytes: 99},
		func() {})}
	s.Done(protocol.Incarnation{Node: "n2", Epoch: 1}, 1, nil, false) // there is no link: to reply would panic
	require.Empty(t, s.touched)
	s.Done(s.writes.origin, 1, nil, false)
	require.ErrorIs(t, s.own[0].Err, protocol.ErrUncertain)
}

// TestAnswersThatNobodyWaitsFor: an answer wakes no link that has taken no batch. It wakes the link if more batches
// wait, since the link may take batches again.
func TestAnswersThatNobodyWaitsFor(t *testing.T) {
	q := newQueue(protocol.Incarnation{}, Limits{PendingBatches: 10, PendingBytes: 100}, func() {})
	link, wake := new(int), make(chan struct{}, 1)
	add := func() { require.NoError(t, q.add(&pending{batch: &Batch{Write: true}, done: make(chan struct{}, 1)})) }
	q.Attach(link, wake)
	add()
	<-wake
	q.answered()
	require.Empty(t, wake, "nothing was taken")
	require.True(t, q.unanswered.IsZero())
	q.Take(link, func(*forward.Batch) bool { return true })
	require.False(t, q.unanswered.IsZero())
	add()
	<-wake
	q.answered()
	require.Len(t, wake, 1)
}

// TestPartsForManyGoroutines: the race detector finds a method of a part that lacks a lock.
func TestPartsForManyGoroutines(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	conf := members.NewConfiguration(1, members.Member{ID: "n1", Addr: "n1:1", Voter: true})
	var a addresses
	a.follow(conf, Member{})
	var h health
	var ls leaders
	var w watermark
	interest := commitInterest{subscribe: func(bool) {}}
	clock, g := newClusterClock(SystemClock(), time.Second, 0, 0), newGate()
	rs := &rounds{stopped: true}
	q := newQueue(protocol.Incarnation{}, Limits{PendingBatches: 1000, PendingBytes: 1000}, func() {})
	q.Attach("consumer", make(chan struct{}, 1))
	visit := func(*forward.Batch) bool { return true }
	m := &restoring{Machine: &preparing{Machine: fsm.New()}}
	r := &Replica{machine: m, state: &state{machine: m}}
	r.state.entered, r.state.landed = func() {}, func(uint64) {}
	var calls sync.WaitGroup
	calls.Go(func() { _ = r.state.Apply(raftnode.Entry{Index: 1, Term: 1}) }) // raft applies one entry at a time
	for range 2 {
		for _, call := range []func(){
			func() { a.follow(conf, Member{}) },
			func() { a.set("n1", forward.About{ClientAddr: "x"}) },
			func() { a.all() },
			func() { h.onStatus(2, 1) },
			func() { _ = h.behind(1, time.Now()) },
			func() { ls.see("n1", []Member{{ID: "n1", ClientAddr: "x"}}) },
			func() { ls.moved([]Member{{ID: "n1", ClientAddr: "y"}}) },
			func() { clock.read() },
			func() { interest.set(&interest.parked, true) },
			func() { w.reach(1) },
			func() { w.load() },
			func() { _ = w.wait(5, nil, ended.Done()) },
			g.open,
			g.shut,
			func() { _ = g.wait(ended) },
			func() { _ = rs.confirm(time.Now()) },
			func() { rs.take() },
			func() { _ = q.add(&pending{batch: &Batch{Write: true}, done: make(chan struct{}, 1)}) },
			func() { q.Take("consumer", visit) },
			func() { q.take("consumer", 2, visit) },
			func() { q.Unanswered("consumer") },
			func() { q.waiting("consumer", 0, false) },
			func() { q.scan("consumer", 1, 2, visit) },
			func() { q.Attach("consumer", make(chan struct{}, 1)) },
			func() { q.Detach("consumer") },
			func() { q.Has(1) },
			func() { q.numbers() },
			func() { q.Complete([]forward.Completion{{Number: 1}}) },
			func() { q.each(func(*pending) error { return nil }) },
			func() { q.empty() },
			func() { q.divert(nil) },
			func() { q.drained(ended) },
			func() { _ = r.state.replace(nil, 1) },
			func() { r.Digest() },
		} {
			calls.Go(call)
		}
	}
	calls.Wait()
}

func TestReserve(t *testing.T) {
	const mega = 1 << 20
	var d disk
	judge := func(free, total, state uint64) bool {
		d.free, d.total = free*mega, total*mega
		return d.judge(state * mega)
	}
	require.False(t, judge(0, 0, 80), "unknown")
	require.False(t, judge(218, 1000, 80))
	require.Equal(t, uint64(218*mega), d.reserve)
	require.True(t, judge(217, 1000, 80))
	require.True(t, judge(218+27, 1000, 80), "it is full until there is some more")
	require.False(t, judge(218+28, 1000, 80))
	require.False(t, judge(25, 100, 0), "a small disk reserves a quarter")
	require.True(t, judge(24, 100, 0))
}

// TestAreFull: data is refused if the disk of the leader is full, or if some disk is full and fewer voters than a
// majority have room and answer.
func TestAreFull(t *testing.T) {
	for _, test := range []struct {
		members string // a letter for each, the leader first: r has room, F is full, s is silent, N is a full nonvoter
		full    bool
	}{
		{"r", false},
		{"F", true},
		{"rrr", false},
		{"Frr", true},
		{"rFr", false},
		{"rFF", true},
		{"rFs", true},
		{"rss", false},
		{"rrN", false},
		{"rNs", false},
		{"rrrFF", false},
		{"rrFFF", true},
		{"rrsFF", true},
	} {
		var all []Member
		for i, kind := range test.members {
			all = append(all, Member{
				ID: string(rune('a' + i)), Voter: kind != 'N', Silent: kind == 's', DiskFull: kind == 'F' || kind == 'N',
			})
		}
		require.Equal(t, test.full, areFull(all, "a"), test.members)
	}
	require.False(t, areFull([]Member{{ID: "a", Voter: true, Silent: true}}, "a"))
	all := []Member{
		{ID: "a", Voter: true, DiskFull: true, LogIndex: 9},
		{ID: "b", Voter: true, LogIndex: 7},
		{ID: "c", Voter: true, LogIndex: 8},
		{ID: "d", LogIndex: 9},
	}
	require.Equal(t, "c", withRoom(all, "a"))
	require.Empty(t, withRoom(append(all, Member{ID: "e", Voter: true, Silent: true}), "a"), "two of four")
	all[1].Silent = true
	require.Empty(t, withRoom(all, "a"))
}
