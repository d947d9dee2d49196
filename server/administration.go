package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/audit"
	"github.com/holdfast/holdfast/server/backup"
	"github.com/holdfast/holdfast/server/consistency"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/reconfig"
	"github.com/holdfast/holdfast/server/replica"
)

// reconfigTimeout bounds another node's request to change members.
const reconfigTimeout = 30 * time.Second

// newReconfig returns the service that changes members.
func (s *Server) newReconfig() *reconfig.Service {
	told := func(t reconfig.AppliedStep) {
		level := slog.LevelInfo
		if t.Request.Force || t.Risky {
			level = slog.LevelWarn
		}
		by := t.Request.Asker
		s.logger.Log(context.Background(), level, "members changed", "what", t.Outcome, "index", t.Index, "request",
			string(t.Request.Op),
			"force", t.Request.Force, "by_node", by.Node, "by_user", by.User, "by_addr", by.Addr, "by_name", by.Name)
		s.audit.Note(audit.Line{
			Event: audit.MembersChanged, Command: string(t.Request.Op), Text: t.Outcome, Index: t.Index, By: by.Node,
			Addr: by.Addr, Name: by.Name, User: by.User,
		})
	}
	return reconfig.NewService(reconfig.NewExecutor(s.raft(), told), (*otherReconfig)(s))
}

// serveReconfig registers the requests of other nodes to change members.
func (s *Server) serveReconfig() {
	memberrpc.Handle(s.cluster.requests, opOperate, func(ctx context.Context, _ memberrpc.Caller,
		q reconfig.Request,
	) (reconfig.Reply, error) {
		ctx, cancel := context.WithTimeout(ctx, reconfigTimeout)
		defer cancel()
		return s.cluster.reconfig.Do(ctx, q), nil
	})
	memberrpc.HandleAny(s.cluster.requests, opJoin, s.addMember)
	memberrpc.Handle(s.cluster.requests, opClients, func(_ context.Context, _ memberrpc.Caller,
		q frontend.ClientsQuestion,
	) (frontend.ClientsAnswer, error) {
		if !s.isOpen() {
			return frontend.ClientsAnswer{}, s.unopened()
		}
		return s.front.Clients(q), nil
	})
}

// askClients sends another node a question about its connections.
func (s *Server) askClients(ctx context.Context, id string, q frontend.ClientsQuestion) (frontend.ClientsAnswer,
	error,
) {
	return memberrpc.Call[frontend.ClientsAnswer](ctx, s.cluster.client, id, opClients, q)
}

// addMember has the leader add the calling node, whichever member it called.
func (s *Server) addMember(ctx context.Context, from memberrpc.Caller, q join) (joined, error) {
	ctx, cancel := context.WithTimeout(ctx, reconfigTimeout)
	defer cancel()
	if s.isOpen() && s.cluster.wasRemoved(from.ID) {
		return joined{Refused: fmt.Sprintf("%s was removed: empty its folder", from.ID)}, nil
	}
	reply, err := s.cluster.reconfig.Ask(ctx, reconfig.Request{
		Op: reconfig.Join, Member: from.ID, Addr: q.Addr, Cluster: q.Cluster, LogFormat: q.LogFormat,
		Asker: reconfig.Asker{Node: members.Name(from.ID), Addr: from.Addr},
	})
	var refusal *reconfig.Refusal
	if errors.As(err, &refusal) {
		return joined{Refused: refusal.Text}, nil
	}
	if err != nil || !reply.Configuration.Has(from.ID) {
		return joined{}, err
	}
	return joined{Index: reply.Configuration.Index}, nil
}

// otherReconfig are the reconfiguration services of the other nodes.
type otherReconfig Server

func (o *otherReconfig) Ask(ctx context.Context, id string, q reconfig.Request) (reconfig.Reply, error) {
	return memberrpc.Call[reconfig.Reply](ctx, o.cluster.client, id, opOperate, q)
}

// Raft implements [reconfig.Cluster] for a node.
type Raft struct {
	// Identity returns the IDs of the node and of the cluster.
	Identity func() (id, cluster string)
	// Replica returns nil while the node has none.
	Replica func() *replica.Replica
	// Checker compares the members' states. It may be nil.
	Checker *consistency.Checker
}

var _ reconfig.Cluster = Raft{}

func (s *Server) raft() Raft {
	return Raft{
		Identity: func() (id, cluster string) {
			is := s.store.Identity()
			return is.ID, is.ClusterID
		},
		Replica: s.member.Load,
		Checker: s.cluster.checker,
	}
}

func (m Raft) View() reconfig.View {
	v := reconfig.View{Nodes: make(map[string]reconfig.Node)}
	v.Self, v.Cluster = m.Identity()
	r := m.Replica()
	if r == nil {
		return v
	}
	st, committed := r.Status(), r.CommittedConfiguration()
	v.Configuration = r.Configuration()
	v.Changing = committed.Index != v.Index || !committed.Same(v.Configuration)
	v.Leader, v.Leads, v.Last, v.Version = st.Leader.ID, st.Leading, st.LastLog, st.Version
	for _, node := range st.Members {
		v.Nodes[node.ID] = reconfig.Node{Silent: node.Silent, Match: node.LogIndex}
	}
	for _, f := range st.Followers {
		v.Nodes[f.ID] = reconfig.Node{Silent: f.Outdated(st.Version), Match: f.LogIndex, Heard: f.Heard}
	}
	if m.Checker != nil {
		report := m.Checker.Report()
		for _, id := range report.Differ {
			node := v.Nodes[id]
			node.Differs = true
			v.Nodes[id] = node
		}
		for _, id := range report.InQuarantine {
			node := v.Nodes[id]
			node.Differs, node.Quarantined = true, true
			v.Nodes[id] = node
		}
	}
	return v
}

