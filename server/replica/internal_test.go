package replica

import (
	"bufio"
	"bytes"
	"context"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
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
	require.Equal(t, int64(1501), reading()[0], "and it never goes back")
}

func TestTableKeepsOrder(t *testing.T) {
	table := newTable(Limits{PendingBatches: math.MaxInt, PendingBytes: math.MaxInt}, func() {})
	const batches = 300 // more than the ring has at first
	answered := make(chan uint64, batches)
	for i := range batches {
		s := &slot{batch: &Batch{Body: []byte{byte(i)}, Write: true}, deadline: time.Now().Add(time.Hour), done: make(chan struct{}, 1)}
		require.NoError(t, table.add(s))
		go func() { <-s.done; answered <- s.number }()
	}
	taken := func(consumer any) (ns []uint64) {
		table.take(consumer, math.MaxUint64, func(low, n uint64, u *Batch) bool {
			require.LessOrEqual(t, low, n)
			ns = append(ns, n)
			return true
		})
		return ns
	}
	wake := make(chan struct{}, 1)
	require.Empty(t, taken("a"), "nobody is attached")
	table.attach("a", wake)
	require.Len(t, taken("a"), batches)
	require.Empty(t, taken("a"))
	// All but two are answered; the next consumer gets these, in order.
	var done []completion
	for n := uint64(1); n <= batches; n++ {
		if n != 7 && n != 250 {
			done = append(done, completion{number: n})
		}
	}
	table.complete(done)
	table.complete(done) // late copies of replies
	table.attach("b", wake)
	require.Empty(t, taken("a"), "it is not the consumer any more")
	require.Equal(t, []uint64{7, 250}, taken("b"))
	require.Equal(t, uint64(7), table.base)
	table.detach("a")
	require.Equal(t, []uint64{7, 250}, table.numbers())
	table.close(protocol.ErrStopping)
	for range batches {
		<-answered
	}
	require.Equal(t, table.next, table.base)
	require.Zero(t, table.bytes)
}

// Whether a batch was handed to anybody decides what its client is told.
func TestTableOutcomes(t *testing.T) {
	table := newTable(Limits{PendingBatches: 10, PendingBytes: 100}, func() {})
	start := time.Now()
	slots := make([]*slot, 3)
	for i := range slots {
		slots[i] = &slot{batch: &Batch{Body: make([]byte, 10), Write: i != 2}, deadline: start.Add(time.Second), done: make(chan struct{}, 1)}
		require.NoError(t, table.add(slots[i]))
	}
	table.attach("consumer", make(chan struct{}, 1))
	table.take("consumer", math.MaxUint64, func(_, n uint64, _ *Batch) bool { return n != 2 })
	table.detach("consumer")
	table.expire(start.Add(time.Second - 1))
	require.Len(t, table.numbers(), 3)
	table.expire(start.Add(time.Second))
	require.True(t, table.empty())
	require.Equal(t, protocol.ErrUncertain, slots[0].err)
	require.Equal(t, protocol.ErrNoLeader, slots[1].err)
	require.Equal(t, protocol.ErrNoLeader, slots[2].err, "a read has no effect")
}

// A batch that was handed over may take effect, also when the node stops.
func TestClosedTableTellsTheTruth(t *testing.T) {
	table := newTable(Limits{PendingBatches: 10, PendingBytes: 100}, func() {})
	slots := make([]*slot, 2)
	for i := range slots {
		slots[i] = &slot{batch: &Batch{Body: []byte("x"), Write: true}, deadline: time.Now().Add(time.Hour), done: make(chan struct{}, 1)}
		require.NoError(t, table.add(slots[i]))
	}
	table.attach("consumer", make(chan struct{}, 1))
	table.take("consumer", math.MaxUint64, func(_, n uint64, _ *Batch) bool { return n == 1 })
	table.close(protocol.ErrStopping)
	require.Equal(t, protocol.ErrUncertain, slots[0].err)
	require.Equal(t, protocol.ErrStopping, slots[1].err)
}

