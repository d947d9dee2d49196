package raftnode

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/protocol/invariant"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// Open opens raft over the node's stores. Raft takes part in elections from then on, so [Node.Start] must follow.
func Open(c Config) (*Node, error) {
	n := &Node{
		config: c, configurations: newConfigurations(c.ID), acks: newAcks(c.ID, 2*c.ElectionTimeout),
		progress: newProgress(&c),
		removals: make(chan committedChange, maxRemovalNotices), changing: make(chan struct{}, 1),
		stopped: make(chan struct{}),
	}
	n.log = newParallelLog(c.Log, c.TrailingBytes, c.Fail)
	n.log.configurations = n.configurations
	n.stable = newStable(c.Stable, c.Fail)
	n.applier = newApplier(&c, n.log, n.stopped)
	n.applier.configurations = n.configurations
	n.applier.needed = func() uint64 {
		return n.acks.needed(n.raft.CurrentTerm(), n.raft.CommitIndex(), time.Now().Add(-laggingFor))
	}
	n.log.applied = n.applier.index.Load
	if c.Quarantined {
		n.applier.quarantine.begin()
	}
	if invariant.On {
		n.applier.verify = n.verifyApplied
	}
	inner := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: provider{},
		Logger:                c.RaftLogger,
		Stream:                streams{c.Raft, max(minStallTime, 2*c.ElectionTimeout)},
		MaxPool:               connsPerPeer,
		MaxRPCsInFlight:       1,
		Timeout:               rpcTimeout,
	})
	n.filter = &rpcFilter{
		requests: make(chan raft.RPC), log: n.log, configurations: n.configurations, applier: n.applier,
		snapshots: c.Snapshots, installing: make(chan struct{}, 1),
		beats: make(chan raft.RPC, 1), beatEvery: c.HeartbeatTimeout / 100,
	}
	n.transport = &transport{
		self: c.ID, inner: inner, appender: newAppender(c.Append), filter: n.filter, acks: n.acks,
		log: n.log, configurations: n.configurations, tell: c.OnEvent, election: c.ElectionTimeout, stopped: n.stopped,
		defersCandidacy: func() bool { return n.applier.defersCandidacy(c.HeartbeatTimeout) },
	}
	n.filter.campaigns = n.transport.reached
	n.commits = newCommitNotifier(commitNotifierConfig{
		self: c.ID, appender: n.transport.appender, acks: n.acks, log: n.log, leading: n.Leading,
		commit: func() uint64 { return n.raft.CommitIndex() }, committed: n.transport.committed,
	})
	n.transport.commits, n.applier.applied = n.commits, n.commits.notifyAll
	n.transport.leads.Store(func(uint64) bool { return true })
	n.configurations.changed, n.configurations.committed = n.reconfigure, n.configurationCommitted
	if err := n.openRaft(); err != nil {
		_ = inner.Close()
		return nil, err
	}
	return n, nil
}

func (n *Node) openRaft() error {
	c, t := &n.config, n.transport
	conf := c.raft()
	if err := bootstrap(conf, c, t); err != nil {
		return err
	}
	if err := n.configurations.open(n.log, c.Snapshots); err != nil {
		return fmt.Errorf("inspect stores: %w", err)
	}
	n.reconfigure(n.configurations.view())
	n.snapshots = &mendedSnapshots{
		SnapshotStore: c.Snapshots, tell: c.OnEvent,
		sends:   func() bool { return n.applier.opened.Load() && n.raft.State() == raft.Leader },
		keeps:   n.applier.quarantine.on,
		applied: n.applier.index.Load,
		take:    func() { notify(n.applier.cut) },
		void:    n.proposeVoid,
	}
	p := n.traced(parts{machine: n.applier, log: n.log, stable: n.stable, snapshots: n.snapshots, transport: t})
	opened, err := newRaft(conf, p)
	if err != nil {
		if n.applier.unreadable != nil {
			err = fmt.Errorf("%w: %w", err, n.applier.unreadable) // raft logs this error but does not return it
		}
		return fmt.Errorf("open raft: %w", err)
	}
	n.raft, n.filter.raft, n.applier.raft = opened, opened, opened
	n.failover = newFastFailover(c, n.configurations, appliedView{opened, n.applier}, t.nominate)
	t.leads.Store(n.Leads)
	if err := n.checkMembers(); err != nil {
		return errors.Join(err, opened.Shutdown().Error())
	}
	opened.RegisterObserver(n.observer())
	leads := func() bool { return opened.State() == raft.Leader && n.configurations.view().others > 0 }
	n.log.leads.Store(&leads)
	bounds := n.bounds
	n.log.bounds.Store(&bounds)
	n.applier.opened.Store(true)
	return nil
}

// newRaft calls raft.NewRaft and returns its panic if an entry cannot be read or the term cannot be stored. No
// goroutine of raft runs then.
func newRaft(conf *raft.Config, p parts) (opened *raft.Raft, err error) {
	defer func() {
		failed := recover()
		if failed == nil {
			return
		}
		var is bool
		if err, is = failed.(error); !is || errors.As(err, new(runtime.Error)) {
			panic(failed)
		}
	}()
	return raft.NewRaft(conf, p.machine, p.log, p.stable, p.snapshots, p.transport)
}

