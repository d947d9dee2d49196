//go:build trace

package raftnode

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// TraceEvent is a step of a node. jepsen/model/TraceLog.tla says what each kind means.
type TraceEvent struct {
	Kind  string   `json:"e"`
	Node  string   `json:"n"` // ID
	Other string   `json:"o,omitempty"`
	Term  uint64   `json:"t,omitempty"`
	Index uint64   `json:"i,omitempty"`
	From  uint64   `json:"f,omitempty"` // the entry before Terms
	Prev  uint64   `json:"p,omitempty"` // its term
	Terms []uint64 `json:"s,omitempty"` // of entries
	Snap  uint64   `json:"z,omitempty"` // where the newest snapshot ends
	Life  uint64   `json:"-"`           // of all nodes, the number of the start
}

var (
	traceTo   atomic.Pointer[func(TraceEvent)]
	traceLife atomic.Uint64
)

// TraceTo has all nodes give their steps to take, one at a time for each node's part. A step is given before its effect
// can be seen from outside.
func TraceTo(take func(TraceEvent)) { traceTo.Store(&take) }

// tracer stands around what raft is opened over.
type tracer struct {
	node *Node
	life uint64
	vote uint64 // the term of the vote that is being stored; of raft's main loop

	mu  sync.Mutex
	led uint64 // the newest term that lead was told of
}

// lead tells, once, that the node leads term: before its first entry, or the first request of a sender.
func (t *tracer) lead(term uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if term > t.led {
		t.led = term
		t.emit(TraceEvent{Kind: "lead", Term: term})
	}
}

func (t *tracer) emit(e TraceEvent) {
	if take := traceTo.Load(); take != nil {
		e.Node, e.Life = t.node.config.ID, t.life
		(*take)(e)
	}
}

func (n *Node) traced(p parts) parts {
	t := &tracer{node: n, life: traceLife.Add(1)}
	t.started()
	n.log.store = &tracedDisk{n.log.store, t}
	return parts{
		machine:   &tracedMachine{n.applier, t},
		log:       &tracedLog{n.log, t},
		stable:    &tracedStable{p.stable, t},
		snapshots: &tracedSnapshots{p.snapshots, t},
		transport: &tracedTransport{n.transport, t},
	}
}

// started tells what the node finds.
func (t *tracer) started() {
	c := &t.node.config
	e := TraceEvent{Kind: "start"}
	first, _ := c.Log.FirstIndex()
	last, _ := c.Log.LastIndex()
	e.Term, _ = c.Stable.GetUint64([]byte("CurrentTerm"))
	if stored, err := c.Snapshots.List(); err == nil && len(stored) > 0 {
		e.Snap = stored[0].Index
	}
	e.Index = max(last, e.Snap)
	e.From = e.Index
	if last > 0 {
		e.From = first - 1
	}
	for i := e.From + 1; i <= last; i++ {
		var l raft.Log
		if c.Log.GetLog(i, &l) == nil {
			e.Terms = append(e.Terms, l.Term)
		}
	}
	t.emit(e)
}

func termsOf(logs []*raft.Log) []uint64 {
	terms := make([]uint64, len(logs))
	for i, l := range logs {
		terms[i] = l.Term
	}
	return terms
}

// tracedDisk is the store beneath parallelLog.
type tracedDisk struct {
	raft.LogStore
	t *tracer
}

