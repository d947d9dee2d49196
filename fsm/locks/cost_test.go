package locks

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// measured returns the bytes of heap that the result of f takes, divided by n, the number of its records.
func measured(n int, f func() any) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return int64(after.HeapAlloc-before.HeapAlloc) / int64(n)
}

// TestMemory requires that no record takes more memory than the table counts for it. With its item in the keyspace, a
// held lock may take at most 290 bytes, and 310 if it belongs to a session; a waiter may take at most 255 bytes.
func TestMemory(t *testing.T) {
	const many = 20_000
	var table *Table
	texts := make([]keyspace.LockText, many) // shared by items and locks
	for i := range texts {
		texts[i] = keyspace.NewLockText(fmt.Sprint("lock:", i))
	}
	markers := measured(many, func() any {
		space := keyspace.New(0)
		for _, text := range texts {
			it := keyspace.NewLock(keyspace.Hash(text.Key()), text)
			space.Put(&it)
		}
		return space
	})
	check := func(name string, most int64, fill func()) int64 {
		t.Helper()
		table = at(New(), 1000)
		each := measured(many, func() any {
			fill()
			table.TakeEvents()
			table.events, table.touchedLocks, table.wokenLocks = nil, nil, nil
			return table
		})
		counted := table.Bytes() / many
		t.Logf("%s: %d bytes, counted as %d", name, each, counted)
		require.LessOrEqual(t, each, counted, name)
		require.LessOrEqual(t, counted, 3*each, "the count is far above the truth")
		require.LessOrEqual(t, each, most, name)
		return each
	}
	runtime.KeepAlive(texts)
	t.Logf("the item of a lock: %d bytes", markers)
	check("a lock with a lease", 290-markers, func() {
		for i := range many {
			r := asks(fmt.Sprint("worker-", i), fmt.Sprint("lock:", i))
			r.LeaseMillis = int64(10_000 + i*7919%many)
			_, _ = table.Acquire(r)
			table.TakeEvents()
		}
	})
	check("a lock of a session", 310-markers, func() {
		var id uint64
		for i := range many {
			if i%MaxPerSession == 0 {
				id, _ = table.OpenSession(1000, Client{}, false, "", "", 0)
			}
			r := asks(fmt.Sprint("worker-", i), fmt.Sprint("lock:", i))
			r.Session = id
			table.mustAcquire(t, r)
			table.TakeEvents()
		}
	})
	check("a shared hold", 140, func() {
		for i := range many {
			r := asks(fmt.Sprint("worker-", i), fmt.Sprint("lock ", i/MaxHolders))
			r.Mode = Shared
			table.mustAcquire(t, r)
			table.TakeEvents()
		}
	})
	check("a waiter", 255, func() {
		for i := range many {
			r := waiting(asks(fmt.Sprint("worker-", i), "lock"))
			r.WaitMillis, r.GraceMillis = int64(10_000+i*7919%many), 2000
			_, _ = table.Acquire(r)
			table.TakeEvents()
		}
	})
	check("a lock with a holder and a waiter", 900, func() {
		for i := range many {
			key := fmt.Sprint("lock:", i)
			_, _ = table.Acquire(asks("holder", key))
			_, _ = table.Acquire(waiting(asks("waiter", key)))
			table.TakeEvents()
		}
	})
	check("a session", 350, func() {
		for i := range many {
			_, _ = table.OpenSession(1000+int64(i), client(int64(i)), i%2 == 0, "", "", 0)
		}
	})
}

// TestNothingIsKeptOfACall requires that a call leaves no pointers in the lists of the store, and that a long list of
// events is not kept.
func TestNothingIsKeptOfACall(t *testing.T) {
	table := at(New(), 1000)
	id := table.mustOpen(t, 500)
	for i := range 1000 {
		key := fmt.Sprint("lock:", i)
		r := asks("holder", key)
		r.Session = id
		table.mustAcquire(t, r)
		table.mustWait(t, asks("waiter", key))
		table.TakeEvents()
	}
	table.CloseSession(id)
	require.Equal(t, 1000, table.Stats().Holds)
	require.Greater(t, len(table.TakeEvents()), 2000)
	require.LessOrEqual(t, cap(table.events), 1<<8)
	for _, list := range [][]*lock{table.touchedLocks, table.wokenLocks} {
		list = list[:cap(list)]
		require.GreaterOrEqual(t, len(list), 1000)
		require.Equal(t, make([]*lock, len(list)), list)
	}
}

