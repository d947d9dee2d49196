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

// others returns wrong values to put in the place of a value.
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
		for _, other := range []int64{0, 1, -1, n - 1, n + 1, 1 << 31, Forever, Forever + 1, noDeadline, minInstant} {
			others = append(others, other)
		}
	case string:
		others = []any{"", "a", "o1", "n0", n + "x", strings.Repeat("x", MaxText+1)}
	}
	return others
}

// acceptedWithDamage loads snapshots of a table in each of which one value is missing or changed. It returns the number
// of loads that succeed. A table that was loaded must be consistent, must save the values that it was loaded from, and
// must become empty when time passes.
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
			if !slices.Equal(read, again) { // the order of a lock's waiters may differ
				require.ElementsMatch(t, read, again, "value %d: %v in place of %v is not what is saved", i, other, was)
			}
			if (i+n)%8 == 0 {
				exhaust(t, damaged)
			}
		}
	}
	return accepted
}

// TestDamagedValues requires that a damaged snapshot is refused, or that the table loaded from it keeps all promises.
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
	id := table.mustOpen(t, 500)
	for db := range 2 { // a damaged snapshot may have the same fence for both locks
		r := asks("a", "k")
		r.DB, r.Session = db, id
		table.mustAcquire(t, r)
	}
	accepted += acceptedWithDamage(t, table)
	require.Positive(t, accepted)
}

// refusals replaces the value was by the value is in a snapshot of the table, at one position in each load. It returns
// the errors of the loads.
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

// TestDamageBeyondLimits requires that Load refuses a snapshot with too many sessions of a connection, with a session
// of an account that cannot be, with two entries of one node in NodeEnds, or with too many bytes of waiters.
func TestDamageBeyondLimits(t *testing.T) {
	table := at(New(), 1000)
	for range MaxAttached {
		_, err := table.OpenSession(1000, client(1), true, "", "", 0)
		require.NoError(t, err)
	}
	_, err := table.OpenSession(1000, client(777), true, "", "", 0)
	require.NoError(t, err)
	require.Equal(t, []error{errSession}, refusals(table, int64(777), int64(1)))
	require.Equal(t, []error{nil}, refusals(table, int64(777), int64(2)))

	table = at(New(), 1000)
	_, err = table.OpenSession(1000, Client{}, false, "", "", 777)
	require.NoError(t, err)
	require.Equal(t, []error{errSession}, refusals(table, uint64(777), uint64(0)))
	require.Equal(t, []error{errSession}, refusals(table, uint64(777), uint64(keyspace.MaxAccount+1)))
	require.Equal(t, []error{nil}, refusals(table, uint64(777), uint64(keyspace.MaxAccount)))

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
		d.enqueueWaiters()
		require.Equal(t, want, d.err)
	}
}

// TestDamageNamesItsLock requires that the error of Load names the damaged lock, also if other locks have waiters.
func TestDamageNamesItsLock(t *testing.T) {
	table := at(New(), 1000)
	table.mustAcquire(t, asks("a", "jobs"))
	table.mustWait(t, asks("w", "jobs"))
	table.mustAcquire(t, asks("clerk", "mail"))
	errs := refusals(table, "clerk", strings.Repeat("x", MaxText+1))
	require.Len(t, errs, 1)
	require.EqualError(t, errs[0], errHold.Error()+`: "mail"`)
}

// TestLocksOfNoUse requires that Load refuses a lock without holders, waiters and delay. It must accept a pending grant
// of an empty queue, and must keep the lock unchanged.
func TestLocksOfNoUse(t *testing.T) {
	table := at(New(), 1000)
	table.makeDatabase(0).set(&lock{text: keyspace.NewLockText("k"), idAndFlags: flagPresent, deadline: noDeadline})
	require.ErrorContains(t, table.Verify(), errLock.Error())

	table = at(New(), 1000)
	table.mustAcquire(t, asks("a", "k"))
	l := table.find(0, "k")
	l.ext = &extension{grantPendingSince: 1000}
	again := reloaded(t, table)
	again.Begin(1001, plenty)
	require.NoError(t, again.verify(false))
	again.Sweep()
	require.NoError(t, again.Verify())
	require.NotZero(t, again.FenceOf(0, "k", "a", 1001))
	require.Nil(t, again.find(0, "k").ext)
}

// exhaust advances the time until the table has no events, and runs all of them.
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
