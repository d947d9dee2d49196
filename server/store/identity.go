package store

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
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
	snapshotName = "snapshots"
)

// Identity identifies the node and the cluster of a data folder.
type Identity struct {
	// Name is the node's name, for humans.
	Name string `json:"node"`
	// ID is the node's ID in raft. It is generated with the folder and unique to it.
	ID string `json:"nodeID"`
	// ClusterID identifies the node's cluster, and is empty while the node belongs to none.
	ClusterID string `json:"clusterID"`
	// Founders has the first members of the cluster, if this node was one of them. Raft's first entry is made from
	// them.
	Founders []members.Member `json:"founders,omitempty"`
	// FoundingVersion is the log version with which the cluster begins, which all founders support; 0 if unknown.
	FoundingVersion byte `json:"foundingVersion,omitempty"`
	// Joins is set while the node may have asked to join the cluster and does not know that it has joined.
	Joins bool `json:"joins,omitempty"`
	// JoinedAt is the index of the committed configuration that the cluster named when the node joined, or 0 for a
	// founder.
	JoinedAt uint64 `json:"joinedAt,omitempty"`
	// Votes is set while the node still requests a vote, until it finds itself a voter.
	Votes bool `json:"votes,omitempty"`
	// Restored is set for a folder made from a backup or from the remains of another cluster.
	Restored bool `json:"restored,omitempty"`
	// Seed is set while a restored folder has yet to found a cluster, alone or with nodes of the same Seed. It is a
	// digest of the restored state.
	Seed string `json:"seed,omitempty"`
	// Beginning describes how the folder became another cluster's.
	Beginning *Beginning `json:"beginning,omitempty"`
	// Quarantine is set if the state is known to differ from the other members'.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
}

// Quarantine records that the node's state differs from the other members' and must be replaced.
type Quarantine struct {
	Cluster string    `json:"cluster"` // ID of the members' cluster
	Index   uint64    `json:"index"`   // log index at which the difference was found
	At      time.Time `json:"at"`
}

// InQuarantine reports whether Quarantine is set for the node's current cluster.
func (id *Identity) InQuarantine() bool {
	return id.Quarantine != nil && id.Quarantine.Cluster == id.ClusterID
}

// Beginning describes how a cluster began with the state of another.
type Beginning struct {
	Command string    `json:"command"` // restore or recover
	User    string    `json:"user"`    // who ran it
	Host    string    `json:"host"`    // where
	At      time.Time `json:"at"`
	// Node of the former Cluster had the state, which ended at Index.
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Index   uint64 `json:"index"`
	// Told is set once a start of the node has logged it.
	Told bool `json:"told,omitempty"`
}

// ErrRemoved is the error of [Open] for a folder whose node was removed from its cluster.
var ErrRemoved = errors.New("this node was removed from its cluster, and the folder cannot be used again: empty it, " +
	"and start the node with --join to add it as a new one")

// identity is the content of an [Identity]'s file. That file is the first of a new folder, and its state becomes
// "ready" once all others exist: from then on a missing file was lost.
type identity struct {
	Format int `json:"format"`
	Identity
	State     string    `json:"state"`
	Recovery  uint64    `json:"recovery,omitempty"` // see [Recovery]
	CreatedAt time.Time `json:"createdAt"`
	CreatedBy string    `json:"createdBy"`
}

const (
	stateCreating = "creating" // the parts are being made, and no Open has returned
	stateFilling  = "filling"  // Make fills the parts
	stateReady    = "ready"
	stateRemoved  = "removed" // the node was removed from the cluster
	// stateRecovering means that the folder is becoming another cluster's, see [Recovery].
	stateRecovering = "recovering"
)

// newIdentity returns the identity of a new folder, with a new ID.
func newIdentity(c *Config) *identity {
	return &identity{
		Format: identityFormat, Identity: Identity{Name: c.Name, ID: members.NewID(c.Name)},
		State: stateCreating, CreatedAt: time.Now().UTC(), CreatedBy: release(),
	}
}

