package replica

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/raftnode"
)

// Member is a member of the cluster as this node knows it.
type Member struct {
	ID, Name   string
	Voter      bool
	PeerAddr   string // host:port of the peer port
	ClientAddr string // host:port that clients use; empty while unknown
	// SentinelAddr is the same for clients that speak to a Sentinel; empty also if the node is none.
	SentinelAddr string
	// Release is what the member runs, as it told this node or the leader; empty while unknown.
	Release string
	// NewestVersion is the newest version of the log that the member can use, by its last greeting; 0: not known.
	// HoldVersion is the newest that its operator wants yet; 0: any.
	NewestVersion, HoldVersion uint64
	// Silent: the leader has not heard from the member for an election timeout, by the leader's last
	// word to this node, or the member cannot read the log.
	Silent bool
	// LogIndex: the member's log is known to agree with the leader's up to here; 0: not known.
	LogIndex uint64
}

// Majority returns how many of the members vote, and how many of those make a majority.
func Majority(all []Member) (voters, quorum int) {
	for _, m := range all {
		if m.Voter {
			voters++
		}
	}
	return voters, members.Quorum(voters)
}

// Follower is another member that answers the leader.
type Follower struct {
	Member
	LogIndex uint64        // the follower's log is known to agree with the leader's up to here
	Silent   time.Duration // since the last answer, at most an election timeout
	Heard    time.Time     // when that answer came
}

// Stalled is a follower that lacks committed entries and does not get them.
type Stalled struct {
	Member
	LogIndex uint64        // the follower's log has agreed with the leader's up to here, and no further; 0: not known
	For      time.Duration // how long that has been so
}

// Status is a snapshot of a node's view, for INFO, ROLE, logs and health.
type Status struct {
	ID, Name  string
	Leading   bool   // this node leads and serves
	Leader    Member // zero while none is known
	Members   []Member
	Followers []Follower // with and without votes; empty unless this node leads; by name
	Stalled   []Stalled  // followers without progress, also silent followers; empty unless this node leads; by name
	Version   byte       // of the cluster, as far as this node has applied the log
	Term      uint64
	Committed uint64 // raft log index
	Applied   uint64 // raft log index
	LastLog   uint64 // raft log index
}

// Status is this node's view of the cluster.
func (r *Replica) Status() Status {
	l := r.serving.Load()
	s := Status{
		ID:        r.config.ID,
		Name:      members.Name(r.config.ID),
		Leading:   l != nil,
		Members:   r.members(),
		Version:   r.Version(),
		Term:      r.node.Term(),
		Committed: r.node.Committed(),
		Applied:   r.node.Applied(),
		LastLog:   r.node.Last(),
	}
	if l != nil {
		s.Followers, s.Stalled = r.followers(l.term), r.stalled(l.term)
	}
	_, leader := r.node.Leader()
	for _, m := range s.Members {
		if m.ID == leader {
			s.Leader = m
		}
	}
	return s
}

// members are all members. The leader looks how far they are and which of them are silent; a follower
// knows that from the leader.
func (r *Replica) members() []Member {
	all, version := r.addresses.all(), r.Version()
	l := r.serving.Load()
	since := time.Now().Add(-r.config.ElectionTimeout)
	for i := range all {
		m := &all[i]
		switch {
		case m.ID == r.config.ID:
			m.Silent, m.LogIndex = false, r.node.Last()
		case l != nil:
			match, _, heard := r.node.Heard(m.ID, l.term, since)
			m.Silent, m.LogIndex = !heard || m.Outdated(version), match
		}
	}
	return all
}

// Machine is this node's copy of the state. Only the log changes it.
func (r *Replica) Machine() fsm.Machine { return r.machine }

// Stats describes the state on this node.
func (r *Replica) Stats() fsm.Stats { return r.machine.Stats() }

// followers are the members that have answered the leader of term within an election timeout.
func (r *Replica) followers(term uint64) []Follower {
	now := time.Now()
	var fs []Follower
	for _, m := range r.addresses.all() {
		if match, heard, ok := r.node.Heard(m.ID, term, now.Add(-r.config.ElectionTimeout)); ok {
			fs = append(fs, Follower{Member: m, LogIndex: match, Silent: now.Sub(heard), Heard: heard})
		}
	}
	return fs
}

// stalled are the members that FollowerStalled named and that have not moved since.
func (r *Replica) stalled(term uint64) []Stalled {
	var found []Stalled
	for _, m := range r.addresses.all() {
		if at, since, ok := r.node.Stalled(m.ID, term); ok {
			found = append(found, Stalled{Member: m, LogIndex: at, For: time.Since(since)})
		}
	}
	return found
}