// TestQueueEntriesAreCharged requires that a request costs a unit for each key that the table looks up, and that a
// waiter costs two more units for each queue but the first that it joins or leaves.
func TestQueueEntriesAreCharged(t *testing.T) {
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprint("lock:", i)
	}
	table := at(New(), 1000)
	table.mustAcquire(t, asks("holder", keys[0]))
	takes := func(name string, others, places int, f func()) {
		t.Helper()
		table.Begin(table.now, plenty)
		f()
		others += QueueUnits * 99 * places
		require.Equal(t, others, plenty-table.BudgetLeft(), name)
		table.TakeEvents()
	}
	wait := func(owner string, keys ...string) func() {
		return func() {
			table.mustWait(t, asks(owner, keys...))
		}
	}
	takes("joining", 1, 1, wait("w", keys...))
	takes("asking again", 1, 2, wait("w", keys...))
	takes("cancelling", 0, 1, func() { require.True(t, table.Cancel(0, keys[50], "w")) })
	takes("joining", 1, 1, wait("w", keys...))
	takes("asking for another", 1, 1, wait("w", keys[0]))
	takes("joining", 1, 1, wait("v", keys...))
	table.mustAcquire(t, asks("last", "behind"))
	for i := range keys[1:] {
		keys[i] = fmt.Sprint("free:", i)
	}
	keys[99] = "behind"
	takes("looking at all", 100, 1, wait("w", keys...))
	takes("leaving", 0, 1, func() {
		require.True(t, table.RemoveWaiter(waits.Name{Origin: client(1).Origin, Ticket: tickets}, protocol.LeaveGone))
	})
}

// TestSteps requires that the comparisons of a call grow only with the logarithm of the table's size.
func TestSteps(t *testing.T) {
	const many = 100_000
	table := at(New(), 1000)
	count := counterOf(table)
	price := func(name string, most int, f func()) {
		t.Helper()
		table.Begin(table.now, plenty)
		compared := count(f)
		t.Logf("%s: %d comparisons, %d units", name, compared, plenty-table.BudgetLeft())
		require.LessOrEqual(t, compared, most, name)
		require.LessOrEqual(t, plenty-table.BudgetLeft(), 4*ChangeUnits, name)
		table.TakeEvents()
	}
	table.mustAcquire(t, asks("holder", "hot"))
	for i := range many {
		table.mustWait(t, asks(fmt.Sprint("w", i), "hot"))
		if i%5 == 0 {
			table.mustAcquire(t, asks("a", fmt.Sprint("lock:", i)))
		}
		table.TakeEvents()
	}
	_, err := table.Acquire(waiting(asks("one more", "hot")))
	require.ErrorIs(t, err, ErrFull)
	price("asking again in line", 1200, func() { _, _ = table.Acquire(waiting(asks("w50000", "hot"))) })
	price("leaving the line", 600, func() { table.Cancel(0, "hot", "w50001") })
	price("a release with 100,000 behind", 1200, func() { table.Release(0, "hot", "holder", false) })
	price("a refusal", 200, func() { _, _ = table.Acquire(asks("nobody", "hot")) })
	price("a grant", 300, func() { _, _ = table.Acquire(asks("somebody", "free")) })
	price("a release", 300, func() { table.Release(0, "free", "somebody", false) })
	price("a renewal", 300, func() { table.Renew(0, "hot", "w0", 5000) })
	price("a copy", 0, func() { table.Copy() })
	price("a flush", 2000, func() {
		table.Begin(table.now, 3*ChangeUnits)
		table.Flush(0, 0)
		table.Begin(table.now, plenty)
	})
}