// checkMembers returns an error if raft found other members in the stores than configurations.
func (n *Node) checkMembers() error {
	future := n.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	if theirs, ours := store.MembersFromRaft(future.Configuration(), 0), n.Configuration(); !ours.Same(theirs) {
		return fmt.Errorf("the store has the members %v, and raft found %v", ours.Members, theirs.Members)
	}
	return nil
}

// reconfigure applies a new configuration in effect, before raft does.
func (n *Node) reconfigure(v *view) {
	n.acks.reconfigure(v)
	n.commits.reconfigure(v)
	if n.running.Load() {
		n.config.OnConfiguration()
	}
}

// configurationCommitted queues removal notices and calls the owner.
func (n *Node) configurationCommitted(change committedChange) {
	select {
	case n.removals <- change:
	default: // a removed member learns of its removal at the next handshake
	}
	if change.removed {
		n.gone.Store(true)
	}
	if n.running.Load() {
		if change.removed {
			n.config.OnRemoved()
		}
		n.config.OnConfiguration()
	}
}

// observer calls OnChange at raft's changes. It queues nothing, since the owner reads the current state.
func (n *Node) observer() *raft.Observer {
	return raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation:
			n.configurations.wake() // a leadership may have ended
			n.config.OnChange()
		}
		return false
	})
}

// raft returns raft's own configuration.
func (c *Config) raft() *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(c.ID)
	conf.Logger = c.RaftLogger
	conf.HeartbeatTimeout, conf.ElectionTimeout = c.HeartbeatTimeout, c.ElectionTimeout
	conf.LeaderLeaseTimeout, conf.CommitTimeout = c.LeaseTimeout, c.CommitTimeout
	conf.MaxAppendEntries = maxAppend
	conf.SnapshotThreshold, conf.SnapshotInterval, conf.TrailingLogs = c.SnapshotThreshold, c.SnapshotInterval,
		c.TrailingLogs
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	return conf
}

// bootstrap writes the first members of a cluster to an empty store. Each of them writes the same first entry.
//
// raft.BootstrapCluster writes the term and then the entry. If the power failed between them, only the entry is written
// here. That is safe, since a node with an empty log has acknowledged nothing.
func bootstrap(conf *raft.Config, c *Config, t raft.Transport) error {
	exists, err := raft.HasExistingState(c.Log, c.Stable, c.Snapshots)
	if err != nil {
		return fmt.Errorf("inspect stores: %w", err)
	}
	if len(c.Bootstrap) == 0 {
		return nil
	}
	first := store.MembersToRaft(members.NewConfiguration(1, c.Bootstrap...).Members)
	if !exists {
		err = raft.BootstrapCluster(conf, c.Log, c.Stable, c.Snapshots, t, first)
	} else if empty, look := isEmpty(c); look != nil || empty {
		err = look
		if empty {
			err = c.Log.StoreLog(&raft.Log{
				Index: 1, Term: 1, Type: raft.LogConfiguration,
				Data: raft.EncodeConfiguration(first),
			})
		}
	}
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

// isEmpty reports whether the stores have neither an entry nor a snapshot.
func isEmpty(c *Config) (bool, error) {
	last, err := c.Log.LastIndex()
	if err != nil || last > 0 {
		return false, err
	}
	snapshots, err := c.Snapshots.List()
	return err == nil && len(snapshots) == 0, err
}

// provider makes raft dial a node by its ID.
type provider struct{}

func (provider) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	return raft.ServerAddress(id), nil
}

// Start starts the node's own goroutines with start. Each ends with its context.
func (n *Node) Start(start func(name string, run func(context.Context) error)) {
	n.running.Store(true)
	if n.gone.Load() {
		n.config.OnRemoved()
	}
	n.config.OnConfiguration() // for changes since Open
	start("take entries", func(ctx context.Context) error { return n.filter.acceptAppends(ctx, n.config.Append) })
	start("filter requests", func(ctx context.Context) error { return n.filter.run(ctx, n.transport.inner.Consumer()) })
	start("note heartbeats", n.filter.beat)
	start("replace a dead leader", n.failover.run)
	start("notify of commits", n.commits.run)
	start("send removal notices", n.sendRemovalNotices)
	start("elect a lone voter", n.electAlone)
	start("cut log", func(ctx context.Context) error { return n.applier.snapshotBySize(ctx, n.config.Logger) })
}

// bounds returns the highest index known to be committed, and that of the newest snapshot. Raft's commit index does not
// include the entries that a leader's snapshot has committed.
func (n *Node) bounds() (committed, snapshot uint64, err error) {
	stored, err := n.config.Snapshots.List()
	if len(stored) > 0 {
		snapshot = stored[0].Index
	}
	return max(n.raft.CommitIndex(), n.raft.AppliedIndex()), snapshot, err
}
