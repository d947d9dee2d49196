package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/wire"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/sessions"
)

// The tests in this file test each part of a node alone. The functions and the sources that the part uses are fakes.

// woken reports whether a signal waits in the channel wake, and takes the signal.
func woken(wake <-chan struct{}) bool {
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

func TestDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	require.Equal(t, Timing{
		Timing: raftnode.Timing{
			HeartbeatTimeout: DefaultHeartbeatTimeout, ElectionTimeout: DefaultElectionTimeout,
			LeaseTimeout: DefaultHeartbeatTimeout, CommitTimeout: DefaultCommitTimeout,
		},
		CommandTimeout: DefaultCommandTimeout, RefusalDelay: DefaultRefusalDelay, AbsentAfter: DefaultAbsentAfter,
		ClockStep: DefaultElectionTimeout,
	}, c.Timing)
	require.Equal(t, Limits{
		EntryBytes: DefaultEntryBytes, BatchBytes: DefaultBatchBytes, PendingBatches: DefaultPendingBatches,
		PendingBytes: DefaultPendingBytes, ReplyBytes: DefaultReplyBytes,
	}, c.Limits)
	require.Equal(t, SnapshotPolicy{
		SnapshotThreshold: DefaultSnapshotThreshold, SnapshotBytes: DefaultSnapshotBytes,
		SnapshotInterval: 30 * time.Second, TrailingLogs: DefaultTrailingLogs, TrailingBytes: DefaultTrailingBytes,
	}, c.SnapshotPolicy)
	for threshold, want := range map[uint64]time.Duration{
		1: time.Second / 2, 1 << 12: 1875 * time.Millisecond, 1 << 17: 30 * time.Second, math.MaxUint64: 30 * time.Second,
	} {
		require.Equal(t, want, Config{SnapshotPolicy: SnapshotPolicy{SnapshotThreshold: threshold}}.withDefaults().SnapshotInterval)
	}
	require.NotPanics(t, func() {
		c.Clock.Wall()
		c.Logger.Info("x")
		c.RaftLogger.Info("x")
		c.OnEvent(nil)
		c.OnConfiguration()
		c.OnRemoved()
		c.OnStateEvents(nil)
	})
	require.False(t, c.RunsReads(1))

	slow := Config{}
	slow.HeartbeatTimeout, slow.Limits.EntryBytes, slow.Logger = time.Hour, 7, slog.Default()
	slow.RaftLogger, slow.Clock, slow.RunsReads = hclog.Default(), &fakeClock{}, func(uint64) bool { return true }
	slow = slow.withDefaults()
	require.Equal(t, time.Hour, slow.ElectionTimeout, "no shorter than a heartbeat's")
	require.Equal(t, 7, slow.Limits.EntryBytes)
	require.Equal(t, slog.Default(), slow.Logger)
	require.Equal(t, hclog.Default(), slow.RaftLogger)
	require.Equal(t, &fakeClock{}, slow.Clock)
	require.True(t, slow.RunsReads(1))
	require.Equal(t, time.Minute, Config{Timing: Timing{
		Timing:    raftnode.Timing{HeartbeatTimeout: time.Minute},
		ClockStep: time.Minute,
	}}.withDefaults().ClockStep)
}

// TestRefusedConfigurations: the error of validate has a line for each fault of the configuration.
func TestRefusedConfigurations(t *testing.T) {
	first := members.Member{ID: "n1", Addr: "n1:1", Voter: true}
	good := Config{ID: "n1", Bootstrap: []members.Member{first}, HoldVersion: protocol.EntryVersion}.withDefaults()
	good.Stores = Stores{Log: raft.NewInmemStore(), Stable: raft.NewInmemStore(), Snapshots: raft.NewInmemSnapshotStore()}
	good.Stores.Lineage = incarnation.Lineage{}.Start(0)
	good.Peers = Peers{
		Raft: struct{ raft.StreamLayer }{}, Append: struct{ wire.Stream }{}, Forward: struct{ wire.Stream }{},
	}
	require.NoError(t, good.validate())
	without := good
	without.HoldVersion, without.Bootstrap = 0, nil
	require.NoError(t, without.validate())
	for _, c := range []struct {
		spoil func(c *Config)
		want  []string
	}{
		{func(c *Config) { c.ID, c.Bootstrap = "", nil }, []string{"ID is empty"}},
		{func(c *Config) { c.ID = "" }, []string{"ID is empty", `do not have this node, ""`}},
		{func(c *Config) { c.ID = "n2" }, []string{`do not have this node, "n2", as a voter`}},
		{func(c *Config) { c.Bootstrap = []members.Member{first, {ID: "n2"}} }, []string{"without ID or address"}},
		{func(c *Config) { c.Bootstrap = []members.Member{first, {Addr: "n2:1"}} }, []string{"without ID or address"}},
		{func(c *Config) { c.HoldVersion = protocol.EntryVersion + 1 }, []string{"no cluster of version"}},
		{func(c *Config) { c.FoundingVersion = protocol.EntryVersion + 1 }, []string{"cluster has version 2, this node knows"}},
		{func(c *Config) { c.Stores.Log = nil }, []string{"a store is missing"}},
		{func(c *Config) { c.Stores.Stable = nil }, []string{"a store is missing"}},
		{func(c *Config) { c.Stores.Snapshots = nil }, []string{"a store is missing"}},
		{func(c *Config) { c.Stores.Lineage = nil }, []string{"there is no incarnation"}},
		{func(c *Config) { c.Peers.Raft = nil }, []string{"a stream of peer connections is missing"}},
		{func(c *Config) { c.Peers.Append = nil }, []string{"a stream of peer connections is missing"}},
		{func(c *Config) { c.Peers.Forward = nil }, []string{"a stream of peer connections is missing"}},
		{func(c *Config) { c.LeaseTimeout = c.HeartbeatTimeout + 1 }, []string{"is above heartbeat"}},
		{func(c *Config) { c.ElectionTimeout = c.HeartbeatTimeout - 1 }, []string{"is below heartbeat"}},
	} {
		bad := good
		c.spoil(&bad)
		err := bad.validate()
		require.Error(t, err, c.want)
		require.Len(t, strings.Split(err.Error(), "\n"), len(c.want), err)
		for _, want := range c.want {
			require.ErrorContains(t, err, want)
		}
	}
	_, err := Open(Config{})
	require.ErrorContains(t, err, "configure replica: ID is empty")
}

