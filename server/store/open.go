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

// advice tells an operator what to do about damage. A node must not start again with an emptied folder: it could vote
// twice in one term, and help to elect a leader that lacks entries which this node has acknowledged.
const advice = "this node must not go on under its name, not with an emptied folder either: remove it from the " +
	"cluster and add a new one"

// Open opens and locks a node's data folder, and creates the contents of an empty one. It checks everything in the
// folder. An error is one line for the operator, and leaves nothing open.
func Open(c Config) (*Store, error) { return OpenOn(system(), c) }

// OpenOn is [Open] on the given device.
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
	if c.Hooks.OnSpace != nil {
		s.guard.space = func() {
			if free, total := f.FS.Space(c.DataDir); total > 0 {
				c.Hooks.OnSpace(free, total)
			}
		}
	}
	s.guard.watch(f.gone)
	return s, nil
}

// refusal words the reason why a folder cannot be opened, in one line, with advice if the folder is damaged.
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
	// Gone returns the path of a file that was removed or replaced while open, or "".
	Gone() (path string, err error)
}

// folder is a data folder, from the beginning of Open until it is closed.
type folder struct {
	Device
	config    Config
	lock      io.Closer
	id        *identity
	stable    StableStore
	patient   *vfs.Patient // file system of the log
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
	var mismatch error
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
	if !isNew {
		// A crash may have come between the writing of what was read and the sync: a power cut would bring back
		// what was there before, such as "creating", or a folder without a cluster.
		if err := f.id.save(f.FS, f.config.DataDir); err != nil {
			return err
		}
	}
	f.patient.Start()
	return f.startIncarnation()
}

// makeFolder creates dir and its missing parents durably, one level at a time: a crash can leave only the last level
// unsynced, and the next Open syncs that one.
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
		// Nodes that share a parent folder may create it concurrently.
		if err := fs.Mkdir(dir); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	err = fs.SyncDir(parent)
	if exists && errors.Is(err, os.ErrPermission) {
		return nil // this node cannot have created dir
	}
	if err != nil {
		// An empty dir is removed, and created again by the next Open: after a failed sync, another could succeed without
		// writing the name.
		_ = fs.Remove(dir)
	}
	return err
}

// create creates all parts and then sets the folder's state. It overwrites existing parts if the folder has an identity,
// and no Open has ever returned it or no cluster knows it.
func (f *folder) create(id *identity, overwrite bool, state string) error {
	for _, name := range parts() {
		if overwrite {
			break
		}
		if exists, err := f.FS.Exists(f.path(name)); err != nil {
			return fmt.Errorf("look at data folder: %w", err)
		} else if exists {
			return &damageError{path: f.path(identityName), reason: "it is missing, and the node's data is there"}
		}
	}
	// Save it even if it was read from the folder, where it may be unsynced: parts without an identity are refused as
	// damage.
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
	id.State = state
	return id.save(f.FS, f.config.DataDir)
}

// parts returns the names of everything that a folder may contain beside its identity.
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

// openParts opens and checks the parts: the snapshots last, as they are compared with the log and the stable store.
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

// proveSnapshots makes the names of snapshots durable that were not recorded as completed: a crash or an error came
// between the renaming and the sync of the folder.
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

// recordSnapshot records the index of the newest completed snapshot. Raft deletes log entries once a snapshot is
// completed, so that a later loss of the snapshot must be noticed.
func (f *folder) recordSnapshot(index uint64) error {
	newest, err := f.stable.GetUint64([]byte(keySnapshot))
	if err != nil || newest >= index {
		return err
	}
	return f.stable.SetUint64([]byte(keySnapshot), index)
}

// checkContinuity verifies that the newest whole snapshot and the log still reach the index that they have reached
// before, without a gap. If they do not, it returns the missing snapshot where another member's state may replace it,
// or else an error.
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

// close closes whatever is open, also after a failed open.
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
