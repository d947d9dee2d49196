package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
	"github.com/holdfast/holdfast/server/store/wal"
)

// advice is what an operator can do about damage. A node must not start
// again with an emptied folder: the node would vote again where it has voted, and
// could help to elect a leader that does not know what this node had acknowledged.
const advice = "this node must not go on under its name, not with an emptied folder either: remove it from the " +
	"cluster and add a new one"

// Open opens the folder of a node and locks it, or makes a folder that is empty. All
// that is there is checked. What Open returns instead of a Store is one line for the operator,
// and nothing is left open.
func Open(c Config) (*Store, error) { return OpenOn(system(), c) }

// OpenOn is Open of a folder on that device.
func OpenOn(d Device, c Config) (*Store, error) {
	f := &folder{Device: d, config: c.withDefaults()}
	if err := f.open(); err != nil {
		_ = f.close()
		return nil, refusal(err)
	}
	s, err := New(Parts{
		Log: f.log, Stable: f.stable, Snapshots: f.snapshots, Lineage: f.lineage, Close: f.close, missing: f.missing,
	}, c.Hooks)
	if err != nil {
		_ = f.close()
		return nil, fmt.Errorf("open store: %w", err)
	}
	s.owner = &owner{fs: f.FS, dir: c.DataDir, id: *f.id}
	s.guard.watch(f.gone)
	return s, nil
}