// TestLeadershipBeginsAndEnds: a leadership that begins opens the gate of reads, attaches the proposer to the writes,
// and reroutes the reads that wait for another leader. Its end undoes this. A change of the leader or of a leader's
// term is reported once.
func TestLeadershipBeginsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var did []string
		note := func(format string, args ...any) { did = append(did, fmt.Sprintf(format, args...)) }
		happened := func() []string { defer func() { did = nil }(); return did }
		limits := Limits{PendingBatches: 10, PendingBytes: 100}
		newSlots := func() *queue { return newQueue(protocol.Incarnation{}, limits, func() {}) }
		serving, reads, writes := new(atomic.Pointer[leaderTerm]), newSlots(), newSlots()
		proposer, ticker := make(chan struct{}, 1), make(chan struct{}, 1)
		r := &reader{serving: serving, serves: newGate(), elsewhere: reads}
		ls := newLeadership(leadershipConfig{
			id: "n1", serving: serving, reader: r, writes: writes, proposer: proposer, ticker: ticker,
			toLeader:      forward.NewClient(forward.ClientConfig{Writes: writes, Reads: reads}),
			fromFollowers: forward.NewReceiver(forward.ReceiverConfig{}),
			version:       func() byte { return 6 },
			cluster:       func() (int64, int64) { return 7000, 0 },
			clock: func(stamp, offset int64) *clusterClock {
				return newClusterClock(&fakeClock{}, time.Second, stamp, offset)
			},
			propose: func(term uint64, version byte) { note("propose %d of version %d", term, version) },
			led:     func() { note("led") },
			changed: func(leader string, term uint64) { note("%q leads %d", leader, term) },
			event:   func(e Event) { note("%T", e) },
		})
		ls.lose()
		require.Empty(t, happened(), "a node that does not lead loses no leadership")
		for _, c := range []struct {
			leader string
			term   uint64
			want   []string
		}{
			{"", 1, nil},
			{"n2", 1, []string{"led", `"n2" leads 1`}},
			{"n2", 1, []string{"led"}},
			{"n2", 2, []string{"led", `"n2" leads 2`}},
			{"", 2, []string{`"" leads 2`}},
			{"", 3, nil},
			{"n2", 2, []string{"led", `"n2" leads 2`}},
		} {
			ls.see(c.leader, c.term)
			require.Equal(t, c.want, happened(), c)
		}

		for _, c := range []struct {
			term    uint64
			leading bool
			over    bool
		}{{4, true, false}, {4, false, true}, {5, true, true}} {
			declined := &leaderTerm{term: 4, gone: make(chan struct{})}
			ls.declined = declined
			ls.declineOver(c.term, c.leading)
			require.Equal(t, c.over, ls.declined == nil, c)
			select {
			case <-declined.gone:
				require.True(t, c.over, c)
			default:
				require.False(t, c.over, c)
			}
		}

		ls.assert(5)
		require.Equal(t, []string{"propose 5 of version 6"}, happened())
		require.Equal(t, uint64(5), ls.asserted)
		read := make(chan error, 1)
		go func() { read <- r.readOnce(&Batch{}, time.Now().Add(time.Second)) }()
		synctest.Wait()
		time.Sleep(30 * time.Millisecond)
		var took time.Duration
		ls.event = func(e Event) { took = e.(LeadershipGained).Took }
		ls.serve(5)
		require.Equal(t, 30*time.Millisecond, took, "from the election on")
		require.ErrorIs(t, <-read, errReroute, "what waits for a leader elsewhere is read here")
		require.ErrorIs(t, reads.run(&Batch{}, time.Now()), errReroute)
		require.NoError(t, r.serves.wait(t.Context()))
		l := serving.Load()
		require.Equal(t, []any{uint64(5), int64(7000), byte(6)}, []any{l.term, l.stamped, l.version})
		require.Equal(t, any(l), writes.consumer)
		require.True(t, woken(proposer))
		require.True(t, woken(ticker))
		require.Equal(t, []string{"led", `"n1" leads 5`}, happened())

		ls.event = func(e Event) { note("%+v", e) }
		ls.lose()
		require.Equal(t, []string{fmt.Sprintf("%+v", LeadershipLost{Term: 5})}, happened())
		require.Nil(t, serving.Load())
		require.Nil(t, writes.consumer)
		<-l.gone
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, r.serves.wait(ctx))
		go func() { read <- reads.run(&Batch{}, time.Now().Add(time.Second)) }()
		synctest.Wait()
		require.Empty(t, read, "reads wait for the next leader")
		reads.close(protocol.ErrStopping)
		require.ErrorIs(t, <-read, protocol.ErrStopping)
	})
}

// TestRoundsEnd: a read that waits for a leadership check when the node stops gets ErrStopping, and so does each later
// read.
func TestRoundsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := newRounds(roundsConfig{serving: new(atomic.Pointer[leaderTerm])})
		over := make(chan error, 1)
		go func() { over <- rs.confirm(time.Now().Add(time.Second)) }()
		<-rs.wake
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, rs.run(ended))
		synctest.Wait()
		require.Len(t, over, 1)
		require.Equal(t, protocol.ErrStopping, <-over)
		for range 2 {
			require.Equal(t, protocol.ErrStopping, rs.confirm(time.Now().Add(time.Second)))
		}
	})
}

// TestReadersHaveTheirDeadlines: a read gets its error at its own deadline, even if the check before its own takes
// long. A read with time left stays in its round, and gets the round's result.
func TestReadersHaveTheirDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := newRounds(roundsConfig{})
		var readers sync.WaitGroup
		start := time.Now()
		second := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
		for i := range 3 { // the checks, of ten seconds each
			time.AfterFunc(time.Duration(10*i)*time.Second+1, func() {
				r := rs.take()
				time.Sleep(time.Until(second(10*i + 10)))
				r.end(nil)
			})
		}
		for _, c := range []struct{ at, deadline, ends int }{
			{0, 11, 10}, {1, 12, 12}, {2, 13, 13}, {3, 30, 20}, {4, 9, 9}, {5, 6, 6}, {11, 15, 15}, {12, 31, 30},
		} {
			readers.Go(func() {
				time.Sleep(time.Until(second(c.at)))
				err := rs.confirm(second(c.deadline))
				require.Equal(t, second(c.ends), time.Now(), c)
				if c.ends == c.deadline {
					require.ErrorIs(t, err, protocol.ErrNoLeader, c)
				} else {
					require.NoError(t, err, c)
				}
			})
		}
		readers.Wait()
	})
}

