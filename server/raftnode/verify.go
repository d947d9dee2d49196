package raftnode

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/protocol/invariant"
)

// verifyApplied panics unless the entries to apply are the next ones, committed, on this node's disk and, on their
// leader, on the disks of a majority. It is called only if [invariant.On].
func (n *Node) verifyApplied(logs []*raft.Log) {
	bounds := n.log.bounds.Load()
	if bounds == nil {
		return // raft is not open yet
	}
	committed, snapshot, err := (*bounds)()
	if err == nil {
		invariant.Require(verifyNext(logs, n.applier.index.Load(), committed))
	}
	last := logs[len(logs)-1]
	if stored, err := n.log.store.LastIndex(); err == nil && last.Index > max(stored, snapshot) {
		invariant.Broken("entry %d is applied, and this node's disk has up to %d", last.Index, stored)
	}
	// Entries before the configuration in effect are not verified, since acknowledgements of removed members are
	// dropped.
	view, term := n.configurations.view(), n.raft.CurrentTerm()
	matches := n.acks.matches(term)
	if last.Index > view.Index && n.raft.State() == raft.Leader && n.raft.CurrentTerm() == term &&
		n.configurations.view() == view {
		invariant.Require(verifyMajority(last, term, view, matches))
	}
}

func verifyNext(logs []*raft.Log, applied, committed uint64) error {
	for _, l := range logs {
		if l.Index <= applied || l.Index > committed {
			return fmt.Errorf("entry %d is applied behind entry %d, and committed is up to %d", l.Index, applied, committed)
		}
		applied = l.Index
	}
	return nil
}

// verifyMajority ignores entries of earlier terms: they may have been committed before this leader's election, and it
// has no acknowledgements from then.
func verifyMajority(last *raft.Log, term uint64, v *view, matches map[string]uint64) error {
	have := 0
	for _, m := range v.Members {
		if m.Voter && matches[m.ID] >= last.Index {
			have++
		}
	}
	if have < v.others && last.Term == term {
		return fmt.Errorf("entry %d is applied, and %d of %d other voters have it: %v", last.Index, have, v.others, matches)
	}
	return nil
}
