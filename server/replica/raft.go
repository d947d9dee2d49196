package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// openRaft builds raft over the node's stores.
func (r *Replica) openRaft() error {
	c := &r.config
	inner := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: provider(c.InitialCluster),
		Logger:                c.RaftLogger,
		Stream:                c.Peers.Raft,
		MaxPool:               connsPerPeer,
		MaxRPCsInFlight:       1,
		Timeout:               rpcTimeout,
	})
	t := &transport{inner: inner, appender: newAppender(c.Peers.Append, provider(c.InitialCluster)), requests: make(chan raft.RPC), acks: r.acks, election: c.Timing.Election, stopped: r.stopped}
	t.leads.Store(func(uint64) bool { return true })
	r.transport = t
	abandon := func(err error) error {
		_ = inner.Close()
		return err
	}
	conf := r.raftConfig()
	if err := bootstrap(conf, c, t); err != nil {
		return abandon(err)
	}
	log := newAheadLog(c.Stores.Log, c.Snapshots.TrailingBytes, r.fail)
	t.log, t.snapshots = log, c.Stores.Snapshots
	r.stable = newStable(c.Stores.Stable, r.fail)
	opened, err := raft.NewRaft(conf, r.state, log, r.stable, c.Stores.Snapshots, t)
	if err != nil {
		return abandon(fmt.Errorf("open raft: %w", err))
	}
	r.raft, t.raft = opened, opened
	t.leads.Store(r.leads)
	if err := sameMembers(opened, c.InitialCluster); err != nil {
		return errors.Join(err, opened.Shutdown().Error())
	}
	opened.RegisterObserver(r.helm.observer())
	if len(c.InitialCluster) > 1 {
		leads := func() bool { return opened.State() == raft.Leader }
		log.leads.Store(&leads)
	}
	return nil
}

const (
	// connsPerPeer is how many connections to another node raft keeps.
	connsPerPeer = 3
	rpcTimeout   = 10 * time.Second
	// maxAppend bounds the entries of one request to a follower; an entry has up to 1 MiB.
	maxAppend = 32
)

func (r *Replica) raftConfig() *raft.Config {
	t, s := r.config.Timing, r.config.Snapshots
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(r.config.Name)
	conf.Logger = r.config.RaftLogger
	conf.HeartbeatTimeout, conf.ElectionTimeout = t.Heartbeat, t.Election
	conf.LeaderLeaseTimeout, conf.CommitTimeout = t.Lease, t.Commit
	conf.MaxAppendEntries = maxAppend
	conf.SnapshotThreshold, conf.SnapshotInterval, conf.TrailingLogs = s.Entries, s.Interval, s.Trailing
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	if len(r.config.InitialCluster) == 1 {
		// Nobody is to be waited for.
		conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = aloneTimeout, aloneTimeout, aloneTimeout
	}
	return conf
}

const aloneTimeout = 50 * time.Millisecond

// boundTrailing has raft keep, over the snapshot that it is about to complete, no more of the log than the limit
// of bytes allows: raft itself counts entries only.
func (r *Replica) boundTrailing() error {
	n, err := r.transport.log.trailing(r.config.Snapshots.Trailing)
	if err != nil {
		return err
	}
	conf := r.raft.ReloadableConfig()
	conf.TrailingLogs = n
	return r.raft.ReloadConfig(conf)
}

// bootstrap makes a fresh store that of a member of the initial cluster. Every
// node writes the same first entry.
func bootstrap(conf *raft.Config, c *Config, t raft.Transport) error {
	exists, err := raft.HasExistingState(c.Stores.Log, c.Stores.Stable, c.Stores.Snapshots)
	if err != nil {
		return fmt.Errorf("inspect stores: %w", err)
	}
	if exists {
		return nil
	}
	var members raft.Configuration
	for _, m := range newAddresses(c).all() {
		members.Servers = append(members.Servers, raft.Server{
			Suffrage: raft.Voter, ID: raft.ServerID(m.Name), Address: raft.ServerAddress(m.PeerAddr),
		})
	}
	if err := raft.BootstrapCluster(conf, c.Stores.Log, c.Stores.Stable, c.Stores.Snapshots, t, members); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

// sameMembers compares the members in the store with those in the configuration, by name.
// Addresses may differ: the configuration's are used.
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

// provider tells raft where the nodes are: where the configuration says, not the log.
type provider map[string]string

func (p provider) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	addr, ok := p[string(id)]
	if !ok {
		return "", fmt.Errorf("node %q is not a member", id)
	}
	return raft.ServerAddress(addr), nil
}
