package raftnode

import (
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
)

// TestVerify: the checks find what they are for.
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
