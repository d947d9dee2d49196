package backup

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/store"
)

// Survivor is the folder of a node whose cluster has lost its majority.
type Survivor struct {
	// Identity is the folder's; ClusterID is the new cluster's if a recovery was begun before.
	Identity store.Identity
	// Log says what the folder has. It is zero if a recovery was begun before and has only to be ended.
	Log    raftnode.Replayed
	Survey fsm.Survey
	// User and Host say who recovers, for the log.
	User, Host string
	// Begun: a recovery was killed when all was written but the last word.
	Begun bool

	folder  *store.Recovery
	machine fsm.Machine
}

// Survive opens a folder and looks at what it has. The folder stays what it is. The caller must close the survivor.
func Survive(dir string) (*Survivor, error) {
	folder, err := store.OpenForRecovery(dir)
	if err != nil {
		return nil, err
	}
	s := &Survivor{Identity: folder.Identity(), folder: folder, machine: fsm.New()}
	if err := s.read(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Survivor) read() error {
	list, err := s.folder.Snapshots.List()
	if err != nil {
		return err
	}
	if s.folder.Index != 0 && len(list) > 0 && list[0].Index == s.folder.Index {
		s.Begun = true
	}
	if s.Log, err = raftnode.Replay(s.folder.Log, s.folder.Snapshots, replayed{s.machine}); err != nil {
		return err
	}
	if s.Log.Last == 0 {
		return errors.New("the folder has neither a snapshot nor a log: there is nothing to recover")
	}
	s.Survey = s.machine.Survey(shownFences)
	return nil
}

// shownFences is how many keys that look like fences a [Survivor] lists.
const shownFences = 20

// Addr is where the members dial the node, as far as the folder knows.
func (s *Survivor) Addr() string {
	m, _ := s.Log.Members.Find(s.Identity.ID)
	return m.Addr
}

// Recover makes the folder a new cluster's, of this node alone and with this node's ID, of all that snapshot and log
// hold. Other members of the former cluster know another cluster ID, and cannot come back. Killed between any two
// steps, Recover can be begun again.
func (s *Survivor) Recover(addr string, r fsm.Renewal, check func(fsm.Renewed) error) (fsm.Renewed, error) {
	if s.Begun {
		return fsm.Renewed{}, s.folder.End()
	}
	done, err := s.machine.Renew(r)
	if err == nil && check != nil {
		err = check(done)
	}
	if err != nil {
		return done, err
	}
	term, err := s.folder.Stable.GetUint64([]byte(currentTerm))
	if err != nil {
		return done, err
	}
	// The snapshot goes on behind all that the folder has, so that it stands for the log.
	index := s.Log.Last + 1
	term = max(term, s.Log.Term) + 1
	from := store.Beginning{
		Command: "recover", User: s.User, Host: s.Host, At: time.Now().UTC(), Cluster: s.Identity.ClusterID,
		Node: s.Identity.ID, Index: s.Log.Last,
	}
	if b := s.Identity.Beginning; s.folder.Index != 0 && b != nil {
		from.Cluster = b.Cluster // a recovery was begun before
	}
	if err := s.folder.Begin(newClusterID(), index, from); err != nil {
		return done, err
	}
	s.Identity = s.folder.Identity()
	if err := begin(s.folder.Store, alone(s.Identity.ID, addr), index, term, s.machine); err != nil {
		return done, fmt.Errorf("write snapshot: %w", err)
	}
	return done, s.folder.End()
}

// Close closes the folder.
func (s *Survivor) Close() error { return s.folder.Close() }

// replayed is the machine of a node that does not run.
type replayed struct{ m fsm.Machine }

func (r replayed) Restore(snapshot io.Reader) error { return r.m.Restore(snapshot) }
func (r replayed) Apply(data []byte) error          { return r.m.Apply(data, fsm.Discard{}) }
