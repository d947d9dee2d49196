package replica

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/wire"
	"github.com/holdfast/holdfast/server/raftnode"
)

// The parts of a node, each alone, with what it is handed made up.

// woken takes the word from a wake channel.
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
			LeaseTimeout: DefaultLeaseTimeout, CommitTimeout: DefaultCommitTimeout,
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
		SnapshotInterval: DefaultSnapshotInterval, TrailingLogs: DefaultTrailingLogs, TrailingBytes: DefaultTrailingBytes,
	}, c.SnapshotPolicy)
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
	slow = slow.withDefaults()
	require.Equal(t, time.Hour, slow.ElectionTimeout, "no shorter than a heartbeat's")
	require.Equal(t, 7, slow.Limits.EntryBytes)
	require.Equal(t, slog.Default(), slow.Logger)
	require.Equal(t, time.Minute, Config{Timing: Timing{
		Timing:    raftnode.Timing{HeartbeatTimeout: time.Minute},
		ClockStep: time.Minute,
	}}.withDefaults().ClockStep)
}

// TestRefusedConfigurations: each fault is named, and all of them together.
func TestRefusedConfigurations(t *testing.T) {
	first := members.Member{ID: "n1", Addr: "n1:1", Voter: true}
	good := Config{ID: "n1", Bootstrap: []members.Member{first}, HoldVersion: protocol.EntryVersion}.withDefaults()
	good.Stores = Stores{Log: raft.NewInmemStore(), Stable: raft.NewInmemStore(), Snapshots: raft.NewInmemSnapshotStore()}
	good.Stores.Lineage = incarnation.Lineage{}.Start(0)
	good.Peers = Peers{Raft: struct{ raft.StreamLayer }{}, Append: struct{ wire.Stream }{}, Forward: struct{ wire.Stream }{}}
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
		{func(c *Config) { c.HoldVersion = protocol.OldestEntryVersion - 1 }, []string{"no cluster of version"}},
		{func(c *Config) { c.HoldVersion = protocol.EntryVersion + 1 }, []string{"no cluster of version"}},
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
}

// due is a machine with nothing but what a ticker looks at.
type due struct {
	fsm.Machine
	deadline, clock int64
	some            bool
}

func (m *due) NextDue() (int64, bool) { return m.deadline, m.some }
func (m *due) Clock() (int64, int64)  { return m.clock, 0 }

