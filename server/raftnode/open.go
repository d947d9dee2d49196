package raftnode

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Open builds raft over the node's stores, which starts to take part in elections; a fresh
// store is made a member of the initial cluster first. [Node.Start] must follow.
func Open(c Config) (*Node, error) {
	n := &Node{config: c, acks: newAcks(&c), progress: newProgress(&c), stopped: make(chan struct{})}
	n.log = newParallelLog(c.Log, c.TrailingBytes, c.Fail)
	n.stable = newStable(c.Stable, c.Fail)
	n.applier = newApplier(&c, n.log, n.stopped)
	members := provider(c.InitialCluster)
	inner := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: members,
		Logger:                c.RaftLogger,
		Stream:                c.Raft,
		MaxPool:               connsPerPeer,
		MaxRPCsInFlight:       1,
		Timeout:               rpcTimeout,
	})
	n.filter = &rpcFilter{requests: make(chan raft.RPC), log: n.log, snapshots: c.Snapshots}
	n.transport = &transport{
		inner: inner, appender: newAppender(c.Append, members), filter: n.filter, acks: n.acks,
		log: n.log, election: c.ElectionTimeout, stopped: n.stopped,
	}
	n.nudges = newNudges(n)
	n.transport.nudges, n.applier.applied = n.nudges, n.nudges.lookAll
	n.transport.leads.Store(func(uint64) bool { return true })
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
	opened, err := raft.NewRaft(conf, n.applier, n.log, n.stable, c.Snapshots, t)
	if err != nil {
		return fmt.Errorf("open raft: %w", err)
	}
	n.raft, n.filter.raft, n.applier.raft = opened, opened, opened
	n.failover = newFastFailover(c, opened, t.nominate)
	t.leads.Store(n.Leads)
	if err := sameMembers(opened, c.InitialCluster); err != nil {
		return errors.Join(err, opened.Shutdown().Error())
	}
	opened.RegisterObserver(n.observer())
	if len(c.InitialCluster) > 1 {
		leads := func() bool { return opened.State() == raft.Leader }
		n.log.leads.Store(&leads)
	}
	return nil
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
	// maxAppend bounds the entries of a request to a follower; an entry has up to 1 MiB.
	maxAppend = 32
)

// raft is raft's own configuration.
func (c *Config) raft() *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(c.Name)
	conf.Logger = c.RaftLogger
	conf.HeartbeatTimeout, conf.ElectionTimeout = c.HeartbeatTimeout, c.ElectionTimeout
	conf.LeaderLeaseTimeout, conf.CommitTimeout = c.LeaseTimeout, c.CommitTimeout
	conf.MaxAppendEntries = maxAppend
	conf.SnapshotThreshold, conf.SnapshotInterval, conf.TrailingLogs = c.SnapshotThreshold, c.SnapshotInterval, c.TrailingLogs
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	if len(c.InitialCluster) == 1 {
		// A single node waits for no other.
		conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = aloneTimeout, aloneTimeout, aloneTimeout
	}
	return conf
}

const aloneTimeout = 50 * time.Millisecond

// bootstrap writes the members of the initial cluster to a fresh store. Every
// node writes the same first entry.
func bootstrap(conf *raft.Config, c *Config, t raft.Transport) error {
	exists, err := raft.HasExistingState(c.Log, c.Stable, c.Snapshots)
	if err != nil {
		return fmt.Errorf("inspect stores: %w", err)
	}
	if exists {
		return nil
	}
	var members raft.Configuration
	for _, name := range slices.Sorted(maps.Keys(c.InitialCluster)) {
		members.Servers = append(members.Servers, raft.Server{
			Suffrage: raft.Voter, ID: raft.ServerID(name), Address: raft.ServerAddress(c.InitialCluster[name]),
		})
	}
	if err := raft.BootstrapCluster(conf, c.Log, c.Stable, c.Snapshots, t, members); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

// sameMembers compares the members in the store with the configured ones, by name. Raft uses the
// configured addresses; package store has refused a folder whose cluster had other ones.
func sameMembers(opened *raft.Raft, cluster map[string]string) error {
	future := opened.GetConfiguration()
	if err := future.Error(); err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	stored := future.Configuration().Servers
	same := len(stored) == len(cluster)
	var names []string
	for _, s := range stored {
		names = append(names, string(s.ID))
		same = same && cluster[string(s.ID)] != "" && s.Suffrage == raft.Voter
	}
	if !same {
		return fmt.Errorf("the store is of a cluster with the members %v, not of the initial cluster given", names)
	}
	return nil
}

// provider tells raft where the nodes are: the peer port finds a node by its ID.
type provider map[string]string

func (p provider) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if p[string(id)] == "" {
		return "", fmt.Errorf("node %q is not a member", id)
	}
	return raft.ServerAddress(id), nil
}
