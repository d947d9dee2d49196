package waits

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// naive is a table as one would write it without a thought for time.
type naive struct {
	waiters []*Waiter
	ready   []string
}

func (n *naive) queue(key string, kind keyspace.Kind) (names []string) {
	for _, w := range n.waiters {
		if w.Kind == kind && slices.Contains(w.Keys(), key) {
			names = append(names, show(w))
		}
	}
	return names
}

func (n *naive) due() *Waiter {
	var first *Waiter
	for _, w := range n.waiters {
		if w.DeadlineMillis != Never && (first == nil || w.DeadlineMillis < first.DeadlineMillis) {
			first = w
		}
	}
	return first
}

func (n *naive) remove(names ...Name) {
	n.waiters = slices.DeleteFunc(n.waiters, func(w *Waiter) bool { return slices.Contains(names, w.Name) })
}

// TestModel draws calls and compares a table with the naive one, restored tables included.
func TestModel(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			table, model := New(), &naive{}
			for range 400 {
				drawn(t, r, table, model)
				if r.IntN(20) == 0 {
					table = restored(t, table)
				}
				compare(t, table, model)
			}
		})
	}
}

func pick(r *rand.Rand) Name {
	var n Name
	n.Origin.Node, n.Origin.Epoch, n.Ticket = fmt.Sprint("n", r.IntN(2)), 1+r.Uint64N(3), 1+r.Uint64N(20)
	return n
}

func drawn(t *testing.T, r *rand.Rand, table *Table, model *naive) {
	key := string(rune('a' + r.IntN(3)))
	switch r.IntN(9) {
	case 0, 1, 2, 3:
		w := &Waiter{
			Name: pick(r), Kind: keyspace.KindList + keyspace.Kind(r.IntN(2)),
			DeadlineMillis: r.Int64N(4) * r.Int64N(100), Words: []string{"pop", key, string(rune('a' + r.IntN(3)))}, KeyFrom: 1,
			KeyCount: 1 + r.IntN(2),
		}
		if table.Add(w) {
			model.waiters = append(model.waiters, w)
		}
	case 4:
		n := pick(r)
		if w := table.Find(n); w != nil {
			table.Remove(w)
			model.remove(n)
		}
	case 5:
		n := pick(r)
		table.Drop(n)
		kept := table.Copy()
		was := saidOf(kept)
		defer func() { require.Equal(t, was, saidOf(kept), "a copy changes with its original") }()
		model.waiters = slices.DeleteFunc(model.waiters, func(w *Waiter) bool {
			return w.Origin.Node == n.Origin.Node && w.compare(n) < 0
		})
		for table.Sweep() != nil {
		}
	case 6:
		if table.Any(0, key) && !slices.Contains(model.ready, key) {
			model.ready = append(model.ready, key)
		}
		table.Wake(0, key)
	default:
		if table.HasReady() {
			table.Served()
			model.ready = model.ready[1:]
		}
	}
}

// saidOf is all that a table says of its waiters, of the keys that are ready, and of nodes that were dropped.
func saidOf(table *Table) string {
	var names []string
	table.Scan(func(w *Waiter) bool {
		names = append(names, fmt.Sprint(show(w), table.Dropped(w)))
		return true
	})
	return fmt.Sprint(names, readyOf(table), table.DroppedBefore(), table.Len(), table.Bytes())
}

func compare(t *testing.T, table *Table, model *naive) {
	t.Helper()
	require.NoError(t, table.Verify())
	for _, key := range []string{"a", "b", "c"} {
		for kind := keyspace.KindList; kind <= keyspace.KindSet; kind++ {
			require.Equal(t, model.queue(key, kind), queueOf(table, key, kind))
		}
	}
	require.Equal(t, append([]string{}, model.ready...), append([]string{}, readyOf(table)...))
	require.Equal(t, len(model.waiters), table.Len())
	if due := model.due(); due == nil {
		require.Nil(t, table.First())
	} else {
		require.Equal(t, due.DeadlineMillis, table.First().DeadlineMillis)
	}
	var sum int64
	for _, w := range model.waiters {
		sum += w.Bytes()
	}
	require.Equal(t, sum, table.Bytes())
}

// restored is a table made of what a snapshot would have.
func restored(t *testing.T, table *Table) *Table {
	r := NewRestorer(table.Orders())
	table.Scan(func(w *Waiter) bool {
		c := *w
		c.Own()
		require.NoError(t, r.Add(&c))
		return true
	})
	table.ScanReady(func(ready Ready) bool {
		require.NoError(t, r.Ready(ready))
		return true
	})
	for _, n := range table.DroppedBefore() {
		require.NoError(t, r.Dropped(n))
	}
	return r.Table()
}

// TestDamage offers a restorer what no table says.
func TestDamage(t *testing.T) {
	good := Waiter{Order: 3, Words: []string{"pop", "a"}, KeyFrom: 1, KeyCount: 1}
	for name, spoil := range map[string]func(w *Waiter){
		"order 0":             func(w *Waiter) { w.Order = 0 },
		"order not given out": func(w *Waiter) { w.Order = 10 },
		"deadline":            func(w *Waiter) { w.DeadlineMillis = -1 },
		"no key":              func(w *Waiter) { w.KeyCount = 0 },
		"the name is a key":   func(w *Waiter) { w.KeyFrom = 0 },
		"key behind the end":  func(w *Waiter) { w.KeyFrom = 2 },
		"keys behind the end": func(w *Waiter) { w.KeyCount = 1 << 62 },
		"ticket":              func(w *Waiter) { w.Ticket = ^uint64(0) },
	} {
		w := good
		spoil(&w)
		require.ErrorIs(t, NewRestorer(9).Add(&w), errWaiter, name)
	}
	r := NewRestorer(9)
	first, second := good, good
	second.Order, second.Ticket = 4, 1
	require.NoError(t, r.Add(&second))
	require.ErrorIs(t, r.Add(&first), errOrder)
	second.Ticket = 2
	require.ErrorIs(t, r.Add(&second), errWaiter, "an order given out twice")
	require.NoError(t, r.Ready(Ready{Key: "a"}))
	require.ErrorIs(t, r.Ready(Ready{Key: "a"}), errReady)
	require.ErrorIs(t, r.Ready(Ready{Whole: true, From: 1}), errReady)
	require.NoError(t, r.Dropped(Name{}))
	require.ErrorIs(t, r.Dropped(Name{}), errDrop)
}

// TestMemory: no waiter takes more than it counts for.
func TestMemory(t *testing.T) {
	const many = 20_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := New()
	for i := range uint64(many) {
		w := &Waiter{
			DeadlineMillis: 1 + int64(i), Words: []string{"blpop", fmt.Sprint("queue:", i), "0"}, KeyFrom: 1,
			KeyCount: 1,
		}
		w.Origin.Node, w.Ticket = "n1", i
		w.Own()
		table.Add(w)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := int64(after.HeapAlloc-before.HeapAlloc) / many
	require.LessOrEqual(t, each, table.Bytes()/many)
	require.LessOrEqual(t, table.Bytes()/many, 3*each, "the count is far above the truth")
	t.Logf("%d bytes a waiter, counted as %d", each, table.Bytes()/many)
	runtime.KeepAlive(table)
}
