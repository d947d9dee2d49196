package raftnode

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// Raft's keys for its last vote.
const (
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
)

// stable is raft's store of terms and votes.
//
// Raft panics if a term cannot be stored, and the process would end before the batches in flight are answered. So, once
// raft runs, a failed call never returns, and the owner ends the node without waiting for raft. A failure while raft is
// opened is returned by [newRaft].
type stable struct {
	raft.StableStore
	opened atomic.Bool   // whether raft has stored a term
	lost   chan struct{} // closed if a term could not be stored
	once   sync.Once
	fail   func(error)   // [Config].Fail
	never  chan struct{} // nil except in tests, which close it
}

func newStable(store raft.StableStore, fail func(error)) *stable {
	return &stable{StableStore: store, lost: make(chan struct{}), fail: fail}
}

// SetUint64 implements raft.StableStore.
//
// Raft stores the term of a vote and then the candidate. After a crash in between it would combine the new term with
// the previous candidate, and vote for that node without comparing the logs. So the candidate is cleared first.
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