// TestComparisons requires that no call makes more comparisons than the golden file has, and that each call takes the
// same part of the budget. It makes random calls, and calls to a crowded table. It makes the latter calls to a settled
// table, and to tables with due events of leases, of a session and of a flush. The flag -rewrite rewrites the file.
func TestComparisons(t *testing.T) {
	var got strings.Builder
	for seed := range uint64(10) {
		compared, left, now := 0, 0, int64(1000)
		c := &chaos{r: rand.New(rand.NewPCG(seed, 12)), table: New()}
		count := counterOf(c.table)
		for range 80 {
			now += c.r.Int64N(2) * c.r.Int64N(40)
			compared += count(func() {
				c.table.Begin(now, c.r.IntN(6)*ChangeUnits)
				c.table.Sweep()
				c.step()
				c.rare(io.Discard)
				left += c.table.BudgetLeft()
				c.tellAll(t, io.Discard, now+c.r.Int64N(2)*c.r.Int64N(30))
			})
			c.table.TakeEvents()
		}
		fmt.Fprintf(&got, "drawn by %d: %d units left, comparisons: %d\n", seed, left, compared)
	}
	table := at(New(), 1000)
	count := counterOf(table)
	sessions := crowded(t, table)
	for _, state := range []string{"at rest", "behind leases", "behind a session", "behind a flush"} {
		table.Begin(table.now, 0)
		switch state {
		case "behind leases":
			table.Begin(2100, 0)
		case "behind a session":
			table.CloseSession(sessions[0])
			sessions = sessions[1:]
		case "behind a flush":
			table.Flush(0, 0)
		}
		var names []string
		left, sums := map[string]int{}, map[string]int{}
		ofAll(table, sessions, func(name string, f func()) {
			if _, known := sums[name]; !known {
				names = append(names, name)
			}
			table.Begin(table.now, 2*ChangeUnits)
			sums[name] += count(f)
			left[name] += table.BudgetLeft()
			table.TakeEvents()
		})
		for _, name := range names {
			fmt.Fprintf(&got, "%s, %s: %d units left, comparisons: %d\n", state, name, left[name],
				sums[name])
		}
	}
	notMore(t, "testdata/golden/comparisons.txt", got.String())
}

// notMore compares each line of got with the same line of the golden file. The number at the end of a line may be
// smaller than in the file.
func notMore(t *testing.T, golden, got string) {
	want := strings.Split(protocoltest.Golden(t, golden, got), "\n")
	for i, line := range strings.Split(got, "\n") {
		require.Less(t, i, len(want))
		name, figure := line[:strings.LastIndex(line, " ")+1], line[strings.LastIndex(line, " ")+1:]
		most, ok := strings.CutPrefix(want[i], name)
		require.True(t, ok, "%s; it was: %s", line, want[i])
		now, _ := strconv.Atoi(figure)
		before, _ := strconv.Atoi(most)
		require.LessOrEqual(t, now, before, "%s more than before; -rewrite writes the present figures", name)
	}
}

// counterOf makes all trees of a table count their comparisons. It returns a function that runs f, and returns the
// number of comparisons that f made. Trees of databases that f makes count from the next call on.
func counterOf(t *Table) (count func(f func()) int) {
	compared := new(int)
	q, s, counted := &t.queues, &t.sessions, map[*database]bool{}
	countTree(&q.queueEntries, compared)
	countTree(&q.waitersByOwner, compared)
	countTree(&q.waitEnds, compared)
	countTree(&q.waitersByName, compared)
	countTree(&q.waitersBySession, compared)
	countTree(&s.sessionsByID, compared)
	countTree(&s.sessionEnds, compared)
	countTree(&s.sessionsByNode, compared)
	countTree(&s.sessionsByConnection, compared)
	countTree(&s.holdsBySession, compared)
	count = func(f func()) int {
		for _, d := range slices.Concat([]*database{t.makeDatabase(0)}, t.liveDatabases, t.flushedDatabases) {
			if !counted[d] {
				counted[d] = true
				countTree(&d.locks, compared)
				countTree(&d.agenda, compared)
			}
		}
		*compared = 0
		f()
		return *compared
	}
	count(func() {})
	return count
}

// countTree replaces a tree by one with the same items, each of whose comparisons increments *compared.
func countTree[T any](tree **btree.BTreeG[T], compared *int) {
	plain := *tree
	*tree = newTree(func(a, b T) bool {
		*compared++
		return plain.Less(a, b)
	})
	for _, item := range plain.Items() {
		(*tree).Set(item)
	}
}

