package fsm

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// Survey describes a state.
type Survey struct {
	ClockMillis int64
	// Kinds counts the live keys of each database by the reply of TYPE.
	Kinds [protocol.MaxDatabases]map[string]int
	// Leases counts the keys with a deadline. LongestMillis is the longest remaining time of such a key.
	Leases        int
	LongestMillis int64
	Locks         LockStats
	// LongestHoldMillis is the longest lease of a hold or a session of native locks.
	LongestHoldMillis int64
	Fences            uint64 // the number of fences that were issued to native locks
	// Waiters counts the clients that wait for keys, and Scripts the cached scripts.
	Waiters, Scripts int
	Nodes            []string // the nodes with a session
	// FenceKeys has the first keys that look like fences: first those whose names say so. FenceCount counts all of them.
	FenceKeys  []FenceKey
	FenceCount int
}

// Keys counts the keys of all databases.
func (s Survey) Keys() (n int) {
	for _, kinds := range s.Kinds {
		for _, count := range kinds { // unordered: a sum
			n += count
		}
	}
	return n
}

// FenceKey is a key that looks like a fence.
type FenceKey struct {
	DB    int
	Key   string
	Value int64
	named bool
}

// fenceWords has words that libraries use in the names of keys for fences.
var fenceWords = []string{
	"fence", "fencing", "token", "epoch", "generation", "sequence", "seq", "version", "counter",
	"term",
}

// looksLikeFence reports whether an item may be a counter of fencing tokens: a string without a deadline whose value is
// a positive integer. Other counters look the same.
func looksLikeFence(it *keyspace.Item) (FenceKey, bool) {
	if !it.IsString() || it.DeadlineMillis != command.Never {
		return FenceKey{}, false
	}
	n, ok := protocol.ParseInt(it.Value())
	if !ok || n <= 0 {
		return FenceKey{}, false
	}
	name := strings.ToLower(it.Key())
	named := slices.ContainsFunc(fenceWords, func(w string) bool { return strings.Contains(name, w) })
	return FenceKey{Key: it.Key(), Value: n, named: named}, true
}

func (m *machine) Survey(fenceKeys int) Survey {
	m.mu.RLock()
	defer m.mu.RUnlock()
	st := m.st
	s := Survey{
		ClockMillis: st.ClockMillis, Locks: lockStatsOf(st.Locks), Fences: st.Locks.Stats().Fences,
		Waiters: st.Waits.Len(), Scripts: st.scripts.bySHA.Len(), LongestHoldMillis: st.Locks.LongestLease(),
	}
	for _, each := range st.sessions {
		s.Nodes = append(s.Nodes, each.node)
	}
	var others []FenceKey
	for db, d := range st.Databases {
		s.Kinds[db] = make(map[string]int)
		d.Ascend(0, st.ClockMillis, d.Stored(), func(it *keyspace.Item) bool {
			s.Kinds[db][it.Kind().String()]++
			if it.DeadlineMillis != command.Never {
				s.Leases++
				s.LongestMillis = max(s.LongestMillis, it.DeadlineMillis-st.ClockMillis)
			}
			if f, ok := looksLikeFence(it); ok {
				f.DB = db
				s.FenceCount++
				if f.named && len(s.FenceKeys) < fenceKeys {
					s.FenceKeys = append(s.FenceKeys, f)
				} else if !f.named && len(others) < fenceKeys {
					others = append(others, f)
				}
			}
			return true
		})
	}
	s.FenceKeys = append(s.FenceKeys, others[:min(len(others), fenceKeys-len(s.FenceKeys))]...)
	return s
}

func lockStatsOf(t *locks.Table) LockStats {
	now := t.Stats()
	return LockStats{Locks: now.Locks, Holds: now.Holds, Waiting: now.Waiters, Sessions: now.Sessions, Bytes: now.Bytes}
}
