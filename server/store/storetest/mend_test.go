package storetest

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/internal/memdisk"
)

// mends has folders with a damaged snapshot at index 20, and what a process finds before a mend and after it.
var mends = []struct {
	name         string
	before       []step
	index, term  uint64 // of the other member's state
	between, end string
}{
	{"within the log", []step{
		appends(1, 30, "entries 1 to 30, vote "), snapshots(20, "entries 1 to 30, snapshot 20 of 600 bytes, vote "),
		deletes(1, 15, "entries 16 to 30, snapshot 20 of 600 bytes, vote "),
	}, 18, 1, "entries 16 to 30", "entries 16 to 30, snapshot 18 of 9000 bytes"},
	{"beyond the log", []step{
		appends(1, 30, "entries 1 to 30, vote "), snapshots(20, "entries 1 to 30, snapshot 20 of 600 bytes, vote "),
		deletes(1, 15, "entries 16 to 30, snapshot 20 of 600 bytes, vote "),
	}, 40, 2, "entries 16 to 30", "entries 0 to 0, snapshot 40 of 9000 bytes"},
	{"an empty log", []step{
		snapshots(20, "entries 0 to 0, snapshot 20 of 600 bytes, vote "),
	}, 20, 2, "entries 0 to 0", "entries 0 to 0, snapshot 20 of 9000 bytes"},
}

// TestMendHalfWay: a mend is killed, fails, or loses power in any operation. The next process still misses the
// snapshot, or has the state. All else that was there is there, and survives each later power cut.
func TestMendHalfWay(t *testing.T) {
	for _, row := range mends {
		for name, f := range firstFaults {
			t.Run(row.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					missed := 0
					for n := 1; ; n++ {
						l := newDiskHistory(t, memdisk.New(uint64(n)))
						l.mends = true
						require.NoError(t, l.begin())
						l.play(nothing, append([]step{belongs("c1", "")}, row.before...))
						require.NoError(t, l.store.Stable.SetUint64([]byte("CurrentTerm"), 1))
						require.NoError(t, l.store.Stable.Set([]byte("vote"), []byte("n2")))
						require.NoError(t, rotSnapshots(l.files.Boot()))
						l.cut(uint64(n))
						require.NoError(t, l.begin())
						require.NotNil(t, l.store.Missing())
						reached := l.meet(n, f.first)
						err := mend(l.store, row.index, row.term)
						synctest.Wait()
						l.end()
						for seed := range uint64(3) {
							next := l.fork(seed)
							require.NoError(t, next.begin())
							if next.store.Missing() == nil {
								requireMended(t, next, row.end)
							} else {
								missed++
								require.Error(t, err, "operation %d", n)
							}
							next.cut(seed)
							require.NoError(t, next.begin())
							if next.store.Missing() != nil {
								require.Equal(t, row.between+", vote n2, cluster c1", next.shows())
								require.NoError(t, mend(next.store, row.index, row.term))
							}
							requireMended(t, next, row.end)
							next.cut(seed)
							require.NoError(t, next.begin())
							requireMended(t, next, row.end)
							next.end()
						}
						if !*reached {
							require.Greater(t, n, 5)
							require.NotZero(t, missed)
							return
						}
					}
				})
			})
		}
	}
}

// mend replaces the missing snapshot by a state up to index.
func mend(s *store.Store, index, term uint64) error {
	const size = 9000
	return s.Mend(store.Snapshot{
		Index: index, Term: term, Bytes: size, Members: members.NewConfiguration(0, members.Member{ID: "n1"}),
	}, strings.NewReader(strings.Repeat("s", size)))
}

func requireMended(t *testing.T, l *diskHistory, want string) {
	t.Helper()
	require.Nil(t, l.store.Missing())
	require.Equal(t, fmt.Sprintf("%s, vote n2, cluster c1", want), l.shows())
	list, err := l.store.Snapshots.List()
	require.NoError(t, err)
	term, err := l.store.Stable.GetUint64([]byte("CurrentTerm"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, term, list[0].Term, "raft knows the term of what it has applied")
}
