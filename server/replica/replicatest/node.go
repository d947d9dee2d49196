package replicatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/replica"
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
	Name   string
	Clock  *Clock
	Disk   *storetest.Disk
	Faults *store.Faults // of the disk

	cluster *Cluster
	power   chan struct{} // held while the node is being started or ended

	mu      sync.Mutex
	process *process // nil while none runs
	life    int
	err     error
	deaths  []error
	events  []replica.Event
}

// process is one life of a node.
type process struct {
	store   *store.Store
	peers   *peer.Mux
	replica *replica.Replica
	server  *Server // nil: a replica and its peer port are all there is

	stopClients, stopReplica, stopPeers context.CancelFunc
	parts                               sync.WaitGroup
	drained                             chan struct{} // no client is connected any more
	dying                               atomic.Bool   // it ends by itself
	over                                bool          // its replica has ended; guarded by the node's mu
	ended                               chan struct{}
}

// Replica returns the running replica, or nil.
func (n *Node) Replica() *replica.Replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil || n.process.over {
		return nil
	}
	return n.process.replica
}

// Events returns what the node's replicas have told so far.
func (n *Node) Events() []replica.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.events)
}

// Err is what the node's last replica ended with, once it has.
func (n *Node) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Deaths are the errors for which the node ended by itself.
func (n *Node) Deaths() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.deaths)
}

// Life counts the node's processes, and their ends: while it stays the same, the
// same process runs, or none.
func (n *Node) Life() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}

// Start starts a process on the node's disk.
func (n *Node) Start() {
	t := n.cluster.T
	t.Helper()
	n.power <- struct{}{}
	defer func() { <-n.power }()
	require.Nil(t, n.Replica(), "%s runs", n.Name)
	n.mu.Lock()
	last := n.process
	n.mu.Unlock()
	n.endHeld(last)
	p, err := n.open(nil)
	require.NoError(t, err)
	n.mu.Lock()
	n.process = p
	n.life++
	n.mu.Unlock()
	require.NoError(t, n.run(p))
}

// Open opens a replica on the node's disk, with a configuration that change may change, and runs none of it:
// for tests of what is refused. Mostly [Node.Start] is what a test wants.
func (n *Node) Open(change func(*replica.Config)) error {
	_, err := n.open(change)
	return err
}

