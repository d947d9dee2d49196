package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// Missing describes a snapshot that a folder has lost and that neither an older one nor the log replaces. A committed
// state of another member replaces it if that ends at From or later: see [Store.Mend].
type Missing struct {
	// Damage is what is wrong. Err tells the operator, in one line, why the folder cannot be used without that state.
	Damage, Err error
	// From is the index before the log's first entry, or, if the log ends before the missing snapshot, that snapshot's
	// end.
	From uint64
	// Known describes the snapshots in the folder, newest first, damaged ones among them. Their states are committed.
	Known []Snapshot
}

// mends reports whether other members may have the missing state, which requires that the node is a member, and that no
// cluster has yet to be founded with its state.
func (f *folder) mends() bool {
	id := &f.id.Identity
	return f.config.Mends && id.ClusterID != "" && !id.Joins && id.Seed == ""
}

// newMissing describes the missing snapshot of a folder whose log has the entries first to last, and whose newest
// snapshot ended at needed.
func (f *folder) newMissing(reason error, damaged []damagedSnapshot, first, last, needed uint64) *Missing {
	m := &Missing{Damage: reason, Err: refusal(reason), From: needed}
	if last != 0 && last >= needed {
		m.From = first - 1
	}
	known := slices.Clone(f.snapshots.list)
	for _, d := range damaged {
		if d.meta != nil {
			known = append(known, d.meta)
		}
	}
	slices.SortFunc(known, newestFirst)
	for _, meta := range known {
		m.Known = append(m.Known, FromRaft(meta))
	}
	return m
}

// Missing describes the folder's missing snapshot, or returns nil. Raft must not be opened until it returns nil.
func (s *Store) Missing() *Missing { return s.missing.Load() }

// currentTerm is raft's key for its term.
const currentTerm = "CurrentTerm"

// Mend replaces the missing snapshot by the state of another member, as if a leader had sent it. Reading state must
// fail if it is incomplete.
//
// This node's promises are kept: its vote, and its log except for entries that the state contains or proves to be
// uncommitted. The term is raised to at least the state's, since raft assumes that a node knows the term of what it has
// applied. After a crash the snapshot is either still missing or durably replaced.
func (s *Store) Mend(snapshot Snapshot, state io.Reader) error {
	missing := s.Missing()
	switch {
	case missing == nil:
		return errors.New("mend snapshot: none is missing")
	case snapshot.Index < missing.From:
		return fmt.Errorf("mend snapshot: the state ends at index %d, and is needed up to %d",
			snapshot.Index, missing.From)
	case !snapshot.Plausible():
		return errors.New("mend snapshot: its description makes no sense")
	}
	sink, err := s.Snapshots.Create(raft.SnapshotVersionMax, snapshot.Index, snapshot.Term,
		MembersToRaft(snapshot.Members.Members), snapshot.Members.Index, nil)
	if err != nil {
		return err
	}
	n, err := io.Copy(sink, state)
	if err == nil && n != snapshot.Bytes {
		err = fmt.Errorf("mend snapshot: the state has %d bytes instead of %d", n, snapshot.Bytes)
	}
	if err == nil {
		err = s.raiseTerm(snapshot.Term)
	}
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	if err := s.guard.do(OpDeleteRange, s.align); err != nil {
		return err
	}
	s.missing.Store(nil)
	return nil
}

// Spool stores a state from the network in a file, which is removed when the result is closed. Raft reads a state in
// its main loop, which must not wait for another node. Only one state may be spooled at a time. The next [Open] removes
// the file of a killed process.
func (s *Store) Spool(state io.Reader, size int64) (io.ReadCloser, error) {
	fs, path := s.owner.fs, filepath.Join(s.owner.dir, snapshotName, "spool"+vfs.Unfinished)
	f, err := fs.Open(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC)
	if err != nil {
		return nil, fmt.Errorf("spool state: %w", err)
	}
	kept := &spooled{SectionReader: io.NewSectionReader(f, 0, size), close: func() error {
		return errors.Join(f.Close(), fs.Remove(path))
	}}
	n, err := io.Copy(io.NewOffsetWriter(f, 0), io.LimitReader(state, size+1))
	if err == nil && n != size {
		err = fmt.Errorf("it has not the %d bytes that were announced", size)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spool state: %w", err), kept.Close())
	}
	return kept, nil
}

// spooled is a state in a file.
type spooled struct {
	*io.SectionReader
	close func() error
}

// Close removes the file.
func (s *spooled) Close() error { return s.close() }

// raiseTerm raises raft's term to at least term. If it does, the stored vote is of an earlier term.
func (s *Store) raiseTerm(term uint64) error {
	known, err := s.Stable.GetUint64([]byte(currentTerm))
	if err == nil && known < term {
		err = s.Stable.SetUint64([]byte(currentTerm), term)
	}
	return err
}
