package backup

import (
	"crypto/rand"
	"encoding/hex"
	"io"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// Restoration says what is made of a backup: the folder of a node that is a cluster of its own.
type Restoration struct {
	DataDir, LogStore string
	Name              string // the node's
	Addr              string // where other nodes dial it
	Renewal           fsm.Renewal
	// FenceKeys is how many keys that look like fences are listed at most, as they were before.
	FenceKeys int
	// Begins, when not nil, is told what was read before anything is written, and may refuse it.
	Begins func(Report, fsm.Renewed) error
}

// Restored says what became of a backup.
type Restored struct {
	Report    Report
	Renewed   fsm.Renewed
	ClusterID string
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
	id := store.Identity{Name: o.Name, ID: done.NodeID, ClusterID: done.ClusterID, Restored: true}
	err = store.Make(store.Config{DataDir: o.DataDir, LogStore: o.LogStore}, id, func(s *store.Store) error {
		// Clients that saw an index see larger ones.
		return begin(s, alone(id.ID, o.Addr), max(r.Meta.Index, 1), max(r.Meta.Term, 1), m)
	})
	return done, err
}

// alone is the configuration of a cluster of one node.
func alone(id, addr string) raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(addr)}}}
}

// begin writes a snapshot of m that a cluster of those members begins with. The snapshot is the last to be written.
func begin(s *store.Store, c raft.Configuration, index, term uint64, m *fsm.Machine) error {
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
