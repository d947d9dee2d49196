package collection

import (
	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// element is what a table has in order: by the hash of the name, then by the name.
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

// orderOf is the place of a name. Cursors and snapshots rest on it, so all nodes must agree for ever.
func orderOf(name string) uint64 { return keyspace.Hash(name) }

// What a collection counts for beside its elements, and an element of a table beside its bytes: the
// place in a node of the tree, which is between half full and full.
const (
	headBytes   = 96
	fieldBytes  = 48
	memberBytes = 40
)

// allocated is the memory of a string.
func allocated(n int) int64 { return int64(n+15) &^ 15 }
