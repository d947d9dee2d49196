package waits

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// naive is a table as one would write it without a thought for time.
type naive struct {
	waiters  []*Waiter
	ready    []Ready
	nodeEnds []Name
}

func (n *naive) queue(db int, key string, kind keyspace.Kind) (names []string) {
	for _, w := range n.waiters {
		switch {
		case w.DB != db || w.Kind != kind || !slices.Contains(w.Keys(), key):
		case n.gone(w):
			names = append(names, show(w)+" (gone)")
		default:
			names = append(names, show(w))
		}
	}
	return names
}

func (n *naive) any(db int, key string) bool {
	return slices.ContainsFunc(n.waiters, func(w *Waiter) bool { return w.DB == db && slices.Contains(w.Keys(), key) })
}

func (n *naive) due() (first *Waiter) {
	for _, w := range n.waiters {
		if w.DeadlineMillis != Never && (first == nil || w.DeadlineMillis < first.DeadlineMillis) {
			first = w
		}
	}
	return first
}

func (n *naive) remove(name Name) {
	n.waiters = slices.DeleteFunc(n.waiters, func(w *Waiter) bool { return w.Name == name })
}

// below are the waiters of a node with lower names, by name.
func (n *naive) below(before Name) (found []*Waiter) {
	for _, w := range n.waiters {
		if w.Origin.Node == before.Origin.Node && w.Compare(before) < 0 {
			found = append(found, w)
		}
	}
	slices.SortFunc(found, func(a, b *Waiter) int { return a.Compare(b.Name) })
	return found
}

func (n *naive) gone(w *Waiter) bool {
	return slices.ContainsFunc(n.nodeEnds, func(d Name) bool { return d.Origin.Node == w.Origin.Node && w.Compare(d) < 0 })
}

func (n *naive) drop(before Name) {
	if len(n.below(before)) == 0 {
		return
	}
	for i, d := range n.nodeEnds {
		if d.Origin.Node == before.Origin.Node {
			if d.Compare(before) < 0 {
				n.nodeEnds[i] = before
			}
			return
		}
	}
	n.nodeEnds = append(n.nodeEnds, before)
	slices.SortFunc(n.nodeEnds, Name.Compare)
}

func (n *naive) sweep() *Waiter {
	for ; len(n.nodeEnds) > 0; n.nodeEnds = slices.Clone(n.nodeEnds[1:]) {
		if found := n.below(n.nodeEnds[0]); len(found) > 0 {
			n.remove(found[0].Name)
			return found[0]
		}
	}
	return nil
}

func (n *naive) wake(db int, key string) {
	if r := (Ready{DB: db, Key: key}); n.any(db, key) && !slices.Contains(n.ready, r) {
		n.ready = append(n.ready, r)
	}
}

// spread is as the table's.
func (n *naive) spread() {
	first := &n.ready[0]
	var next []string
	for _, w := range n.waiters {
		for _, key := range w.Keys() {
			if w.DB == first.DB && key >= first.Key {
				next = append(next, key)
			}
		}
	}
	if len(next) == 0 {
		n.ready = slices.Clone(n.ready[1:])
		return
	}
	first.Key = slices.Min(next) + "\x00"
	n.wake(first.DB, slices.Min(next))
}

// TestModel draws calls and compares a table with the naive one. Now and then the table goes on as its copy, or as a
// restored one; what was copied stays as it was.
func TestModel(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			table, model := New(), &naive{}
			var kept *Table
			var was string
			for range 400 {
				switch r.IntN(20) {
				case 0:
					table = restored(t, table)
				case 1:
					kept, was = table, saidOf(table)
					table = table.Copy()
				case 2:
					kept, was = table.Copy(), saidOf(table)
				}
				drawn(t, r, table, model)
				compare(t, r, table, model)
				if kept != nil && r.IntN(8) == 0 {
					require.Equal(t, was, saidOf(kept), "a copy changes with its original")
					require.NoError(t, kept.Verify())
				}
			}
		})
	}
}

func pick(r *rand.Rand) Name {
	var n Name
	n.Origin.Node, n.Origin.Epoch, n.Ticket = fmt.Sprint("n", r.IntN(3)), 1+r.Uint64N(3), 1+r.Uint64N(20)
	return n
}

// keys are the names that waiters wait for. Spread begins at the first, and goes on behind "a" at the last.
var keys = []string{"", "a", "a\x00"}