// crowded fills a table with locks with many holds and waiters, with leases and with sessions. It returns the ids of
// the sessions.
func crowded(t *testing.T, table *Table) (sessions []uint64) {
	for range 4 {
		id := table.mustOpen(t, 5000)
		sessions = append(sessions, id)
	}
	table.mustAcquire(t, asks("first", "line 0", "line 1"))
	for i := range 400 {
		for of, session := range []uint64{0, sessions[i%3]} {
			r := asks(fmt.Sprint("o", i), fmt.Sprint("page ", of))
			r.Mode, r.Session, r.LeaseMillis = Shared, session, int64(2000+i)
			table.mustAcquire(t, r)
			r = waiting(asks(fmt.Sprint("o", i), fmt.Sprint("line ", of)))
			r.Mode, r.Session, r.WaitMillis = Mode(i%7%2), session, int64(3000+i)
			_, err := table.Acquire(r)
			require.NoError(t, err)
		}
		r := asks("a", fmt.Sprint("lock ", i))
		r.Session = sessions[i%3]
		table.mustAcquire(t, r)
		table.TakeEvents()
	}
	return sessions
}

// ofAll makes calls of all kinds to a crowded table.
func ofAll(table *Table, sessions []uint64, call func(name string, f func())) {
	now := table.now
	for _, key := range []string{"page 0", "page 1", "line 0", "line 1", "lock 30", "lock 31", "free"} {
		ask := func(name, owner string, session uint64, mode Mode) {
			for _, name := range []string{name, name + " again"} {
				r := asks(owner, key)
				if r.Mode, r.Session = mode, session; mode == Exclusive {
					r = waiting(r)
				}
				call(name, func() { _, _ = table.Acquire(r) })
			}
		}
		call("check", func() { table.FenceOf(0, key, "o15", now) })
		call("has", func() { table.Has(0, key) })
		call("info", func() { table.Info(0, key, now, 1) })
		call("what is left", func() { table.LeaseLeftMillis(0, key, now) })
		call("due", func() { table.HasDue(0, key, now+1) })
		call("blocked", func() { table.IsBlocked(asks("nobody", key), now) })
		call("settle", func() { table.Settle(0, key) })
		ask("join", "new", 0, Shared)
		ask("join with a session", "bound", sessions[0], Shared)
		ask("wait", "in line", 0, Exclusive)
		call("renew", func() { table.Renew(0, key, "new", 2500) })
		call("release", func() { table.Release(0, key, "new", false) })
		call("cancel", func() { table.Cancel(0, key, "in line") })
		call("break of one", func() { table.Break(&Break{Key: key, ByOwner: true, Owner: "o10", Reason: Broken}) })
		call("downgrade", func() { _, _ = table.Downgrade(0, key, "o15") })
		call("give back", func() { table.ReturnGrant(0, key, "o15", 0, client(1)) })
	}
	for _, id := range sessions {
		call("session", func() { table.Session(id, now) })
		call("list of a session", func() { table.List(&Query{Count: 1, MaxRows: 1, Session: id}, now) })
		call("keep alive", func() { table.KeepAlive(id) })
		call("attach", func() { _, _ = table.Attach(id, client(1)) })
	}
	call("sessions", func() { table.Sessions("", 0, 2, now) })
	call("list", func() { table.List(&Query{Count: 1, MaxRows: 1}, now) })
	call("alive", func() { table.KeepNodeAlive(client(1).Origin) })
	call("next due", func() { table.NextDue() })
	call("open", func() { _, _ = table.OpenSession(5000, client(2), true, "x", "", 0) })
	call("gone", func() { table.EndSessionsOf(client(2)) })
	call("copy", func() { table.Copy() })
	call("sweep", func() { table.Sweep() })
}

// nobody is a Writer that discards all values.
type nobody struct{}

func (nobody) Uint(uint64)   {}
func (nobody) Int(int64)     {}
func (nobody) String(string) {}

// TestSaveAllocatesNothingForALock requires that the allocations of Save do not grow with the number of locks, since a
// node saves its state often.
func TestSaveAllocatesNothingForALock(t *testing.T) {
	table := at(New(), 1000)
	for i := range 1000 {
		table.mustAcquire(t, asks("a", fmt.Sprint("k", i)))
	}
	require.Less(t, testing.AllocsPerRun(5, func() { table.Save(nobody{}) }), 100.0)
}
