package replica

import (
	"context"
	"net"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/wire"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/sessions"
)

// The functions and values that the parts get.

func (r *Replica) identity() forward.Identity {
	return forward.Identity{ID: r.config.ID, Epoch: r.origin.Epoch, About: forward.About{
		ClientAddr: r.config.ClientAddr, SentinelAddr: r.config.SentinelAddr, Release: r.config.Release,
		NewestVersion: protocol.EntryVersion, HoldVersion: uint64(r.config.HoldVersion),
	}}
}

// toLeaderConfig configures the client that forwards this node's batches to the leader.
func (r *Replica) toLeaderConfig() forward.ClientConfig {
	return forward.ClientConfig{
		Self:       r.identity(),
		Dial:       r.config.Peers.Forward.DialContext,
		Writes:     r.writes,
		Reads:      r.reader.elsewhere,
		ReplyBytes: r.config.Limits.ReplyBytes,
		Reached:    func(leader string) { r.node.Reached(leader) },
		Refused:    func(leader string) { r.node.Refused(leader) },
		Up:         func(leader string) { r.event(LinkUp{Leader: members.Name(leader)}) },
		Down:       func(leader string, err error) { r.event(LinkDown{Leader: members.Name(leader), Err: err}) },
		OnGreeting: r.onGreeting,
		OnStatus:   r.onStatus,
		Report:     r.config.Report,
		Logger:     r.config.Logger,
	}
}

// onStatus handles the leader's status message.
func (r *Replica) onStatus(b forward.Status) {
	for _, m := range b.Members {
		r.addresses.set(m.ID, m.About)
		r.addresses.setProgress(m.ID, m.Silent, m.LogIndex)
		if m.ID != r.config.ID {
			r.addresses.setRelease(m.ID, m.Release)
			r.addresses.setVersions(m.ID, m.About)
			r.addresses.setDiskFull(m.ID, m.DiskFull)
		}
	}
	notify(r.disk.noted)
	r.leaders.moved(r.addresses.all())
	r.health.onStatus(b.Commit, r.state.index.load())
}

// onGreeting handles another node's greeting.
func (r *Replica) onGreeting(m forward.Member) {
	r.addresses.set(m.ID, m.About)
	r.addresses.setRelease(m.ID, m.Release)
	r.addresses.setProgress(m.ID, false, 0)
	r.addresses.setDiskFull(m.ID, false)
	notify(r.disk.noted)
	if m.NewestVersion > 0 {
		r.addresses.setVersions(m.ID, m.About)
	}
	notify(r.proposer.wake) // the cluster may adopt a newer version
	r.leaders.moved(r.addresses.all())
}

// fromFollowersConfig configures the receiver of forwarded batches.
func (r *Replica) fromFollowersConfig(wake chan<- struct{}) forward.ReceiverConfig {
	limits := r.config.Limits
	return forward.ReceiverConfig{
		Self:       r.identity(),
		Listener:   r.config.Peers.Forward,
		Other:      func(conn net.Conn, frame []byte) bool { return r.node.AnswerProposal(conn, frame) },
		IsMember:   r.isMember,
		OnGreeting: r.onGreeting,
		Status:     r.statusMessage,
		Prepare:    r.machine.PrepareBatch,
		Subscribed: func(id string, commits, diskFull bool) {
			r.node.SetCommitSubscriber(id, commits)
			r.addresses.setDiskFull(id, diskFull)
			notify(r.disk.noted)
		},
		Wake:    wake,
		Confirm: r.reader.confirm,
		ReadShort: func(body string, count int, deadline time.Time) ([]protocol.Value, string, error) {
			return r.reader.readSome(body, count, deadline, fsm.ReadShort)
		},
		ReadLong:       r.reader.readOn,
		Census:         r.census.ask,
		Wait:           r.waitHere,
		Quorum:         func() int { return r.node.Quorum() },
		CommandTimeout: r.config.CommandTimeout,
		BatchBytes:     limits.BatchBytes,
		ReplyBytes:     limits.ReplyBytes,
		QueueBytes:     limits.PendingBytes,
		Followers:      func() int { return len(r.node.Configuration().Members) - 1 },
		Logger:         r.config.Logger,
	}
}

// self returns this node as a member. The configuration has the other fields.
func (r *Replica) self() Member {
	c := &r.config
	return Member{
		ID: c.ID, ClientAddr: c.ClientAddr, SentinelAddr: c.SentinelAddr, Release: c.Release,
		NewestVersion: protocol.EntryVersion, HoldVersion: uint64(c.HoldVersion),
	}
}

// leadershipConfig configures the leadership.
func (r *Replica) leadershipConfig() leadershipConfig {
	c := &r.config
	return leadershipConfig{
		id: c.ID, electionTimeout: c.ElectionTimeout, serving: &r.serving, askOthers: r.askOthers,
		reader: r.reader, writes: r.writes, toLeader: r.toLeader, fromFollowers: r.fromFollowers,
		proposer: r.proposer.wake, ticker: r.ticker.wake, version: r.firstVersion, cluster: r.machine.Clock,
		clock: func(stampMillis, offsetMillis int64) *clusterClock {
			return newClusterClock(c.Clock, c.ClockStep, stampMillis, offsetMillis)
		},
		applied: &r.state.term,
		propose: func(term uint64, version byte) {
			// The stamp does not exceed cluster time, so no lease ends.
			stamp, offset := r.machine.Clock()
			entry := protocol.NewEntry(nil, version, stamp, offset, c.EntryLimits)
			if c.Secret != nil {
				entry.AddSecret(c.Secret())
			}
			r.propose(term, entry.Bytes(), uncounted)
		},
		led: func() { r.waiting.led.Store(true) },
		changed: func(leader string, term uint64) {
			r.leaders.see(leader, r.addresses.all())
			r.event(LeaderChanged{Leader: members.Name(leader), Term: term})
		},
		event: r.event,
	}
}

