package raftnode

import (
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
)

// TestVerify: each check finds its violation.
func TestVerify(t *testing.T) {
	logs := []*raft.Log{{Index: 4}, {Index: 6}}
	require.NoError(t, verifyNext(logs, 3, 6))
	require.ErrorContains(t, verifyNext(logs, 4, 6), "entry 4 is applied behind entry 4")
	require.ErrorContains(t, verifyNext(logs, 3, 5), "committed is up to 5")
	require.ErrorContains(t, verifyNext([]*raft.Log{{Index: 6}, {Index: 4}}, 3, 6), "behind entry 6")

	v := &view{Configuration: members.NewConfiguration(1, members.Member{ID: "a", Voter: true},
		members.Member{ID: "b", Voter: true}, members.Member{ID: "c"}), others: 1}
	last := &raft.Log{Index: 7, Term: 2}
	require.NoError(t, verifyMajority(last, 2, v, map[string]uint64{"b": 7, "c": 0}))
	require.ErrorContains(t, verifyMajority(last, 2, v, map[string]uint64{"b": 6, "c": 9}), "0 of 1 other voters")
	require.NoError(t, verifyMajority(last, 3, v, nil), "known to be committed before the election")
}

// TestVerifyApplied: an applied entry must be the next one, committed, and on this node's disk. A leader's entry must
// be on the disks of a majority. What cannot be read is no violation.
func TestVerifyApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.start()
		next := n.Last() + 1
		for _, c := range []struct {
			name                string
			index               uint64
			committed, snapshot uint64
			bounds, store       error
			members             []string
			broken              bool
		}{
			{name: "the next", index: next, committed: next, snapshot: next},
			{name: "not committed", index: next, committed: next - 1, snapshot: next, broken: true},
			{name: "not known to be committed", index: next, snapshot: next, bounds: errBroken},
			{name: "not on the disk", index: next, committed: next, broken: true},
			{name: "not known to be on the disk", index: next, committed: next, store: errBroken},
			{
				name: "not on the disks of a majority", index: next + 1, committed: next + 1, snapshot: next + 1,
				members: []string{"n1", "n2", "n3"}, broken: true,
			},
			{
				name: "of before the members", index: next, committed: next, snapshot: next,
				members: []string{"n1", "n2", "n3"},
			},
		} {
			bounds, store := n.log.bounds.Load(), n.log.store
			look := func() (uint64, uint64, error) { return c.committed, c.snapshot, c.bounds }
			n.log.bounds.Store(&look)
			if c.store != nil {
				n.log.store = &faulty{LogStore: store}
			}
			if c.members != nil {
				n.configurations.appended([]*raft.Log{configurationAt(next, c.members...)})
			}
			verify := func() { n.verifyApplied([]*raft.Log{{Index: c.index, Term: n.Term()}}) }
			if c.broken {
				require.Panics(t, verify, c.name)
			} else {
				require.NotPanics(t, verify, c.name)
			}
			n.configurations.truncated(next)
			n.log.store = store
			n.log.bounds.Store(bounds)
		}
		bounds := n.log.bounds.Swap(nil)
		require.NotPanics(t, func() { n.verifyApplied([]*raft.Log{{Index: next + 9}}) }, "raft is being opened")
		n.log.bounds.Store(bounds)
	})
}
