package waits

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// TestVerify: the check finds what contradicts something else.
func TestVerify(t *testing.T) {
	for want, damage := range map[string]func(table *Table, w *Waiter){
		"has order 1 of 0":    func(table *Table, w *Waiter) { table.orders = 0 },
		"queue of key \"a\"":  func(table *Table, w *Waiter) { table.places.Delete(place{key: "a", order: w.Order}) },
		"among the deadlines": func(table *Table, w *Waiter) { table.deadlines.Delete(w) },
		"4 places of 3":       func(table *Table, w *Waiter) { table.places.Set(place{key: "z", order: 9, waiter: w}) },
		"accounts with":       func(table *Table, w *Waiter) { table.counts.Add(3, 1) },
		"bytes of":            func(table *Table, w *Waiter) { table.bytes++ },
		"not known":           func(table *Table, w *Waiter) { table.known.Delete(Ready{Key: "a"}) },
		"keys are ready":      func(table *Table, w *Waiter) { table.known.Set(Ready{Key: "z"}) },
		"turn 1 of 0":         func(table *Table, w *Waiter) { table.turn = 0 },
		"turn 0 of 1":         func(table *Table, w *Waiter) { table.Served(); table.turn = 1 },
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
