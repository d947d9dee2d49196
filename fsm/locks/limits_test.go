package locks

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// TestFencesRunOut requires that requests are refused after the fence 2^53-1 was issued, and that waits end with an
// error.
func TestFencesRunOut(t *testing.T) {
	table := at(New(), 1000)
	table.RaiseCounters(MaxFence-2, 0)
	require.EqualValues(t, MaxFence-1, table.mustAcquire(t, asks("a", "k")))
	require.EqualValues(t, MaxFence, table.mustAcquire(t, asks("b", "l")))
	_, err := table.Acquire(asks("c", "m"))
	require.ErrorIs(t, err, ErrFull)
	a, err := table.Acquire(waiting(asks("c", "k")))
	require.NoError(t, err)
	require.True(t, a.Waiting)
	require.EqualValues(t, MaxFence, table.mustAcquire(t, asks("b", "l")), "asking again takes none")
	table.TakeEvents()
	table.Release(0, "k", "a", false)
	events := table.TakeEvents()
	require.Equal(t, []EventKind{Released, WaitEnded, LeftQueue, Removed}, kinds(events))
	require.ErrorIs(t, events[1].Err, ErrFull)

	table.Flush(0, 0)
	_, err = table.Acquire(asks("c", "m"))
	require.ErrorIs(t, err, ErrFull)
	reloaded(t, table)
	table.RaiseCounters(1<<32, 0)
	_, err = table.Acquire(asks("c", "m"))
	require.ErrorIs(t, err, ErrFull)
	require.Zero(t, table.Bytes())
	_, err = table.OpenSession(1000, Client{}, false, "", "", 0)
	require.ErrorIs(t, err, ErrFull)
}

// TestRaise requires that RaiseCounters adds the increase and reaches the minimum. It must never exceed MaxFence, and
// never lower a counter.
func TestRaise(t *testing.T) {
	for _, row := range []struct{ from, by, above, want uint64 }{
		{3, 0, 0, 3},
		{3, 5, 0, 8},
		{3, 5, 20, 20},
		{3, 5, 7, 8},
		{3, ^uint64(0), 0, MaxFence},
		{3, 0, ^uint64(0), MaxFence},
		{MaxFence + 2, 1, 1, MaxFence + 2},
	} {
		table := New()
		table.fences, table.sessionIDs = row.from, min(row.from, MaxFence)
		table.RaiseCounters(row.by, row.above)
		require.Equal(t, []uint64{row.want, min(row.want, MaxFence)}, []uint64{table.fences, table.sessionIDs}, "%+v", row)
	}
}

// TestManyHoldAndWait requires that a lock has at most MaxHolders holds and MaxWaiters waiters. An owner among them may
// ask again. When one of them leaves, another owner may take the room. The test sets most counts directly.
func TestManyHoldAndWait(t *testing.T) {
	table := at(New(), 1000)
	shared := func(owner string) *Request {
		r := asks(owner, "k")
		r.Mode = Shared
		return r
	}
	table.mustAcquire(t, shared("a"))
	table.mustAcquire(t, shared("b"))
	table.mustWait(t, asks("w", "k"))
	m := table.find(0, "k").ext
	for i := range MaxHolders - 2 {
		m.holds.byFence = append(m.holds.byFence, &hold{fence: uint64(i + 3), mode: Shared})
	}
	a, err := table.Acquire(waiting(shared("c")))
	require.NoError(t, err)
	require.True(t, a.Waiting)
	require.True(t, table.Cancel(0, "k", "w"))
	require.Zero(t, table.FenceOf(0, "k", "c", 1000))
	require.EqualValues(t, 2, table.mustAcquire(t, shared("b")))
	table.Release(0, "k", "b", false)
	require.NotZero(t, table.FenceOf(0, "k", "c", 1000))

	m.holds.byFence = m.holds.byFence[MaxHolders-2:]
	table.mustWait(t, asks("w", "k"))
	m.ranks[absent] += MaxWaiters - 1
	_, err = table.Acquire(waiting(asks("one more", "k")))
	require.ErrorIs(t, err, ErrFull)
	_, err = table.Acquire(waiting(asks("one more", "other", "k")))
	require.ErrorIs(t, err, ErrFull)
	require.False(t, table.Has(0, "other"), "what is refused leaves nothing")
	table.mustWait(t, asks("w", "k"))
	m.ranks[absent]--
	table.mustWait(t, asks("one more", "k"))
}

