package raftnode

import (
	"errors"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// damageAgain is the interval at which a damaged snapshot is reported.
	damageAgain = time.Minute
	// replaceAgain is the minimum time between two attempts to replace one.
	replaceAgain = time.Second
)

// mendedSnapshots is raft's store of snapshots. When a leader cannot read the snapshot that a member needs, it takes
// another of the intact state in memory. Raft would retry the same snapshot until the log has grown enough for the
// next, which takes days in a quiet cluster.
type mendedSnapshots struct {
	raft.SnapshotStore
	tell func(Event)
	// sends reports whether this node opens snapshots to send them.
	sends func() bool
	// keeps reports whether no snapshot may be sent, because the state differs from the other members'.
	keeps   func() bool
	applied func() uint64
	take    func() // requests a snapshot
	void    func() // proposes a void entry

	mu          sync.Mutex
	id          string // of the snapshot that was reported
	told, tried time.Time
}

// Open implements raft.SnapshotStore.
func (s *mendedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if s.sends() && s.keeps() {
		return nil, nil, ErrQuarantined
	}
	meta, r, err := s.SnapshotStore.Open(id)
	// Without free descriptors another snapshot could not be taken either.
	if err != nil && !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) && s.sends() {
		s.damaged(id, err)
	}
	return meta, r, err
}

// damaged reports a snapshot that cannot be read, and replaces it.
func (s *mendedSnapshots) damaged(id string, err error) {
	s.mu.Lock()
	now := time.Now()
	tell := id != s.id || now.Sub(s.told) >= damageAgain
	if tell {
		s.id, s.told = id, now
	}
	try := now.Sub(s.tried) >= replaceAgain
	if try {
		s.tried = now
	}
	s.mu.Unlock()
	if tell {
		s.tell(SnapshotDamaged{Err: err})
	}
	if try {
		s.replace(id)
	}
}

// replace requests a newer snapshot. If no entry was applied since the damaged one, both would end with the same entry
// and the clock would decide which is newer. Then it proposes a void entry, and the snapshot follows when raft retries.
func (s *mendedSnapshots) replace(id string) {
	stored, err := s.List()
	i := slices.IndexFunc(stored, func(m *raft.SnapshotMeta) bool { return m.ID == id })
	switch {
	case err != nil || i < 0: // it has been replaced
	case s.applied() > stored[i].Index:
		s.take()
	default:
		s.void()
	}
}
