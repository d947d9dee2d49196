package fsm

import (
	"math/bits"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// lockWatch records events of native and stock locks since the start of this node. It is not part of the state: no
// reply to a logged request depends on it. It may have counted events of a script that was undone.
type lockWatch struct {
	patterns []string
	counts   [][lockKinds]LockClassCounts // by class and kind; the last class has the locks that match no pattern
	lost     lostHolds
	polls    polls
}

// The kinds of locks.
const (
	nativeLocks = iota
	stockLocks
	lockKinds
)

// LockClassCounts counts events of the locks of a class.
type LockClassCounts struct {
	Grants   uint64 // new holds
	Slow     uint64 // grants after a wait of more than a second; for a stock lock the wait begins at the first refusal
	Refusals uint64 // requests for a held lock that did not wait
	Releases uint64 // holds that were released
	Late     uint64 // releases when less than a fifth of the lease was left
	Expired  uint64 // holds whose lease ended
	Stale    uint64 // releases by an owner that had lost the lock
}

// LockClass has the counts of a class of locks: those whose keys match Pattern and no earlier pattern. The class with
// an empty pattern has the locks that match no pattern.
type LockClass struct {
	Pattern                 string
	Native, Stock           LockClassCounts
	NativeQueue, StockQueue int // the current lengths of the longest queues
}

// MaxLockClasses bounds the patterns of classes.
const MaxLockClasses = 32

func (m *machine) ClassifyLocks(patterns []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &m.call.watch
	w.patterns = slices.Clone(patterns[:min(len(patterns), MaxLockClasses)])
	w.counts = nil
}

// class returns the index of the class of a key.
func (w *lockWatch) class(key string) int {
	for i, p := range w.patterns {
		if n := len(p) - 1; n >= 0 && p[n] == '*' && !strings.ContainsAny(p[:n], `*?[\`) {
			if strings.HasPrefix(key, p[:n]) {
				return i
			}
			continue
		}
		steps := int64(maxClassSteps)
		if protocol.MatchSteps(p, key, false, &steps) {
			return i
		}
	}
	return len(w.patterns)
}

// maxClassSteps bounds the steps of a match of a key with one pattern. A match that takes more steps fails.
const maxClassSteps = 10_000

// of returns the counts of a kind of locks in the class of a key.
func (w *lockWatch) of(key string, kind int) *LockClassCounts {
	if w.counts == nil {
		w.counts = make([][lockKinds]LockClassCounts, len(w.patterns)+1)
	}
	return &w.counts[w.class(key)][kind]
}

// isLate reports whether less than a fifth of a lease is left after used milliseconds.
func isLate(used, lease int64) bool { return lease > 0 && used > lease/5*4 }

// observe counts an event, and records owners that lost a lock and clients that poll for one.
func (w *lockWatch) observe(e *locks.Event, now int64) {
	if e.Stock != nil {
		w.observeStock(e, now)
		return
	}
	switch e.Kind {
	case locks.Refused:
		w.of(e.Key, nativeLocks).Refusals++
	case locks.Granted:
		n := w.of(e.Key, nativeLocks)
		n.Grants++
		if e.WaitedMillis > slowWaitMillis {
			n.Slow++
		}
	case locks.Released:
		n := w.of(e.Key, nativeLocks)
		n.Releases++
		if isLate(e.SinceRenewedMillis, e.LeaseMillis) {
			n.Late++
		}
	case locks.Lost:
		if e.Reason == locks.Expired {
			w.of(e.Key, nativeLocks).Expired++
		}
		w.lost.note(e.DB, e.Key, e.Owner)
	case locks.Mismatched:
		if w.lost.forget(e.DB, e.Key, e.Owner) {
			w.of(e.Key, nativeLocks).Stale++
		}
	}
}

func (w *lockWatch) observeStock(e *locks.Event, now int64) {
	it := &e.Stock.Item
	switch e.Kind {
	case locks.Granted:
		w.stockGranted(e, now)
	case locks.Refused:
		w.of(e.Key, stockLocks).Refusals++
		w.polls.refused(e, now)
	case locks.Released:
		if e.Stock.ByName {
			w.loses(e.DB, it)
		}
		if command.IsStockLock(it) {
			m, _ := it.Mark()
			n := w.of(e.Key, stockLocks)
			n.Releases++
			if isLate(now-(it.DeadlineMillis-m.LeaseMillis), m.LeaseMillis) {
				n.Late++
			}
		}
	case locks.Overwritten:
		w.loses(e.DB, it)
	case locks.Lost:
		switch e.Reason {
		case locks.Expired:
			w.of(e.Key, stockLocks).Expired++
			w.loses(e.DB, it)
		case locks.Broken:
			for i := range e.Stock.Owners {
				w.lost.note(e.DB, e.Key, e.Stock.Owners[i].Owner)
			}
		}
	case locks.Mismatched:
		if w.lost.forget(e.DB, e.Key, e.Owner) || e.Stock.Ended {
			w.of(e.Key, stockLocks).Stale++
		}
	}
}

// stockGranted counts the grant of a stock lock. In a hash, the first field names the owner.
func (w *lockWatch) stockGranted(e *locks.Event, now int64) {
	owner := e.Owner
	if !e.Stock.Item.IsString() {
		owners, _ := stockOwners(&e.Stock.Item, 1)
		if len(owners) == 0 {
			return
		}
		owner = owners[0].Owner
	}
	n := w.of(e.Key, stockLocks)
	n.Grants++
	w.lost.forget(e.DB, e.Key, owner)
	if waited, polled := w.polls.granted(lockKey{e.DB, e.Key}, owner, e.Client, now); polled && waited > slowWaitMillis {
		n.Slow++
	}
}

// loses records that the owners of a stock lock lost the lock.
func (w *lockWatch) loses(db int, it *keyspace.Item) {
	if it.IsString() {
		w.lost.note(db, it.Key(), it.Value())
		return
	}
	owners, _ := stockOwners(it, maxLostOwners)
	for i := range owners {
		w.lost.note(db, it.Key(), owners[i].Owner)
	}
}

// maxLostOwners bounds the owners that are recorded for the loss of one lock.
const maxLostOwners = 8

// maxScriptWords bounds the keys, and also the arguments, of a script that watchScript compares with lost locks.
const maxScriptWords = 8

// watchScript emits Mismatched events for a script that has run. A script is a release script if it has released a
// stock lock in an earlier run, and has never taken one. If a release script has changed nothing, it has failed to
// release each lock that an owner among its arguments has lost.
func (c *call) watchScript(s *script, h *scriptHost, wrote bool) {
	s.releases = s.releases || h.Released
	s.claims = s.claims || h.TookLock()
	if wrote || !s.releases || s.claims || c.watch.lost.empty() {
		return
	}
	for _, key := range h.env.Keys[:min(maxScriptWords, len(h.env.Keys))] {
		for _, arg := range h.env.Args[:min(maxScriptWords, len(h.env.Args))] {
			c.EmitMismatched(key, arg)
		}
	}
}

// lostHolds records the last losses of holds, about eight thousand. It records a loss as a hash of database, key and
// owner. Each place has the last hashes that begin alike, the newest first, so a search reads one line of memory: a map
// took a fifth of the CPU of a stock lock that expires.
type lostHolds struct {
	places [][lostPerPlace]uint64 // nil before the first loss
}

const (
	lostPlaceBits = 11
	lostPerPlace  = 8 // a line of memory
)

func (l *lostHolds) empty() bool { return l.places == nil }

// find returns the hash of a loss, which is never 0, and the place of the hash. Requires: a loss was recorded.
func (l *lostHolds) find(db int, key, owner string) (hash uint64, place *[lostPerPlace]uint64) {
	hash = xxh3.HashStringSeed(owner, xxh3.HashString(key)+uint64(db)) | 1
	return hash, &l.places[hash>>(64-lostPlaceBits)]
}

// note records that an owner lost a key.
func (l *lostHolds) note(db int, key, owner string) {
	if l.empty() {
		l.places = make([][lostPerPlace]uint64, 1<<lostPlaceBits)
	}
	hash, place := l.find(db, key, owner)
	i := slices.Index(place[:], hash)
	if i < 0 {
		i = lostPerPlace - 1
	}
	copy(place[1:], place[:i])
	place[0] = hash
}

// forget removes the recorded losses of a key by an owner, and reports whether there were any.
func (l *lostHolds) forget(db int, key, owner string) (lost bool) {
	if l.empty() {
		return false
	}
	hash, place := l.find(db, key, owner)
	i := slices.Index(place[:], hash)
	if i >= 0 {
		place[i] = 0
	}
	return i >= 0
}

func (m *machine) LockClasses() []LockClass {
	m.mu.RLock()
	defer m.mu.RUnlock()
	w := &m.call.watch
	classes := make([]LockClass, len(w.patterns)+1)
	for i := range classes {
		if i < len(w.patterns) {
			classes[i].Pattern = w.patterns[i]
		}
		if w.counts != nil {
			classes[i].Native, classes[i].Stock = w.counts[i][nativeLocks], w.counts[i][stockLocks]
		}
	}
	m.st.Locks.EachQueue(func(key string, waiters int) {
		n := &classes[w.class(key)].NativeQueue
		*n = max(*n, waiters)
	})
	w.polls.eachQueue(m.st.ClockMillis, func(key string, waiters int) {
		n := &classes[w.class(key)].StockQueue
		*n = max(*n, waiters)
	})
	return classes
}

// LockStats has the numbers of locks and the counts of their events.
type LockStats struct {
	Locks, Holds, Waiting, Sessions int   // the current numbers of native locks, holds, waiters and sessions
	Bytes                           int64 // the estimated memory of the lock table
	Stock                           int   // the number of keys with the mark of a stock lock
	LockCounts
}

// LockCounts counts events of native locks since the start of this node. It includes the clients of all nodes.
type LockCounts struct {
	Grants        uint64    // new holds
	Refusals      uint64    // requests for a held lock that did not wait
	Timeouts      uint64    // waits that ended by time
	LostExpired   uint64    // holds that were lost by the end of their lease
	LostSession   uint64    // holds that were lost by the end of their session
	LostBroken    uint64    // holds that were lost by LOCK.BREAK or DEL
	LostFlushed   uint64    // holds that were lost by a flush
	Breaks        uint64    // LOCK.BREAK commands that ended a hold, of a native or a stock lock
	FencesRefused uint64    // FENCE.PASS commands that were refused
	Waited        LockTimes // the waiting times of grants after a wait
	Held          LockTimes // the durations of holds
}

// LockTimes is a histogram of durations.
type LockTimes struct {
	Count     uint64
	SumMillis uint64
	Steps     [32]uint64 // Steps[i] counts durations below 2^i ms that no earlier step counts; the last step has no bound
}

func (t *LockTimes) add(millis int64) {
	n := uint64(max(0, millis))
	t.Count++
	t.SumMillis += n
	t.Steps[min(bits.Len64(n), len(t.Steps)-1)]++
}