// TestReadBringsClusterTime: a read of a key that is due requests an entry with a stamp at which the key expires. It
// waits for the entry, for the end of the leadership, or until its deadline.
func TestReadBringsClusterTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stamps watermark
		wanted := int64(0)
		l := &leaderTerm{gone: make(chan struct{})}
		r := &reader{stamps: &stamps, want: func(_ *leaderTerm, stamp int64) { wanted = stamp }}
		start := time.Now()
		require.ErrorIs(t, r.reachStamp(l, 5, start.Add(time.Second)), errReroute)
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, int64(5), wanted)
		time.AfterFunc(time.Second, func() { stamps.reach(6) })
		require.NoError(t, r.reachStamp(l, 6, time.Now().Add(time.Minute)))
		close(l.gone)
		require.ErrorIs(t, r.reachStamp(l, 7, time.Now().Add(time.Minute)), errReroute)
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

// due is a state machine that has only the methods that a ticker calls.
type due struct {
	fsm.Machine
	deadline, clock int64
	some            bool
}

func (m *due) NextDue() (int64, bool) { return m.deadline, m.some }
func (m *due) Clock() (int64, int64)  { return m.clock, 0 }

// TestTicker: the stamp that each tick requests, and how long the ticker sleeps after it.
func TestTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, m, requested := &fakeClock{}, &due{}, int64(0)
		serving := new(atomic.Pointer[leaderTerm])
		tick := newTicker(serving, m, func(_ *leaderTerm, stampMillis int64) { requested = stampMillis })
		var last time.Time
		require.Zero(t, tick.tick(&last))
		m.some, m.deadline = true, 5
		tick.rearm()
		require.False(t, woken(tick.wake), "it does not lead")
		l := &leaderTerm{clock: newClusterClock(source, 400*time.Millisecond, 0, 0)}
		serving.Store(l)
		for i, c := range []struct {
			pass      time.Duration // passes before the tick, for the clock and in virtual time
			deadline  int64         // 0: none
			applied   int64
			requested int64
			wait      time.Duration
		}{
			{0, 0, 0, 0, 0},
			{0, 10_000, 0, 0, 200 * time.Millisecond},
			{0, 200, 0, 0, 200 * time.Millisecond},
			{0, 50, 0, 0, 50 * time.Millisecond},
			{50 * time.Millisecond, 50, 0, 50, 10 * time.Millisecond},
			{9 * time.Millisecond, 50, 0, 0, 10 * time.Millisecond}, // requested 9 ms ago
			{time.Millisecond, 50, 0, 60, 10 * time.Millisecond},
			{0, 50, 59, 60, time.Millisecond}, // the entry at 59 has left ended leases
			{0, 60, 60, 0, time.Millisecond},
			{time.Second, 0, 60, 0, 0}, // the clock advances by at most 400 ms: it is 460 now
			{0, 460, 459, 460, 10 * time.Millisecond},
			{0, 460, 459, 0, 10 * time.Millisecond},
			{400 * time.Millisecond, 10_000, 0, 0, 140 * time.Millisecond},
			{140 * time.Millisecond, 10_000, 0, 1000, 200 * time.Millisecond},
			{0, 10_000, 1000, 0, 200 * time.Millisecond},
			{0, math.MaxInt64, 1000, 0, 200 * time.Millisecond},
		} {
			source.monotonic += c.pass
			time.Sleep(c.pass)
			requested, m.some, m.deadline, m.clock = 0, c.deadline != 0, c.deadline, c.applied
			require.Equal(t, c.wait, tick.tick(&last), "wait, row %d", i)
			require.Equal(t, c.requested, requested, "row %d", i)
			sleepsFor := c.deadline
			if !m.some {
				sleepsFor = math.MaxInt64
			}
			require.Equal(t, sleepsFor, tick.armed.Load(), "row %d", i)
			tick.rearm()
			require.False(t, woken(tick.wake), "nothing is earlier, row %d", i)
			m.some, m.deadline = !m.some, c.deadline-1
			tick.rearm()
			require.Equal(t, m.some, woken(tick.wake), "an earlier deadline, row %d", i)
		}
		serving.Store(nil)
		tick.tick(&last)
		require.Equal(t, int64(math.MaxInt64), tick.armed.Load())
	})
}

// TestStalls: when a proposal that hangs is reported, and when the leader gives up its leadership or serves anew.
func TestStalls(t *testing.T) {
	serving := new(atomic.Pointer[leaderTerm])
	l := &leaderTerm{term: 3}
	var did []string
	note := func(what string) { did = append(did, what) }
	sum, waits, idle := uint64(1), true, false
	s := newTimeouts()
	s.timeoutsConfig = timeoutsConfig{
		serving: serving, command: 2 * time.Second, stalledAfter: time.Second,
		stalled:        func(time.Duration) { note("stalled") },
		unacknowledged: func(uint64) (uint64, bool) { return sum, waits },
		transfer:       func() time.Duration { return time.Second },
		giveUp:         func(*leaderTerm, time.Duration) { note("given up") },
		idle:           func() bool { return idle }, restart: func() { note("restarted") },
	}
	second := func(s float64) time.Time { return time.Unix(100, 0).Add(time.Duration(s * float64(time.Second))) }
	leads := func(inFlight int32, since float64) func() {
		return func() {
			serving.Store(l)
			l.inFlight.Store(inFlight)
			l.progress.Store(second(since).UnixNano())
		}
	}
	for _, c := range []struct {
		at   float64
		then func() // runs before stall
		want string
	}{
		{0, nil, ""},
		{10, leads(0, 0), ""},
		{0.9, leads(1, 0), ""},
		{1, nil, "stalled"},
		{1.9, nil, ""},
		{2, nil, ""}, // the 2*2+1 s until the leadership is given up begin
		{5.9, nil, ""},
		{6, nil, "stalled"},
		{6.9, nil, ""},
		{7, nil, "given up"},
		{7.1, nil, ""},
		{11, nil, "stalled"},
		{12, nil, "given up"},
		{12.5, func() { sum++ }, ""},
		{17.4, nil, "stalled"},
		{17.5, nil, "given up"},
		{18, func() { waits = false }, ""},
		{22.5, nil, "stalled"},
		{29, nil, "stalled"},
		{29.5, func() { waits = true }, ""},
		{33, func() { l.term++ }, ""},
		{34.5, nil, "stalled"}, // not given up: the 5 s began again with the other term
		{38, nil, "given up"},
		{38.1, leads(1, 37.5), ""},
		{38.5, nil, "stalled"}, // a new stall, less than 5 s after the last report
		{39.3, leads(0, 38.2), ""},
		{39.4, leads(1, 38.2), "stalled"},
		{40.3, func() { idle = true }, ""},
		{42.1, nil, ""},
		{42.25, nil, "restarted"},
		{42.3, leads(0, 38.2), ""},
		{50, leads(1, 38.2), "stalled restarted"},
	} {
		if did = nil; c.then != nil {
			c.then()
		}
		s.stall(second(c.at))
		require.Equal(t, c.want, strings.Join(did, " "), "at %v s", c.at)
	}
}

