package replicatest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/bootstrap"
	"github.com/holdfast/holdfast/server/consistency"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/lifecycle"
	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/storetest"
)

const (
	clientPort   = ":6379"
	peerPort     = ":7379"
	sentinelPort = ":26379"
)

// Node is a member of a cluster, and outlives its processes: [Node.Crash] ends a process,
// [Node.Start] begins another on the same disk.
type Node struct {
	Name string
	// ID is the name for the first members, and minted with the disk for others.
	ID string
	// PeerAddr is where the node listens for other nodes from the next start on.
	PeerAddr string
	Clock    *Clock
	Disk     *storetest.Disk
	Faults   *store.Faults // of the disk
	// Busy is for how long the state machine is at work with each entry before the entry is applied.
	Busy atomic.Int64
	// LosesLog: when the disk is exchanged for an older copy, the node's incarnation goes on as if the disk had lost the
	// log alone.
	LosesLog bool
	// Mended counts the damaged snapshots that another node's state took the place of at a start.
	Mended int
	// Lies: the node's handshakes carry the lineage that its process before had, whatever the disk says.
	Lies bool

	cluster *Cluster
	power   chan struct{} // held while the node is being started or ended

	mu      sync.Mutex
	process *process // nil while none runs
	life    int
	err     error
	deaths  []error
	events  []replica.Event
	checks  []consistency.Event
	removed atomic.Bool
	lineage incarnation.Lineage // of the newest process
}

// busyMachine is a state machine that takes its time.
type busyMachine struct {
	fsm.Machine
	busy *atomic.Int64 // nanoseconds an entry
}

// Apply holds no lock of the machine while it sleeps: to wait for a mutex would stop virtual time.
func (m busyMachine) Apply(data []byte, sink fsm.Sink) error {
	for began := time.Now(); time.Since(began) < time.Duration(m.busy.Load()); {
		time.Sleep(BusyStep)
	}
	return m.Machine.Apply(data, sink)
}

// BusyStep is the time within which a state machine notices that it is busy no more.
const BusyStep = 10 * time.Millisecond

// process is a life of a node.
type process struct {
	store      *store.Store
	peers      *peer.Mux
	addresses  *members.Addresses
	replica    *replica.Replica
	opened     atomic.Pointer[replica.Replica] // the same, for those who may come before
	server     *Server                         // nil: only a replica and a peer port
	checker    *consistency.Checker            // nil: states are not compared
	requests   *memberrpc.Server               // of other nodes
	client     *memberrpc.Client
	membership *bootstrap.Node
	unproved   *incarnation.Registry // the members have to admit it; nil: nobody is asked

	parts *lifecycle.Parts
	// clients serves the ports for clients. A server has it before its parts are started.
	clients func(context.Context) error
	dying   atomic.Bool // the process is ending because of a failure
	// stopping: the process was told to end. What its parts say then is no failure.
	stopping bool
	over     chan struct{} // closed when the replica has ended
	ended    chan struct{}

	mu   sync.Mutex // guards what follows
	last members.Configuration
	gone map[string]bool // members that were removed during this life
}

// Replica returns the running replica, or nil.
func (n *Node) Replica() *replica.Replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return nil
	}
	select {
	case <-n.process.over:
		return nil
	default:
		return n.process.replica
	}
}

// Events returns what the node's replicas have told, once they have told all that is to be told now.
// A reply may come before the events of the work behind it.
func (n *Node) Events() []replica.Event {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.events)
}

// Err is the error with which the node's last replica ended.
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

// Life counts the starts and ends of the node's processes: while the count stays the same, the same
// process runs, or none.
func (n *Node) Life() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}

// Start starts a process on the node's disk.
func (n *Node) Start() {
	n.cluster.T.Helper()
	require.NoError(n.cluster.T, n.TryStart())
}

// TryStart is Start, and returns why the process does not start.
func (n *Node) TryStart() error {
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
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.process = p
	n.life++
	n.mu.Unlock()
	return n.run(p)
}

// Open opens a replica on the node's disk, with a configuration that change may change, and does
// not run the replica. Open is for tests of refused configurations; other tests want [Node.Start].
func (n *Node) Open(change func(*replica.Config)) error {
	_, err := n.open(change)
	return err
}