// isMember reports whether conn belongs to another member, that with the ID.
func (r *Replica) isMember(conn net.Conn, id string) bool {
	return wire.MayBe(conn, id) && id != r.config.ID && r.node.Configuration().Has(id)
}

// statusMessage returns the status message for followers. It also checks whether the followers make progress.
func (r *Replica) statusMessage() forward.Status {
	if l := r.serving.Load(); l != nil {
		r.node.CheckProgress(l.term)
	}
	b := forward.Status{Term: r.node.Term(), Commit: r.node.Committed()}
	for _, m := range r.members() {
		b.Members = append(b.Members, forward.Member{
			ID: m.ID, About: forward.About{
				ClientAddr: m.ClientAddr, SentinelAddr: m.SentinelAddr, Release: m.Release,
				NewestVersion: m.NewestVersion, HoldVersion: m.HoldVersion,
			},
			Silent: m.Silent, DiskFull: m.DiskFull, LogIndex: m.LogIndex,
		})
	}
	return b
}

// waitingConfig configures waiting.
func (r *Replica) waitingConfig() waitingConfig {
	return waitingConfig{
		origin: r.origin, machine: r.machine, serving: &r.serving, absentAfter: r.config.AbsentAfter,
		execute: r.Execute,
		leader:  func() (uint64, string) { return r.node.Leader() },
		heard: func(node string, term uint64, since time.Time) bool {
			_, _, heard := r.node.Heard(node, term, since)
			return heard
		},
		dial: r.config.Peers.Forward.DialContext, event: r.event,
	}
}

// sessionsCluster has the functions of the cluster for package sessions.
func (r *Replica) sessionsCluster() sessions.Cluster {
	return sessions.Cluster{
		Propose: func(body []byte, count int) error {
			b := Batch{Body: body, Count: count, Write: true, Duty: true}
			if err := r.executeAll(&b); err != nil {
				return err
			}
			if !r.AwaitApplied(context.Background(), b.Number) {
				return errLags
			}
			return nil
		},
		Renew: func() error {
			return r.executeAll(&Batch{Body: protocol.AppendNodeKeepalive(nil), Count: 1, Write: true})
		},
		Waits:             func(ticket uint64) bool { return r.machine.Waits(r.origin, ticket) },
		Applied:           func(number uint64) bool { return r.machine.Applied(r.origin, number) },
		SubscribeWaiting:  r.SubscribeCommits,
		SubscribeSessions: func(yes bool) { r.commitInterest.set(&r.commitInterest.locking, yes) },
	}
}

func (r *Replica) newSink() sink {
	return sink{
		writes: r.writes, lineage: r.config.Stores.Lineage, superseded: r.superseded,
		followers: r.fromFollowers.Peer, events: r.stateEvents, audit: r.config.Audit, runsReads: r.config.RunsReads,
		committed: r.committed,
	}
}

func (r *Replica) nodeConfig() raftnode.Config {
	c := &r.config
	return raftnode.Config{
		ID: c.ID, Bootstrap: c.Bootstrap,
		Log: c.Stores.Log, Stable: c.Stores.Stable, Snapshots: c.Stores.Snapshots,
		Raft: c.Peers.Raft, Append: c.Peers.Append, Dial: c.Peers.Forward.DialContext,
		Timing: c.Timing.Timing, SnapshotPolicy: c.SnapshotPolicy,
		Logger: c.Logger, RaftLogger: c.RaftLogger,
		Quarantined: c.Quarantined, Machine: r.state,
		OnChange: r.leadership.poke, OnConfiguration: r.reconfigured, OnRemoved: c.OnRemoved,
		OnEvent: c.OnEvent,
		Fail:    r.fail,
	}
}

// propose passes an entry to raft. leaderTerm.inFlight leaves out uncounted entries, since this node may serve before
// such an entry is applied.
func (r *Replica) propose(term uint64, entry []byte, flags ...byte) {
	r.node.Propose(term, entry, flags...)
}

// stateEvents passes the events of an entry to the waiting clients, to the renewer and to the node.
func (r *Replica) stateEvents(events []event.Event) {
	r.waiting.events(events)
	r.waiting.clients.Renewer.Events(events)
	for i := range events {
		if e := &events[i]; e.Kind == event.LockSlow {
			r.event(LockSlow{DB: e.DB, Key: e.Key, LockNews: *e.Lock})
		}
	}
	r.config.OnStateEvents(events)
}

// resync tells the waiting clients and the sessions that a snapshot has replaced the state.
func (r *Replica) resync() {
	r.waiting.clients.Restored(r.machine.KeptSessions)
}

// committed returns the commit index as far as this node knows it. It is unknown while the node is being opened.
func (r *Replica) committed() (index uint64, known bool) {
	n := r.opened.Load()
	if n == nil {
		return 0, false
	}
	return n.Committed(), true
}

// reconfigured is called by raft after a change of the members.
func (r *Replica) reconfigured() {
	conf := r.node.Configuration()
	r.addresses.follow(conf, r.self())
	r.fromFollowers.Cut(conf.Has)
	r.census.follow(conf)
	r.leaders.moved(r.addresses.all())
	notify(r.proposer.wake) // a member that could not use a newer version may be gone
	r.config.OnConfiguration()
}

// superseded stops the node, since a later incarnation of it exists.
func (r *Replica) superseded(known uint64) {
	r.fail(incarnation.Superseded("the log", known, r.config.Stores.Lineage))
}
