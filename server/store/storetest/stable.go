package storetest

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/hashicorp/raft"
)

// diskStable is a raft.StableStore.
type diskStable struct{ handle }

func (s *diskStable) Set(key, value []byte) error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.disk.mu.Unlock()
	s.disk.stable[string(key)] = string(value)
	return nil
}

func (s *diskStable) Get(key []byte) ([]byte, error) {
	if err := s.lock(); err != nil {
		return nil, err
	}
	defer s.disk.mu.Unlock()
	return []byte(s.disk.stable[string(key)]), nil
}

func (s *diskStable) SetUint64(key []byte, value uint64) error {
	return s.Set(key, strconv.AppendUint(nil, value, 10))
}

func (s *diskStable) GetUint64(key []byte) (uint64, error) {
	text, err := s.Get(key)
	if err != nil || len(text) == 0 {
		return 0, err
	}
	return strconv.ParseUint(string(text), 10, 64)
}

const retained = 2

// snapshot is one that was closed, and is never changed again.
type snapshot struct {
	meta raft.SnapshotMeta
	data []byte
}

// diskSnapshots is a raft.SnapshotStore. Unlike raft's own one in memory, a
// snapshot exists from Close on, not from Create.
type diskSnapshots struct{ handle }

func (s *diskSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	if err := s.lock(); err != nil {
		return nil, err
	}
	defer s.disk.mu.Unlock()
	s.disk.created++
	return &sink{handle: s.handle, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d-%d", term, index, s.disk.created),
		Index: index, Term: term, Configuration: configuration, ConfigurationIndex: configurationIndex,
	}}, nil
}

func (s *diskSnapshots) List() ([]*raft.SnapshotMeta, error) {
	if err := s.lock(); err != nil {
		return nil, err
	}
	defer s.disk.mu.Unlock()
	var list []*raft.SnapshotMeta
	for _, one := range slices.Backward(s.disk.snapshots) {
		meta := one.meta
		list = append(list, &meta)
	}
	return list, nil
}

func (s *diskSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if err := s.lock(); err != nil {
		return nil, nil, err
	}
	defer s.disk.mu.Unlock()
	for _, one := range s.disk.snapshots {
		if one.meta.ID == id {
			meta := one.meta
			return &meta, io.NopCloser(bytes.NewReader(one.data)), nil
		}
	}
	return nil, nil, fmt.Errorf("open snapshot %s: there is none", id)
}

// sink is a raft.SnapshotSink.
type sink struct {
	handle
	meta raft.SnapshotMeta
	data []byte
	done bool
}

func (s *sink) ID() string { return s.meta.ID }

func (s *sink) Write(b []byte) (int, error) {
	if err := s.lock(); err != nil {
		return 0, err
	}
	defer s.disk.mu.Unlock()
	s.data = append(s.data, b...)
	return len(b), nil
}

func (s *sink) Close() error {
	if s.done {
		return nil
	}
	s.done = true
	if err := s.lock(); err != nil {
		return err
	}
	defer s.disk.mu.Unlock()
	s.meta.Size = int64(len(s.data))
	d := s.disk
	d.snapshots = append(d.snapshots, &snapshot{meta: s.meta, data: s.data})
	slices.SortStableFunc(d.snapshots, func(a, b *snapshot) int {
		if a.meta.Term != b.meta.Term {
			return int(a.meta.Term) - int(b.meta.Term)
		}
		return int(a.meta.Index) - int(b.meta.Index)
	})
	if n := len(d.snapshots); n > retained {
		d.snapshots = slices.Clone(d.snapshots[n-retained:])
	}
	return nil
}

func (s *sink) Cancel() error {
	s.done = true
	return nil
}
