package replica

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock is the source of cluster time and of wall time alone, so that tests can skew these.
// Timeouts do not use Clock.
type Clock interface {
	// Monotonic grows at the rate of real time from any origin.
	Monotonic() time.Duration
	// Wall is the time of day, which may jump.
	Wall() time.Time
}

// SystemClock is the machine's clock.
func SystemClock() Clock { return systemClock{start: time.Now()} }

type systemClock struct{ start time.Time }

func (c systemClock) Monotonic() time.Duration { return time.Since(c.start) }
func (c systemClock) Wall() time.Time          { return time.Now() }

// wallTolerance is how far the leader's wall clock may wander from what cluster
// time says before the difference is taken anew. Within it EXPIRETIME answers to
// the millisecond what PEXPIREAT was given.
const wallTolerance = 100 * time.Millisecond

// clusterClock is cluster time as one leader continues it: from the state's clock when the
// leadership began, at the rate of the leader's monotonic clock.
//
// Time between two readings counts up to step, and no more. So a leader that was frozen, and is not
// deposed, does not end all leases at once after waking: leases only lengthen. A leader reads the
// clock often enough while there is a lease ([ticker]).
type clusterClock struct {
	source Clock
	step   time.Duration

	mu           sync.Mutex
	now          time.Duration // since cluster time 0
	seen         time.Duration // the monotonic reading of now
	offsetMillis int64         // wall clock minus cluster time
}

func newClusterClock(source Clock, step time.Duration, stampMillis, wallOffsetMillis int64) *clusterClock {
	c := &clusterClock{
		source: source, step: step,
		now:          time.Duration(stampMillis) * time.Millisecond,
		offsetMillis: wallOffsetMillis,
	}
	c.seen = c.source.Monotonic()
	return c
}

// read returns cluster time, and what to add to it for Unix time. Readings
// never go back.
func (c *clusterClock) read() (stampMillis, wallOffsetMillis int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.source.Monotonic()
	if passed := seen - c.seen; passed > 0 {
		c.now += min(passed, c.step)
		c.seen = seen
	}
	stampMillis = c.now.Milliseconds()
	offset := c.source.Wall().UnixMilli() - stampMillis
	if wandered := offset - c.offsetMillis; wandered > wallTolerance.Milliseconds() ||
		wandered < -wallTolerance.Milliseconds() {
		c.offsetMillis = offset
	}
	return stampMillis, c.offsetMillis
}

// leaderTerm is one leadership of this node, from when it may serve until it ends.
type leaderTerm struct {
	term     uint64
	clock    *clusterClock
	gone     chan struct{} // closed when the leadership is over
	since    time.Time     // when the leadership began
	presence presence

	// inFlight counts entries that were given to raft and are not applied yet.
	inFlight atomic.Int32
	landed   chan struct{} // inFlight fell
	// progress is when inFlight last fell, or rose from none; nanoseconds of Unix time.
	progress atomic.Int64
	// begun is when the entries in flight were proposed, and workOf what their large batches are. The proposer writes both
	// before inFlight rises for the entry, and after inFlight fell for the entry before in its place.
	begun   [maxInFlight + 1]time.Time
	workOf  [maxInFlight + 1]int64
	work    atomic.Int64 // of all in flight
	first   uint64       // of begun, the oldest entry in flight; of the goroutine that applies entries
	next    uint64       // of begun; the proposer's own
	wanted  atomic.Int64 // cluster time that an entry is wanted to reach
	stamped int64        // the newest stamp proposed; the proposer's own
	version byte         // the newest version proposed; the proposer's own
}

// begin notes when an entry is proposed, and the work of its large batches.
func (l *leaderTerm) begin(at time.Time, work int64) {
	i := l.next % uint64(len(l.begun))
	l.begun[i], l.workOf[i] = at, work
	l.work.Add(work)
	l.next++
}

// lastBegun returns when the newest entry was proposed. The proposer's own.
func (l *leaderTerm) lastBegun() time.Time {
	return l.begun[(l.next-1)%uint64(len(l.begun))]
}

// land returns when the oldest entry in flight, which has landed, was proposed.
func (l *leaderTerm) land() time.Time {
	i := l.first % uint64(len(l.begun))
	l.work.Add(-l.workOf[i])
	l.first++
	return l.begun[i]
}
