package store

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

const (
	identityName   = "identity.json"
	identityFormat = 1
)

// Names in a data folder.
const (
	stableName   = "stable.db"
	walName      = "wal"
	boltLogName  = "log.db"
	snapshotName = "snapshots"
)

// identity says whose a data folder is. The identity is the first file of a new folder, and
// says "ready" only when all others are there: from then on a missing file was lost.
type identity struct {
	Format    int       `json:"format"`
	Node      string    `json:"node"`
	Cluster   string    `json:"cluster"`
	LogStore  string    `json:"logStore"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"createdAt"`
	CreatedBy string    `json:"createdBy"`
}

const (
	stateCreating = "creating"
	stateReady    = "ready"
)

func (id *identity) save(fs vfs.FS, dir string) error {
	text, err := json.MarshalIndent(id, "", "  ")
	if err == nil {
		err = vfs.Replace(fs, filepath.Join(dir, identityName), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	return nil
}

// loadIdentity returns nil if dir has none.
func loadIdentity(fs vfs.FS, dir string) (*identity, error) {
	path := filepath.Join(dir, identityName)
	text, err := vfs.ReadFile(fs, path)
	if vfs.IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	id := &identity{}
	if err := json.Unmarshal(text, id); err != nil {
		return nil, &damageError{path: path, reason: err.Error()}
	}
	if id.Format > identityFormat {
		return nil, fmt.Errorf("data folder %s has format %d, this release knows formats up to %d: use the release that wrote it, or a newer one", dir, id.Format, identityFormat)
	}
	if id.Format != identityFormat || id.State != stateCreating && id.State != stateReady {
		return nil, &damageError{path: path, reason: fmt.Sprintf("format %d and state %q do not exist", id.Format, id.State)}
	}
	return id, nil
}

// mismatch says why the folder in dir is not for c, or nothing.
func (id *identity) mismatch(c *Config) error {
	switch {
	case id.Node != c.Name:
		return fmt.Errorf("data folder %s belongs to node %q, this node is %q", c.DataDir, id.Node, c.Name)
	case id.Cluster != c.ClusterID:
		return fmt.Errorf("data folder %s belongs to cluster %q, this node is configured for %q", c.DataDir, id.Cluster, c.ClusterID)
	case id.LogStore != c.LogStore:
		return fmt.Errorf("data folder %s keeps its log in a %s store, configured is %s: it cannot be changed", c.DataDir, id.LogStore, c.LogStore)
	default:
		return nil
	}
}

// release is the version of this program, as far as known.
func release() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Path + " " + info.Main.Version
	}
	return "unknown"
}
