package servertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/raftnode/hclogger"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/storetest"
)

const (
	clientPort = ":6379"
	peerPort   = ":7379"
)

// Node is one member of a cluster. It outlives its processes: [Node.Crash] ends
// one, [Node.Start] begins another on the same disk.
type Node struct {
	Name  string
	Clock *replicatest.Clock
	Disk  *store.Faults // what is wrong with the disk

	cluster *Cluster
	disk    *storetest.Disk
	power   chan struct{} // held while the node is being started or ended

	mu      sync.Mutex
	process *process // nil while none runs
	life    int
	deaths  []error
	events  []replica.Event
}

// process is one life of a node: what server.Server is made of, over memory.
type process struct {
	store   *store.Store
	peers   *peer.Mux
	replica *replica.Replica
	front   *frontend.Server

	stopClients, stopReplica, stopPeers context.CancelFunc
	parts                               sync.WaitGroup
	drained                             chan struct{} // no client is connected any more
	dying                               atomic.Bool   // it ends by itself
	ended                               chan struct{}
}

// Replica returns the replica of the running process, or nil.
func (n *Node) Replica() *replica.Replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return nil
	}
	return n.process.replica
}

// Deaths are the errors for which the node ended by itself.
func (n *Node) Deaths() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.deaths)
}

// Events returns what the node's replicas have told so far.
func (n *Node) Events() []replica.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.events)
}

// Start starts a process on the node's disk.
func (n *Node) Start() {
	t := n.cluster.T
	t.Helper()
	n.power <- struct{}{}
	defer func() { <-n.power }()
	require.Nil(t, n.Replica(), "%s runs", n.Name)
	p, err := n.open()
	require.NoError(t, err)
	n.mu.Lock()
	n.process = p
	n.life++
	n.mu.Unlock()
}

// open puts a process together as server.New does, and runs it as Server.Run does.
func (n *Node) open() (*process, error) {
	c := n.cluster
	conf := c.config(n.Name)
	clients, err := c.Net.Listen(conf.Addr)
	if err != nil {
		return nil, err
	}
	peers, err := c.Net.Listen(conf.PeerAddr)
	if err != nil {
		return nil, err
	}
	p := &process{drained: make(chan struct{}), ended: make(chan struct{})}
	if p.store, err = n.disk.Open(store.Config{Hooks: n.hooks(&conf)}); err != nil {
		return nil, err
	}
	if p.peers, err = peer.New(peer.Config{
		Listener: peers, Dial: c.Net.Dial(conf.PeerAddr), Advertise: conf.PeerAddr,
		ClusterID: "servertest", Name: n.Name, NameOf: c.nameAt, Secret: []byte(conf.ClusterSecret), Logger: c.options.Logs,
	}); err != nil {
		return nil, err
	}
	if p.replica, err = replica.Open(n.replicaConfig(&conf, p)); err != nil {
		return nil, err
	}
	var backend frontend.Backend = p.replica
	if c.options.Backend != nil {
		backend = c.options.Backend(n.Name, backend)
	}
	p.front = frontend.New(n.frontConfig(&conf), backend)

	clientsCtx, stopClients := context.WithCancel(context.Background())
	replicaCtx, stopReplica := context.WithCancel(context.Background())
	peersCtx, stopPeers := context.WithCancel(context.Background())
	p.stopClients, p.stopReplica, p.stopPeers = stopClients, stopReplica, stopPeers
	p.run(n, "peer port", func() error { return p.peers.Run(peersCtx) })
	p.run(n, "replica", func() error { return p.replica.Run(replicaCtx) })
	p.run(n, "client port", func() error {
		defer close(p.drained)
		return p.front.Serve(clientsCtx, clients)
	})
	go func() {
		p.parts.Wait()
		close(p.ended)
	}()
	return p, nil
}

// run runs a part of the process. One that fails ends the process, unless it is
// being ended anyway.
func (p *process) run(n *Node, what string, run func() error) {
	p.parts.Go(func() {
		if err := run(); err != nil {
			n.die(fmt.Errorf("%s: %w", what, err))
		}
	})
}

func (n *Node) hooks(conf *server.Config) store.Hooks {
	return store.Hooks{
		DiskStallLimit: conf.DiskStallLimit,
		OnStall:        func(op store.Op, _ time.Duration) { n.die(fmt.Errorf("disk hangs: %s", op)) },
		OnFault:        func(op store.Op, err error) { n.die(fmt.Errorf("disk failed: %s: %w", op, err)) },
		Faults:         n.Disk,
	}
}

// stubbornness is for how long a stubborn leader does without its followers.
const stubbornness = 3 * time.Second

