package replicatest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/bootstrap"
	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/storetest"
)

// node makes a node with an empty disk.
func (c *Cluster) node(name string) *Node {
	n := &Node{
		Name: name, PeerAddr: name + peerPort, Clock: newClock(), Disk: storetest.NewDisk(), Faults: store.NewFaults(),
		cluster: c, power: make(chan struct{}, 1),
	}
	c.nodes = append(c.nodes, n)
	return n
}

// Add starts a node with an empty disk, which is no member yet: see [Cluster.Change].
func (c *Cluster) Add(name string) *Node {
	c.T.Helper()
	n := c.node(name)
	n.Start()
	return n
}

// Wipe empties the disk of a node that does not run. The node is another from then on, with the old name and address.
func (n *Node) Wipe() {
	n.power <- struct{}{}
	defer func() { <-n.power }()
	require.Nil(n.cluster.T, n.Replica(), "%s runs", n.Name)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Disk, n.ID = storetest.NewDisk(), members.NewID(n.Name)
	n.removed.Store(false)
}

// Member is the node as a member.
func (n *Node) Member() members.Member { return members.Member{ID: n.ID, Addr: n.PeerAddr} }

// mend has the state of another node take the place of a damaged snapshot. The program asks for that over the peer port
// (package bootstrap); here the others are looked at.
func (n *Node) mend(s *store.Store) error {
	if s.Identity().ClusterID == "" {
		return s.SetIdentity(func(id *store.Identity) { id.ClusterID, id.ID = "test", cmp.Or(n.ID, id.ID) })
	}
	missing := s.Missing()
	if missing == nil {
		return nil
	}
	errs := []error{missing.Err}
	for _, other := range n.cluster.nodes {
		r := other.Replica()
		if r == nil || other == n {
			continue
		}
		snapshot, state, err := r.OpenSnapshot(missing.From)
		if err == nil {
			n.Mended++
			return errors.Join(s.Mend(snapshot, state), state.Close())
		}
		errs = append(errs, err)
	}
	n.Disk.Crash()
	return errors.Join(errs...)
}

// founds reports whether the node is one of the first members.
func (n *Node) founds() bool {
	_, ok := members.Configuration{Members: n.cluster.founders}.Find(n.ID)
	return ok
}

// Removed reports whether the node has found that it is a member no more.
func (n *Node) Removed() bool { return n.removed.Load() }

// WaitRemoved waits until the node has found that it is a member no more.
func (n *Node) WaitRemoved() {
	n.cluster.T.Helper()
	require.True(n.cluster.T, eventually(n.Removed), "%s has not found that it was removed", n.Name)
}

// leave is called when the node finds that it is a member no more. A server ends for good, as the program does: its
// disk is not to be started again before [Node.Wipe].
func (n *Node) leave(p *process) {
	n.removed.Store(true)
	if p.server != nil && !n.cluster.options.Undead {
		n.die(p, nil)
	}
}

// watch makes what watches the process's membership, over requests between nodes. It runs beside the replica.
func (n *Node) watch(p *process, logger *slog.Logger) {
	layer := p.peers.Layer(peer.KindMember)
	p.requests, p.client = memberrpc.NewServer(layer, logger), memberrpc.NewClient(layer)
	c := bootstrap.Config{
		Folder: p.store, Addr: n.PeerAddr, NonVoter: true, NewestVersion: protocol.EntryVersion,
		Client: p.client, Addresses: p.addresses, Logger: logger,
		Cluster: bootstrap.Cluster{
			Committed: func() members.Configuration { return p.replica.CommittedConfiguration() },
			Newest:    func() members.Configuration { return p.replica.Configuration() },
			LastTerm:  func() uint64 { return p.replica.LastTerm() },
			Led:       func() bool { return p.replica.Status().Leader.ID != "" },
			Move:      func(context.Context, string) error { return nil }, // tests have the cluster agree
			Removed:   func() { n.leave(p) },
		},
	}
	if p.unproved != nil {
		c.Incarnation = p.unproved
	}
	p.membership = bootstrap.New(c)
	p.membership.Serve(p.requests)
}

// reconfigured takes what the replica knows of the members.
func (p *process) reconfigured() {
	p.mu.Lock()
	defer p.mu.Unlock()
	conf := p.replica.Configuration()
	p.addresses.SetConfiguration(conf)
	committed := p.replica.CommittedConfiguration()
	for _, m := range p.last.Members {
		if !committed.Has(m.ID) && committed.Index > p.last.Index {
			p.gone[m.ID] = true
		}
	}
	for _, m := range conf.Members {
		delete(p.gone, m.ID) // an ID comes back in a server that is wrong on purpose
	}
	if committed.Index >= p.last.Index {
		p.last = committed
	}
	p.membership.CheckNow()
}

// isGone reports whether a node was removed during this life.
func (p *process) isGone(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone[id]
}

// Change has the leader change a member, and returns what the leader says.
func (c *Cluster) Change(kind raftnode.ChangeKind, n *Node) error {
	c.T.Helper()
	return c.Leader().Change(kind, n)
}

// Change has the node change a member.
func (n *Node) Change(kind raftnode.ChangeKind, of *Node) error {
	r := n.Replica()
	if r == nil {
		return errNotRunning
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := r.Change(ctx, replica.Change{Kind: kind, Member: of.Member(), After: r.Configuration().Index})
	return err
}

// Hint tells the node where another is.
func (n *Node) Hint(of *Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil {
		n.process.addresses.Hint(of.ID, of.PeerAddr)
	}
}
