package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/audit"
	"github.com/holdfast/holdfast/server/backup"
	"github.com/holdfast/holdfast/server/bootstrap"
	"github.com/holdfast/holdfast/server/consistency"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/reconfig"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
)

// ErrRemoved is the error of a node that was removed from its cluster.
var ErrRemoved = store.ErrRemoved

// ErrSuperseded is the error of a node whose cluster knows a later incarnation of it.
var ErrSuperseded = incarnation.ErrSuperseded

// clusterNode has the parts of a node that concern the members: their addresses, the node's entry into the cluster, and
// changes of members.
type clusterNode struct {
	addresses members.Addresses
	client    *memberrpc.Client
	requests  *memberrpc.Server
	bootstrap *bootstrap.Node
	reconfig  *reconfig.Service
	// admissions checks whether the members admit each other.
	admissions *memberrpc.Admissions
	checker    *consistency.Checker

	mu      sync.Mutex // guards all below, and orders calls of addresses.SetConfiguration
	last    members.Configuration
	removed map[string]bool // IDs of members that were removed since this process started

	// committedOnDisk and newestOnDisk are the configurations in a folder whose raft cannot be opened yet, and
	// lastTermOnDisk is the term of its last entry.
	committedOnDisk, newestOnDisk members.Configuration
	lastTermOnDisk                uint64
}

// maxRemoved bounds the removed members that are remembered.
const maxRemoved = 1024

// newClusterNode sets s.cluster. Requires: the folder and the peer port are open.
func (s *Server) newClusterNode() error {
	p := &s.cluster
	if err := s.readMembers(); err != nil {
		return err
	}
	layer := s.peers.Layer(peer.KindMember)
	p.client, p.requests = memberrpc.NewClient(layer), memberrpc.NewServer(layer, s.logger)
	p.checker = s.newChecker()
	p.reconfig = s.newReconfig()
	initial, _ := s.config.Peers() // validated by New
	p.bootstrap = bootstrap.New(bootstrap.Config{
		Folder: s.store, Addr: s.config.peerAddress(initial), Initial: initial, Contacts: s.config.contacts(),
		NonVoter: s.config.NonVoter,
		Client:   p.client, Addresses: &p.addresses, Incarnation: s.incarnations, Logger: s.logger,
		NewestVersion: s.config.foundingVersion(),
		Cluster: bootstrap.Cluster{
			Join: s.askToJoin, Committed: s.committed, Newest: s.newest, LastTerm: s.lastTerm, Led: s.led, Move: s.askToMove,
			Promote: s.askForVote, Removed: s.removed, State: s.openState,
		},
	})
	p.bootstrap.Serve(p.requests)
	p.checker.Serve(p.requests)
	p.admissions = s.newAdmissions()
	s.serveReconfig()
	return nil
}

// readMembers reads the configurations of a folder that misses a snapshot.
func (s *Server) readMembers() (err error) {
	missing := s.store.Missing()
	if missing == nil {
		return nil
	}
	s.observed.damaged()
	p := &s.cluster
	p.committedOnDisk, p.newestOnDisk, p.lastTermOnDisk, err = raftnode.StoredConfigurations(s.store.Log, missing.Known,
		s.store.Identity().Founders)
	return err
}

// openState opens a committed state that ends at from or later.
func (s *Server) openState(from uint64) (store.Snapshot, io.ReadCloser, error) {
	if !s.isOpen() {
		return store.Snapshot{}, nil, s.unopened()
	}
	return s.member.Load().OpenSnapshot(from)
}

// wasRemoved reports whether a member was removed since this process started.
func (n *clusterNode) wasRemoved(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.removed[id]
}

// setMembers updates the addresses and removed members from the replica's configurations.
func (n *clusterNode) setMembers(r *replica.Replica) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses.SetConfiguration(r.Configuration())
	committed := r.CommittedConfiguration()
	if committed.Index >= n.last.Index {
		for _, id := range n.last.Gone(committed) {
			if len(n.removed) < maxRemoved {
				n.removed[id] = true
			}
		}
		n.last = committed
	}
	n.bootstrap.CheckNow()
}

// reconfigured is called by the replica when members, addresses or votes changed.
func (s *Server) reconfigured() {
	if r := s.member.Load(); r != nil {
		s.cluster.setMembers(r)
	}
}

