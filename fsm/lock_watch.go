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

// lockWatch counts the events of native and stock locks that this node has seen since its start. It is not part of the
// state: no reply to a logged request depends on it. Events of a script that was undone may have been counted.
type lockWatch struct {
	patterns []string
	// counts has the counts by class, the class of other locks last, and by kind.
	counts [][lockKinds]LockClassCounts
	lost   lostHolds
	polls  polls
}

// Kinds of locks in counts.
const (
	nativeLocks = iota
	stockLocks
	lockKinds
)

// LockClassCounts counts events of the locks of a class.
type LockClassCounts struct {
	// Grants counts new holds. Slow counts those after a wait of more than a second; for a stock lock the wait begins at
	// the first refusal.
	Grants, Slow uint64
	// Refusals counts requests for a held lock that did not wait.
	Refusals uint64
	// Releases counts holds that were released. Late counts those with less than a fifth of their lease left.
	Releases, Late uint64
	// Expired counts holds whose lease ended.
	Expired uint64
	// Stale counts releases by an owner that had lost the lock.
	Stale uint64
}

// LockClass has the counts of the locks whose names match a pattern, and no earlier one. The empty pattern stands for
// all other locks.
type LockClass struct {
	Pattern       string
	Native, Stock LockClassCounts
	// NativeQueue and StockQueue are the present lengths of the longest queues.
	NativeQueue, StockQueue int
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

// class returns the number of the class of a key.
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

// maxClassSteps bounds the match of a key with the pattern of a class.
const maxClassSteps = 10_000

// of returns the counts of a key's class.
func (w *lockWatch) of(key string, kind int) *LockClassCounts {
	if w.counts == nil {
		w.counts = make([][lockKinds]LockClassCounts, len(w.patterns)+1)
	}
	return &w.counts[w.class(key)][kind]
}

// isLate reports whether less than a fifth of a lease is left.
func isLate(used, lease int64) bool { return lease > 0 && used > lease/5*4 }

// observe counts an event, and records who lost the lock or polls for it.
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

// stockGranted counts a stock lock that was taken. The owner in a hash is the first field.
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

// loses records that the owners of a stock lock lost it.
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

// maxLostOwners bounds the owners of one lock that are remembered.
const maxLostOwners = 8

// mostScriptWords bounds the keys, and the arguments, of a script that are compared with lost locks.
const mostScriptWords = 8

// watchScript examines a script that has run. If the script has released a stock lock in an earlier run, has never
// taken one, and has changed nothing now, then an argument that names an owner who lost one of the keys is a mismatched
// release.
func (c *call) watchScript(s *script, h *scriptHost, wrote bool) {
	s.releases = s.releases || h.Released
	s.claims = s.claims || h.TookLock()
	if wrote || !s.releases || s.claims || c.watch.lost.empty() {
		return
	}
	for _, key := range h.env.Keys[:min(mostScriptWords, len(h.env.Keys))] {
		for _, arg := range h.env.Args[:min(mostScriptWords, len(h.env.Args))] {
			c.TellMismatched(key, arg)
		}
	}
}

// lostHolds has the last losses, as hashes of database, key and owner.
type lostHolds struct {
	hashes []uint64
	next   int
	known  map[uint64]int // how often in hashes
}

// maxLost bounds the losses that are remembered.
const maxLost = 1 << 13

func (l *lostHolds) empty() bool { return len(l.known) == 0 }

func lostHash(db int, key, owner string) uint64 {
	return xxh3.HashStringSeed(owner, xxh3.HashString(key)+uint64(db))
}

func (l *lostHolds) note(db int, key, owner string) {
	if l.known == nil {
		l.known = make(map[uint64]int)
	}
	hash := lostHash(db, key, owner)
	if len(l.hashes) < maxLost {
		l.hashes = append(l.hashes, hash)
	} else {
		at := l.next % maxLost
		l.drop(l.hashes[at])
		l.hashes[at] = hash
		l.next++
	}
	l.known[hash]++
}

func (l *lostHolds) drop(hash uint64) {
	switch n := l.known[hash]; {
	case n == 1:
		delete(l.known, hash)
	case n > 1:
		l.known[hash] = n - 1
	}
}

// forget removes the loss of a key by an owner, and reports whether there was one.
func (l *lostHolds) forget(db int, key, owner string) (lost bool) {
	if l.empty() {
		return false
	}
	hash := lostHash(db, key, owner)
	if l.known[hash] == 0 {
		return false
	}
	delete(l.known, hash)
	return true
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

// LockStats has counts of native locks.
type LockStats struct {
	// Locks, Holds, Waiting and Sessions are present counts, Bytes is their memory.
	Locks, Holds, Waiting, Sessions int
	Bytes                           int64
	// Stock counts the keys with the mark of a stock lock.
	Stock int
	LockCounts
}

// LockCounts counts events of the clients of all nodes since the start of this node.
type LockCounts struct {
	// Grants counts new holds, Refusals requests that did not wait for a held lock, and Timeouts waits that ended by time.
	Grants, Refusals, Timeouts uint64
	// Lost… count losses by reason.
	LostExpired, LostSession, LostBroken, LostFlushed uint64
	// Breaks counts the LOCK.BREAK that ended a hold, FencesRefused the fences that did not pass.
	Breaks, FencesRefused uint64
	// Waited has the waiting times of grants after a wait, Held the durations of holds.
	Waited, Held LockTimes
}

// LockTimes counts durations in doubling steps.
type LockTimes struct {
	Count     uint64
	SumMillis uint64
	// Steps count the durations below 1 ms, 2 ms, 4 ms and so on. The last step has all longer ones.
	Steps [32]uint64
}

func (t *LockTimes) add(millis int64) {
	n := uint64(max(0, millis))
	t.Count++
	t.SumMillis += n
	t.Steps[min(bits.Len64(n), len(t.Steps)-1)]++
}
