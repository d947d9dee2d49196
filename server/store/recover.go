package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// Recovery is an open folder that is turned into another cluster's, in place.
type Recovery struct {
	*Store
	// Index is the end of the snapshot with which the other cluster begins, if a recovery was begun and not ended, and
	// else 0.
	Index uint64
}

// OpenForRecovery opens any node's folder for [Recovery.Begin]. Until Begin the folder's identity is unchanged.
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
	s, err := OpenOn(d, Config{DataDir: dir, Name: id.Name, recovers: true})
	if err != nil {
		return nil, err
	}
	return &Recovery{Store: s, Index: id.Recovery}, nil
}

// Begin records that the folder becomes another cluster's, which begins with a snapshot that ends at index. Until End,
// [Open] refuses the folder, even after a crash.
func (r *Recovery) Begin(clusterID string, index uint64, b Beginning) error {
	r.Index = index
	return r.owner.set(func(id *identity) {
		id.State, id.Recovery = stateRecovering, index
		id.ClusterID, id.Founders, id.Votes, id.Restored, id.Beginning = clusterID, nil, false, true, &b
		id.Quarantine = nil // it refers to the members of the former cluster
	})
}

// End completes the recovery. The snapshot that ends at Index must exist.
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

// Make makes a complete folder from what fill stores: a restored backup or the remains of another cluster. If id.ID is
// empty, it generates one. Until Make returns, [Open] refuses the folder, even after a crash, and Make may be repeated.
// After an error the folder is empty. Make refuses a folder that has files of a node.
func Make(c Config, id Identity, fill func(*Store) error) error { return MakeOn(system(), c, id, fill) }

// MakeOn is Make on a given device.
func MakeOn(d Device, c Config, id Identity, fill func(*Store) error) error {
	c.Name = id.Name
	f := &folder{Device: d, config: c.withDefaults()}
	err := f.makeWhole(id, fill)
	if err := errors.Join(err, f.close()); err != nil {
		return errors.Join(fmt.Errorf("make data folder: %w", err), emptied(d, c))
	}
	return nil
}

// emptied removes an unfinished folder of Make, which would occupy space on a full disk. After a kill the folder
// remains, and Open refuses it.
func emptied(d Device, c Config) (err error) {
	f := &folder{Device: d, config: c.withDefaults()}
	if f.lockFolder() != nil {
		return nil // another process has the folder
	}
	defer func() { err = errors.Join(err, f.close()) }()
	id, err := loadIdentity(f.FS, f.config.DataDir)
	if err != nil || id == nil || id.State != stateFilling {
		return nil // Make did not begin it
	}
	for _, name := range pieces() { // the identity with state "filling" is removed last
		if err := errors.Join(f.FS.RemoveAll(f.path(name+vfs.Unfinished)), f.FS.RemoveAll(f.path(name))); err != nil {
			return fmt.Errorf("empty data folder: %w", err)
		}
	}
	return f.FS.SyncDir(f.config.DataDir)
}

func (f *folder) makeWhole(id Identity, fill func(*Store) error) error {
	if err := f.lockFolder(); err != nil {
		return err
	}
	old, err := loadIdentity(f.FS, f.config.DataDir)
	if err != nil {
		return err
	}
	if old != nil && !old.unused() && old.State != stateFilling {
		return fmt.Errorf("data folder %s belongs to node %q: use an empty one", f.config.DataDir, old.Name)
	}
	if old == nil {
		if err := f.mustBeEmpty(); err != nil {
			return err
		}
	}
	made := newIdentity(&f.config)
	if id.ID == "" {
		id.ID = made.ID
	}
	made.Identity = id
	made.State = stateFilling // before any part exists, since Open accepts a folder in stateCreating as new
	if err := f.create(made, old != nil, stateFilling); err != nil {
		return err
	}
	if err := f.openParts(); err != nil {
		return err
	}
	s, err := New(Parts{Log: f.log, Stable: f.stable, Snapshots: f.snapshots}, f.config.Hooks)
	if err != nil {
		return err
	}
	if err := fill(s); err != nil {
		return err
	}
	// The first Open makes sure that "ready" is on the disk.
	made.State = stateReady
	return made.save(f.FS, f.config.DataDir)
}

// pieces returns the names of everything that a folder may have, the identity last.
func pieces() []string { return append(parts(), identityName) }

// mustBeEmpty returns an error if the folder has foreign files. Unfinished files of a node are allowed.
func (f *folder) mustBeEmpty() error {
	names, err := f.FS.List(f.config.DataDir)
	if err != nil {
		return fmt.Errorf("look at data folder: %w", err)
	}
	for _, name := range names {
		piece, ours := strings.CutSuffix(name, vfs.Unfinished)
		ours = ours && slices.Contains(pieces(), piece)
		if !ours && name != lockName && name != "lost+found" {
			return fmt.Errorf("data folder %s is not empty, %s is there: use an empty one", f.config.DataDir, name)
		}
	}
	return nil
}