func (r *Replica) quarantined() bool {
	on, _ := r.node.Quarantined()
	return on
}

// unhealthyAfter is how long a node may lack a need before Healthy reports it.
const unhealthyAfter = raftnode.StalledAfter

// Healthy returns nil if this node can serve, else what is wrong. Healthy judges by how far the log
// has come, never by when the leader was last heard of: heartbeats go on while a follower can no
// longer append.
func (r *Replica) Healthy() error {
	switch s := r.Status(); {
	case r.node.Broken():
		return errors.New("the state cannot follow the log any more")
	case r.quarantined():
		return raftnode.ErrQuarantined
	case s.Leading:
		return r.health.stalled(r.serving.Load(), time.Now())
	case s.Leader.Name == "":
		return errors.New("no leader is known")
	default:
		return r.health.behind(r.state.index.load(), time.Now())
	}
}

// health watches how far this node is behind the leader.
type health struct {
	mu     sync.Mutex
	target uint64    // the leader's commit index when this node was last found behind
	since  time.Time // when that was; zero while this node is up to date
	last   time.Time // of the last word from the leader
	first  uint64    // the leader's commit index when this node first heard of it
}

// onStatus notes the leader's commit index and how far this node had applied then.
func (h *health) onStatus(commit, applied uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.IsZero() {
		h.first = commit
	}
	h.last = time.Now()
	if applied >= h.target {
		h.since = time.Time{}
	}
	if h.since.IsZero() && applied < commit {
		h.target, h.since = commit, h.last
	}
}

func (h *health) behind(applied uint64, now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.last.IsZero() || now.Sub(h.last) > forward.DeafAfter+unhealthyAfter:
		return errors.New("no link to the leader")
	case applied+raftnode.ReplayLag < h.first:
		return fmt.Errorf("at log index %d of %d since the start", applied, h.first)
	case !h.since.IsZero() && applied < h.target && now.Sub(h.since) > unhealthyAfter:
		return fmt.Errorf("at log index %d of %d for %v", applied, h.target, now.Sub(h.since).Round(time.Second))
	}
	return nil
}

// stalled is the leader's own health: entries must land.
func (h *health) stalled(l *leaderTerm, now time.Time) error {
	if l == nil || l.inFlight.Load() == 0 {
		return nil
	}
	if age := now.Sub(time.Unix(0, l.progress.Load())); age > unhealthyAfter {
		return fmt.Errorf("nothing was committed for %v", age.Round(time.Second))
	}
	return nil
}

// addresses knows where clients reach each node, and what the node runs.
type addresses struct {
	mu      sync.Mutex
	members []Member // sorted by name
}

// follow goes over to another configuration.
func (a *addresses) follow(conf members.Configuration, self *Config) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]Member, 0, len(conf.Members))
	for _, is := range conf.Members {
		m := Member{ID: is.ID}
		if i := slices.IndexFunc(a.members, func(m Member) bool { return m.ID == is.ID }); i >= 0 {
			m = a.members[i]
		}
		m.Name, m.PeerAddr, m.Voter = is.Name(), is.Addr, is.Voter
		if m.ID == self.ID {
			m.ClientAddr, m.SentinelAddr, m.Release = self.ClientAddr, self.SentinelAddr, self.Release
			m.NewestVersion, m.HoldVersion = protocol.EntryVersion, uint64(self.HoldVersion)
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(x, y Member) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.ID, y.ID))
	})
	a.members = all
}

func (a *addresses) set(id string, addr forward.About) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.members {
		m := &a.members[i]
		if m.ID != id || addr.ClientAddr == "" {
			continue // an empty address is one that the other node does not know either
		}
		if m.ClientAddr != addr.ClientAddr || m.SentinelAddr != addr.SentinelAddr {
			m.ClientAddr, m.SentinelAddr = strings.Clone(addr.ClientAddr), strings.Clone(addr.SentinelAddr)
		}
	}
}

// maxRelease bounds what another node may call its release, in bytes.
const maxRelease = 64

func (a *addresses) setRelease(id, release string) {
	release = release[:min(len(release), maxRelease)]
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.members {
		if m := &a.members[i]; m.ID == id && m.Release != release {
			m.Release = strings.Clone(release)
		}
	}
}

func (a *addresses) setVersions(id string, about forward.About) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.members {
		if a.members[i].ID == id {
			a.members[i].NewestVersion, a.members[i].HoldVersion = about.NewestVersion, about.HoldVersion
		}
	}
}

func (a *addresses) setProgress(id string, silent bool, index uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.members {
		if a.members[i].ID == id {
			a.members[i].Silent, a.members[i].LogIndex = silent, max(index, a.members[i].LogIndex)
		}
	}
}

func (a *addresses) all() []Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.members)
}