// TestWaitersAreBounded requires that all waiters together count for at most MaxWaitingBytes.
func TestWaitersAreBounded(t *testing.T) {
	table := at(New(), 1000)
	table.mustAcquire(t, asks("a", "k"))
	table.waitingBytes = MaxWaitingBytes - 1500
	long := waiting(asks(strings.Repeat("o", MaxText), "k"))
	_, err := table.Acquire(long)
	require.ErrorIs(t, err, ErrFull)
	table.mustWait(t, asks("b", "k"))
	require.True(t, table.Cancel(0, "k", "b"))
	require.EqualValues(t, MaxWaitingBytes-1500, table.waitingBytes)
}

// TestSessionsOfAConnection requires that a connection has at most MaxAttached sessions, whether they were opened there
// or attached later. When one of them ends, the connection may have another.
func TestSessionsOfAConnection(t *testing.T) {
	table := at(New(), 1000)
	open := func(c Client) error {
		_, err := table.OpenSession(1000, c, c != Client{}, "", "", 0)
		return err
	}
	for range MaxAttached {
		require.NoError(t, open(client(1)))
	}
	require.ErrorIs(t, open(client(1)), ErrFull)
	require.NoError(t, open(client(2)))
	_, err := table.OpenSession(0, client(2), true, "", "", 0)
	require.ErrorIs(t, err, ErrRequest)
	_, err = table.OpenSession(1000, Client{}, true, "", "", 0)
	require.ErrorIs(t, err, ErrRequest)
	alone, err := table.OpenSession(1000, client(1), false, "", "", 0)
	require.NoError(t, err, "it lives with no connection")
	_, err = table.Attach(MaxAttached+1, client(1))
	require.ErrorIs(t, err, ErrFull)
	ok, err := table.Attach(7, client(1))
	require.NoError(t, err)
	require.True(t, ok, "it lives there already")
	_, ok = table.CloseSession(1)
	require.True(t, ok)
	ok, err = table.Attach(MaxAttached+1, client(1))
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, MaxAttached, table.EndSessionsOf(client(1)))
	_, ok = table.CloseSession(alone)
	require.True(t, ok)
	table.Sweep()
	require.Zero(t, table.Bytes())
}

// TestForever requires that a lease of Forever does not end, whenever it begins, and that a longer lease is cut to
// Forever.
func TestForever(t *testing.T) {
	for _, lease := range []int64{Forever, math.MaxInt64} {
		table := at(New(), 1<<61)
		r := asks("a", "k")
		r.LeaseMillis, r.DelayMillis = lease, lease
		table.mustAcquire(t, r)
		left, ok := table.LeaseLeftMillis(0, "k", 1<<61)
		require.True(t, ok)
		require.EqualValues(t, 1<<61, left)
		require.NoError(t, table.Verify())
		require.NotZero(t, table.Renew(0, "k", "a", lease))
		require.NoError(t, table.Verify())
		require.NotZero(t, table.Renew(0, "k", "a", 0), "the lease stays")
		again, _ := table.LeaseLeftMillis(0, "k", 1<<61)
		require.Equal(t, left, again)
		table.mustOpen(t, lease)
		require.NoError(t, table.Verify())
		r = waiting(asks("b", "k"))
		r.WaitMillis, r.GraceMillis = lease, lease
		_, err := table.Acquire(r)
		require.NoError(t, err)
		require.NoError(t, table.Verify())
		reloaded(t, table)
	}
}