// fakeSource is a source whose batches all wait. take passes them on, unless they were answered meanwhile.
type fakeSource struct {
	batches  []*forward.Batch
	answered bool
	looked   int
}

func (s *fakeSource) waiting(*leaderTerm, int64, bool) forward.Span {
	n := 1 + uint64(len(s.batches))
	return forward.Span{From: 1, Large: n, Until: n}
}

func (s *fakeSource) scan(_ *leaderTerm, from, until uint64, see func(*forward.Batch) bool) {
	for _, b := range s.batches[from-1 : until-1] {
		if s.looked++; !see(b) {
			return
		}
	}
}

func (s *fakeSource) take(_ *leaderTerm, until uint64, visit func(*forward.Batch) bool) {
	for n := uint64(1); n < until && !s.answered && len(s.batches) > 0 && visit(s.batches[0]); n++ {
		s.batches = s.batches[1:]
	}
}

func request(words ...string) *forward.Batch {
	b := &forward.Batch{Origin: protocol.Incarnation{Node: "n", Epoch: 1}, Low: 1, Seq: 1}
	b.Body, b.Count, b.Hints = protocoltest.AppendRequest(nil, 0, words...), 1, protocoltest.Hints(words...)
	return b
}

// TestProposer plays the lines of testdata/proposer.txt:
//
//	own WORDS, others WORDS   the batches of this node, and of other nodes, that wait: a is SET a v, a? is SET a v NX,
//	                          a! is SET of a large value, and a?*9 is nine batches
//	answered                  this node's batches are answered before the proposer takes them
//	serve                     this node becomes the leader, in term 3
//	step                      runs a step of the proposer, and shows the calls that it makes
//	lands TERM                an entry of that term was applied; shows the calls, and whether the proposer was woken
//	pass TIME                 time passes
//	want MILLIS               requests an entry that brings cluster time to MILLIS
//	noop yes|no               whether the machine reports batches as refused
//	common VERSION            the version that all members can use
//	trip TIME                 the round trip to the nearest majority
//	woken                     whether a signal waits for the proposer
//	looked                    how many of this node's batches were examined since the last such line
func TestProposer(t *testing.T) {
	protocoltest.Transcripts(t, "testdata/proposer.txt", func(t *testing.T, script []byte) (got []byte) {
		synctest.Test(t, func(t *testing.T) { got = protocoltest.Lines(t, script, newProposing(t).line) })
		return got
	})
}

// proposing is a proposer with fake sources and functions, and a record of the calls that it makes.
type proposing struct {
	*proposer
	t           *testing.T
	clock       *fakeClock
	l           *leaderTerm
	own, others fakeSource
	common      byte
	noop        bool
	trip        time.Duration
	did         []string
}

func newProposing(t *testing.T) *proposing {
	s := &proposing{t: t, clock: &fakeClock{monotonic: time.Hour}, noop: true, trip: raftnode.FarAway - 1}
	s.l = &leaderTerm{
		term: 3, version: protocol.OldestEntryVersion, landed: make(chan struct{}, 1),
		clock: newClusterClock(s.clock, time.Hour, 0, 0),
	}
	s.proposer = newProposer(proposerConfig{
		serving: new(atomic.Pointer[leaderTerm]), sources: [2]source{&s.own, &s.others}, wake: make(chan struct{}, 1),
		isNoop:    func(string, int64) bool { return s.noop },
		version:   func(byte) byte { return s.common },
		raised:    func(from, to byte) { s.note("version %d to %d", from, to) },
		propose:   s.noteEntry,
		proposed:  func() { s.note("first") },
		took:      func(d time.Duration) { s.note("took %v", d) },
		roundTrip: func() time.Duration { return s.trip },
		diskFull:  new(atomic.Bool),
	}, 1<<20, 10*time.Millisecond)
	return s
}

func (s *proposing) note(format string, args ...any) {
	s.did = append(s.did, fmt.Sprintf(format, args...))
}

// noteEntry records a proposed entry with the key of each batch. k*9 stands for nine batches in a row with the key k.
func (s *proposing) noteEntry(term uint64, entry []byte, _ ...byte) {
	version := entry[0]
	entry[0] = protocol.OldestEntryVersion // this release cannot decode a later version
	e, err := protocol.DecodeEntry(string(entry))
	require.NoError(s.t, err)
	var keys []string
	for b := (protocol.Batch{}); ; {
		more, err := e.Next(&b)
		require.NoError(s.t, err)
		if !more {
			break
		}
		var r protocol.Request
		_, err = protocol.NextRequest(b.Body, &r)
		require.NoError(s.t, err)
		keys = append(keys, r.Args[1])
	}
	text := ""
	for n := 0; len(keys) > 0; keys = keys[n:] {
		if n = slices.IndexFunc(keys, func(key string) bool { return key != keys[0] }); n < 0 {
			n = len(keys)
		}
		if text += " " + keys[0]; n > 1 {
			text += fmt.Sprintf("*%d", n)
		}
	}
	s.note("term %d version %d at %d:%s", term, version, e.StampMillis, text)
}

func (s *proposing) batches(words []string) *fakeSource {
	source := &fakeSource{}
	for _, word := range words {
		word, times, _ := strings.Cut(word, "*")
		n, _ := strconv.Atoi(cmp.Or(times, "1"))
		key, value := strings.TrimRight(word, "?!"), "v"
		if strings.HasSuffix(word, "!") {
			value = strings.Repeat("v", aloneFrom)
		}
		line := []string{"set", key, value}
		if strings.HasSuffix(word, "?") {
			line = append(line, "nx")
		}
		source.batches = append(source.batches, slices.Repeat([]*forward.Batch{request(line...)}, n)...)
	}
	return source
}

