package raftnode

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// Raft's keys of the newest vote.
const (
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
)

// stable is raft's store of terms and votes.
//
// Raft panics when a term cannot be stored, and the process would end before the batches in flight
// are answered. So raft does not hear of the failure once it runs: the call never returns.
// The owner is told, and ends the node without waiting for raft. The first term is stored while raft is
// opened, which ends with the error: see [newRaft].
type stable struct {
	raft.StableStore
	opened atomic.Bool   // raft has stored the first term
	lost   chan struct{} // closed when a term could not be stored
	once   sync.Once
	fail   func(error)   // tells the owner
	never  chan struct{} // nil; closed by tests
}

func newStable(store raft.StableStore, fail func(error)) *stable {
	return &stable{StableStore: store, lost: make(chan struct{}), fail: fail}
}

// SetUint64 implements raft.StableStore.
//
// Raft stores the term of a vote, and then the candidate. After a crash in between it would take the candidate of the
// vote before for the candidate of this term, and would vote for that node again without comparing the logs. So the
// candidate is cleared first.
func (s *stable) SetUint64(key []byte, value uint64) error {
	var err error
	if string(key) == keyVoteTerm {
		err = s.Set([]byte(keyVoteCandidate), []byte{})
	}
	if err == nil {
		err = s.StableStore.SetUint64(key, value)
	}
	if opens := !s.opened.Swap(true); err == nil || opens {
		return err
	}
	s.once.Do(func() { close(s.lost) })
	s.fail(fmt.Errorf("disk failed: store %s: %w", key, err))
	<-s.never
	return err
}
