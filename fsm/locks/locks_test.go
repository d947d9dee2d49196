package locks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

const plenty = 1 << 20

func at(t *Table, millis int64) *Table {
	t.Begin(millis, plenty)
	return t
}

func client(conn int64) Client { return Client{protocol.Incarnation{Node: "n1", Epoch: 1}, conn} }

// asks is a request of an owner for locks, with a lease of a second.
func asks(owner string, keys ...string) *Request {
	return &Request{Keys: keys, Owner: owner, LeaseMillis: 1000, Client: client(1)}
}

var tickets uint64

func waiting(r *Request) *Request {
	tickets++
	r.Waits, r.Ticket = true, tickets
	return r
}

func (t *Table) mustAcquire(tt *testing.T, r *Request) uint64 {
	tt.Helper()
	a, err := t.Acquire(r)
	require.NoError(tt, err)
	require.NotZero(tt, a.Fence)
	return a.Fence
}

func kinds(effects []Effect) (kinds []EffectKind) {
	for _, e := range effects {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// TestAcquireRelease: a lock comes with its hold and goes with it, and leaves nothing behind.
func TestAcquireRelease(t *testing.T) {
	table := at(New(), 1000)
	require.EqualValues(t, 1, table.mustAcquire(t, asks("a", "k")))
	require.Equal(t, []EffectKind{Granted, Came}, kinds(table.TakeEffects()))
	a, err := table.Acquire(asks("b", "k"))
	require.NoError(t, err)
	require.Zero(t, a)
	require.EqualValues(t, 1, table.mustAcquire(t, asks("a", "k")))
	left, ok := table.Release(0, "k", "b", false)
	require.False(t, ok)
	require.Zero(t, left)
	_, ok = table.Release(0, "k", "a", false)
	require.True(t, ok)
	require.Equal(t, []EffectKind{Released, Went}, kinds(table.TakeEffects()))
	require.Zero(t, table.Bytes())
	require.Zero(t, table.locks.Len()+table.timers.Len())
}

// TestHandOver: a release grants to the first in line, within the same call.
func TestHandOver(t *testing.T) {
	table := at(New(), 1000)
	table.mustAcquire(t, asks("a", "k"))
	for _, owner := range []string{"b", "c"} {
		a, err := table.Acquire(waiting(asks(owner, "k")))
		require.NoError(t, err)
		require.True(t, a.Waiting)
	}
	table.TakeEffects()
	table.Release(0, "k", "a", false)
	effects := table.TakeEffects()
	require.Equal(t, []EffectKind{Released, Granted, WaitEnded}, kinds(effects))
	require.Equal(t, "b", effects[1].Owner)
	require.EqualValues(t, 2, effects[2].Fence)
	at(table, 2001).Sweep()
	effects = table.TakeEffects()
	require.Equal(t, []EffectKind{Lost, Late, Granted, WaitEnded}, kinds(effects))
	require.Equal(t, "c", effects[2].Owner)
	at(table, 5000).Sweep()
	require.Zero(t, table.Bytes())
}
