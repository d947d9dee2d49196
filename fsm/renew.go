package fsm

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// FenceJump is the minimal growth of the fences of native locks, and of the counter of session ids, in a renewal. No
// cluster issues more fences between a backup and its own end.
//
// Fences also grow by fencesPerMilli for each millisecond since the newest entry of the state, which is more than a
// cluster issues in that time. So if two clusters begin with the same state, all fences of the later one are larger
// than those of the earlier one. The numbers stay below 2^53 for 270 years.
const (
	FenceJump      = 1 << 32
	fencesPerMilli = 1 << 10
	maxGapMillis   = 100 * 365 * 24 * 3600 * 1000
)

// Renewal has the options of [Machine.Renew].
type Renewal struct {
	// MinLeaseMillis is the minimal remaining time of a key with a deadline. The length of a lease is unknown, since the
	// state has only its end.
	MinLeaseMillis int64
	// DropLeases removes all keys with a deadline.
	DropLeases bool
	// KeepLocks keeps holds and sessions of native locks, with their full leases.
	KeepLocks bool
	// AtMillis is the Unix time of the renewal. Renewals of equal states at the same time have equal results.
	AtMillis int64
	// FencesAbove is a lower bound of later native fences: all of them are larger.
	FencesAbove uint64
	Raises      []Raise
}

// Raise adds By to the integers in strings whose keys match Pattern, in all databases. If By is 0, Raise adds
// Renewed.Jump.
type Raise struct {
	Pattern string
	By      int64
}

// Renewed is the outcome of a renewal.
type Renewed struct {
	// Jump is the growth of native fences.
	Jump int64
	// Ended counts the removed keys that had expired, Dropped the other removed keys with a deadline, and Extended the
	// keys whose deadline is later now.
	Ended, Dropped, Extended int
	// Raised counts the keys that each Raise has raised, and Passed the matching keys without an integer.
	Raised, Passed []int
	// Locks counts the native locks before the renewal, and Kept those after it.
	Locks, Kept LockStats
	// Waiters counts the clients that waited for keys, and Nodes the sessions of nodes. The renewal has removed both.
	Waiters, Nodes int
}

var errRaised = errors.New("the sum is beyond 2^63-1")

// ErrEarlier is the error for a state that is newer than the renewal. The growth of its fences is unknown.
var ErrEarlier = errors.New(
	"the newest entry of the state is later than the time of this machine, so one of two clocks is wrong")

// renewStep is the number of items after which a step of a renewal ends.
const renewStep = 10_000

func (m *machine) Renew(r Renewal) (Renewed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.st
	n := &renewal{Renewal: r, st: st}
	since := r.AtMillis - st.ClockMillis - st.wallOffsetMillis
	if since < 0 && r.FencesAbove == 0 {
		return Renewed{}, fmt.Errorf("%w: by %d ms", ErrEarlier, -since)
	}
	n.done.Jump = FenceJump + min(max(since, 0), maxGapMillis)*fencesPerMilli
	n.done.Raised, n.done.Passed = make([]int, len(r.Raises)), make([]int, len(r.Raises))
	n.done.Waiters, n.done.Nodes = st.Waits.Len(), len(st.sessions)
	st.sessions, st.Waits = nil, waits.New()
	n.locks()
	for db := range st.Databases {
		if err := n.database(db); err != nil {
			return Renewed{}, err
		}
	}
	st.sumItems()
	return n.done, nil
}

// renewal is the state of a renewal.
type renewal struct {
	Renewal
	st   *state
	done Renewed
}

func (n *renewal) locks() {
	t := n.st.Locks
	t.Begin(n.st.ClockMillis, 0)
	n.done.Locks = lockStatsOf(t)
	t.RaiseCounters(uint64(n.done.Jump), n.FencesAbove)
	if n.KeepLocks {
		t.RenewAll()
	} else {
		t.RemoveAll()
	}
	n.done.Kept = lockStatsOf(t)
}

// database renews the items of a database in steps. Each step first reads items and then changes them.
func (n *renewal) database(db int) error {
	d := n.st.Databases[db]
	n.done.Ended += d.SweepAll(n.st.ClockMillis)
	for from, more := uint64(0), true; more; {
		var stored, removed []keyspace.Item
		var last uint64
		var problem error
		passed := 0
		more = false
		d.Ascend(from, n.st.ClockMillis, 0, func(it *keyspace.Item) bool {
			if passed >= renewStep && it.Hash != last {
				more = true
				return false
			}
			passed++
			last = it.Hash
			next, keep, err := n.item(db, it)
			switch {
			case err != nil:
				problem = fmt.Errorf("raise %q of database %d: %w", it.Key(), db, err)
				return false
			case !keep:
				removed = append(removed, *it)
			case next != nil:
				stored = append(stored, *next)
			}
			return true
		})
		if problem != nil {
			return problem
		}
		for i := range removed {
			d.Remove(removed[i].Hash, removed[i].Key())
		}
		for i := range stored {
			stored[i].SetVersion(n.st.NextVersion())
			d.Put(&stored[i])
		}
		from = last + 1
	}
	return nil
}

// item returns the renewed item, or nil if the item is unchanged. keep is false if the item is removed.
func (n *renewal) item(db int, it *keyspace.Item) (next *keyspace.Item, keep bool, err error) {
	if it.IsLock() {
		return nil, n.st.Locks.Has(db, it.Key()), nil
	}
	if it.DeadlineMillis != command.Never && n.DropLeases {
		n.done.Dropped++
		return nil, false, nil
	}
	changed := *it
	if earliest := command.SaturatingAdd(n.st.ClockMillis, n.MinLeaseMillis); it.DeadlineMillis != command.Never &&
		it.DeadlineMillis < earliest {
		n.done.Extended++
		changed.DeadlineMillis, next = earliest, &changed
	}
	by, err := n.raise(it)
	if err != nil || by == 0 {
		return next, true, err
	}
	value, _ := protocol.ParseInt(it.Value())
	raised := keyspace.NewItem(it.Hash, it.Key(), strconv.FormatInt(value+by, 10), changed.DeadlineMillis,
		keyspace.EncodingAuto)
	raised.SetAccount(it.Account())
	return &raised, true, nil
}

// raise returns the growth of the integer in an item: the largest By of the matching patterns, or 0.
func (n *renewal) raise(it *keyspace.Item) (by int64, err error) {
	for i, r := range n.Raises {
		if r.By == 0 {
			r.By = n.done.Jump
		}
		if r.Pattern != "*" && !protocol.Match(r.Pattern, it.Key(), false) {
			continue
		}
		value, ok := int64(0), it.IsString()
		if ok {
			value, ok = protocol.ParseInt(it.Value())
		}
		switch {
		case !ok:
			n.done.Passed[i]++
			continue
		case value > math.MaxInt64-r.By:
			return 0, fmt.Errorf("%d by %d: %w", value, r.By, errRaised)
		}
		n.done.Raised[i]++
		by = max(by, r.By)
	}
	return by, nil
}
