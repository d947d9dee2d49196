package backup

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// Restoration says what is made of a backup: the folder of a node that is a cluster of its own.
type Restoration struct {
	DataDir string
	Name    string // the node's
	Addr    string // where other nodes dial it
	// Together: the node founds a cluster together with others that are restored of the same file in the same way, or
	// alone if the others' folders are empty. Else it is a cluster of its own at once.
	Together bool
	// User and Host say who restores, for the log.
	User, Host string
	Renewal    fsm.Renewal
	// FenceKeys is how many keys that look like fences are listed at most, as they were before.
	FenceKeys int
	// Begins, when not nil, is told what was read before anything is written, and may refuse it.
	Begins func(Report, fsm.Renewed) error
}

// Restored says what became of a backup.
type Restored struct {
	Report    Report
	Renewed   fsm.Renewed
	ClusterID string // empty: the cluster is to be founded
	NodeID    string
}

// Restore reads and proves a whole file, and makes a data folder of the state: with an ID of its own, and of a new
// cluster. Nothing is written before all of the file was proved. A folder that is in use, or was, is refused; a folder
// that a restore was about to make, and did not to its end, is made again.
func Restore(in io.Reader, o Restoration) (Restored, error) {
	r, m, err := load(in)
	if err != nil {
		return Restored{}, err
	}
	done := Restored{
		Report:    Report{Meta: r.Meta, Summary: r.Summary(), Survey: m.Survey(o.FenceKeys)},
		ClusterID: newClusterID(), NodeID: members.NewID(o.Name),
	}
	if done.Renewed, err = m.Renew(o.Renewal); err != nil {
		return Restored{}, err
	}
	if o.Begins != nil {
		if err := o.Begins(done.Report, done.Renewed); err != nil {
			return Restored{}, err
		}
	}
	// Clients that saw an index see larger ones.
	index, term := max(r.Meta.Index, 1), max(r.Meta.Term, 1)
	id := store.Identity{Name: o.Name, ID: done.NodeID, Restored: true, Beginning: &store.Beginning{
		Command: "restore", User: o.User, Host: o.Host, At: time.Now().UTC(), Cluster: r.Meta.ClusterID, Node: r.Meta.NodeID,
		Index: r.Meta.Index,
	}}
	if o.Together {
		done.ClusterID = ""
		if id.Seed, err = seed(index, term, m); err != nil {
			return done, err
		}
	}
	id.ClusterID = done.ClusterID
	err = store.Make(store.Config{DataDir: o.DataDir}, id, func(s *store.Store) error {
		return begin(s, alone(id.ID, o.Addr), index, term, m)
	})
	return done, err
}

// seed is the same for two states if, and only if, the states and their places in the log are.
func seed(index, term uint64, m fsm.Machine) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %d\n", protocol.EntryVersion, index, term)
	if _, err := m.Snapshot().WriteTo(h); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// Found makes the state of a restored folder the beginning of the cluster that was founded since: a snapshot with the
// founders as its members is written behind the one that has this node alone. Raft must not be open. Killed between any
// two steps, Found can be called again; it does nothing to a folder that began before.
func Found(s *store.Store) error {
	id := s.Identity()
	if id.Seed == "" || id.ClusterID == "" {
		return nil
	}
	if err := found(s, id.Founders); err != nil {
		return fmt.Errorf("found the cluster with the restored state: %w", err)
	}
	return s.SetIdentity(func(id *store.Identity) { id.Seed = "" })
}

func found(s *store.Store, founders []members.Member) error {
	list, err := s.Snapshots.List()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return errors.New("the snapshot is missing")
	}
	var first raft.Configuration
	for _, m := range members.NewConfiguration(0, founders...).Members {
		first.Servers = append(first.Servers, alone(m.ID, m.Addr).Servers...)
	}
	if slices.Equal(list[0].Configuration.Servers, first.Servers) {
		return nil
	}
	_, state, err := s.Snapshots.Open(list[0].ID)
	if err != nil {
		return err
	}
	defer state.Close()
	index := list[0].Index + 1
	sink, err := s.Snapshots.Create(raft.SnapshotVersionMax, index, list[0].Term, first, index, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(sink, state); err != nil {
		_ = sink.Cancel()
		return err
	}
	return sink.Close()
}

// alone is the configuration of a cluster of one node.
func alone(id, addr string) raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(id),
		Address: raft.ServerAddress(addr),
	}}}
}

// begin writes a snapshot of m that a cluster of those members begins with. The snapshot is the last to be written.
func begin(s *store.Store, c raft.Configuration, index, term uint64, m fsm.Machine) error {
	if err := s.Stable.SetUint64([]byte(currentTerm), term); err != nil {
		return err
	}
	sink, err := s.Snapshots.Create(raft.SnapshotVersionMax, index, term, c, index, nil)
	if err != nil {
		return err
	}
	if _, err := m.Snapshot().WriteTo(sink); err != nil {
		_ = sink.Cancel()
		return err
	}
	return sink.Close()
}

// currentTerm is raft's key of its term. Entries of a cluster have no smaller term than its snapshot.
const currentTerm = "CurrentTerm"

func newClusterID() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}
