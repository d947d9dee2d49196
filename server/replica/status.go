package replica

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/raftnode"
)

// Follower is another member that answers the leader.
type Follower struct {
	Member
	LogIndex uint64        // the index up to which the follower's log agrees with the leader's
	Silent   time.Duration // since the last answer, at most an election timeout
	Heard    time.Time     // the time of that answer
}

// Stalled is a follower that lacks committed entries and makes no progress.
type Stalled struct {
	Member
	LogIndex uint64        // the index up to which the follower's log agrees with the leader's; 0 if unknown
	For      time.Duration // the time without progress
}

// Status is a snapshot of a node's view of the cluster, for INFO, ROLE, logs and health.
type Status struct {
	ID, Name  string
	Leading   bool   // this node leads and serves
	Leader    Member // zero if none is known
	Members   []Member
	Followers []Follower // with and without votes; empty unless this node leads; by name
	Stalled   []Stalled  // followers without progress, also silent followers; empty unless this node leads; by name
	Version   byte       // of the cluster, as far as this node has applied the log
	Term      uint64
	Committed uint64 // raft log index
	Applied   uint64 // raft log index
	LastLog   uint64 // raft log index
	// RoundTrip is the round trip from this leader to the voters that are a majority with it. It is 0 if it is unknown, or
	// if this node does not lead.
	RoundTrip time.Duration
	FarApart  bool // the round trip is too long for the timeouts: see [TimeoutsFor]
}

// Status returns this node's view of the cluster.
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
		s.RoundTrip, s.FarApart = r.node.RoundTrip(), r.node.FarApart(l.term)
	}
	_, leader := r.node.Leader()
	for _, m := range s.Members {
		if m.ID == leader {
			s.Leader = m
		}
	}
	return s
}

// members returns all members. The leader knows their progress and which of them are silent; a follower has that from
// the leader.
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

// Machine returns this node's copy of the state. Only the log changes it.
func (r *Replica) Machine() fsm.Machine { return r.machine }

// Stats returns the statistics of the state of this node.
func (r *Replica) Stats() fsm.Stats { return r.machine.Stats() }

// followers returns the members that have answered the leader of term within an election timeout.
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

// stalled returns the members that FollowerStalled has named and that have made no progress since.
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

// Healthy returns nil if this node can serve, and otherwise the reason. It depends on the progress of the log, and not
// on heartbeats, which continue even if a follower can append no more.
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

// WatchLeadership calls f with the leadership and all members as this node knows them, and again after every change of
// the leadership. The calls are in order, one at a time. f must be quick, and must not call the replica.
func (r *Replica) WatchLeadership(f func(Leadership, []Member)) {
	ls := &r.leaders
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.watchers = append(ls.watchers, f)
	f(ls.told, r.addresses.all())
}

// HeldBackBy returns the members that keep the cluster from the newest version that some member can use: those that
// cannot use it, whose operators hold it back, or that do not answer. It returns none if the cluster has that version.
func (s *Status) HeldBackBy() (by []Member) {
	newest := uint64(0)
	for i := range s.Members {
		newest = max(newest, s.Members[i].NewestVersion)
	}
	if uint64(s.Version) >= newest {
		return nil
	}
	for _, m := range s.Members {
		if m.NewestVersion < newest || m.HoldVersion > 0 && m.HoldVersion < newest || m.Silent {
			by = append(by, m)
		}
	}
	return by
}

// Change is a change of a member, see [raftnode.Change].
type Change = raftnode.Change

// Configuration returns the newest configuration in this node's log. It may be uncommitted.
func (r *Replica) Configuration() members.Configuration { return r.node.Configuration() }

// LastTerm returns the term of the last entry of this node's log.
func (r *Replica) LastTerm() uint64 { return r.node.LastTerm() }

// CommittedConfiguration returns the newest configuration that this node knows to be committed.
func (r *Replica) CommittedConfiguration() members.Configuration {
	return r.node.CommittedConfiguration()
}

// Change changes a member if this node leads, and waits until the change is committed: see [raftnode.Node.Change].
func (r *Replica) Change(ctx context.Context, c Change) (index uint64, err error) {
	return r.node.Change(ctx, c)
}