func (s *proposing) line(words []string) []string {
	s.did = nil
	number := func() uint64 { n, err := strconv.ParseUint(words[1], 10, 64); require.NoError(s.t, err); return n }
	duration := func() time.Duration { d, err := time.ParseDuration(words[1]); require.NoError(s.t, err); return d }
	switch words[0] {
	case "own":
		s.own = *s.batches(words[1:])
	case "others":
		s.others = *s.batches(words[1:])
	case "answered":
		s.own.answered = true
	case "serve":
		s.serving.Store(s.l)
	case "step":
		require.Equal(s.t, s.step(), s.did != nil)
	case "lands":
		s.landed(number())
		require.Equal(s.t, s.did != nil, woken(s.l.landed))
		if woken(s.wake) {
			s.note("woken")
		}
	case "pass":
		s.clock.monotonic += duration()
		time.Sleep(duration())
		synctest.Wait()
	case "want":
		s.want(s.l, int64(number()))
	case "noop":
		s.noop = words[1] == "yes"
	case "common":
		s.common = byte(number())
	case "trip":
		s.trip = duration()
	case "woken":
		s.note("%v", woken(s.wake))
	case "looked":
		s.note("%d", s.own.looked)
		s.own.looked = 0
	default:
		require.Fail(s.t, "no such line", words)
	}
	if words[0] == "step" && slices.Contains(s.did, "first") || words[0] == "lands" && len(s.did) > 1 {
		require.Equal(s.t, time.Now().UnixNano(), s.l.progress.Load(), "a stall counts from here on")
	}
	return s.did
}

// TestVersionOfTheFirstEntry: an empty log begins with the founding version. Later leaderships begin with the log's
// version.
func TestVersionOfTheFirstEntry(t *testing.T) {
	r := &Replica{machine: fsm.New()}
	r.config.FoundingVersion = protocol.EntryVersion + 1
	require.Equal(t, byte(protocol.EntryVersion+1), r.firstVersion())
	entry := protocol.NewEntry(nil, protocol.OldestEntryVersion, 1, 0, protocol.EntryLimits{}).Bytes()
	require.NoError(t, r.machine.Apply(entry, fsm.Discard{}))
	require.Equal(t, byte(protocol.OldestEntryVersion), r.firstVersion())
}

// TestCommonVersion: the newest version that all members can use and that no hold excludes, or 0 if that is not above
// the present version.
func TestCommonVersion(t *testing.T) {
	for _, c := range []struct {
		newest, hold, above byte
		usable              []uint64
		want                byte
	}{
		{1, 0, 1, []uint64{1, 1}, 0},
		{2, 0, 1, []uint64{2, 2}, 2},
		{2, 0, 1, nil, 2},
		{2, 0, 1, []uint64{2, 1}, 1},
		{3, 0, 1, []uint64{2, 3}, 2},
		{2, 0, 1, []uint64{3, 3}, 2},
		{2, 0, 1, []uint64{2, 0}, 0},
		{2, 1, 1, []uint64{2, 2}, 0},
		{3, 2, 1, []uint64{3, 3}, 2},
		{2, 0, 2, []uint64{1}, 0},
	} {
		require.Equal(t, c.want, commonVersion(c.newest, c.hold, c.above, slices.Values(c.usable)), "%v", c)
	}
}

// TestReasonsToLearnOfCommits: the node subscribes to commits while it has at least one reason.
func TestReasonsToLearnOfCommits(t *testing.T) {
	var wants bool
	c := &commitInterest{subscribe: func(yes bool) { wants = yes }}
	reasons := []*bool{&c.events, &c.parked, &c.locking}
	for i, reason := range reasons {
		c.set(reason, true)
		require.True(t, wants)
		other := reasons[(i+1)%len(reasons)]
		c.set(other, true)
		c.set(reason, false)
		require.True(t, wants)
		c.set(other, false)
		require.False(t, wants)
	}
}

// numbersIn returns the numbers of the batches of an entry.
func numbersIn(t *testing.T, entry []byte) (numbers []uint64) {
	e, err := protocol.DecodeEntry(string(entry))
	require.NoError(t, err)
	for u := (protocol.Batch{}); ; {
		more, err := e.Next(&u)
		require.NoError(t, err)
		if !more {
			return numbers
		}
		numbers = append(numbers, u.Seq)
	}
}

// TestEntryBuilder: the order of the batches in an entry, the limit of its size, and the reuse of its buffers.
func TestEntryBuilder(t *testing.T) {
	numbered := func(seq uint64, creates bool, size int) *forward.Batch {
		b := &forward.Batch{Origin: protocol.Incarnation{Node: "n", Epoch: 1}, Low: 1, Seq: seq}
		if creates {
			b.Hints = protocol.CreateIfAbsent
		}
		b.Body, b.Count = protocoltest.AppendRequest(nil, 0, "set", "k", strings.Repeat("x", size)), 1
		return b
	}
	b := newEntryBuilder(1000)
	begin := func() { b.begin(protocol.EntryVersion, 7, 0, protocol.EntryLimits{}) }
	begin()
	require.False(t, b.some())
	entry, _ := b.end()
	require.Empty(t, numbersIn(t, entry))

	begin()
	require.True(t, b.add(numbered(1, true, 10)))
	require.True(t, b.add(numbered(2, false, 10)))
	require.True(t, b.add(numbered(3, true, 700)))
	require.False(t, b.add(numbered(4, false, 300)), "what comes last takes room, too")
	require.False(t, b.add(numbered(4, true, 300)))
	require.True(t, b.some())
	entry, _ = b.end()
	require.Equal(t, []uint64{2, 1, 3}, numbersIn(t, entry), "SET NX comes last")
	require.LessOrEqual(t, len(entry), 1000)
	require.Positive(t, cap(b.buf), "the buffer is used again")
	before, same := entry, slices.Clone(entry)

	for _, creates := range []bool{false, true} {
		begin()
		require.True(t, b.add(numbered(5, creates, 100_000)), "an entry has room for one batch")
		require.False(t, b.add(numbered(6, creates, 1)))
		require.True(t, b.some(), "also if all come last")
		entry, _ = b.end()
		require.Equal(t, []uint64{5}, numbersIn(t, entry))
		require.LessOrEqual(t, max(cap(b.creates), cap(b.buf)), keepBuffer, "a large buffer is not kept")
		require.Nil(t, b.writer)
	}

	begin()
	large := numbered(7, false, 5000)
	large.Large, large.Work = true, fsm.MuchWork
	require.True(t, b.add(numbered(6, false, 700)))
	require.True(t, b.add(large), "room was looked for before")
	require.True(t, b.add(numbered(8, false, 100)))
	require.False(t, b.add(numbered(9, false, 300)), "small ones have their limit beside")
	entry, _ = b.end()
	require.Equal(t, []uint64{6, 7, 8}, numbersIn(t, entry))

	b.limit = 1 << 20
	begin()
	var want []uint64
	for seq := range uint64(maxCreates) {
		require.True(t, b.add(numbered(seq+1, true, 1)))
		want = append(want, seq+1)
	}
	require.True(t, b.add(numbered(1001, true, 1)))
	require.True(t, b.add(numbered(1000, false, 1)))
	entry, _ = b.end()
	require.Equal(t, append(want, 1000, 1001), numbersIn(t, entry), "no more than that are put behind others")
	require.Positive(t, cap(b.creates), "the buffer is used again")
	require.Zero(t, b.count)
	require.Equal(t, same, before, "an entry stays as it is")
}