// TestTextsAreBounded requires that owners, notes, calls and names have at most MaxText bytes.
func TestTextsAreBounded(t *testing.T) {
	table := at(New(), 1000)
	fits, long := strings.Repeat("x", MaxText), strings.Repeat("x", MaxText+1)
	for _, set := range []func(r *Request, text string){
		func(r *Request, text string) { r.Owner = text },
		func(r *Request, text string) { r.Note = text },
		func(r *Request, text string) { r.Reentrant, r.Call = true, text },
	} {
		r := asks("o", "k")
		set(r, long)
		_, err := table.Acquire(r)
		require.ErrorIs(t, err, ErrTooLong)
		set(r, fits)
		table.mustAcquire(t, r)
		_, ok := table.Release(0, "k", r.Owner, true)
		require.True(t, ok)
	}
	_, err := table.OpenSession(1000, Client{}, false, long, "", 0)
	require.ErrorIs(t, err, ErrTooLong)
	client := Client{Origin: protocol.Incarnation{Node: "n1"}}
	_, err = table.Acquire(&Request{Owner: "o", LeaseMillis: 1000, Client: client})
	require.ErrorIs(t, err, ErrRequest)
	require.Zero(t, table.Bytes())
}

// TestRequestsAreChecked requires that a request with a number out of range is refused, and changes nothing.
func TestRequestsAreChecked(t *testing.T) {
	table := at(New(), 1000)
	permits := func(limit, permits int32) func(r *Request) {
		return func(r *Request) { r.Mode, r.Limit, r.Permits = Permits, limit, permits }
	}
	for name, spoil := range map[string]func(r *Request){
		"no key":           func(r *Request) { r.Keys = nil },
		"too many keys":    func(r *Request) { r.Keys = manyKeys(MaxKeys + 1) },
		"database":         func(r *Request) { r.DB = -1 },
		"large database":   func(r *Request) { r.DB = maxDatabases },
		"mode":             func(r *Request) { r.Mode = Permits + 1 },
		"no permits":       permits(3, 0),
		"too many permits": permits(3, 4),
		"no lease":         func(r *Request) { r.LeaseMillis = 0 },
		"wait":             func(r *Request) { r.WaitMillis = -1 },
		"delay":            func(r *Request) { r.DelayMillis = -1 },
		"grace":            func(r *Request) { r.GraceMillis = -1 },
		"ticket":           func(r *Request) { r.Ticket = ^uint64(0) },
	} {
		r := asks("o", "k")
		spoil(r)
		_, err := table.Acquire(r)
		require.ErrorIs(t, err, ErrRequest, name)
	}
	require.Zero(t, table.Bytes())
	r := asks("o", manyKeys(MaxKeys)...)
	permits(MaxLimit, MaxLimit)(r)
	r.DB = maxDatabases - 1
	table.mustAcquire(t, r)
}

func manyKeys(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
	}
	return keys
}

// TestCountOfAcquiresIsBounded requires that an acquire does not change a count that is at its maximum.
func TestCountOfAcquiresIsBounded(t *testing.T) {
	table := at(New(), 1000)
	r := asks("o", "k")
	r.Reentrant = true
	table.mustAcquire(t, r)
	table.find(0, "k").hold.count = maxCount - 1
	for range 2 {
		table.mustAcquire(t, r)
		require.EqualValues(t, maxCount, table.find(0, "k").hold.count)
	}
}

// TestQueuesComeFirst requires that a sweep grants contended locks whose leases have ended, or that were flushed,
// before it has removed many other holds.
func TestQueuesComeFirst(t *testing.T) {
	for _, flush := range []bool{false, true} {
		table := at(New(), 1000)
		for i := range 1000 {
			r := asks("holder", fmt.Sprint("lock:", i))
			r.LeaseMillis = 500
			table.mustAcquire(t, r)
		}
		r := asks("holder", "k")
		r.LeaseMillis = 510
		table.mustAcquire(t, r)
		table.mustWait(t, asks("next", "k"))
		if table.Begin(1400, 0); flush {
			table.Flush(0, 0)
		} else {
			table.Begin(2000, 0)
		}
		table.Begin(2000, 10*ChangeUnits)
		table.Sweep()
		require.NotZero(t, table.FenceOf(0, "k", "next", 2000))
		require.Greater(t, table.Stats().Holds, 900)
		require.Less(t, table.Stats().Holds, 1000, "the others have their part")
		require.NoError(t, table.Verify())
	}
}

