package raftnode

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/protocol/invariant"
	"github.com/holdfast/holdfast/server/members"
)

// Open builds raft over the node's stores, which starts to take part in elections. [Node.Start] must follow.
func Open(c Config) (*Node, error) {
	n := &Node{
		config: c, configurations: newConfigurations(c.ID), acks: newAcks(c.ID), progress: newProgress(&c),
		removals: make(chan committedChange, maxRemovalNotices), changing: make(chan struct{}, 1),
		stopped: make(chan struct{}),
	}
	n.log = newParallelLog(c.Log, c.TrailingBytes, c.Fail)
	n.log.configurations = n.configurations
	n.stable = newStable(c.Stable, c.Fail)
	n.applier = newApplier(&c, n.log, n.stopped)
	n.applier.configurations = n.configurations
	n.applier.quarantine.on.Store(c.Quarantined)
	n.applier.quarantine.frozen.Store(c.Quarantined)
	if invariant.On {
		n.applier.verify = n.verifyApplied
	}
	inner := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: provider{},
		Logger:                c.RaftLogger,
		Stream:                streams{c.Raft, max(leastFlow, 2*c.ElectionTimeout)},
		MaxPool:               connsPerPeer,
		MaxRPCsInFlight:       1,
		Timeout:               rpcTimeout,
	})
	n.filter = &rpcFilter{
		requests: make(chan raft.RPC), log: n.log, configurations: n.configurations, applier: n.applier,
		snapshots: c.Snapshots,
	}
	n.transport = &transport{
		self: c.ID, inner: inner, appender: newAppender(c.Append), filter: n.filter, acks: n.acks,
		log: n.log, tell: c.OnEvent, election: c.ElectionTimeout, stopped: n.stopped,
	}
	n.commits = newCommitNotifier(n)
	n.transport.commits, n.applier.applied = n.commits, n.commits.notifyAll
	n.transport.leads.Store(func(uint64) bool { return true })
	n.configurations.changed, n.configurations.committed = n.reconfigure, n.configurationCommitted
	if err := n.openRaft(); err != nil {
		_ = inner.Close()
		return nil, err
	}
	return n, nil
}

// parts are what raft is opened over.
type parts struct {
	machine   raft.FSM
	log       raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	transport raft.Transport
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
	n.snapshots = newMendedSnapshots(n)
	p := n.traced(parts{machine: n.applier, log: n.log, stable: n.stable, snapshots: n.snapshots, transport: t})
	opened, err := raft.NewRaft(conf, p.machine, p.log, p.stable, p.snapshots, p.transport)
	if err != nil {
		if n.applier.unreadable != nil {
			err = fmt.Errorf("%w: %w", err, n.applier.unreadable) // which raft logs, and does not return
		}
		return fmt.Errorf("open raft: %w", err)
	}
	n.raft, n.filter.raft, n.applier.raft = opened, opened, opened
	n.failover = newFastFailover(c, n.configurations, appliedView{opened, n.applier}, t.nominate)
	t.leads.Store(n.Leads)
	if err := n.agrees(); err != nil {
		return errors.Join(err, opened.Shutdown().Error())
	}
	opened.RegisterObserver(n.observer())
	leads := func() bool { return opened.State() == raft.Leader && n.configurations.view().others > 0 }
	n.log.leads.Store(&leads)
	bounds := n.bounds
	n.log.bounds.Store(&bounds)
	n.applier.opened.Store(true)
	if c.Quarantined {
		return n.applier.hesitate(c, reluctance)
	}
	return nil
}

// agrees compares the members that raft found in the stores with the members that were found on the way.
func (n *Node) agrees() error {
	future := n.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	if theirs, ours := fromRaft(future.Configuration(), 0), n.Configuration(); !ours.Same(theirs) {
		return fmt.Errorf("the store has the members %v, and raft found %v", ours.Members, theirs.Members)
	}
	return nil
}

// reconfigure goes over to another configuration, before raft does.
func (n *Node) reconfigure(v *view) {
	n.acks.reconfigure(v)
	n.commits.reconfigure(v)
	if n.running.Load() {
		n.config.OnConfiguration()
	}
}

// configurationCommitted sends removal notices, and stops this node if it was removed.
func (n *Node) configurationCommitted(change committedChange) {
	select {
	case n.removals <- change:
	default: // the node learns of the removal at the next handshake
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

// observer tells the owner of raft's changes. Events are not queued: the owner
// looks at what is, so that none can be lost.
func (n *Node) observer() *raft.Observer {
	return raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation:
			n.config.OnChange()
		}
		return false
	})
}

const (
	// connsPerPeer is how many connections to another node raft keeps.
	connsPerPeer = 3
	rpcTimeout   = 10 * time.Second
	// leastFlow is how long a request of raft's own transport may bring nothing, at least: a busy node is not a lost one.
	leastFlow = 2 * time.Second
	// maxAppend bounds the entries of a request to a follower; an entry has up to 1 MiB.
	maxAppend = 32
)

// raft is raft's own configuration.
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

// bootstrap writes the first members of a cluster to a fresh store. Every
// one of them writes the same first entry.
//
// raft.BootstrapCluster writes the term and then the entry. Between them the power may go: then there is a term, and
// nothing else, and the entry is written here. A node with an empty log has acknowledged nothing.
func bootstrap(conf *raft.Config, c *Config, t raft.Transport) error {
	exists, err := raft.HasExistingState(c.Log, c.Stable, c.Snapshots)
	if err != nil {
		return fmt.Errorf("inspect stores: %w", err)
	}
	if len(c.Bootstrap) == 0 {
		return nil
	}
	first := toRaft(members.NewConfiguration(1, c.Bootstrap...).Members)
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

// isEmpty reports whether the stores hold neither an entry nor a snapshot.
func isEmpty(c *Config) (bool, error) {
	last, err := c.Log.LastIndex()
	if err != nil || last > 0 {
		return false, err
	}
	snapshots, err := c.Snapshots.List()
	return err == nil && len(snapshots) == 0, err
}

// provider has raft dial a node by the ID, wherever the node is.
type provider struct{}

func (provider) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	return raft.ServerAddress(id), nil
}