// What waits is bounded by bytes as well as by number; one batch may always wait.
func TestTableIsBounded(t *testing.T) {
	add := func(table *table, bytes int) error {
		return table.add(&slot{batch: &Batch{Body: make([]byte, bytes)}, done: make(chan struct{}, 1)})
	}
	table := newTable(Limits{PendingBatches: 3, PendingBytes: 100}, func() {})
	require.NoError(t, add(table, 60))
	require.NoError(t, add(table, 40))
	require.Equal(t, protocol.ErrBusy, add(table, 1))
	table.complete([]completion{{number: 1}})
	require.NoError(t, add(table, 60))
	table = newTable(Limits{PendingBatches: 3, PendingBytes: 100}, func() {})
	require.NoError(t, add(table, 1000))
	require.Equal(t, protocol.ErrBusy, add(table, 1))
	table = newTable(Limits{PendingBatches: 3, PendingBytes: 100}, func() {})
	for range 3 {
		require.NoError(t, add(table, 1))
	}
	require.Equal(t, protocol.ErrBusy, add(table, 1))
}

// Replies to a node's former life are not for the present one.
func TestLinkIsOfOneLife(t *testing.T) {
	b := newInbox(&Replica{})
	in := &inbound{origin: protocol.Origin{Node: "n2", Epoch: 2}}
	b.links["n2"] = in
	require.Nil(t, b.linked(protocol.Origin{Node: "n2", Epoch: 1}))
	require.Same(t, in, b.linked(protocol.Origin{Node: "n2", Epoch: 2}))
}

// A session that is ready when its leader is not followed any more takes nothing.
func TestLateSessionIsNotAttached(t *testing.T) {
	limits := Limits{PendingBatches: 10, PendingBytes: 100}
	r := &Replica{}
	r.writes, r.reads = newTable(limits, func() {}), newTable(limits, func() {})
	l := newLink(r)
	l.follow("n2")
	require.True(t, l.attach(&session{leader: "n2"}))
	l.follow("")
	require.False(t, l.attach(&session{leader: "n2"}))
	require.Nil(t, l.session)
	l.follow("n3")
	require.False(t, l.attach(&session{leader: "n2"}))
}

func TestTableIsDrainedWhenNothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(Limits{PendingBatches: 10, PendingBytes: 100}, func() {})
		table.drained(t.Context()) // nothing waits
		for range 2 {
			go func() { _ = table.run(&Batch{Write: true}, time.Now().Add(time.Second)) }()
		}
		synctest.Wait()
		var drained atomic.Int32
		for range 2 {
			go func() { table.drained(t.Context()); drained.Add(1) }()
		}
		synctest.Wait()
		numbers := table.numbers()
		table.complete([]completion{{number: numbers[0]}})
		synctest.Wait()
		require.Zero(t, drained.Load())
		table.complete([]completion{{number: numbers[1]}})
		synctest.Wait()
		require.Equal(t, int32(2), drained.Load())

		go func() { _ = table.run(&Batch{Write: true}, time.Now().Add(time.Second)) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		table.drained(ctx)
		require.False(t, table.empty())
		table.close(protocol.ErrStopping)
	})
}

func TestFrames(t *testing.T) {
	hello := greeting{version: 1, name: "n1", epoch: 1 << 40, clientAddr: "[::1]:6379"}
	var stream []byte
	stream = append(stream, wire.Seal(hello.append(make([]byte, wire.Head), kindHello))...)
	big := bytes.Repeat([]byte("x"), 3*wire.Step)
	stream = append(stream, wire.Seal(append(make([]byte, wire.Head), big...))...)
	r := bufio.NewReader(bytes.NewReader(stream))
	got, err := readGreeting(r, kindHello)
	require.NoError(t, err)
	require.Equal(t, hello, got)
	frame, err := wire.Read(r, nil, len(big))
	require.NoError(t, err)
	require.Equal(t, big, frame)

	_, err = wire.Read(bufio.NewReader(bytes.NewReader(wire.Seal(append(make([]byte, wire.Head), big...)))), nil, len(big)-1)
	require.ErrorIs(t, err, wire.ErrCorrupt)
	_, err = readGreeting(bufio.NewReader(bytes.NewReader(stream)), kindWelcome)
	require.ErrorIs(t, err, wire.ErrCorrupt)
}

