package locks

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
)

// others are values that may stand in the place of one.
func others(was any) (others []any) {
	switch n := was.(type) {
	case uint64:
		for _, other := range []uint64{
			0, 1, n - 1, n + 1, n ^ 2, n ^ 4, n ^ 8, 300, 1<<31 - 1, 1 << 32, MaxFence + 1,
			noOrder, ^uint64(0),
		} {
			others = append(others, other)
		}
	case int64:
		for _, other := range []int64{0, 1, -1, n - 1, n + 1, 1 << 31, Forever, Forever + 1, never, past} {
			others = append(others, other)
		}
	case string:
		others = []any{"", "a", "o1", "n0", n + "x", strings.Repeat("x", MaxText+1)}
	}
	return others
}

// acceptedWithDamage loads a table with each value left out, or changed in many ways, and counts what was accepted. An
// accepted table must be right, be the one form of what it says, and come to an end.
func acceptedWithDamage(t *testing.T, table *Table) (accepted int) {
	var good tape
	table.Save(&good)
	for i, was := range good {
		for n, other := range append(others(was), nil) {
			bad := slices.Clone(good)
			if bad[i] = other; other == was {
				continue
			} else if other == nil {
				bad = slices.Delete(bad, i, i+1)
			}
			source := &player{words: bad}
			damaged, err := Load(source)
			if err != nil {
				continue
			}
			accepted++
			damaged.Begin(table.now, plenty)
			require.NoError(t, damaged.verify(false), "value %d: %v in place of %v", i, other, was)
			var again tape
			damaged.Save(&again)
			read := bad[:len(bad)-len(source.words)]
			if !slices.Equal(read, again) { // waiters of a lock may stand there in another order
				require.ElementsMatch(t, read, again, "value %d: %v in place of %v is not what is saved", i, other, was)
			}
			if (i+n)%8 == 0 {
				exhaust(t, damaged)
			}
		}
	}
	return accepted
}

// TestDamagedValues spoils saved tables: a table that is loaded all the same keeps every promise, and comes to an end.
func TestDamagedValues(t *testing.T) {
	accepted := 0
	for seed := range uint64(12) {
		c := &chaos{r: rand.New(rand.NewPCG(seed, 10)), table: New()}
		now := int64(1000)
		for range 60 {
			now += c.r.Int64N(20)
			c.table.Begin(now, c.r.IntN(20)*ChangeUnits)
			c.step()
		}
		accepted += acceptedWithDamage(t, c.table)
	}
	accepted += acceptedWithDamage(t, sharedAndAlone(t))
	table := at(New(), 1000)
	id, err := table.OpenSession(500, Client{}, false, "", "")
	require.NoError(t, err)
	for db := range 2 { // perhaps with one fence
		r := asks("a", "k")
		r.DB, r.Session = db, id
		table.mustAcquire(t, r)
	}
	accepted += acceptedWithDamage(t, table)
	require.Positive(t, accepted)
}

// refusals are the errors of a table's loads with one value in the place of another, each time at one place.
func refusals(table *Table, was, is any) (errs []error) {
	var good tape
	table.Save(&good)
	for i := range good {
		if good[i] == was {
			bad := slices.Clone(good)
			bad[i] = is
			_, err := Load(&player{words: bad})
			errs = append(errs, err)
		}
	}
	return errs
}

// TestDamageBeyondLimits: no connection has more sessions than it may have, the drop of a node stands once, and all
// waiters together have so many bytes at most.
func TestDamageBeyondLimits(t *testing.T) {
	table := at(New(), 1000)
	for range MaxAttached {
		_, err := table.OpenSession(1000, client(1), true, "", "")
		require.NoError(t, err)
	}
	_, err := table.OpenSession(1000, client(777), true, "", "")
	require.NoError(t, err)
	require.Equal(t, []error{errSession}, refusals(table, int64(777), int64(1)))
	require.Equal(t, []error{nil}, refusals(table, int64(777), int64(2)))

	table = at(New(), 1000)
	table.mustAcquire(t, asks("a", "k"))
	for _, node := range []string{"node 1", "node 2"} {
		q := waiting(asks(node, "k"))
		q.Client.Origin.Node = node
		_, err := table.Acquire(q)
		require.NoError(t, err)
		table.EndNodeWaitsBefore(waits.Name{Origin: q.Client.Origin, Ticket: q.Ticket + 1})
	}
	require.Len(t, table.nodeEnds, 2)
	require.Contains(t, refusals(table, "node 2", "node 1"), errNodeEnd)

	for over, want := range []error{nil, errWaiter} {
		d := &codec{Reader: &player{}, t: New()}
		d.t.waitingBytes = MaxWaitingBytes + int64(over)
		d.queue()
		require.Equal(t, want, d.err)
	}
}

// TestLocksOfNoUse: a snapshot with a lock without holders, waiters and delay is refused. A lock with an unfinished,
// empty queue is looked at, and stays as it was.
func TestLocksOfNoUse(t *testing.T) {
	table := at(New(), 1000)
	table.makeDatabase(0).set(&lock{text: keyspace.NewLockText("k"), head: flagPresent, due: never})
	require.ErrorContains(t, table.Verify(), errLock.Error())

	table = at(New(), 1000)
	table.mustAcquire(t, asks("a", "k"))
	l := table.find(0, "k")
	l.ext = &extension{grantAt: 1000}
	again := reloaded(t, table)
	again.Begin(1001, plenty)
	require.NoError(t, again.verify(false))
	again.Sweep()
	require.NoError(t, again.Verify())
	require.NotZero(t, again.FenceOf(0, "k", "a", 1001))
	require.Nil(t, again.find(0, "k").ext)
}

// exhaust lets all that is due happen, whatever its deadline.
func exhaust(t *testing.T, table *Table) {
	for n := 0; ; n++ {
		require.Less(t, n, 5000, "something is due for ever")
		due, ok := table.NextDue()
		if !ok {
			require.NoError(t, table.Verify())
			return
		}
		table.Begin(max(table.now, due), plenty)
		table.Sweep()
		require.NoError(t, table.verify(false))
	}
}
