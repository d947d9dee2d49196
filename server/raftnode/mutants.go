//go:build !mutant_stuck_tail && !mutant_nonvoter_ack && !mutant_old_quorum

package raftnode

// The partition tests build servers that are wrong on purpose, and must notice (jepsen/README.md). Such a
// server has the switches of mutants_on.go.
const (
	// followsBehindSnapshot is whether entries that a snapshot stands for count as agreed.
	followsBehindSnapshot = true
	// nonVotersCount is whether the acknowledgement of a member without a vote confirms a leader.
	nonVotersCount = false
	// oldQuorumConfirms is whether a leader is confirmed by the smallest majority that the cluster ever had.
	oldQuorumConfirms = false
	// roundsMove is whether a round ends without confirming anything when the members change.
	roundsMove = true
)