func (s *Server) committed() members.Configuration {
	if r := s.member.Load(); r != nil {
		return r.CommittedConfiguration()
	}
	return s.cluster.committedOnDisk
}

func (s *Server) newest() members.Configuration {
	if r := s.member.Load(); r != nil {
		return r.Configuration()
	}
	return s.cluster.newestOnDisk
}

func (s *Server) lastTerm() uint64 {
	if r := s.member.Load(); r != nil {
		return r.LastTerm()
	}
	return s.cluster.lastTermOnDisk
}

func (s *Server) led() bool {
	r := s.member.Load()
	return r != nil && r.Status().Leader.ID != ""
}

// drainTimeout bounds a removed node's wait for answers to its own clients' requests to change members.
const drainTimeout = time.Second

// removed marks the folder as removed, and ends the node. Another goroutine writes, as the caller may be raft.
func (s *Server) removed() {
	s.removal.Do(func() {
		go func() {
			id := s.store.Identity()
			s.logger.Error("this node was removed from the cluster: it ends, and its folder cannot be used again", "id", id.ID,
				"cluster", id.ClusterID)
			err := s.store.Remove()
			ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
			defer cancel()
			s.cluster.reconfig.Drain(ctx)
			s.fail(errors.Join(ErrRemoved, err))
		}()
	})
}

// newIncarnations returns the registry of incarnations. Requires: the folder is open.
func (s *Server) newIncarnations() *incarnation.Registry {
	return incarnation.New(incarnation.Config{
		Lineage: s.store.Lineage, Stable: s.store.Stable, Save: s.store.Proved,
		Logged: func(id string) uint64 {
			if r := s.member.Load(); r != nil {
				return r.Incarnation(id)
			}
			return 0
		},
		OnVouch: func() { s.cluster.bootstrap.CheckNow() }, OnSuperseded: s.fail,
	})
}

// openReplica opens the replica and the frontend of a node that belongs to a cluster.
func (s *Server) openReplica() error {
	s.audit.Begin(s.clusterID())
	if err := errors.Join(backup.Found(s.store), s.logBeginning()); err != nil {
		return err
	}
	r, err := replica.Open(s.replicaConfig())
	if err != nil {
		return err
	}
	s.member.Store(r)
	s.reconfigured()
	if s.faults != nil {
		s.faults.node = r
	}
	s.front = frontend.New(s.frontConfig(), r)
	if s.monitoring != nil {
		s.metrics.MustRegister(s.front.Metrics().Collector())
		s.metrics.MustRegister(s.observed.collectors()...)
	}
	s.logDifference(r.Configuration())
	close(s.opened)
	return nil
}

// logBeginning logs, at the first start only, from which backup the cluster was restored.
func (s *Server) logBeginning() error {
	id := s.store.Identity()
	b := id.Beginning
	if b == nil || b.Told {
		return nil
	}
	s.logger.Warn("cluster begun with the state of another", "command", b.Command, "by_user", b.User, "by_host", b.Host,
		"at", b.At.Format(time.RFC3339),
		"cluster", id.ClusterID, "of_cluster", b.Cluster, "of_node", b.Node, "of_index", b.Index)
	s.audit.Note(audit.Line{
		Event: audit.ClusterBegun, Command: b.Command, By: b.User + " " + b.Host, Index: b.Index,
		OldCluster: b.Cluster, Text: "with the state of the cluster " + b.Cluster + ", node " + b.Node,
	})
	told := *b
	told.Told = true
	return s.store.SetIdentity(func(id *store.Identity) { id.Beginning = &told })
}

// logDifference logs if the initial cluster differs from the present one: changing the flag later has no effect.
func (s *Server) logDifference(conf members.Configuration) {
	initial, _ := s.config.Peers()
	var today []string
	for _, m := range conf.Members {
		today = append(today, m.Name())
	}
	if given := slices.Sorted(maps.Keys(initial)); s.config.InitialCluster != "" && len(today) > 0 &&
		!slices.Equal(given, today) {
		s.logger.Info("initial-cluster is for the first start alone: the cluster knows its members", "initial_cluster",
			strings.Join(given, ", "), "members", strings.Join(today, ", "))
	}
}

// noClusterError is the error of a node that could not enter a cluster.
type noClusterError struct{ error }