func (id *identity) save(fs vfs.FS, dir string) error {
	text, err := json.MarshalIndent(id, "", "  ")
	if err == nil {
		err = vfs.NewFolder(fs, dir).Replace(identityName, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	return nil
}

// loadIdentity returns the identity in dir, or nil if dir has none.
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
		return nil,
			fmt.Errorf("data folder %s has format %d, this release knows format %d: use the release that wrote it, or "+
				"a newer one", dir, id.Format, identityFormat)
	}
	if reason := id.fault(); reason != "" {
		return nil, &damageError{path: path, reason: reason}
	}
	return id, nil
}

// fault describes what is wrong with an identity, or returns "".
func (id *identity) fault() string {
	switch {
	case id.Format < 1:
		return fmt.Sprintf("format %d does not exist", id.Format)
	case !slices.Contains([]string{stateCreating, stateFilling, stateReady, stateRemoved, stateRecovering}, id.State):
		return fmt.Sprintf("state %q does not exist", id.State)
	case id.Name == "" || members.Name(id.ID) != id.Name:
		return fmt.Sprintf("the node's ID %q does not begin with its name %q", id.ID, id.Name)
	default:
		return ""
	}
}

// unused reports whether no cluster knows the folder, so that it may become another node's.
func (id *identity) unused() bool {
	return id.State == stateReady && id.ClusterID == "" && !id.Joins && id.Seed == ""
}

// mismatch returns an error if c must not open the folder.
func (id *identity) mismatch(c *Config) error {
	switch {
	case id.State == stateRemoved:
		return fmt.Errorf("data folder %s of node %q, cluster %q: %w", c.DataDir, id.ID, id.ClusterID, ErrRemoved)
	case id.State == stateFilling:
		return fmt.Errorf("data folder %s was being filled, and is not whole: make it again as before, or empty it",
			c.DataDir)
	case id.State == stateRecovering && !c.recovers:
		return fmt.Errorf("data folder %s is being recovered, and is not whole: run 'holdfast recover' again", c.DataDir)
	case id.Name != c.Name:
		return fmt.Errorf("data folder %s belongs to node %q, this node is %q", c.DataDir, id.Name, c.Name)
	default:
		return nil
	}
}

// owner has the identity of an open folder, and changes it durably.
type owner struct {
	fs  vfs.FS
	dir string

	mu     sync.Mutex // held over the write
	id     identity
	broken error
}

// Identity returns the folder's identity.
func (s *Store) Identity() Identity {
	if s.owner == nil {
		return Identity{}
	}
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	return s.owner.id.Identity
}

// SetIdentity changes the identity durably. After an error the change may or may not be durable, and the caller should
// end the process.
func (s *Store) SetIdentity(change func(*Identity)) error {
	return s.owner.set(func(id *identity) { change(&id.Identity) })
}

// Remove records durably that the node was removed from its cluster, after which the folder cannot be opened.
func (s *Store) Remove() error {
	return s.owner.set(func(id *identity) { id.State = stateRemoved })
}

func (o *owner) set(change func(*identity)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.broken != nil {
		return o.broken
	}
	next := o.id
	change(&next)
	if err := next.save(o.fs, o.dir); err != nil {
		o.broken = err
		return err
	}
	o.id = next
	return nil
}

// release returns the version of this program, or "unknown".
func release() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Path + " " + info.Main.Version
	}
	return "unknown"
}

// readLineage reads from which incarnations the next one descends; none: the folder is new.
func readLineage(s raft.StableStore) (incarnation.Lineage, error) {
	b, err := s.Get([]byte(keyLineage))
	if err != nil || len(b) == 0 {
		return nil, err
	}
	return incarnation.Parse(b)
}

// startIncarnation makes the incarnation of this Open durable.
func (f *folder) startIncarnation() error {
	random := f.Random
	if random == nil {
		random = randomNumber
	}
	f.lineage = f.lineage.Start(random())
	return f.stable.Set([]byte(keyLineage), f.lineage.Append(nil))
}

func randomNumber() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails, by the documentation
	return binary.BigEndian.Uint32(b[:])
}

// Proved notes that this Open's incarnation was proved: the next one descends from it alone.
func (s *Store) Proved() error {
	proved := incarnation.Lineage{s.Lineage.Current()}
	return s.Stable.Set([]byte(keyLineage), proved.Append(nil))
}
