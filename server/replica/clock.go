package replica

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock is the source of cluster time and of wall time, so that tests can skew both. Timeouts do not use it.
type Clock interface {
	// Monotonic returns the time since any origin, which grows at the rate of real time.
	Monotonic() time.Duration
	// Wall returns the time of day, which may jump.
	Wall() time.Time
}

// SystemClock returns the machine's clock.
func SystemClock() Clock { return systemClock{start: time.Now()} }

type systemClock struct{ start time.Time }

func (c systemClock) Monotonic() time.Duration { return time.Since(c.start) }
func (c systemClock) Wall() time.Time          { return time.Now() }

// wallTolerance is the drift of the leader's wall clock from cluster time at which the offset is measured again. Within
// it EXPIRETIME returns exactly the milliseconds that PEXPIREAT set.
const wallTolerance = 100 * time.Millisecond

// clusterClock continues cluster time under one leader: from the state's clock at the beginning of the leadership, at
// the rate of the leader's monotonic clock.
//
// The time between two readings counts up to step. So leases do not all end at once if a leader was frozen, but not
// deposed: leases only become longer. A leader with leases reads the clock often enough ([ticker]).
type clusterClock struct {
	source Clock
	step   time.Duration

	mu           sync.Mutex
	now          time.Duration // cluster time
	seen         time.Duration // the monotonic reading at now
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

// read returns cluster time, and the offset from it to Unix time. Readings never decrease.
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

// leaderTerm is one leadership of this node, from the beginning of its service to its end.
type leaderTerm struct {
	term     uint64
	clock    *clusterClock
	gone     chan struct{} // closed at the end of the leadership
	since    time.Time     // the beginning of the leadership
	presence presence

	// inFlight counts entries that were passed to raft and are not applied yet.
	inFlight atomic.Int32
	landed   chan struct{} // signals that inFlight has decreased
	// progress is the time at which inFlight last decreased, or rose from 0, in nanoseconds of Unix time.
	progress atomic.Int64
	// begun has the times at which the entries in flight were proposed, and workOf the work of their large batches. The
	// proposer writes both before inFlight rises for the entry, and after it fell for the former entry at that index.
	begun   [maxInFlight + 1]time.Time
	workOf  [maxInFlight + 1]int64
	work    atomic.Int64 // of all in flight
	first   uint64       // the index in begun of the oldest entry in flight; belongs to the goroutine that applies entries
	next    uint64       // the next index in begun; belongs to the proposer
	wanted  atomic.Int64 // the cluster time that an entry must reach
	stamped int64        // the newest stamp proposed; belongs to the proposer
	version byte         // the newest version proposed; belongs to the proposer
}

// begin records the time of a proposal, and the work of its large batches.
func (l *leaderTerm) begin(at time.Time, work int64) {
	i := l.next % uint64(len(l.begun))
	l.begun[i], l.workOf[i] = at, work
	l.work.Add(work)
	l.next++
}

// lastBegun returns the time of the newest proposal. Only the proposer calls it.
func (l *leaderTerm) lastBegun() time.Time {
	return l.begun[(l.next-1)%uint64(len(l.begun))]
}

// land returns the time at which the oldest entry in flight, which was applied, was proposed.
func (l *leaderTerm) land() time.Time {
	i := l.first % uint64(len(l.begun))
	l.work.Add(-l.workOf[i])
	l.first++
	return l.begun[i]
}