func (d *tracedDisk) IsMonotonic() bool {
	m, ok := d.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (d *tracedDisk) StoreLogs(logs []*raft.Log) error {
	err := d.LogStore.StoreLogs(logs)
	if err == nil {
		d.t.emit(TraceEvent{Kind: "sync", Index: logs[len(logs)-1].Index})
	}
	return err
}

// tracedLog is the log as raft sees it.
type tracedLog struct {
	*parallelLog
	t *tracer
}

func (l *tracedLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *tracedLog) StoreLogs(logs []*raft.Log) error {
	e := TraceEvent{Kind: "store", From: logs[0].Index - 1, Terms: termsOf(logs)}
	if leads := l.leads.Load(); leads != nil && (*leads)() {
		if logs[0].Type == raft.LogNoop {
			l.t.lead(logs[0].Term)
		}
		e.Kind = "append"
		l.t.emit(e)
		return l.parallelLog.StoreLogs(logs)
	}
	err := l.parallelLog.StoreLogs(logs)
	if err == nil {
		l.t.emit(e)
	}
	return err
}

func (l *tracedLog) DeleteRange(lo, hi uint64) error {
	err := l.parallelLog.DeleteRange(lo, hi)
	if err == nil {
		l.t.emit(TraceEvent{Kind: "delete", From: lo - 1, Index: hi})
	}
	return err
}

// tracedStable is the store of terms and votes.
type tracedStable struct {
	raft.StableStore
	t *tracer
}

func (s *tracedStable) SetUint64(key []byte, value uint64) error {
	err := s.StableStore.SetUint64(key, value)
	switch {
	case err != nil:
	case string(key) == "CurrentTerm":
		s.t.emit(TraceEvent{Kind: "term", Term: value})
	case string(key) == "LastVoteTerm":
		s.t.vote = value
	}
	return err
}

func (s *tracedStable) Set(key, value []byte) error {
	err := s.StableStore.Set(key, value)
	if err == nil && string(key) == "LastVoteCand" {
		s.t.emit(TraceEvent{Kind: "vote", Term: s.t.vote, Other: string(value)})
	}
	return err
}

// tracedMachine is the state machine as raft sees it.
type tracedMachine struct {
	*applier
	t *tracer
}

func (m *tracedMachine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

func (m *tracedMachine) ApplyBatch(logs []*raft.Log) []any {
	for _, l := range logs {
		m.t.emit(TraceEvent{Kind: "apply", Index: l.Index, Term: l.Term})
	}
	return m.applier.ApplyBatch(logs)
}

// tracedSnapshots is the store of snapshots.
type tracedSnapshots struct {
	raft.SnapshotStore
	t *tracer
}

func (s *tracedSnapshots) Create(
	v raft.SnapshotVersion, index, term uint64, c raft.Configuration, at uint64, t raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(v, index, term, c, at, t)
	if err != nil {
		return nil, err
	}
	return &tracedSink{sink, s.t, index, term}, nil
}

type tracedSink struct {
	raft.SnapshotSink
	t           *tracer
	index, term uint64
}

func (s *tracedSink) Close() error {
	err := s.SnapshotSink.Close()
	if err == nil {
		s.t.emit(TraceEvent{Kind: "snapshot", Index: s.index, Term: s.term})
	}
	return err
}

// tracedTransport is raft's transport.
type tracedTransport struct {
	*transport
	t *tracer
}

func (x *tracedTransport) AppendEntries(
	id raft.ServerID, a raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
) error {
	if isHeartbeat(args) || !x.isLeading(args.Term) {
		return x.transport.AppendEntries(id, a, args, resp)
	}
	x.sends(id, args)
	err := x.transport.AppendEntries(id, a, args, resp)
	if err == nil {
		x.acknowledged(id, args, resp)
	}
	return err
}

func (x *tracedTransport) AppendEntriesPipeline(id raft.ServerID, a raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := x.transport.AppendEntriesPipeline(id, a)
	if err != nil {
		return nil, err
	}
	p := &tracedPipeline{inner.(*pipeline), x, make(chan raft.AppendFuture)}
	go p.acknowledge()
	return p, nil
}

// tracedPipeline stands between raft and a pipeline.
type tracedPipeline struct {
	*pipeline
	x       *tracedTransport
	answers chan raft.AppendFuture
}

func (p *tracedPipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

func (p *tracedPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (
	raft.AppendFuture, error,
) {
	if p.isNear() {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	p.extend(args)
	if p.x.isLeading(args.Term) {
		p.x.sends(p.id, args)
	}
	return p.enqueue(args, resp)
}

func (p *tracedPipeline) acknowledge() {
	for {
		select {
		case f := <-p.pipeline.Consumer():
			p.x.acknowledged(p.id, f.Request(), f.Response())
			select {
			case p.answers <- f:
			case <-p.closed:
				return
			}
		case <-p.closed:
			return
		}
	}
}

func (x *tracedTransport) sends(id raft.ServerID, args *raft.AppendEntriesRequest) {
	x.t.lead(args.Term)
	x.t.emit(TraceEvent{
		Kind: "send", Other: string(id), Term: args.Term, From: args.PrevLogEntry, Prev: args.PrevLogTerm,
		Terms: termsOf(args.Entries), Index: args.LeaderCommitIndex,
	})
}

func (x *tracedTransport) acknowledged(
	id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
) {
	if n := len(args.Entries); resp.Success && n > 0 {
		x.t.emit(TraceEvent{Kind: "acknowledged", Other: string(id), Term: args.Term, Index: args.Entries[n-1].Index})
	}
}

func (x *tracedTransport) InstallSnapshot(
	id raft.ServerID, a raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse,
	data io.Reader,
) error {
	err := x.transport.InstallSnapshot(id, a, args, resp, data)
	if err == nil && resp.Success {
		x.t.emit(TraceEvent{Kind: "acknowledged", Other: string(id), Term: args.Term, Index: args.LastLogIndex})
	}
	return err
}

func (x *tracedTransport) RequestVote(
	id raft.ServerID, a raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse,
) error {
	x.t.emit(TraceEvent{Kind: "ask", Term: args.Term, Index: args.LastLogIndex, Prev: args.LastLogTerm})
	return x.transport.RequestVote(id, a, args, resp)
}