// TestTicker: what is asked for at each tick, and how long the ticker sleeps after it.
func TestTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, m, asked := &fakeClock{}, &due{}, int64(0)
		serving := new(atomic.Pointer[leaderTerm])
		tick := newTicker(serving, m, func(_ *leaderTerm, stampMillis int64) { asked = stampMillis })
		var last time.Time
		require.Zero(t, tick.tick(&last))
		m.some, m.deadline = true, 5
		tick.rearm()
		require.False(t, woken(tick.wake), "it does not lead")
		l := &leaderTerm{clock: newClusterClock(source, 400*time.Millisecond, 0, 0)}
		serving.Store(l)
		for i, c := range []struct {
			pass     time.Duration // for the clock and for all else
			deadline int64         // 0: none
			applied  int64
			asked    int64
			wait     time.Duration
		}{
			{0, 0, 0, 0, 0},
			{0, 10_000, 0, 0, 200 * time.Millisecond},
			{0, 200, 0, 0, 200 * time.Millisecond},
			{0, 50, 0, 0, 50 * time.Millisecond},
			{50 * time.Millisecond, 50, 0, 50, 10 * time.Millisecond},
			{9 * time.Millisecond, 50, 0, 0, 10 * time.Millisecond}, // asked for 9 ms ago
			{time.Millisecond, 50, 0, 60, 10 * time.Millisecond},
			{time.Second, 0, 60, 0, 0}, // the clock is capped: 460 now
			{0, 460, 460, 0, 10 * time.Millisecond},
			{400 * time.Millisecond, 10_000, 0, 0, 140 * time.Millisecond},
			{140 * time.Millisecond, 10_000, 0, 1000, 200 * time.Millisecond},
			{0, 10_000, 1000, 0, 200 * time.Millisecond},
			{0, math.MaxInt64, 1000, 0, 200 * time.Millisecond},
		} {
			source.monotonic += c.pass
			time.Sleep(c.pass)
			asked, m.some, m.deadline, m.clock = 0, c.deadline != 0, c.deadline, c.applied
			require.Equal(t, c.wait, tick.tick(&last), "wait, row %d", i)
			require.Equal(t, c.asked, asked, "row %d", i)
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

// TestStalls: when a proposal that hangs is reported, and when the leadership is given up or served anew.
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
		then func() // before the look
		want string
	}{
		{0, nil, ""},
		{10, leads(0, 0), ""},
		{0.9, leads(1, 0), ""},
		{1, nil, "stalled"},
		{1.9, nil, ""},
		{2, nil, ""}, // from now on for 2*2+1 s
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
		{34.5, nil, "stalled"}, // another leadership begins anew
		{38, nil, "given up"},
		{38.1, leads(1, 37.5), ""},
		{38.5, nil, "stalled"}, // sooner than the other would be repeated
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

// handful is a source of batches: those that wait are given out when taken, unless they have been answered meanwhile.
type handful struct {
	batches  []*forward.Batch
	answered bool
	looked   int
}

func (h *handful) waiting(*leaderTerm) (from, until uint64) { return 1, 1 + uint64(len(h.batches)) }

func (h *handful) look(_ *leaderTerm, from, until uint64, see func(*forward.Batch) bool) {
	for _, b := range h.batches[from-1 : until-1] {
		if h.looked++; !see(b) {
			return
		}
	}
}

func (h *handful) take(_ *leaderTerm, until uint64, visit func(*forward.Batch) bool) {
	for n := uint64(1); n < until && !h.answered && len(h.batches) > 0 && visit(h.batches[0]); n++ {
		h.batches = h.batches[1:]
	}
}

func request(words ...string) *forward.Batch {
	b := &forward.Batch{Origin: protocol.Origin{Node: "n", Epoch: 1}, Low: 1, Seq: 1}
	b.Body, b.Count = protocoltest.AppendRequest(nil, 0, words...), 1
	classify(b)
	return b
}

// TestProposer: what is proposed at each step, with which version and stamp, and what waits.
func TestProposer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 10 * time.Millisecond
		clock, mine, others := &fakeClock{monotonic: time.Hour}, &handful{}, &handful{}
		serving := new(atomic.Pointer[leaderTerm])
		oldest, newest := byte(protocol.OldestEntryVersion), byte(protocol.EntryVersion)
		var did []string
		note := func(format string, args ...any) { did = append(did, fmt.Sprintf(format, args...)) }
		common, held := byte(0), true
		p := newProposer(proposerConfig{
			serving: serving, sources: [2]source{mine, others}, wake: make(chan struct{}, 1),
			wouldRefuse: func(fsm.Claim, int64) bool { return held },
			wouldWait:   func(string, int64) bool { return held },
			version:     func(byte) byte { return common },
			raised:      func(from, to byte) { note("raised %d to %d", from, to) },
			propose: func(term uint64, entry []byte, _ ...byte) {
				e, err := protocol.DecodeEntry(string(entry))
				require.NoError(t, err)
				batches := ""
				for b := (protocol.Batch{}); ; {
					more, err := e.Next(&b)
					require.NoError(t, err)
					if !more {
						break
					}
					var r protocol.Request
					_, err = protocol.NextRequest(b.Body, &r)
					require.NoError(t, err)
					batches += " " + r.Args[1]
				}
				note("term %d version %d at %d:%s", term, e.Version, e.StampMillis, batches)
			},
			proposed: func() { note("first") },
			took:     func(d time.Duration) { note("took %v", d) },
		}, 1<<20, most)
		step := func(want ...string) {
			t.Helper()
			did = nil
			more := p.step()
			require.Equal(t, want, did)
			require.Equal(t, want != nil, more)
		}
		pass := func(d time.Duration) {
			clock.monotonic += d
			time.Sleep(d)
			synctest.Wait()
		}
		l := &leaderTerm{
			term: 3, version: oldest, landed: make(chan struct{}, 1), clock: newClusterClock(clock, time.Hour, 0, 0),
		}
		lands := func(term uint64, want ...string) {
			t.Helper()
			did = nil
			p.landed(term)
			require.Equal(t, want, did)
			require.Equal(t, want != nil, woken(p.wake))
			require.Equal(t, want != nil, woken(l.landed))
		}
		entry := func(at int, batches string) string {
			return fmt.Sprintf("term 3 version %d at %d:%s", l.version, at, batches)
		}
		mine.batches = append(mine.batches, request("set", "a", "v"))
		step()
		lands(3) // it leads no more
		serving.Store(l)
		step("first", entry(0, " a"))
		require.Equal(t, time.Now().UnixNano(), l.progress.Load())

		mine.batches, others.batches = []*forward.Batch{request("set", "b", "v")}, []*forward.Batch{request("set", "c", "v")}
		step() // one entry is in flight
		pass(5 * time.Millisecond)
		lands(2)
		lands(3, "took 5ms")
		require.Equal(t, time.Now().UnixNano(), l.progress.Load())
		step("first", entry(5, " b c")) // in turns
		lands(3, "took 0s")
		step()
		mine.batches, others.batches = []*forward.Batch{request("set", "b", "v")}, []*forward.Batch{request("set", "c", "v")}
		step("first", entry(5, " c b"))
		lands(3, "took 0s")

		// What waits is answered before it is taken.
		mine.batches, mine.answered = []*forward.Batch{request("set", "a", "v")}, true
		step()
		mine.batches, mine.answered = nil, false

		// Time is asked for.
		p.want(l, 5)
		require.True(t, woken(p.wake))
		step()
		pass(time.Millisecond)
		p.want(l, 6)
		p.want(l, 4)
		require.True(t, woken(p.wake))
		p.want(l, 6)
		require.False(t, woken(p.wake), "it is asked for already")
		step("first", entry(6, ""))
		lands(3, "took 0s")
		step()

		// All members can use a newer version.
		common = newest
		step("raised 5 to 6", "first", fmt.Sprintf("term 3 version %d at 6:", newest))
		require.Equal(t, newest, l.version)
		lands(3, "took 0s")
		step()

		// Refusals wait for a moment after a useful entry, and are looked at once.
		claim := request("set", "k", "v", "nx")
		require.True(t, claim.Claim)
		mine.batches, mine.looked = []*forward.Batch{claim}, 0
		step()
		step()
		require.Equal(t, 1, mine.looked)
		mine.batches = append(mine.batches, claim)
		step()
		require.Equal(t, 2, mine.looked)
		pass(most)
		require.True(t, woken(p.wake))
		step("first", entry(16, " k k"))
		lands(3, "took 0s")
		mine.batches = []*forward.Batch{claim}
		step("first", entry(16, " k")) // the last entry was of no use
		lands(3, "took 0s")
		for _, other := range []*forward.Batch{request("set", "a", "v"), claim} {
			others.batches = []*forward.Batch{request("set", "x", "v")}
			step("first", entry(16, " x"))
			lands(3, "took 0s")
			mine.batches = []*forward.Batch{claim}
			step()
			held = other != claim
			others.batches = []*forward.Batch{other}
			if held {
				step("first", entry(16, " a k"))
			} else {
				step("first", entry(16, " k k"))
			}
			lands(3, "took 0s")
		}
		require.False(t, woken(p.wake))
		pass(most)
		require.False(t, woken(p.wake), "nothing waits any more")
	})
}