// refusal is why a folder cannot be opened, in one line.
func refusal(err error) error {
	var walDamage *wal.DamageError
	if isDamage(err) || errors.As(err, &walDamage) {
		return fmt.Errorf("open store: %w; %s", err, advice)
	}
	return fmt.Errorf("open store: %w", err)
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// logStore is the log of a folder: a *wal.WAL, or a test's.
type logStore interface {
	raft.LogStore
	io.Closer
	// Gone returns which file is not there any more under its name, "" if none is.
	Gone() (path string, err error)
}

// folder is a data folder that is being opened, and then is open.
type folder struct {
	Device
	config    Config
	lock      io.Closer
	id        *identity
	stable    StableStore
	patient   *vfs.Patient // what the log's files go through
	log       logStore
	snapshots *snapshots
	lineage   incarnation.Lineage
	missing   *Missing
}

func (f *folder) path(name string) string { return filepath.Join(f.config.DataDir, name) }

func (f *folder) lockFolder() error {
	if err := makeFolder(f.FS, filepath.Clean(f.config.DataDir)); err != nil {
		return fmt.Errorf("make data folder: %w", err)
	}
	lock, err := f.Lock(f.config.DataDir)
	if err != nil {
		return err
	}
	f.lock = lock
	return nil
}

func (f *folder) open() error {
	if err := f.lockFolder(); err != nil {
		return err
	}
	id, err := loadIdentity(f.FS, f.config.DataDir)
	if err != nil {
		return err
	}
	f.id = id
	known := id != nil
	mismatch := error(nil)
	if known {
		mismatch = id.mismatch(&f.config)
	}
	switch {
	case !known, mismatch != nil && id.unused():
		f.id = newIdentity(&f.config)
	case mismatch != nil:
		return mismatch
	}
	isNew := f.id.State == stateCreating
	if isNew {
		if err := f.create(f.id, known, stateReady); err != nil {
			return err
		}
	}
	if err := f.openParts(); err != nil {
		return err
	}
	if !isNew && (len(f.lineage) == 0 || f.id.Format == identityFormat) {
		// A crash may have come between the writing of what was read and the sync: a power cut would bring back
		// what was there before, such as "creating", or a folder without a cluster. With a lineage an Open
		// has passed here, and format 1 has not changed since.
		if err := f.id.save(f.FS, f.config.DataDir); err != nil {
			return err
		}
	}
	f.patient.Start()
	return f.startIncarnation()
}

// makeFolder makes dir and what is missing above, durably: one level after the other, so
// that a level that a crash left unsynced is the last, and is synced by the next Open.
func makeFolder(fs vfs.FS, dir string) error {
	exists, err := fs.Exists(dir)
	if err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	if !exists {
		if err := makeFolder(fs, parent); err != nil {
			return err
		}
		// Nodes that share a parent folder and start together make the parent at the same time.
		if err := fs.Mkdir(dir); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	err = fs.SyncDir(parent)
	if exists && errors.Is(err, os.ErrPermission) {
		return nil // this node cannot have made anything there
	}
	if err != nil {
		// If the folder is empty it is made again next time: another sync could succeed without
		// writing the name.
		_ = fs.Remove(dir)
	}
	return err
}

// create makes all parts, and says that the folder is in the state then. again: there is an identity already, and no
// Open has ever returned this folder, or no cluster has heard of it, so that what is there can go.
func (f *folder) create(id *identity, again bool, then string) error {
	for _, name := range parts() {
		if again {
			break
		}
		if exists, err := f.FS.Exists(f.path(name)); err != nil {
			return fmt.Errorf("look at data folder: %w", err)
		} else if exists {
			return &damageError{path: f.path(identityName), reason: "it is missing, and the node's data is there"}
		}
	}
	// Also when the identity was read: parts without an identity are taken for a node that lost it.
	if err := id.save(f.FS, f.config.DataDir); err != nil {
		return err
	}
	for _, name := range parts() {
		if err := f.FS.RemoveAll(f.path(name)); err != nil {
			return fmt.Errorf("make data folder: %w", err)
		}
	}
	if err := f.createParts(); err != nil {
		return err
	}
	id.State = then
	return id.save(f.FS, f.config.DataDir)
}

// parts are the names of all that a folder may have beside its identity.
func parts() []string { return []string{stableName, walName, snapshotName} }

func (f *folder) createParts() error {
	if err := f.CreateStable(f.path(stableName)); err != nil {
		return err
	}
	for _, name := range []string{snapshotName, walName} {
		if err := f.FS.Mkdir(f.path(name)); err != nil {
			return fmt.Errorf("make data folder: %w", err)
		}
	}
	if err := wal.Create(f.FS, f.path(walName)); err != nil {
		return err
	}
	return f.FS.SyncDir(f.config.DataDir)
}

func (f *folder) openParts() (err error) {
	if f.stable, err = f.OpenStable(f.path(stableName)); err != nil {
		f.stable = nil
		return err
	}
	if f.lineage, err = readLineage(f.stable); err != nil {
		return err
	}
	f.patient = vfs.NewPatient(f.FS, f.path(identityName), f.config.Logger)
	if err := f.openLog(); err != nil {
		return err
	}
	snapshots, damaged, err := openSnapshots(f.FS, f.path(snapshotName), f.config.Logger)
	if err != nil {
		return err
	}
	f.snapshots = snapshots
	snapshots.completed = f.recordSnapshot
	if f.missing, err = f.checkContinuity(damaged); err != nil {
		return err
	}
	return f.proveSnapshots()
}

// proveSnapshots makes sure that the names of snapshots are on the disk that were not recorded as
// completed: a crash, or an error, came between their renaming and the sync of their folder.
func (f *folder) proveSnapshots() error {
	recorded, err := f.stable.GetUint64([]byte(keySnapshot))
	if err != nil {
		return err
	}
	newest := recorded
	for _, meta := range f.snapshots.list {
		if meta.Index > recorded {
			if err := f.snapshots.prove(meta.ID); err != nil {
				return err
			}
			newest = max(newest, meta.Index)
		}
	}
	return f.recordSnapshot(newest)
}

// openLog leaves f.log nil after an error: a nil *wal.WAL in the interface would look like a log.
func (f *folder) openLog() error {
	w, err := wal.Open(f.path(walName), wal.Options{SegmentSize: f.SegmentSize, Logger: f.config.Logger, FS: f.patient})
	if err != nil {
		return err
	}
	f.log = w
	return nil
}

// recordSnapshot remembers that a snapshot was completed: raft deletes log
// entries then, and if the snapshot is lost later, that must be noticed.
func (f *folder) recordSnapshot(index uint64) error {
	newest, err := f.stable.GetUint64([]byte(keySnapshot))
	if err != nil || newest >= index {
		return err
	}
	return f.stable.SetUint64([]byte(keySnapshot), index)
}

// checkContinuity makes sure that snapshot and log together reach as far as ever before. A damaged snapshot is no harm
// as long as an older one and the log reach past it. Otherwise another member's state may stand for it.
func (f *folder) checkContinuity(damaged []damagedSnapshot) (*Missing, error) {
	needed, err := f.stable.GetUint64([]byte(keySnapshot))
	if err != nil {
		return nil, err
	}
	var snapshot uint64
	if len(f.snapshots.list) > 0 {
		snapshot = f.snapshots.list[0].Index
	}
	first, last, err := bounds(f.log)
	if err != nil {
		return nil, err
	}
	var reason error
	for _, d := range damaged {
		needed = max(needed, d.index)
		if reason == nil || !isDamage(d.err) {
			reason = d.err
		}
	}
	reached := snapshot
	if last != 0 && first <= snapshot+1 {
		reached = max(snapshot, last)
	}
	if reached < needed || last != 0 && first > snapshot+1 {
		if reason == nil {
			reason = &damageError{path: f.path(snapshotName), reason: fmt.Sprintf(
				"a snapshot is missing: the newest there has index %d, the log has entries %d to %d, and a snapshot of index %d "+
					"was completed", snapshot, first, last, needed)}
		}
		if !f.mends() || !isDamage(reason) {
			return nil, reason
		}
		return f.newMissing(reason, damaged, first, last, needed), nil
	}
	if reason != nil {
		f.config.Logger.Warn("ignored a damaged snapshot, as an older one and the log have it all", "error", reason)
	}
	return nil, nil
}

// close also closes what is open only in part.
func (f *folder) close() error {
	var errs []error
	if f.patient != nil {
		f.patient.Stop()
		defer f.patient.Close()
	}
	if f.log != nil {
		errs = append(errs, f.log.Close())
	}
	if f.stable != nil {
		errs = append(errs, f.stable.Close())
	}
	if f.lock != nil {
		errs = append(errs, f.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}
