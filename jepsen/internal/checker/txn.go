package checker

import (
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// lists is the state of a group of keys: the list each one holds. It is never
// changed in place.
type lists map[string][]int64

// Transactions is a group of lists that transactions read and append to, each
// transaction at one instant. The operation's key names the group; the steps name the lists.
//
// The model decides strict serializability, as a transaction here is just an operation on the
// whole group.
func Transactions() porcupine.Model {
	return porcupine.Model{
		Init:              func() any { return lists{} },
		Step:              stepTransaction,
		Equal:             func(a, b any) bool { return maps.EqualFunc(a.(lists), b.(lists), slices.Equal[[]int64]) },
		Hash:              hashLists,
		DescribeOperation: describe,
	}
}

func stepTransaction(state, input, _ any) (bool, any) {
	group, o := state.(lists), input.(*history.Op)
	copied := false
	for _, m := range o.Txn {
		if m.F == "r" {
			if o.Outcome == history.OK && !slices.Equal(m.List, group[m.Key]) {
				return false, state
			}
			continue
		}
		if !copied {
			group, copied = maps.Clone(group), true
		}
		group[m.Key] = append(slices.Clip(group[m.Key]), m.Value)
	}
	return true, group
}

func hashLists(state any) uint64 {
	group := state.(lists)
	h := fnv.New64a()
	for _, key := range sortedKeys(group) {
		h.Write([]byte(key))
		for _, v := range group[key] {
			h.Write(strconv.AppendInt([]byte{' '}, v, 10))
		}
	}
	return h.Sum64()
}