// waitingMachine is a state machine with waiting clients. The test sets their incarnations, and the results of Waiting.
type waitingMachine struct {
	fsm.Machine
	incarnations []protocol.Incarnation

	mu    sync.Mutex
	waits []bool // the results of the next calls of Waiting; the last one repeats
}

// answer sets the results of the next calls of Waiting.
func (m *waitingMachine) answer(waits ...bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits = waits
}

func (m *waitingMachine) WaitingIncarnations() []protocol.Incarnation { return m.incarnations }

func (m *waitingMachine) Waiting() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	answer := m.waits[0]
	if len(m.waits) > 1 {
		m.waits = m.waits[1:]
	}
	return answer
}

// closing is a connection that counts the calls of Close.
type closing struct {
	net.Conn
	closed *int
}

func (c *closing) Close() error {
	*c.closed++
	return nil
}

// TestSilentNodes plays the lines of testdata/silence.txt, about waiting clients of silent nodes:
//
//	waits NODE/EPOCH…     clients of these incarnations wait; this node is n1, incarnation 5
//	leads TERM            this node leads in that term; 0: it does not lead
//	leader NODE           the leader, as far as this node knows; - for none
//	led                   there was a leader since the last check
//	hears NODE            the only other node that this leader has heard; - for none
//	port refuses|takes|is-away   the result of a connection to a silent node
//	commits yes|no        whether this node's proposals are executed
//	look TIMES            runs so many checks, a second apart; shows which nodes' clients were dropped at which check
//	                      and after which silence, and what this node proposed for its own clients
//	park                  a client of this node begins to wait
//	told                  the replies that this node's waiting clients have got since the last such line
func TestSilentNodes(t *testing.T) {
	protocoltest.Transcripts(t, "testdata/silence.txt", func(t *testing.T, script []byte) (got []byte) {
		synctest.Test(t, func(t *testing.T) {
			s := newSilent(t)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = s.w.clients.Run(ctx) }()
			got = protocoltest.Lines(t, script, s.line)
			cancel()
		})
		return got
	})
}

// silent is the part that manages waiting clients, with fake functions, and a record of its calls.
type silent struct {
	t             *testing.T
	w             *waiting
	m             *waitingMachine
	leader, hears string
	dialed        error
	executed      error
	conns, closed int
	did, replies  []string
	now           time.Time
}

func newSilent(t *testing.T) *silent {
	s := &silent{
		t: t, m: &waitingMachine{waits: []bool{false}}, leader: "n2", hears: "-", dialed: syscall.ECONNREFUSED, now: time.Now(),
	}
	note := func(format string, args ...any) { s.did = append(s.did, fmt.Sprintf(format, args...)) }
	s.w = newWaiting(waitingConfig{
		origin: protocol.Incarnation{Node: "n1", Epoch: 5}, machine: s.m, serving: new(atomic.Pointer[leaderTerm]),
		absentAfter: 10 * time.Second,
		execute: func(b *Batch) error {
			other := slices.IndexFunc(s.m.incarnations, func(i protocol.Incarnation) bool { return i.Node != "n1" })
			require.Equal(t, &Batch{Body: protocol.AppendDrop(nil, s.m.incarnations[other]), Count: 1, Write: true}, b)
			return s.executed
		},
		leader: func() (uint64, string) { return 3, strings.Trim(s.leader, "-") },
		heard:  func(node string, _ uint64, _ time.Time) bool { return node == s.hears },
		dial: func(context.Context, string) (net.Conn, error) {
			if s.dialed != nil {
				return nil, s.dialed
			}
			s.conns++
			return &closing{closed: &s.closed}, nil
		},
		event: func(e Event) {
			d := e.(WaitersDropped)
			note("%s is dropped after %v", d.Node, d.After)
		},
	}, sessions.Cluster{
		SubscribeWaiting: func(bool) {},
		Propose: func(body []byte, _ int) error {
			var r protocol.Request
			_, err := protocol.NextRequest(string(body), &r)
			note("n1 proposes %s", strings.Join(r.Args, " "))
			return err
		},
	})
	return s
}

func (s *silent) line(words []string) []string {
	word := words[len(words)-1]
	switch words[0] {
	case "waits":
		s.m.incarnations = nil
		for _, word := range words[1:] {
			node, epoch, _ := strings.Cut(word, "/")
			n, err := strconv.ParseUint(epoch, 10, 64)
			require.NoError(s.t, err)
			s.m.incarnations = append(s.m.incarnations, protocol.Incarnation{Node: node, Epoch: n})
		}
	case "leads":
		term, err := strconv.ParseUint(word, 10, 64)
		require.NoError(s.t, err)
		if s.w.serving.Store(nil); term > 0 {
			s.w.serving.Store(&leaderTerm{term: term})
		}
	case "leader":
		s.leader = word
	case "led":
		s.w.led.Store(true)
	case "hears":
		s.hears = word
	case "port":
		s.dialed = map[string]error{"refuses": syscall.ECONNREFUSED, "is-away": syscall.EHOSTUNREACH}[word]
	case "commits":
		s.executed = map[string]error{"no": protocol.ErrNoLeader}[word]
	case "park":
		ticket := s.w.clients.Waiters.Enter(1, func(v protocol.Value) { s.replies = append(s.replies, v.Str) })
		s.w.clients.Waiters.Parked(ticket, 1)
	case "told":
		replies := s.replies
		s.replies = nil
		return replies
	case "look":
		return s.look(word)
	default:
		require.Fail(s.t, "no such line", words)
	}
	return nil
}

func (s *silent) look(times string) (answers []string) {
	n, err := strconv.Atoi(times)
	require.NoError(s.t, err)
	for i := range n {
		s.did = nil
		s.now = s.now.Add(time.Second)
		s.w.check(s.now)
		synctest.Wait()
		for _, did := range s.did {
			answers = append(answers, fmt.Sprintf("look %d: %s", i+1, did))
		}
	}
	require.Equal(s.t, s.conns, s.closed, "a connection stays open")
	return answers
}

