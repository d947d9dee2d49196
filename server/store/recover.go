package store

import (
	"errors"
	"fmt"
)

// Recovery is a folder that another cluster is made of, in place.
type Recovery struct {
	*Store
	// Index is where the snapshot ends that the other cluster begins with, if a recovery was begun before and did not
	// come to its end; else 0.
	Index uint64
}

// OpenForRecovery opens a folder, whatever node it belongs to, for [Recovery.Begin]. Without Begin the folder stays
// what it was.
func OpenForRecovery(dir string) (*Recovery, error) { return openForRecovery(system(), dir) }

func openForRecovery(d Device, dir string) (*Recovery, error) {
	id, err := loadIdentity(d.FS, dir)
	switch {
	case err != nil:
		return nil, err
	case id == nil:
		return nil, fmt.Errorf("data folder %s is no node's", dir)
	case id.State == stateRemoved:
		return nil, fmt.Errorf("data folder %s belongs to a node that was removed from its cluster: recover a member's", dir)
	case id.Seed != "":
		return nil, fmt.Errorf("data folder %s was restored and never started: there is nothing to recover", dir)
	case id.State == stateCreating, id.ClusterID == "" || id.Joins:
		return nil, fmt.Errorf("data folder %s belongs to no cluster yet: nothing is in it", dir)
	}
	s, err := OpenOn(d, Config{DataDir: dir, Name: id.Name, LogStore: id.LogStore, recovers: true})
	if err != nil {
		return nil, err
	}
	return &Recovery{Store: s, Index: id.Recovery}, nil
}

// Begin notes that the folder becomes another cluster's, which begins with a snapshot that ends at index. From here on
// the folder cannot be opened by [Open], also after a crash, until End.
func (r *Recovery) Begin(clusterID string, index uint64, b Beginning) error {
	r.Index = index
	return r.owner.set(func(id *identity) {
		id.State, id.Recovery = stateRecovering, index
		id.ClusterID, id.Founders, id.Votes, id.Restored, id.Beginning = clusterID, nil, false, true, &b
	})
}

// End makes the folder the other cluster's. Requires: the snapshot is there.
func (r *Recovery) End() error {
	list, err := r.Snapshots.List()
	if err == nil && (len(list) == 0 || list[0].Index != r.Index) {
		err = errors.New("the snapshot is missing that the cluster begins with")
	}
	if err != nil {
		return fmt.Errorf("end recovery: %w", err)
	}
	return r.owner.set(func(id *identity) { id.State, id.Recovery = stateReady, 0 })
}