// changes maps steps to changes of raft's configuration.
var changes = map[reconfig.Action]raftnode.ChangeKind{
	reconfig.AddMember: raftnode.AddNonvoter, reconfig.GiveVote: raftnode.AddVoter,
	reconfig.TakeVote: raftnode.Demote,
	reconfig.TakeOut:  raftnode.Remove, reconfig.SetAddress: raftnode.Move,
}

var errNoChange = errors.New("that is no change of members")

func (m Raft) Change(ctx context.Context, do reconfig.Action, member members.Member, after uint64) (uint64, error) {
	r, kind, err := m.change(do)
	if err != nil {
		return 0, err
	}
	return r.Change(ctx, replica.Change{Kind: kind, Member: member, After: after})
}

func (m Raft) change(do reconfig.Action) (*replica.Replica, raftnode.ChangeKind, error) {
	kind, known := changes[do]
	r := m.Replica()
	switch {
	case r == nil:
		return nil, 0, errNoCluster
	case !known:
		return nil, 0, errNoChange
	}
	return r, kind, nil
}

func (m Raft) HandOver(ctx context.Context, to string) error {
	r := m.Replica()
	if r == nil {
		return errNoCluster
	}
	return r.TransferLeadership(ctx, to)
}

func (m Raft) TakeState(ctx context.Context, id string) (says string, err error) {
	if m.Checker == nil {
		return "", errNoCluster
	}
	done, err := m.Checker.Repair(ctx, id)
	name := members.Name(id)
	switch {
	case err != nil:
		return "", err
	case done.Index == 0:
		return name + " takes the leader's state, which is under way still: ask again to see", nil
	case !done.Compared:
		return fmt.Sprintf("%s took the leader's state up to log index %d, and stays in quarantine until the states "+
			"were compared", name, done.Index), nil
	}
	return fmt.Sprintf("%s took the leader's state up to log index %d, and its state is a majority's now", name,
		done.Index), nil
}

// backups gives clients backups of the node's state.
type backups struct {
	s       *Server
	streams *backup.Streams
}

// newBackups returns the backups of a node whose replies have at most maxReply bytes.
func newBackups(s *Server, maxReply int) *backups {
	b := &backups{s: s}
	limits := backup.DefaultLimits()
	limits.ChunkBytes = min(limits.ChunkBytes, max(maxReply/2, 1))
	b.streams = backup.NewStreams(b.capture, limits)
	return b
}

// Begin implements [frontend.Backups].
func (b *backups) Begin(ctx context.Context, stale bool) (frontend.Backup, error) {
	stream, err := b.streams.Begin(ctx, stale)
	if err != nil {
		return nil, err
	}
	about := b.s.member.Load().Stats().UsedBytes
	return &clientBackup{Stream: stream, onComplete: b.s.observed.backedUp, aboutBytes: about}, nil
}

func (b *backups) capture(ctx context.Context, stale bool) (backup.Meta, io.WriterTo, error) {
	began := time.Now()
	c, err := b.s.member.Load().Capture(ctx, stale) // not nil: a node without a cluster refuses the command
	if err != nil {
		return backup.Meta{}, nil, err
	}
	id := b.s.store.Identity()
	return backup.Meta{
		Release: protocol.HoldfastVersion, EntryVersion: int(c.State.Version()),
		ClusterID: id.ClusterID, NodeID: id.ID, Index: c.Index, Term: c.Term,
		TakenAt: began, ClusterTimeMillis: c.State.ClockMillis(), Stale: stale,
		Keys: c.State.Keys(), Locks: c.State.Locks(),
	}, c.State, nil
}

// clientBackup is a [frontend.Backup].
type clientBackup struct {
	*backup.Stream
	onComplete func() // called after the last piece
	aboutBytes int64
}

// Next implements [frontend.Backup].
func (b *clientBackup) Next(ctx context.Context) ([]byte, error) {
	part, err := b.Stream.Next(ctx)
	if err == io.EOF {
		b.onComplete()
	}
	return part, err
}

// Source implements [frontend.Backup].
func (b *clientBackup) Source() frontend.BackupSource {
	m := &b.Meta
	return frontend.BackupSource{
		ClusterID: m.ClusterID, NodeID: m.NodeID, Index: m.Index, Term: m.Term, TakenAt: m.TakenAt,
		Keys: m.Keys, Locks: m.Locks, AboutBytes: b.aboutBytes,
	}
}

// Totals implements [frontend.Backup].
func (b *clientBackup) Totals() frontend.BackupTotals {
	s := b.Summary()
	return frontend.BackupTotals{Bytes: s.FileBytes, SHA256: s.SHA256}
}