func drawn(t *testing.T, r *rand.Rand, table *Table, model *naive) {
	db, key := r.IntN(2), keys[r.IntN(len(keys))]
	switch r.IntN(13) {
	case 0, 1, 2, 3:
		other, overwrite := borrowed(keys[r.IntN(len(keys))])
		words := []string{"pop", key, other, "0"}
		w := &Waiter{
			Name: pick(r), DB: db, Kind: keyspace.KindList + keyspace.Kind(r.IntN(2)),
			DeadlineMillis: r.Int64N(4) * r.Int64N(100), Words: words, KeyFrom: 1, KeyCount: 1 + r.IntN(2), Account: r.IntN(4),
		}
		w.Own()
		want := strings.Join(words, " ")
		clear(words)
		overwrite()
		require.Equal(t, want, strings.Join(w.Words, " "), "the words are the waiter's own")
		taken := slices.ContainsFunc(model.waiters, func(o *Waiter) bool { return o.Name == w.Name })
		require.Equal(t, !taken, table.Add(w))
		if !taken {
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
		table.EndNodeWaitsBefore(n)
		model.drop(n)
	case 6:
		n := pick(r)
		table.EndNodeWaits(n.Origin.Node, n.Origin.Epoch)
		n.Ticket = ^uint64(0)
		if found := model.below(n); len(found) > 0 {
			last := found[len(found)-1].Name
			last.Ticket++
			model.drop(last)
		}
	case 7:
		for range r.IntN(5) {
			require.Equal(t, show(model.sweep()), show(table.Sweep()))
		}
	case 8:
		model.wake(db, key)
		key, overwrite := borrowed(key)
		table.Wake(db, key)
		overwrite()
	case 9:
		if table.WakeAll(db); len(model.waiters) > 0 {
			model.ready = append(model.ready, Ready{DB: db, Whole: true})
		}
	default:
		turn(t, r, table, model)
	}
}

// borrowed is text as a log entry lends it: overwritten later.
func borrowed(text string) (lent string, overwrite func()) {
	b := []byte(text)
	return unsafe.String(unsafe.SliceData(b), len(b)), func() { clear(b) }
}

// turn does something with the first that is ready.
func turn(t *testing.T, r *rand.Rand, table *Table, model *naive) {
	first, ok := table.Ready()
	require.Equal(t, len(model.ready) > 0, ok)
	switch {
	case !ok:
	case first.Whole && r.IntN(4) > 0:
		table.Spread()
		model.spread()
	case !first.Whole && r.IntN(2) > 0:
		from := first.From + 1 + r.Uint64N(5)
		table.Tried(from)
		model.ready[0].From = from
	default:
		table.Served()
		model.ready = slices.Clone(model.ready[1:])
	}
}

// saidOf is all that a table says of its waiters, of the keys that are ready, and of nodes that were dropped.
func saidOf(table *Table) string {
	var names []string
	table.Scan(func(w *Waiter) bool {
		names = append(names, fmt.Sprint(show(w), table.HasNodeEnded(w)))
		return true
	})
	for _, key := range keys {
		names = append(names, queueOf(table, 0, key, keyspace.KindList)...)
	}
	return fmt.Sprint(names, readyOf(table), table.NodeEnds(), table.Len(), table.Bytes(), table.Count(1),
		show(table.First()))
}

func compare(t *testing.T, r *rand.Rand, table *Table, model *naive) {
	t.Helper()
	require.NoError(t, table.Verify())
	for _, key := range append(slices.Clone(keys), "b") {
		for db := range 2 {
			require.Equal(t, model.any(db, key), table.Any(db, key))
			for kind := keyspace.KindList; kind <= keyspace.KindSet; kind++ {
				require.Equal(t, model.queue(db, key, kind), queueOf(table, db, key, kind))
			}
		}
	}
	var ready []Ready
	table.ScanReady(func(r Ready) bool {
		ready = append(ready, r)
		return true
	})
	require.Equal(t, append([]Ready{}, model.ready...), append([]Ready{}, ready...))
	require.Equal(t, len(model.ready), table.ReadyLen())
	require.Equal(t, len(model.ready) > 0, table.HasReady())
	require.Equal(t, append([]Name{}, model.nodeEnds...), append([]Name{}, table.NodeEnds()...))
	require.Equal(t, len(model.nodeEnds) > 0, table.Sweeping())
	require.Equal(t, len(model.waiters), table.Len())
	require.Equal(t, show(model.due()), show(table.First()))
	var bytes int64
	var counts [5]int
	incarnations := map[protocol.Incarnation]bool{}
	for _, w := range model.waiters {
		bytes += w.Bytes()
		counts[w.Account]++
		if !model.gone(w) {
			incarnations[w.Origin] = true
		}
	}
	require.Equal(t, bytes, table.Bytes())
	for account := 1; account < len(counts); account++ {
		require.Equal(t, counts[account], table.Count(account))
	}
	found := table.Incarnations()
	require.Len(t, found, len(incarnations))
	for _, o := range found {
		require.True(t, incarnations[o])
		delete(incarnations, o)
	}
	name := pick(r)
	known := slices.IndexFunc(model.waiters, func(w *Waiter) bool { return w.Name == name && !model.gone(w) })
	require.Equal(t, known >= 0, table.Find(name) != nil)
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
	for _, n := range table.NodeEnds() {
		require.NoError(t, r.NodeEnd(n))
	}
	return r.Table()
}

// TestDamage offers a restorer what no table says.
func TestDamage(t *testing.T) {
	good := Waiter{Order: 3, Words: []string{"pop", "a"}, KeyFrom: 1, KeyCount: 1}
	least := good
	require.NoError(t, NewRestorer(9).Add(&least), "the least of all names")
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
	first.Ticket = 1
	second.Order, second.Ticket = 4, 2
	require.NoError(t, r.Add(&second))
	require.ErrorIs(t, r.Add(&first), errOrder)
	second.Ticket = 3
	require.ErrorIs(t, r.Add(&second), errWaiter, "an order given out twice")
	require.ErrorIs(t, r.Ready(Ready{Whole: true, From: 1}), errReady)
	require.NoError(t, r.Ready(Ready{}))
	require.NoError(t, r.Ready(Ready{Whole: true}), "which is not the key without a name")
	require.NoError(t, r.Ready(Ready{Key: "a"}))
	require.ErrorIs(t, r.Ready(Ready{Key: "a"}), errReady)
	require.ErrorIs(t, r.Ready(Ready{Whole: true, From: 1}), errReady)
	require.ErrorIs(t, r.Ready(Ready{Key: "b", From: 1}), errReady, "a turn that began before the first one's end")
	require.NoError(t, r.NodeEnd(Name{}))
	require.ErrorIs(t, r.NodeEnd(Name{}), errNodeEnd)
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
	long := &Waiter{Words: []string{"blpop", strings.Repeat("k", 1000), "0"}, KeyFrom: 1, KeyCount: 1}
	require.Greater(t, long.Bytes(), int64(1000), "a long key counts as what it is")
	t.Logf("%d bytes a waiter, counted as %d", each, table.Bytes()/many)
	runtime.KeepAlive(table)
}

// TestNothingIsCountedOfNoAccount: account 0 stands for none.
func TestNothingIsCountedOfNoAccount(t *testing.T) {
	var c Counts
	c.Add(0, 3)
	require.Zero(t, c.Of(0))
	c.Add(2, 3)
	require.Equal(t, []int{0, 0, 3}, []int{c.Of(0), c.Of(1), c.Of(2)})
}

// TestVerify: the check finds what contradicts something else.
func TestVerify(t *testing.T) {
	for want, damage := range map[string]func(table *Table, w *Waiter){
		"has order 0 of 2":    func(table *Table, w *Waiter) { w.Order = 0 },
		"has order 1 of 0":    func(table *Table, w *Waiter) { table.orders = 0 },
		"queue of key \"a\"":  func(table *Table, w *Waiter) { table.places.Delete(place{key: "a", order: w.Order}) },
		"among the deadlines": func(table *Table, w *Waiter) { table.deadlines.Delete(w) },
		"2 deadlines of 1":    func(table *Table, w *Waiter) { table.deadlines.Set(&Waiter{DeadlineMillis: 6}) },
		"4 places of 3":       func(table *Table, w *Waiter) { table.places.Set(place{key: "z", order: 9, waiter: w}) },
		"accounts with":       func(table *Table, w *Waiter) { table.counts.Add(3, 1) },
		"bytes of":            func(table *Table, w *Waiter) { table.bytes++ },
		"not known":           func(table *Table, w *Waiter) { table.known.Delete(Ready{Key: "a"}) },
		"keys are ready":      func(table *Table, w *Waiter) { table.known.Set(Ready{Key: "z"}) },
		"turn 1 of 0":         func(table *Table, w *Waiter) { table.turn = 0 },
		"turn 2 of 1":         func(table *Table, w *Waiter) { table.WakeAll(0); table.turn = 1 },
		"turn 0 of 1":         func(table *Table, w *Waiter) { table.Served(); table.turn = 1 },
		"is out of order":     func(table *Table, w *Waiter) { table.ended = []Name{w.Name, w.Name} },
	} {
		table := New()
		w := &Waiter{Name: Name{protocol.Incarnation{Node: "n", Epoch: 1}, 1}, DeadlineMillis: 5, Words: []string{
			"blpop", "a",
			"b", "a", "1",
		}, KeyFrom: 1, KeyCount: 3, Account: 2}
		require.True(t, table.Add(w))
		require.True(t, table.Add(&Waiter{Name: Name{protocol.Incarnation{Node: "n", Epoch: 1}, 2}, Words: []string{
			"blpop", "a",
			"0",
		}, KeyFrom: 1, KeyCount: 1}))
		table.Wake(0, "a")
		require.NoError(t, table.Verify())
		damage(table, w)
		require.ErrorContains(t, table.Verify(), want)
	}
}
