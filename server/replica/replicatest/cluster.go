package replicatest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/peer/peertest"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/storetest"
)

// Options shape a cluster. The zero value is three nodes with default settings.
type Options struct {
	Nodes int // 0: three
	// Configure, if not nil, changes a node's configuration each time it starts.
	Configure func(*replica.Config)
	// Logs, if not nil, gets what the nodes log.
	Logs *slog.Logger
}

// Cluster is a set of nodes, running or not.
type Cluster struct {
	T   testing.TB
	Net *peertest.Network

	options Options
	nodes   []*Node
	members map[string]string
}

// Node is one member; what is in it outlives its crashes.
type Node struct {
	Name   string
	Clock  *Clock
	Disk   *storetest.Disk
	Faults *store.Faults // of the disk

	cluster *Cluster

	mu      sync.Mutex
	running *replica.Replica
	cancel  context.CancelFunc
	ended   chan struct{}
	err     error
	events  []replica.Event
}

// New starts a cluster, named n1, n2 and so on, and stops it when the test ends.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	c := &Cluster{T: t, Net: peertest.New(), options: o, members: make(map[string]string)}
	for i := range o.Nodes {
		name := fmt.Sprintf("n%d", i+1)
		c.members[name] = name + ":7379"
		c.nodes = append(c.nodes, &Node{
			Name: name, Clock: newClock(), Disk: storetest.NewDisk(), Faults: store.NewFaults(), cluster: c,
		})
	}
	t.Cleanup(c.crashAll)
	for _, n := range c.nodes {
		n.Start()
	}
	return c
}

func (c *Cluster) crashAll() {
	c.Net.Heal()
	for _, n := range c.nodes {
		n.Crash()
	}
}

// Node returns the node of that name.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.nodes {
		if n.Name == name {
			return n
		}
	}
	require.FailNow(c.T, "no such node", name)
	return nil
}

// Nodes returns all nodes, running or not.
func (c *Cluster) Nodes() []*Node { return slices.Clone(c.nodes) }

// Leader waits until a node that can reach a majority serves, and returns it.
func (c *Cluster) Leader() *Node {
	c.T.Helper()
	for range 60_000 {
		var found *Node
		var term uint64
		for _, n := range c.nodes {
			if r := n.Replica(); r != nil {
				if s := r.Status(); s.Leading && s.Term >= term {
					found, term = n, s.Term
				}
			}
		}
		if found != nil {
			return found
		}
		time.Sleep(time.Millisecond)
	}
	require.FailNow(c.T, "no leader", "network: %v", c.Net)
	return nil
}

// Followers returns the running nodes that do not lead.
func (c *Cluster) Followers() []*Node {
	var fs []*Node
	for _, n := range c.nodes {
		if r := n.Replica(); r != nil && !r.Status().Leading {
			fs = append(fs, n)
		}
	}
	return fs
}

// Settle waits until all running nodes have applied the same entries, and
// requires that they have the same state.
func (c *Cluster) Settle() {
	c.T.Helper()
	for range 60_000 {
		leader := c.Leader()
		r := leader.Replica()
		if r == nil {
			continue
		}
		want := r.Status()
		same := want.Committed == want.LastLog
		for _, n := range c.nodes {
			if other := n.Replica(); other != nil {
				s := other.Status()
				same = same && s.Applied == want.LastLog && s.LastLog == want.LastLog
			}
		}
		// Applied says that entries were given to the state machine: give it time to have them.
		time.Sleep(10 * time.Millisecond)
		if same && r.Status().LastLog == want.LastLog {
			hash := r.Machine().Hash()
			for _, n := range c.nodes {
				if other := n.Replica(); other != nil {
					require.Equal(c.T, hash, other.Machine().Hash(), "state of %s and %s", leader.Name, n.Name)
				}
			}
			return
		}
	}
	require.FailNow(c.T, "the nodes do not settle")
}

// Replica returns the running replica, or nil.
func (n *Node) Replica() *replica.Replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running
}

// Events returns what the node's replicas have told so far.
func (n *Node) Events() []replica.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.events)
}

// Err is what the node's last run ended with, once it has.
func (n *Node) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Start starts the node from its disk.
func (n *Node) Start() {
	t := n.cluster.T
	t.Helper()
	require.Nil(t, n.Replica(), "%s runs", n.Name)
	r, port, err := n.Open(nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	n.mu.Lock()
	n.running, n.cancel, n.ended = r, cancel, ended
	n.mu.Unlock()
	var parts sync.WaitGroup
	parts.Go(func() { _ = port.Run(ctx) })
	parts.Go(func() {
		err := r.Run(ctx)
		n.mu.Lock()
		n.running, n.err = nil, err
		n.mu.Unlock()
		cancel()
	})
	go func() {
		defer close(ended)
		parts.Wait()
	}()
}

// Open opens a replica on the node's disk, with a configuration that change may
// change. The caller runs it and its peer port: mostly [Node.Start] is what a test wants.
func (n *Node) Open(change func(*replica.Config)) (*replica.Replica, *peer.Mux, error) {
	c := n.cluster
	disk, err := n.Disk.Open(store.Config{Hooks: store.Hooks{Faults: n.Faults}})
	if err != nil {
		return nil, nil, err
	}
	listener, err := c.Net.Listen(n.Name + peerPort)
	if err != nil {
		return nil, nil, err
	}
	port, err := peer.New(peer.Config{
		Listener: listener, Dial: c.Net.Dial(n.Name + peerPort),
		ClusterID: "test", Name: n.Name, Secret: []byte("secret"), Logger: c.options.Logs,
	})
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	config := replica.Config{
		Name:           n.Name,
		ClientAddr:     n.Name + ":6379",
		InitialCluster: c.members,
		Stores:         replica.Stores{Log: disk.Log, Stable: disk.Stable, Snapshots: disk.Snapshots, Epoch: disk.Epoch},
		Peers:          replica.Peers{Raft: port.Layer(peer.KindRaft), Append: port.Layer(peer.KindAppend), Forward: port.Layer(peer.KindForward)},
		Clock:          n.Clock,
		Logger:         c.options.Logs,
		OnEvent: func(e replica.Event) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, e)
		},
	}
	if c.options.Configure != nil {
		c.options.Configure(&config)
	}
	if change != nil {
		change(&config)
	}
	r, err := replica.Open(config)
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return r, port, nil
}

// Crash ends the node as kill -9 would. Its disk keeps what was stored.
func (n *Node) Crash() {
	n.cluster.Net.Crash(n.Name)
	n.Disk.Leave() // raft panics when it cannot write, and that would be the test's end
	n.mu.Lock()
	cancel, ended := n.cancel, n.ended
	n.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	n.Faults.Clear()
	<-ended
	n.Disk.Crash()
}

// PowerCut is Crash, and the disk loses what was not synced, or some of it: the seed says what.
func (n *Node) PowerCut(seed uint64) {
	n.Crash()
	n.Disk.PowerCut(seed)
}

// Stop shuts the node down in an orderly way.
func (n *Node) Stop() error {
	r := n.Replica()
	if r == nil {
		return errors.New("it does not run")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := r.Shutdown(ctx)
	n.Crash()
	return err
}

const peerPort = ":7379"