func (n *Node) open(change func(*replica.Config)) (*process, error) {
	c := n.cluster
	p := &process{drained: make(chan struct{}), ended: make(chan struct{})}
	if c.options.Server != nil {
		server := c.options.Server(n.Name)
		p.server = &server
	}
	var err error
	if p.store, err = n.Disk.Open(store.Config{Hooks: n.hooks(p.server)}); err != nil {
		return nil, err
	}
	listener, err := c.Net.Listen(n.Name + peerPort)
	if err != nil {
		return nil, err
	}
	p.peers, err = peer.New(peer.Config{
		Listener: listener, Dial: c.Net.Dial(n.Name + peerPort), Advertise: n.Name + peerPort,
		ClusterID: "test", Name: n.Name, NameOf: c.nameAt, Secret: []byte("secret"), Logger: c.options.Logs,
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	disk, port := p.store, p.peers
	config := replica.Config{
		Name:           n.Name,
		ClientAddr:     n.Name + clientPort,
		InitialCluster: c.members,
		Stores:         replica.Stores{Log: disk.Log, Stable: disk.Stable, Snapshots: disk.Snapshots, Epoch: disk.Epoch},
		Peers:          replica.Peers{Raft: port.Layer(peer.KindRaft), Append: port.Layer(peer.KindAppend), Forward: port.Layer(peer.KindForward)},
		Clock:          n.Clock,
		Logger:         c.options.Logs,
		OnEvent:        n.hear,
	}
	if c.options.Configure != nil {
		c.options.Configure(&config)
	}
	if change != nil {
		change(&config)
	}
	if p.replica, err = replica.Open(config); err != nil {
		n.Disk.Crash()
		return nil, errors.Join(err, listener.Close())
	}
	return p, nil
}

// hooks watch the disk of a server; without one a failure is the replica's affair.
func (n *Node) hooks(s *Server) store.Hooks {
	h := store.Hooks{Faults: n.Faults}
	if s != nil {
		h.DiskStallLimit = s.DiskStallLimit
		h.OnStall = func(op store.Op, _ time.Duration) { n.die(fmt.Errorf("disk hangs: %s", op)) }
		h.OnFault = func(op store.Op, err error) { n.die(fmt.Errorf("disk failed: %s: %w", op, err)) }
	}
	return h
}

// run runs the parts of a process as server.Run does.
func (n *Node) run(p *process) error {
	clientsCtx, stopClients := context.WithCancel(context.Background())
	replicaCtx, stopReplica := context.WithCancel(context.Background())
	peersCtx, stopPeers := context.WithCancel(context.Background())
	p.stopClients, p.stopReplica, p.stopPeers = stopClients, stopReplica, stopPeers
	var clients net.Listener
	if p.server != nil {
		var err error
		if clients, err = n.cluster.Net.Listen(n.Name + clientPort); err != nil {
			return err
		}
	}
	p.run(n, "peer port", func() error { return p.peers.Run(peersCtx) })
	p.run(n, "replica", func() error {
		err := p.replica.Run(replicaCtx)
		n.ran(p, err)
		return err
	})
	if clients == nil {
		close(p.drained)
	} else {
		front := p.server.Front(p.replica)
		p.run(n, "client port", func() error {
			defer close(p.drained)
			return front.Serve(clientsCtx, clients)
		})
	}
	go func() {
		p.parts.Wait()
		close(p.ended)
	}()
	return nil
}

// run runs a part of the process. One that fails ends a server, unless it is being ended anyway.
func (p *process) run(n *Node, what string, run func() error) {
	p.parts.Go(func() {
		if err := run(); err != nil && p.server != nil {
			n.die(fmt.Errorf("%s: %w", what, err))
		}
	})
}

// ran takes note of the replica's end.
func (n *Node) ran(p *process, err error) {
	n.mu.Lock()
	n.err, p.over = err, true
	n.mu.Unlock()
	if p.server == nil {
		p.stopPeers()
	}
}

func (n *Node) hear(e replica.Event) {
	n.mu.Lock()
	n.events = append(n.events, e)
	server := n.cluster.options.Server != nil
	n.mu.Unlock()
	if failed, ok := e.(replica.Failed); ok && server {
		n.die(failed.Err)
	}
}

// die ends the process of a server because of err. It does not wait.
func (n *Node) die(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.process; p != nil && p.dying.CompareAndSwap(false, true) {
		n.deaths = append(n.deaths, err)
		go func() {
			p.server.Abandon(p.drained, p.stopReplica, p.stopPeers, p.stopClients)
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
	n.endHeld(p)
}

// endHeld is end for a caller that holds power.
func (n *Node) endHeld(p *process) {
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
	// No other node hears of what happens from here on, and the disk keeps none of it: raft panics when it
	// cannot write, and that would be the test's end.
	n.cluster.Net.Crash(n.Name)
	n.Disk.Leave()
	p.stopClients()
	p.stopReplica()
	p.stopPeers()
	n.Faults.Clear()
	<-p.ended
	n.Disk.Crash()
}

// PowerCut is Crash, and the disk loses what was not synced, or some of it: the seed says what.
func (n *Node) PowerCut(seed uint64) {
	n.Crash()
	n.Disk.PowerCut(seed)
}

// shutdown bounds the end of a node that is no server.
const shutdown = 10 * time.Second

var errNotRunning = errors.New("it does not run")

// Stop ends the process in good order, as SIGTERM does.
func (n *Node) Stop() error {
	if n.Replica() == nil {
		return errNotRunning
	}
	n.mu.Lock()
	p := n.process
	n.life++
	n.mu.Unlock()
	limit := shutdown
	if p.server != nil {
		limit = p.server.ShutdownTimeout
	}
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
		return errNotRunning
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return r.TransferLeadership(ctx)
}
