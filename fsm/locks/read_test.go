package locks

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// listed returns the keys and the owners of all pages of a list.
func listed(t *testing.T, table *Table, q Query, now int64) (rows []string) {
	q.MaxRows = 10
	for pages := 0; ; pages++ {
		require.Less(t, pages, 100)
		page, next, looked := table.List(&q, now)
		require.LessOrEqual(t, looked, 3*(q.Count+MaxKeys))
		for _, row := range page {
			for _, h := range row.Holds {
				rows = append(rows, fmt.Sprint(row.Key, " held by ", h.Owner))
			}
			for _, w := range row.Waits {
				rows = append(rows, fmt.Sprint(row.Key, " waited for by ", w.Owner))
			}
		}
		if q.Cursor = next; next == 0 {
			return rows
		}
	}
}

// TestLocksOfOneCursor requires that locks with the same cursor are on one page, even if they are more than Count.
func TestLocksOfOneCursor(t *testing.T) {
	table := at(New(), 1000)
	for i := range 3 {
		text := keyspace.NewLockText(strconv.Itoa(i))
		l := &lock{text: text, hash: 1<<cursorShift + uint64(i), deadline: noDeadline, idAndFlags: flagPresent}
		table.makeDatabase(0).set(l)
	}
	_, next, looked := table.List(&Query{Count: 1, MaxRows: 10}, 1000)
	require.Zero(t, next)
	require.Equal(t, 3, looked)
}

// TestList requires, for each filter, that the pages of a list have each hold and each wait exactly once.
func TestList(t *testing.T) {
	table := at(New(), 1000)
	id := table.mustOpen(t, 500)
	var plain, ofSession, ofOwner []string
	for i := range 20 {
		key, owner := fmt.Sprint("k", i), fmt.Sprint("o", i%4)
		r := asks(owner, key)
		if i%2 == 0 {
			r.Session = id
			ofSession = append(ofSession, key+" held by "+owner)
		}
		table.mustAcquire(t, r)
		plain = append(plain, key+" held by "+owner)
		if i%4 == 1 {
			ofOwner = append(ofOwner, key+" held by "+owner)
		}
	}
	w := waiting(asks("waits", "k1", "k3", "k5"))
	w.Session = id
	_, err := table.Acquire(w)
	require.NoError(t, err)
	other := asks("elsewhere", "k1")
	other.DB = 1
	other.Session = id
	table.mustAcquire(t, other)
	var waits []string
	for _, key := range w.Keys {
		waits = append(waits, key+" waited for by waits")
	}
	for _, count := range []int{1, 3, 100} {
		require.ElementsMatch(t, append(waits[:3:3], plain...), listed(t, table, Query{Count: count}, 1000))
		require.ElementsMatch(t, plain, listed(t, table, Query{Count: count, Held: true}, 1000))
		require.ElementsMatch(t, waits, listed(t, table, Query{Count: count, Waiting: true}, 1000))
		require.ElementsMatch(t, ofOwner, listed(t, table, Query{Count: count, ByOwner: true, Owner: "o1"}, 1000))
		require.ElementsMatch(t, append(waits[:3:3], ofSession...), listed(t, table, Query{Count: count, Session: id}, 1000))
		require.ElementsMatch(t, waits, listed(t, table, Query{Count: count, Session: id, Waiting: true}, 1000))
		require.ElementsMatch(t, append(waits[:3:3], ofSession...),
			listed(t, table, Query{Count: count, Session: id, Held: true, Waiting: true}, 1000))
		require.Empty(t, listed(t, table, Query{Count: count, Session: id, Match: func(string) bool { return false }}, 1000))
		require.ElementsMatch(t, plain[7:8], listed(t, table, Query{Count: count, Match: func(key string) bool {
			return key == "k7"
		}, Held: true}, 1000))
	}
	require.ElementsMatch(t, append(append(waits[:3:3], ofSession...), "k1 held by elsewhere"),
		listed(t, table, Query{Count: 9, Session: id, DB: -1}, 1000))
	for _, r := range []*Request{asks("alone", "both"), asks("with a session", "both")} {
		r.DB, r.Mode = 2, Shared
		if r.Owner != "alone" {
			r.Session = id
		}
		table.mustAcquire(t, r)
	}
	require.Equal(t, []string{"both held by with a session"}, listed(t, table, Query{Count: 9, Session: id, DB: 2}, 1000))
	require.Empty(t, listed(t, table, Query{Count: 9, Session: id}, 1501), "the session is over")
	at(table, 1501).Sweep()
	require.Len(t, listed(t, table, Query{Count: 9}, 1501), 10)
}

// TestUsage requires that the Usage of the only lock equals Bytes.
func TestUsage(t *testing.T) {
	table := at(New(), 1000)
	require.Zero(t, table.Usage(0, "k"))
	same := func(requests int) {
		t.Helper()
		require.Equal(t, table.Bytes(), table.Usage(0, "k"))
		require.Equal(t, requests, table.HoldersAndWaiters(0, "k"))
	}
	for i, owner := range []string{"a", "another", "c"} {
		r := asks(owner, "k")
		r.Mode, r.Note = Shared, owner[:i%2]
		table.mustAcquire(t, r)
		same(i + 1)
	}
	for i, owner := range []string{"d", "the last"} {
		r := waiting(asks(owner, "k"))
		r.Note = "why"
		_, err := table.Acquire(r)
		require.NoError(t, err)
		same(4 + i)
	}
	table.Release(0, "k", "a", false)
	same(4)
}

// TestEachQueueIsBounded requires that EachQueue reads at most maxQueues queues.
func TestEachQueueIsBounded(t *testing.T) {
	table := at(New(), 1000)
	for i := range maxQueues + 1 {
		key := strconv.Itoa(i)
		table.mustAcquire(t, asks("a", key))
		table.mustWait(t, asks("b", key))
		table.TakeEvents()
	}
	queues := 0
	table.EachQueue(func(string, int) { queues++ })
	require.Equal(t, maxQueues, queues)
}

// TestListLooksAtSoMany requires that a page ends with the lock at which the list has read maxLooked holds and waiters.
func TestListLooksAtSoMany(t *testing.T) {
	table := at(New(), 1000)
	const locks, holders = 60, MaxHolders
	for i := range locks {
		for owner := range holders {
			r := asks(strconv.Itoa(owner), "lock:"+strconv.Itoa(i))
			r.Mode = Shared
			table.mustAcquire(t, r)
			table.TakeEvents()
		}
	}
	q := Query{Count: 100, MaxRows: MaxHolders}
	rows, next, looked := table.List(&q, 1000)
	page := maxLooked/holders + 1
	require.Len(t, rows, page)
	require.Equal(t, page*(holders+1), looked)
	q.Cursor = next
	rows, next, _ = table.List(&q, 1000)
	require.Len(t, rows, locks-page)
	require.Zero(t, next)
	rows, _, _ = table.List(&Query{Cursor: 1, Count: 100, MaxRows: 1}, 1000)
	require.Len(t, rows, locks)
	rows, next, _ = table.List(&Query{Cursor: 1 << 53, Count: 100}, 1000)
	require.Empty(t, rows, "there is nothing behind the largest cursor")
	require.Zero(t, next)
}