func (n *Node) open(change func(*replica.Config)) (*process, error) {
	c := n.cluster
	p := &process{over: make(chan struct{}), ended: make(chan struct{}), gone: map[string]bool{}}
	var clients func(context.Context) error
	if c.options.Server != nil {
		server := c.options.Server(n.Name)
		p.server = &server
		clients = func(ctx context.Context) error { return p.clients(ctx) }
	}
	p.parts = lifecycle.New(clients, func(ctx context.Context) error { return n.runReplica(ctx, p) }, p.runPeers)
	var err error
	if p.store, err = n.Disk.Open(store.Config{Name: n.Name, Hooks: n.hooks(p), Mends: true}); err != nil {
		return nil, err
	}
	if err := n.mend(p.store); err != nil {
		return nil, err
	}
	if n.ID == "" {
		n.ID = p.store.Identity().ID
	}
	p.addresses = &members.Addresses{}
	var bootstrap []members.Member
	if n.founds() {
		bootstrap = c.founders
	}
	listener, err := c.Net.Listen(n.PeerAddr)
	if err != nil {
		return nil, err
	}
	if n.LosesLog {
		p.store.Lineage = incarnation.Lineage{n.lineage.Current()}.Start(0)
	}
	registry, err := n.incarnations(p)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	p.peers, err = peer.New(peer.Config{
		Listener: listener, Dial: c.Net.Dial(n.PeerAddr), Advertise: n.PeerAddr,
		ClusterID: func() string { return "test" }, ID: n.ID, Addresses: p.addresses, Secrets: func() [][]byte {
			return [][]byte{[]byte("secret")}
		}, Logger: c.options.Logs,
		Removed: p.isGone, OnRemoved: func() { p.membership.Suspect() }, Incarnations: registry,
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	n.watch(p, cmp.Or(c.options.Logs, slog.New(slog.DiscardHandler)))
	disk, port := p.store, p.peers
	config := replica.Config{
		ID:              n.ID,
		ClientAddr:      n.Name + clientPort,
		SentinelAddr:    n.Name + sentinelPort,
		Bootstrap:       bootstrap,
		FoundingVersion: protocol.EntryVersion,
		Stores:          replica.Stores{Log: disk.Log, Stable: disk.Stable, Snapshots: disk.Snapshots, Lineage: disk.Lineage},
		Peers: replica.Peers{
			Raft: port.Layer(peer.KindRaft), Append: port.Layer(peer.KindAppend),
			Forward: port.Layer(peer.KindForward),
		},
		Clock:           n.Clock,
		Machine:         busyMachine{fsm.New(), &n.Busy},
		Logger:          c.options.Logs,
		OnEvent:         func(e replica.Event) { n.onEvent(p, e) },
		OnConfiguration: p.reconfigured,
		OnRemoved:       func() { n.leave(p) },
	}
	if c.options.Configure != nil {
		c.options.Configure(&config)
	}
	if p.server != nil && p.server.Listen != nil {
		p.server.Listen(&config)
	}
	n.compare(p, &config)
	if change != nil {
		change(&config)
	}
	r, err := replica.Open(config)
	if err != nil {
		n.Disk.Crash()
		return nil, errors.Join(err, listener.Close())
	}
	p.replica = r
	p.opened.Store(r)
	p.reconfigured() // before hints
	return p, nil
}

// incarnations is the registry of a process. A server is proved by the members, as
// the program is; without one nobody is asked who has admitted the process.
func (n *Node) incarnations(p *process) (*incarnation.Registry, error) {
	says := p.store.Lineage
	if n.Lies {
		says = n.lineage
	}
	n.lineage = p.store.Lineage
	r := incarnation.New(incarnation.Config{
		Lineage: says, Stable: p.store.Stable, Save: p.store.Proved,
		Logged: func(id string) uint64 {
			if r := p.opened.Load(); r != nil {
				return r.Incarnation(id)
			}
			return 0
		},
		OnVouch: func() { p.membership.CheckNow() }, OnSuperseded: func(err error) { n.die(p, err) },
	})
	if n.Lies || p.server == nil {
		return r, r.Prove()
	}
	p.unproved = r
	return r, nil
}

// hooks watch the disk of a server. Without a server a failure is the replica's affair.
func (n *Node) hooks(p *process) store.Hooks {
	h := store.Hooks{Faults: n.Faults}
	if p.server != nil {
		h.DiskStallLimit = p.server.DiskStallLimit
		h.OnStall = func(op store.Op, _ time.Duration) { n.die(p, fmt.Errorf("disk hangs: %s", op)) }
		h.OnFault = func(op store.Op, err error) { n.die(p, fmt.Errorf("disk failed: %s: %w", op, err)) }
	}
	return h
}

// run runs the parts of a process as server.Run does. A part that fails ends a server.
func (n *Node) run(p *process) error {
	if p.server != nil {
		listener, err := n.cluster.Net.Listen(n.Name + clientPort)
		if err != nil {
			return err
		}
		sentinel, err := n.cluster.Net.Listen(n.Name + sentinelPort)
		if err != nil {
			return err
		}
		front := p.server.Front(p.replica, p.requests, p.client)
		p.clients = func(ctx context.Context) error {
			served := make(chan error, 1)
			go func() { served <- front.ServeSentinel(ctx, sentinel) }()
			return errors.Join(front.Serve(ctx, listener), <-served)
		}
	}
	p.parts.Start()
	go func() {
		p.parts.Wait()
		close(p.ended)
	}()
	if p.server != nil {
		go func() {
			select {
			case err := <-p.parts.Failed():
				n.die(p, err)
			case <-p.ended:
			}
		}()
	}
	return nil
}

func (n *Node) runReplica(ctx context.Context, p *process) error {
	err := p.runWatched(ctx)
	n.mu.Lock()
	n.err = err
	close(p.over)
	n.mu.Unlock()
	return err
}

// runPeers runs the peer port. Without a server the port ends with the replica.
func (p *process) runPeers(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if p.server == nil {
		go func() {
			select {
			case <-p.over:
				stop()
			case <-ctx.Done():
			}
		}()
	}
	return p.peers.Run(ctx)
}

func (n *Node) onEvent(p *process, e replica.Event) {
	n.mu.Lock()
	n.events = append(n.events, e)
	n.mu.Unlock()
	if lost, ok := e.(replica.LogShortened); ok {
		if err := p.peers.Revoke(lost.ID); err != nil {
			n.die(p, err)
		}
	}
	if changed, ok := e.(replica.LeaderChanged); ok && changed.Leader == "" {
		p.membership.Suspect()
	}
	if failed, ok := e.(replica.Failed); ok && p.server != nil {
		n.die(p, failed.Err)
	}
}

// die ends the process p of a server because of err, if p is the running process, and does not wait: parts of a former
// process fail when the net is gone from under them. Without an error it is no death.
func (n *Node) die(p *process, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p != nil && n.process == p && p.dying.CompareAndSwap(false, true) {
		if !p.stopping && err != nil {
			n.deaths = append(n.deaths, err)
		}
		go func() {
			p.parts.Abandon()
			n.end(p)
		}()
	}
}

// Crash ends the process as kill -9 would. The disk keeps what was written, synced or not; faults
// of the disk are over.
func (n *Node) Crash() {
	n.mu.Lock()
	p := n.process
	n.mu.Unlock()
	n.end(p)
}

// end crashes the process p, if p is the running process, and returns when p has ended.
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
	// No other node hears of what happens from here on, and the disk keeps none of it: raft panics
	// when a write fails, and a panic would be the test's end.
	n.cluster.Net.Crash(n.Name)
	n.Disk.Leave()
	p.parts.Stop()
	n.Faults.Clear()
	n.Busy.Store(0)
	<-p.ended
	n.Disk.Crash()
}

// PowerCut is Crash, and the disk loses what was not synced, or some of it: the seed decides.
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
	p.stopping = true
	n.mu.Unlock()
	limit := shutdown
	if p.server != nil {
		limit = p.server.ShutdownTimeout
	}
	err := p.parts.Shutdown(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return p.replica.Shutdown(ctx)
	})
	err = errors.Join(err, p.store.Close())
	n.end(p)
	return err
}

// Transfer has the node hand leadership over, if the node leads.
func (n *Node) Transfer() error {
	r := n.Replica()
	if r == nil {
		return errNotRunning
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return r.TransferLeadership(ctx, "")
}
