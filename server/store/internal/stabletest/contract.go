// Package stabletest tests the contract of a stable store: which terms and votes survive a crash. The product's store,
// bbolt's file, and the store of clusters in virtual time (package storetest) both pass it.
//
// Start reading at [Require].
package stabletest

import (
	"encoding/binary"
	"fmt"
	"io"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store/internal/memdisk"
)

// Store is a stable store that can be closed.
type Store interface {
	raft.StableStore
	io.Closer
}

// set is a call by which raft or package store sets a value.
type set struct {
	key   string
	value uint64
}

// sets are two elections in raft's order (a term, the term of a vote, the candidate), and a snapshot between them.
var sets = []set{
	{"CurrentTerm", 2},
	{"LastVoteTerm", 2},
	{"LastVoteCand", 1},
	{"holdfast.snapshot", 40},
	{"CurrentTerm", 3},
	{"LastVoteTerm", 3},
	{"LastVoteCand", 2},
}

// apply makes the call. A candidate is bytes, all else are numbers.
func (s set) apply(to Store) error {
	if s.key == "LastVoteCand" {
		return to.Set([]byte(s.key), fmt.Append(nil, "n", s.value))
	}
	return to.SetUint64([]byte(s.key), s.value)
}

// faults are the faults at an operation on the disk.
var faults = map[string]func(*memdisk.Disk, uint64) error{
	"the power is cut":     func(d *memdisk.Disk, seed uint64) error { d.PowerCut(seed); return nil },
	"the process dies":     func(d *memdisk.Disk, _ uint64) error { d.Kill(); return nil },
	"the operation failed": func(*memdisk.Disk, uint64) error { return syscall.EIO },
}

// Kind is a kind of stable store.
type Kind struct {
	// Create creates an empty store, durably.
	Create func(*memdisk.Process) error
	// Open opens the store.
	Open func(*memdisk.Process) (Store, error)
}

// Require tests a kind of store with a power cut, a dead process and a failing disk at each operation on the disk:
//   - the next process reads the values of all sets that had returned, and all or nothing of the set under way;
//   - the values that it has read or set survive each later power cut;
//   - after a failed set no other one succeeds until the store is opened again.
func Require(t *testing.T, k Kind) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(5) { // each keeps another part of the unsynced writes
				n := 1
				for requireKept(t, k, seed, n, fault) {
					n++
				}
				require.Greater(t, n, 2*len(sets), "each set writes and syncs")
			}
		})
	}
}

// requireKept makes the fault happen at the nth operation, and returns false if there are fewer.
func requireKept(t *testing.T, k Kind, seed uint64, n int, fault func(*memdisk.Disk, uint64) error) (reached bool) {
	t.Helper()
	disk := memdisk.New(seed)
	require.NoError(t, k.Create(disk.Boot()))
	process := func(use func(Store)) {
		t.Helper()
		s, err := k.Open(disk.Boot())
		require.NoError(t, err, "operation %d, seed %d", n, seed)
		use(s)
		_ = s.Close() // fails if the process is dead
	}
	returned := 0
	process(func(s Store) {
		operation := 0
		disk.Hook(func(memdisk.Op) error {
			if operation++; operation != n {
				return nil
			}
			reached = true
			return fault(disk, seed)
		})
		for returned < len(sets) && sets[returned].apply(s) == nil {
			returned++
		}
		disk.Hook(nil)
		if reached {
			require.Error(t, sets[0].apply(s))
		}
	})
	var last string
	process(func(s Store) {
		last = values(t, s)
		allowed := []string{valuesAfter(returned), valuesAfter(returned + 1)}
		require.Contains(t, allowed, last, "operation %d, seed %d", n, seed)
	})
	for range 2 {
		disk.PowerCut(seed)
		process(func(s Store) {
			require.Equal(t, last, values(t, s), "operation %d, seed %d", n, seed)
			require.NoError(t, set{"LastVoteCand", 7}.apply(s))
			last = values(t, s)
		})
	}
	return reached
}

// keys are in a fixed order.
var keys = []string{"CurrentTerm", "LastVoteTerm", "LastVoteCand", "holdfast.snapshot"}

// values returns the values of all keys in one line.
func values(t *testing.T, s Store) (text string) {
	t.Helper()
	for _, key := range keys {
		b, err := s.Get([]byte(key))
		require.NoError(t, err)
		text += line(key, b)
	}
	return text
}

// valuesAfter returns what [values] returns after the first n sets.
func valuesAfter(n int) (text string) {
	is := make(map[string][]byte)
	for _, s := range sets[:min(n, len(sets))] {
		is[s.key] = binary.BigEndian.AppendUint64(nil, s.value)
		if s.key == "LastVoteCand" {
			is[s.key] = fmt.Append(nil, "n", s.value)
		}
	}
	for _, key := range keys {
		text += line(key, is[key])
	}
	return text
}

func line(key string, value []byte) string { return fmt.Sprintf("%s=%x ", key, value) }
