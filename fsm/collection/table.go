package collection

import (
	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// element is an element of a table, which is ordered by the hash of the name and then by the name.
type element interface {
	order() uint64
	name() string
}

// table is the larger form of a hash or a set.
type table[E element] = btree.BTreeG[E]

func newTable[E element]() *table[E] {
	return btree.NewBTreeGOptions(before[E], btree.Options{NoLocks: true})
}

func before[E element](a, b E) bool {
	if a.order() != b.order() {
		return a.order() < b.order()
	}
	return a.name() < b.name()
}

// orderOf returns the position of a name. Cursors and snapshots depend on it, so it must never change.
func orderOf(name string) uint64 { return keyspace.Hash(name) }

// The estimated memory of an empty collection, and of a table's element except for its bytes. An element takes a slot in
// a tree node, which is at least half full.
const (
	headBytes   = 96
	fieldBytes  = 48
	memberBytes = 40
)

// allocated returns the memory of a string of n bytes.
func allocated(n int) int64 { return int64(n+15) &^ 15 }