// TestLooksWhileClientsWait: a client that begins to wait starts the checks. They run each second while any client
// waits, and then stop.
func TestLooksWhileClientsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &waitingMachine{waits: []bool{false}}
		var looks atomic.Int64
		config := waitingConfig{
			machine: m, serving: new(atomic.Pointer[leaderTerm]), absentAfter: time.Hour,
			leader: func() (uint64, string) { looks.Add(1); return 3, "n2" },
		}
		looksFor := func(d time.Duration) int {
			looks.Store(0)
			time.Sleep(d)
			synctest.Wait()
			return int(looks.Load())
		}
		w := newWaiting(config, sessions.Cluster{SubscribeWaiting: func(bool) {}})
		w.reached()
		require.False(t, woken(w.wake))
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- w.run(ctx) }()
		require.Equal(t, 1, looksFor(time.Minute), "one check at the start")
		m.answer(true)
		w.reached()
		require.Equal(t, 60, looksFor(59*time.Second+time.Millisecond))
		w.reached()
		require.Zero(t, looksFor(time.Millisecond), "the checks run already")
		m.answer(false)
		require.Equal(t, 1, looksFor(time.Minute))
		m.answer(true, false, true, false) // a client begins to wait between two calls of Waiting
		w.reached()
		require.Equal(t, 2, looksFor(time.Minute))
		cancel()
		require.NoError(t, <-over)

		subscribed := 0
		w = newWaiting(config, sessions.Cluster{SubscribeWaiting: func(bool) { subscribed++ }})
		w.clients.Waiters.Enter(1, nil)
		require.True(t, woken(w.wake), "a client of this node waits, before its entry is applied")
		require.Equal(t, 1, subscribed)
		w.clients.Waiters.Forget(1)
		ctx, cancel = context.WithCancel(t.Context())
		go func() { over <- w.run(ctx) }()
		require.NotZero(t, looksFor(time.Minute))
		require.Equal(t, 2, subscribed, "the subscription ends: no client waits")
		require.False(t, woken(w.wake))
		cancel()
		require.NoError(t, <-over)
	})
}

// part returns a replica without raft. It has the parts that store greetings and status messages.
func part(t *testing.T) *Replica {
	r := &Replica{addresses: &addresses{}, state: &state{}}
	r.config.ID, r.config.Release = "n1", "r1"
	r.proposer = newProposer(proposerConfig{serving: &r.serving, wake: make(chan struct{}, 1)}, 1<<20, 0)
	r.addresses.follow(members.NewConfiguration(1,
		members.Member{ID: "n1", Addr: "n1:1", Voter: true}, members.Member{ID: "n2", Addr: "n2:1", Voter: true}), r.self())
	return r
}

// TestWhatOthersSay: a greeting and the leader's status message update what this node knows of the members. The
// watchers are called if clients are concerned.
func TestWhatOthersSay(t *testing.T) {
	r := part(t)
	_, known := r.committed()
	require.False(t, known, "the node is being opened")
	var seen []string
	r.WatchLeadership(func(l Leadership, all []Member) {
		require.Len(t, all, 2)
		seen = append(seen, fmt.Sprint(l.Present, " ", l.Leader.ClientAddr))
	})
	r.leaders.see("n2", r.addresses.all())
	require.Equal(t, []string{"false "}, seen, "its address is not known")
	of := func(id string) Member { return r.addresses.all()[int(id[1]-'1')] }
	self, other := of("n1"), of("n2")

	about := forward.About{ClientAddr: "x:1", Release: "r2", NewestVersion: 6, HoldVersion: 5}
	r.onGreeting(forward.Member{ID: "n2", About: about})
	require.True(t, woken(r.proposer.wake))
	other.ClientAddr, other.Release, other.NewestVersion, other.HoldVersion = "x:1", "r2", 6, 5
	require.Equal(t, other, of("n2"))
	require.Equal(t, []string{"false ", "true x:1"}, seen)
	r.onGreeting(forward.Member{ID: "n2", About: forward.About{ClientAddr: "x:1", Release: "r0"}})
	other.Release = "r0"
	require.Equal(t, other, of("n2"), "the greeting has no versions")

	// The leader's status message replaces what this node knows of other members. Of itself, the node keeps its release
	// and its versions.
	about.ClientAddr, about.NewestVersion, about.HoldVersion, about.Release = "x:2", 7, 6, "r3"
	status := forward.Status{Commit: 100, Members: []forward.Member{
		{ID: "n1", About: about, Silent: true, LogIndex: 3}, {ID: "n2", About: about, Silent: true, LogIndex: 9},
	}}
	r.onStatus(status)
	self.ClientAddr, self.Silent, self.LogIndex = "x:2", true, 3
	require.Equal(t, self, of("n1"))
	other.ClientAddr, other.Silent, other.LogIndex, other.NewestVersion, other.HoldVersion = "x:2", true, 9, 7, 6
	other.Release = "r3"
	require.Equal(t, other, of("n2"))
	require.Equal(t, []string{"false ", "true x:1", "true x:1", "true x:2"}, seen, "a release is a change, too")
	require.ErrorContains(t, r.health.behind(0, time.Now()), "at log index 0 of 100 since the start")
	status.Members[1].LogIndex++
	r.onStatus(status)
	require.Len(t, seen, 4, "the same as before, for clients")
	r.onGreeting(forward.Member{ID: "n2", About: forward.About{ClientAddr: "x:2", Release: "r3"}})
	require.False(t, of("n2").Silent)
	require.Equal(t, uint64(10), of("n2").LogIndex)
	require.Len(t, seen, 4, "how far it is concerns no client")
	r.leaders.see("", r.addresses.all())
	r.leaders.see("n1", r.addresses.all())
	require.Equal(t, []string{"false x:2", "true x:2"}, seen[4:])
	r.onGreeting(forward.Member{ID: "n2", About: forward.About{Release: strings.Repeat("r", 1000)}})
	require.Equal(t, "x:2", of("n2").ClientAddr, "the greeting has no client address")
	require.Len(t, of("n2").Release, maxRelease)
}

// TestStateEvents: the events of an entry go to the waiting clients that they concern, to OnEvent, and to
// OnStateEvents.
func TestStateEvents(t *testing.T) {
	var reported []Event
	var state []event.Event
	var replies []protocol.Value
	r := &Replica{config: Config{
		OnEvent:       func(e Event) { reported = append(reported, e) },
		OnStateEvents: func(es []event.Event) { state = append(state, es...) },
	}}
	r.waiting = newWaiting(waitingConfig{}, sessions.Cluster{SubscribeWaiting: func(bool) {}})
	ticket := r.waiting.clients.Waiters.Enter(1, func(v protocol.Value) { replies = append(replies, v) })
	r.waiting.clients.Waiters.Parked(ticket, 1)
	reply, news := protocol.Integer(7), event.LockNews{Owner: "me", WaitedMillis: 5000}
	did := []event.Event{
		{Kind: event.LockSlow, DB: 1, Key: "k", Lock: &news}, {Kind: event.Woken, Seq: ticket, Reply: &reply},
	}
	r.stateEvents(did)
	require.Equal(t, []Event{LockSlow{DB: 1, Key: "k", LockNews: news}}, reported)
	require.Equal(t, []protocol.Value{reply}, replies)
	require.Equal(t, did, state)
}