// TestSessionsAreBounded requires that a session has at most MaxPerSession holds and queue entries. An owner may ask
// again for a lock that the session holds or waits for. A grant takes no more room than the queue entries that it
// replaces.
func TestSessionsAreBounded(t *testing.T) {
	table := at(New(), 1000)
	id := table.mustOpen(t, 5000)
	bound := func(r *Request) *Request { r.Session = id; return r }
	table.mustAcquire(t, asks("other", "taken"))
	_, err := table.Acquire(bound(waiting(asks("o", "taken", "free"))))
	require.NoError(t, err)
	for i := range MaxPerSession - 2 {
		table.mustAcquire(t, bound(asks("o", fmt.Sprint(i))))
		table.TakeEvents()
	}
	for _, r := range []*Request{asks("o", "one more"), waiting(asks("p", "taken")), asks("o", "0", "more")} {
		_, err = table.Acquire(bound(r))
		require.ErrorIs(t, err, ErrSessionFull)
	}
	table.mustAcquire(t, bound(asks("o", "0")))
	mine := asks("o", "mine")
	table.mustAcquire(t, mine)
	_, err = table.Acquire(bound(mine))
	require.ErrorIs(t, err, ErrSessionFull, "a hold by lease does not become the session's")
	_, err = table.Acquire(bound(waiting(asks("o", "taken", "free"))))
	require.NoError(t, err, "the place is kept")
	_, ok := table.Release(0, "1", "o", true)
	require.True(t, ok)
	table.mustAcquire(t, asks("other", "busy"))
	_, err = table.Acquire(bound(waiting(asks("o", "2", "busy"))))
	require.ErrorIs(t, err, ErrSessionFull, "a waiter has a place at each lock, also at those that its owner holds")
	table.mustAcquire(t, bound(asks("o", "1")))
	require.NoError(t, table.Verify())
	table.Release(0, "taken", "other", false)
	require.NotZero(t, table.FenceOf(0, "free", "o", 1000))
	require.NoError(t, table.Verify())
	holds, ok := table.CloseSession(id)
	require.True(t, ok)
	require.Equal(t, MaxPerSession, holds)
	require.Equal(t, 2, table.Stats().Holds)
}

// TestEndsOfWaitsAreBounded requires that a call with a small budget ends few waits, whatever ends the waits.
func TestEndsOfWaitsAreBounded(t *testing.T) {
	nodeEnds := func(table *Table) { table.EndNodeWaits("n1", 1) }
	for _, row := range []struct {
		name         string
		millis       int64
		before, call func(table *Table)
	}{
		{"waits of an ended node", 1001, nodeEnds, (*Table).Sweep},
		{"waits of an ended node that are next in line", 1001, nodeEnds, func(table *Table) {
			table.Release(0, "k", "holder", false)
		}},
		{"timeouts", 1202, func(*Table) {}, (*Table).Sweep},
		{"graces", 1202, func(table *Table) {
			table.Begin(1101, plenty)
			table.Sweep()
		}, (*Table).Sweep},
	} {
		table := at(New(), 1000)
		table.mustAcquire(t, asks("holder", "k"))
		for i := range 100 {
			r := asks(fmt.Sprint("waiter", i), "k")
			r.WaitMillis, r.GraceMillis = 100, 100
			table.mustWait(t, r)
		}
		row.before(table)
		table.TakeEvents()
		table.Begin(row.millis, 5*ChangeUnits)
		row.call(table)
		require.Less(t, len(table.TakeEvents()), 30, row.name)
		require.NoError(t, table.Verify())
	}
}
