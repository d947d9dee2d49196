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
	// damageAgain is how often a snapshot that stays unreadable is told of.
	damageAgain = time.Minute
	// replaceAgain is the least time between two attempts to replace one.
	replaceAgain = time.Second
)

// mendedSnapshots is raft's store of snapshots. When a leader cannot read the snapshot that a member needs, another is
// taken of the state in memory, which is good. Raft would come back to the same snapshot for ever, and take the next
// when the log has grown: in a quiet cluster in days.
type mendedSnapshots struct {
	raft.SnapshotStore
	tell func(Event)
	// sends reports whether this node opens snapshots to send them.
	sends func() bool
	// keeps reports that no snapshot may be sent: the state differs from the other members'.
	keeps   func() bool
	applied func() uint64
	take    func() // takes a snapshot soon
	void    func() // has an entry appended that changes nothing

	mu          sync.Mutex
	id          string // of the snapshot that was told of
	told, tried time.Time
}

// Open implements raft.SnapshotStore.
func (s *mendedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if s.sends() && s.keeps() {
		return nil, nil, ErrQuarantined
	}
	meta, r, err := s.SnapshotStore.Open(id)
	// Without descriptors another snapshot could not be taken either.
	if err != nil && !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) && s.sends() {
		s.damaged(id, err)
	}
	return meta, r, err
}

// damaged tells of a snapshot that cannot be read, and has it replaced.
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

// replace has a snapshot taken that takes the place of another. When nothing was applied since the other, the two would
// end with the same entry, and the clock would decide which is newer: so there is an entry first, void on every node,
// and the snapshot follows when raft comes back.
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