// TestHealthOfAFollower: a follower is unhealthy if it has not applied the entries that were committed at its start, if
// entries are missing for longer than unhealthyAfter, or if no status message of the leader arrives. A leader is
// unhealthy if an entry is in flight for longer than unhealthyAfter.
func TestHealthOfAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &health{}
		require.ErrorContains(t, h.behind(0, time.Now()), "no link")
		for i, c := range []struct {
			pass            time.Duration // before the status message
			commit, applied uint64
			then            time.Duration // after the status message
			now             uint64        // the applied index at the check
			want            string
		}{
			{0, 100, 84, 0, 84, ""},
			{0, 100, 84, 0, 83, "at log index 83 of 100 since the start"},
			{0, 100, 84, unhealthyAfter, 90, ""},
			{0, 110, 90, time.Second, 90, "at log index 90 of 100 for 4s"},
			{0, 110, 90, time.Second, 100, ""}, // it has the entries that it lacked
			{0, 110, 100, unhealthyAfter, 100, ""},
			{0, 120, 109, time.Second, 109, "at log index 109 of 110 for 4s"},
			{0, 120, 120, 0, 109, ""}, // 109 was read before the status message, which says that nothing is missing
			{0, 120, 120, time.Minute, 0, "no link to the leader"},
			{0, 130, 130, forward.SilenceTimeout + unhealthyAfter, 130, ""},
			{0, 140, 130, 0, 130, ""},
			{time.Minute, 150, 140, time.Second, 140, ""},
		} {
			time.Sleep(c.pass)
			h.onStatus(c.commit, c.applied)
			time.Sleep(c.then)
			if err := h.behind(c.now, time.Now()); c.want == "" {
				require.NoError(t, err, "row %d", i)
			} else {
				require.ErrorContains(t, err, c.want, "row %d", i)
			}
		}
		now := time.Now()
		l := &leaderTerm{}
		require.NoError(t, h.stalled(nil, now))
		require.NoError(t, h.stalled(l, now), "nothing is in flight")
		l.inFlight.Store(1)
		l.progress.Store(now.Add(-unhealthyAfter).UnixNano())
		require.NoError(t, h.stalled(l, now))
		require.ErrorContains(t, h.stalled(l, now.Add(time.Second)), "nothing was committed for 4s")
	})
}

func TestHeldBackBy(t *testing.T) {
	status := Status{Version: 5, Members: []Member{
		{ID: "unknown"},
		{ID: "old", NewestVersion: 5},
		{ID: "new", NewestVersion: 7},
		{ID: "held", NewestVersion: 7, HoldVersion: 6},
		{ID: "not held", NewestVersion: 7, HoldVersion: 7},
		{ID: "silent", NewestVersion: 7, Silent: true},
	}}
	ids := func(all []Member) (ids []string) {
		for _, m := range all {
			ids = append(ids, m.ID)
		}
		return ids
	}
	require.Equal(t, []string{"unknown", "old", "held", "silent"}, ids(status.HeldBackBy()))
	status.Version = 7
	require.Empty(t, status.HeldBackBy())
	require.Equal(t, []bool{false, true, false}, []bool{
		status.Members[0].Outdated(7), status.Members[1].Outdated(7), status.Members[2].Outdated(7),
	})
	voters, quorum := Majority([]Member{{Voter: true}, {}, {Voter: true}, {Voter: true}, {}})
	require.Equal(t, []int{3, 2}, []int{voters, quorum})
}

// restoring is a state machine whose Restore returns err. Its other methods return what the test sets.
type restoring struct {
	fsm.Machine
	applied map[uint64]bool
	skipped []event.Event
	known   uint64
	err     error
}

func (m *restoring) Restore(io.Reader) error                       { return m.err }
func (m *restoring) Clock() (int64, int64)                         { return 7000, 0 }
func (m *restoring) Incarnation(string) uint64                     { return m.known }
func (m *restoring) Applied(_ protocol.Incarnation, n uint64) bool { return m.applied[n] }
func (m *restoring) Skipped() []event.Event                        { return m.skipped }

// TestRestore: a snapshot raises the index and cluster time. Its events are emitted before the batches that it contains
// get ErrUncertain.
func TestRestore(t *testing.T) {
	own := protocol.Incarnation{Node: "n1", Epoch: 5}
	q := newQueue(own, Limits{PendingBatches: 9, PendingBytes: 99}, func() {})
	slots := make([]*pending, 2)
	for i := range slots {
		slots[i] = &pending{batch: &Batch{Write: true}, deadline: time.Now().Add(time.Hour), done: make(chan struct{}, 1)}
		require.NoError(t, q.add(slots[i]))
	}
	var did []string
	m := &restoring{applied: map[uint64]bool{1: true}, err: errors.New("damaged")}
	s := &state{machine: m, sink: sink{
		writes: q, lineage: incarnation.Lineage{5},
		superseded: func(known uint64) { did = append(did, fmt.Sprint("superseded ", known)) },
		events: func(es []event.Event) {
			require.Len(t, slots[0].done, 0)
			did = append(did, fmt.Sprint("events ", len(es)))
		},
	}, stateHooks: stateHooks{restored: func(e Restored) {
		did = append(did, fmt.Sprint("restored ", e.From, " ", e.Index))
	}}}
	require.Error(t, s.Restore(nil, 9))
	require.Empty(t, did)
	require.Zero(t, s.index.load())
	m.err = nil
	require.NoError(t, s.Restore(nil, 0))
	require.Equal(t, []string{"restored 0 0"}, did)
	require.Zero(t, s.index.load(), "the index is not known")
	require.Equal(t, uint64(7000), s.stamps.load())
	require.Len(t, slots[0].done, 1)
	require.ErrorIs(t, slots[0].err, protocol.ErrUncertain)
	require.Len(t, slots[1].done, 0, "it is not in the snapshot")
	did, m.skipped, m.known = nil, make([]event.Event, 2), 6
	slots[0].done = make(chan struct{}, 1)
	require.NoError(t, s.Restore(nil, 9))
	require.Equal(t, []string{"superseded 6", "restored 0 9", "events 2"}, did)
	require.Equal(t, uint64(9), s.index.load())
	require.Equal(t, uint64(9), s.changed)
	did, m.skipped = nil, nil
	require.NoError(t, s.Restore(nil, 12))
	require.Equal(t, "restored 9 12", did[len(did)-1])
}
