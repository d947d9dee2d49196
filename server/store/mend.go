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

// Missing is a snapshot that a folder has no more, and that neither an older one nor the log replaces. Another member's
// state stands for it, if that is committed, and ends at From or later: see [Store.Mend].
type Missing struct {
	// Damage says what is wrong, and Err why the folder cannot be used without that state, in one line for the operator.
	Damage, Err error
	// From is the index before the log's first entry, or, if the log ends before the missing snapshot did, where that
	// ended.
	From uint64
	// Known describes the snapshots in the folder, newest first, damaged ones among them. Their states are committed.
	Known []Snapshot
}

// mends reports whether other members may have what the folder misses: the node is a member, and its state is not one
// that the cluster has to be founded with.
func (f *folder) mends() bool {
	id := &f.id.Identity
	return f.config.Mends && id.ClusterID != "" && !id.Joins && id.Seed == ""
}

// newMissing describes what a folder misses whose log has entries first to last, and whose snapshots had reached
// needed.
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

// Missing returns what the folder misses; nil: nothing. Raft must not be opened before that is nil.
func (s *Store) Missing() *Missing { return s.missing.Load() }

// currentTerm is raft's key of its term.
const currentTerm = "CurrentTerm"

// Mend takes the state of another member of the cluster for the snapshot that is missing, as if a leader had sent it.
// state fails if it is not whole.
//
// What this node has promised stays: its vote, and its log, but for entries that were not committed, as the state
// shows, or that the state stands for. The term is raised to the state's, if need be: raft takes it for granted that
// a node knows the term of what it has applied. Killed between any two steps, the node misses the snapshot still, or
// has the state, durably.
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

// Spool keeps a state that comes over the network in a file until it is closed, one state at a time. Raft reads a state
// in its main loop, where nothing may wait for another node. What a killed process leaves is taken away by the next
// [Open].
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

// spooled reads a state from a file.
type spooled struct {
	*io.SectionReader
	close func() error
}

// Close removes the file.
func (s *spooled) Close() error { return s.close() }

// raiseTerm raises raft's term. The vote that is stored beside it is of an earlier term then.
func (s *Store) raiseTerm(term uint64) error {
	known, err := s.Stable.GetUint64([]byte(currentTerm))
	if err == nil && known < term {
		err = s.Stable.SetUint64([]byte(currentTerm), term)
	}
	return err
}