func (n *Node) replicaConfig(conf *server.Config, p *process) replica.Config {
	logs := n.cluster.options.Logs.With("node", n.Name)
	timing := replica.Timing{Heartbeat: conf.HeartbeatTimeout, Election: conf.ElectionTimeout, Command: conf.CommandTimeout}
	if n.cluster.options.NoLinger {
		timing.Linger = -1
	}
	if n.Name == n.cluster.options.Stubborn {
		timing.Heartbeat, timing.Election, timing.Lease = stubbornness, stubbornness, stubbornness
		timing.ClockStep = conf.ElectionTimeout
	}
	return replica.Config{
		Name:           n.Name,
		ClientAddr:     conf.Addr,
		InitialCluster: n.cluster.members,
		Stores: replica.Stores{
			Log: p.store.Log, Stable: p.store.Stable, Snapshots: p.store.Snapshots, Epoch: p.store.Epoch,
		},
		Peers:  replica.Peers{Raft: p.peers.Layer(peer.KindRaft), Append: p.peers.Layer(peer.KindAppend), Forward: p.peers.Layer(peer.KindForward)},
		Clock:  n.Clock,
		Timing: timing,
		Snapshots: replica.SnapshotPolicy{
			Entries: conf.SnapshotThreshold, Interval: conf.SnapshotInterval, Trailing: conf.TrailingLogs,
		},
		MemoryLimitBytes: n.memoryLimit(conf),
		Logger:           logs,
		RaftLogger:       hclogger.New(logs),
		OnEvent:          n.hear,
	}
}

func (n *Node) frontConfig(conf *server.Config) frontend.Config {
	return frontend.Config{
		Limits:   conf.Limits,
		Timeouts: conf.Timeouts,
		Memory:   frontend.Memory{MaxMemoryBytes: n.memoryLimit(conf)},
		Node:     frontend.Node{Name: n.Name},
		Logger:   n.cluster.options.Logs,
	}
}

// memoryLimit is max-memory as it is on a machine that does not tell how much memory it has.
func (n *Node) memoryLimit(conf *server.Config) uint64 {
	limitBytes, err := server.ParseMaxMemory(conf.MaxMemory, 0)
	require.NoError(n.cluster.T, err)
	return limitBytes
}

func (n *Node) hear(e replica.Event) {
	n.mu.Lock()
	n.events = append(n.events, e)
	n.mu.Unlock()
	if failed, ok := e.(replica.Failed); ok {
		n.die(failed.Err)
	}
}

// die ends the process because of err, as Server.Run does. It does not wait.
func (n *Node) die(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.process; p != nil && p.dying.CompareAndSwap(false, true) {
		n.deaths = append(n.deaths, err)
		go func() {
			server.Abandon(p.drained, p.stopReplica, p.stopPeers, p.stopClients)
			n.end(p)
		}()
	}
}

// Crash ends the process as kill -9 would. The disk keeps what was written, synced or not;
// what was wrong with it is not any more.
func (n *Node) Crash() {
	n.mu.Lock()
	p := n.process
	n.mu.Unlock()
	n.end(p)
}

// end crashes the process p, if it is the one that runs, and returns when it has ended.
func (n *Node) end(p *process) {
	n.power <- struct{}{}
	defer func() { <-n.power }()
	n.mu.Lock()
	runs := p != nil && n.process == p
	if runs {
		n.process = nil
		n.life++
	}
	n.mu.Unlock()
	if !runs {
		return
	}
	// No other node hears of what happens from here on, and the disk keeps none of it.
	n.cluster.Net.Crash(n.Name)
	n.disk.Leave()
	p.stopClients()
	p.stopReplica()
	p.stopPeers()
	n.Disk.Clear()
	<-p.ended
	n.disk.Crash()
}

// PowerCut is Crash, and the disk loses what was not synced, or some of it: the seed says what.
func (n *Node) PowerCut(seed uint64) {
	n.Crash()
	n.disk.PowerCut(seed)
}

// HoldSyncs makes syncs of the log wait until the process ends: it can be crashed between a write and its sync.
func (n *Node) HoldSyncs() { n.disk.HoldSyncs() }

// FailSync makes the next sync of the log fail, which ends the process. What it did not write can be read
// until the next power cut.
func (n *Node) FailSync() { n.disk.FailSync(0) }

// Stop ends the process in good order, as SIGTERM does.
func (n *Node) Stop() error {
	n.mu.Lock()
	p := n.process
	n.life++
	n.mu.Unlock()
	if p == nil {
		return errors.New("it does not run")
	}
	limit := n.cluster.config(n.Name).ShutdownTimeout
	p.stopClients()
	<-p.drained
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := p.replica.Shutdown(ctx)
	p.stopPeers()
	<-p.ended
	err = errors.Join(err, p.store.Close())
	n.end(p)
	return err
}

// Transfer has the node hand its leadership over, if it leads.
func (n *Node) Transfer() error {
	r := n.Replica()
	if r == nil {
		return errors.New("it does not run")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return r.TransferLeadership(ctx)
}

// Life counts the node's processes, and their ends: while it stays the same, the
// same process runs, or none.
func (n *Node) Life() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}