// runReplica runs the replica, once the node belongs to a cluster.
func (s *Server) runReplica(ctx context.Context) error {
	if !s.isOpen() {
		if err := s.enterCluster(ctx); err != nil || !s.isOpen() {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var stays sync.WaitGroup
	stays.Go(func() {
		if err := s.cluster.bootstrap.WatchMembership(ctx); err != nil {
			s.fail(err)
		}
	})
	stays.Go(func() { s.member.Load().Announce(ctx) })
	stays.Go(func() { s.cluster.admissions.Run(ctx) })
	stays.Go(func() { s.cluster.checker.Run(ctx) })
	defer stays.Wait()
	defer cancel()
	return s.member.Load().Run(ctx)
}

// enterCluster waits until the node belongs to a cluster, and opens the replica. It opens none if ctx or the node ends
// first.
func (s *Server) enterCluster(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ending, cancel)()
	if err := s.cluster.bootstrap.EnterCluster(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return noClusterError{err}
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	return s.openReplica()
}

func (s *Server) isOpen() bool {
	select {
	case <-s.opened:
		return true
	default:
		return false
	}
}

// stopReplica shuts the replica down, or ends the entry into the cluster.
func (s *Server) stopReplica() error {
	s.endEntry()
	s.opening.Lock()
	defer s.opening.Unlock()
	if !s.isOpen() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.config.ShutdownTimeout)
	defer cancel()
	return s.member.Load().Shutdown(ctx)
}

// runPeers runs the port between nodes and the service of questions about members.
func (s *Server) runPeers(ctx context.Context) error {
	var answers sync.WaitGroup
	defer answers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers.Go(func() { _ = s.cluster.requests.Run(ctx) }) // ends with its port
	return s.peers.Run(ctx)
}

// inCluster is the readiness check that fails without a cluster.
func (s *Server) inCluster(context.Context) error {
	if s.isOpen() {
		return nil
	}
	if waiting := s.cluster.bootstrap.Waiting(); waiting != "" {
		return errors.New(waiting)
	}
	return s.unopened()
}

var (
	errNoCluster = errors.New("this node belongs to no cluster yet")
	errNoState   = errors.New(
		"this node has no state yet: its newest snapshot is damaged, and no other member has sent its state")
)

// unopened returns the reason why the node has no replica.
func (s *Server) unopened() error {
	if s.store.Missing() != nil {
		return errNoState
	}
	return errNoCluster
}

// asMember returns a check that fails without a replica.
func (s *Server) asMember(check func(*replica.Replica) error) func(context.Context) error {
	return func(context.Context) error {
		if !s.isOpen() {
			return s.unopened()
		}
		return check(s.member.Load())
	}
}

// join is a node's request to any member to be added to the cluster.
type join struct {
	Addr    string `json:"addr"`
	Cluster string `json:"cluster"`
	// LogFormat is the newest version of the log that the node can use, 0 if unknown.
	LogFormat byte `json:"logFormat,omitempty"`
}

// joined is the answer to join. Refused is the reason of a refusal in one line. Index is the index of a committed
// configuration with the node, 0 if unknown.
type joined struct {
	Refused string `json:"refused,omitempty"`
	Index   uint64 `json:"index,omitempty"`
}

const (
	opJoin    = "join"
	opOperate = "operate"
	opClients = "clients"
)

func (s *Server) askToJoin(ctx context.Context, contact, cluster string, self members.Member) (index uint64,
	refused string, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, reconfigTimeout)
	defer cancel()
	answer, _, err := memberrpc.CallAt[joined](ctx, s.cluster.client, contact, opJoin,
		join{self.Addr, cluster, protocol.EntryVersion})
	return answer.Index, answer.Refused, err
}

func (s *Server) askToMove(ctx context.Context, addr string) error {
	return s.ask(ctx, reconfig.Request{Op: reconfig.Readdress, Addr: addr})
}

func (s *Server) askForVote(ctx context.Context) error {
	return s.ask(ctx, reconfig.Request{Op: reconfig.Promote})
}

// ask sends the cluster a request to change this node's membership.
func (s *Server) ask(ctx context.Context, q reconfig.Request) error {
	initial, _ := s.config.Peers()
	q.Member = s.store.Identity().ID
	q.Asker = reconfig.Asker{Node: s.config.Name, Addr: s.config.peerAddress(initial)}
	_, err := s.cluster.reconfig.Ask(ctx, q)
	if err != nil {
		return fmt.Errorf("%s: %w", q.Op, err)
	}
	return nil
}