// Whatever a peer sends, reading it ends, and without a panic.
func FuzzFields(f *testing.F) {
	f.Add(wire.AppendBytes([]byte{kindWrite, 1, 1}, "body"))
	f.Add(appendValues([]byte{kindWrote, 1}, []protocol.Value{protocol.OK, protocol.Array(protocol.Integer(1))}))
	f.Fuzz(func(t *testing.T, frame []byte) {
		in := wire.Fields[string]{Rest: string(frame)}
		for in.More() {
			switch in.Kind() {
			case kindWrite:
				in.Number()
				in.Number()
				in.Bytes()
			case kindWrote:
				in.Number()
				values(&in)
			default:
				in.Number()
			}
		}
		_, _ = wire.Read(bufio.NewReader(bytes.NewReader(frame)), nil, 1<<20)
	})
}

func TestWatermark(t *testing.T) {
	var w watermark
	require.NoError(t, w.wait(0, nil, nil))
	done := make(chan error, 1)
	go func() { done <- w.wait(5, nil, nil) }()
	w.reach(3)
	w.reach(5)
	require.NoError(t, <-done)
	require.NoError(t, w.wait(4, nil, nil))
	gone := make(chan struct{})
	close(gone)
	require.ErrorIs(t, w.wait(6, gone, nil), errReroute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.wait(6, nil, ctx.Done()), errReroute)
	require.Empty(t, w.waiters)
}

// What followers had queued when a leadership ended takes no room of the next one.
func TestInboxIsEmptyWhenItOpens(t *testing.T) {
	r := &Replica{config: Config{Limits: Limits{PendingBytes: 10}}}
	r.proposer = &proposer{wake: make(chan struct{}, 1)}
	b := newInbox(r)
	for term := range uint64(3) {
		b.open(term + 1)
		conn, other := net.Pipe()
		in := &inbound{origin: protocol.Origin{Node: "n2"}, conn: conn}
		require.True(t, b.admit(in))
		require.Zero(t, b.bytes)
		require.NoError(t, b.put(in, []forwarded{{body: make([]byte, 20)}}))
		b.shut()
		require.NoError(t, other.Close())
	}
}

// A WAIT that is over makes room for another.
func TestWaitsOfALinkDoNotAddUp(t *testing.T) {
	r := &Replica{node: &raftnode.Node{}}
	in := &inbound{r: r, out: newOutbox(1<<20, false), wake: make(chan struct{}, 1)}
	for number := range uint64(3) {
		in.wait(t.Context(), number, 1, 0)
		in.parts.Wait()
		require.Zero(t, in.waits)
	}
}

// A batch that was applied before the snapshot this node installed took effect, and what it answered is unknown.
func TestSecondCopyIsUncertain(t *testing.T) {
	own := protocol.Origin{Node: "n1", Epoch: 1}
	s := sink{r: &Replica{origin: own}}
	s.Done(own, 7, nil, false)
	require.Len(t, s.own, 1)
	require.Equal(t, uint64(7), s.own[0].number)
	require.ErrorIs(t, s.own[0].err, protocol.ErrUncertain)
}

// Raft refuses entries during a transfer and tells only the future: so none may be on its way.
func TestTransferWaitsForWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Replica{}
		r.proposer = &proposer{wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
		l := &lead{gone: make(chan struct{}), landed: make(chan struct{}, 1)}
		l.inFlight.Store(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.transfer(ctx, l), context.DeadlineExceeded) // and raft, which is not there, is not asked
		require.Empty(t, r.proposer.turn)
	})
}
