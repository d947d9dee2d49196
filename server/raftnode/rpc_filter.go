package raftnode

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// rpcFilter stands between the other nodes and raft: rpcFilter hands raft their requests, one after
// the other, and changes or answers requests that raft would take wrongly.
type rpcFilter struct {
	requests chan raft.RPC // for raft
	log      *parallelLog
	// configurations says whether this node may lead.
	configurations *configurations
	raft           *raft.Raft // set before run and acceptAppends
	applier        *applier
	snapshots      raft.SnapshotStore
	// installing has room for one, which is taken while a snapshot is handed to raft, and while a request is judged by the
	// newest snapshot. It is no mutex, as to wait for one would stop virtual time while raft waits for a disk.
	installing chan struct{}
	// beats are heartbeats that were answered, for raft; there is room for one. Raft does not get those that come sooner
	// than beatEvery after its last contact: each round of reads makes one.
	beats     chan raft.RPC
	beatEvery time.Duration
	// campaigns is called with each node that asks for pre-votes. It must be quick.
	campaigns func(id raft.ServerID)
}

// run hands raft the other nodes' requests, in order, but for snapshots that come too late.
//
// Raft installs every snapshot that arrives. A snapshot may have been held up by a partition while
// the leader sent another, or come again because the acknowledgement was lost. Installed, a late
// snapshot would take the state machine back, until raft has applied the rest again. The leader
// gets the true answer: this node has all that the snapshot stands for.
func (f *rpcFilter) run(ctx context.Context, from <-chan raft.RPC) error {
	for {
		select {
		case rpc := <-from:
			if req, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok {
				f.install(ctx, rpc, req)
			} else {
				f.pass(ctx, rpc)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// install hands raft a snapshot that is not late, and answers a late one.
func (f *rpcFilter) install(ctx context.Context, rpc raft.RPC, req *raft.InstallSnapshotRequest) {
	if !f.beginInstalling(ctx) {
		return
	}
	late, err := f.late(ctx, req)
	if !late {
		f.hand(ctx, rpc)
		f.endInstalling()
		return
	}
	f.endInstalling()
	// The rest of the connection can be read only after the snapshot's bytes.
	if _, unread := io.Copy(io.Discard, rpc.Reader); err == nil {
		err = unread
	}
	rpc.Respond(&raft.InstallSnapshotResponse{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: f.raft.CurrentTerm(),
		Success: err == nil,
	}, err)
}

// beginInstalling takes installing until endInstalling, or returns false when ctx ends.
func (f *rpcFilter) beginInstalling(ctx context.Context) bool {
	select {
	case f.installing <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *rpcFilter) endInstalling() { <-f.installing }

// late reports whether raft has everything up to the snapshot's end: applied, or in the log. Raft refuses a
// snapshot of an older term without help. The error says that raft has applied another entry than the snapshot.
//
// Raft would go back to the snapshot's configuration, and stay there, although the log has another behind the
// snapshot's end that is in effect (paper, figure 13, step 6: what follows is retained).
func (f *rpcFilter) late(ctx context.Context, req *raft.InstallSnapshotRequest) (bool, error) {
	if f.raft.CurrentTerm() == 0 {
		return false, nil
	}
	f.drain(ctx)
	if req.Term < f.raft.CurrentTerm() {
		return false, nil
	}
	var end raft.Log
	has := f.log.GetLog(req.LastLogIndex, &end) == nil
	applied := f.raft.AppliedIndex()
	if req.LastLogIndex > applied {
		return has && end.Term == req.LastLogTerm && f.log.awaitWritten(end.Index) == nil, nil
	}
	if has && end.Term != req.LastLogTerm {
		return true, f.log.lost(end.Index, applied)
	}
	return true, nil
}

// errNoVote answers a nomination.
var errNoVote = errors.New("this node has no vote")

// drain returns when raft is through with all requests so far. Raft takes a request after finishing
// the request before, and refuses this last request, which is of no term.
func (f *rpcFilter) drain(ctx context.Context) {
	f.hand(ctx, raft.RPC{
		Command:  &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}},
		RespChan: make(chan raft.RPCResponse, 1),
	})
}

// pass gives a request to raft. Only heartbeats, which acknowledge nothing, do not come this way.
//
// Raft acknowledges entries found in the log, and a former leader's may still be on the way to the
// disk. Another leader's request speaks only of entries that were appended here before that leader
// was elected, and so before the request came. So the wait for everything appended by now is
// enough.
func (f *rpcFilter) pass(ctx context.Context, rpc raft.RPC) {
	var req *raft.AppendEntriesRequest
	switch command := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		req = command
	case *raft.TimeoutNowRequest:
		f.nominate(ctx, rpc)
		return
	case *raft.RequestPreVoteRequest:
		f.campaigns(raft.ServerID(command.ID))
		f.outlast(command.LastLogTerm, command.LastLogIndex)
		f.admitCandidate(&command.RPCHeader)
		f.hand(ctx, rpc)
		return
	case *raft.RequestVoteRequest:
		f.admitCandidate(&command.RPCHeader)
		f.hand(ctx, rpc)
		return
	default:
		f.hand(ctx, rpc)
		return
	}
	if err := f.log.flush(); err != nil {
		rpc.Respond(nil, err)
		return
	}
	// What follows the request's entries in this log may be another leader's, but the commit index
	// speaks of this leader's entries (paper, figure 2, AppendEntries, step 5). Raft takes the end
	// of the log for the end of the entries.
	req.LeaderCommitIndex = commitOf(req)
	// A request from the first entry on has nothing before its entries, and raft looks for these in the log.
	from := req.PrevLogEntry
	if from == 0 && len(req.Entries) > 0 {
		from = 1
	}
	if from == 0 || f.log.reaches(from) {
		f.hand(ctx, rpc)
		return
	}
	if !f.beginInstalling(ctx) { // the snapshot stays the newest that raft has installed until raft has the request
		return
	}
	defer f.endInstalling()
	f.drain(ctx)
	if err := f.judge(req); err != nil {
		rpc.Respond(nil, err)
		return
	}
	f.hand(ctx, rpc)
}

// judge compares a request from before the log with the newest snapshot.
func (f *rpcFilter) judge(req *raft.AppendEntriesRequest) error {
	end, err := f.snapshotEnd()
	if err != nil || end == nil {
		return err
	}
	if err := f.log.contradicted(req, end, f.raft.CurrentTerm()); err != nil {
		return err
	}
	afterSnapshot(req, end.Index)
	return nil
}

// outlast notes that a node in quarantine has more in its log than a candidate, which cannot be elected without it.
func (f *rpcFilter) outlast(term, last uint64) {
	var end raft.Log
	if !f.applier.quarantine.on() || f.log.GetLog(f.raft.LastIndex(), &end) != nil {
		return
	}
	if end.Term > term || end.Term == term && end.Index > last {
		now := time.Now()
		f.applier.quarantine.needed.Store(&now)
	}
}

// admitCandidate has raft judge a candidate by its log alone. This node's configuration does not count: a newer one may
// be in the candidate's log (Ongaro's thesis, section 4.1). Raft refuses the ID of a node without a vote, and uses the
// ID for nothing else. So a request with such an ID gets the ID of a voter.
func (f *rpcFilter) admitCandidate(from *raft.RPCHeader) {
	conf := f.configurations.view()
	if conf.IsVoter(string(from.ID)) {
		return
	}
	for _, m := range conf.Members {
		if m.Voter {
			from.ID = []byte(m.ID)
			return
		}
	}
}

// nominate has raft stand for election if this node has a vote, and is not in quarantine.
func (f *rpcFilter) nominate(ctx context.Context, rpc raft.RPC) {
	if !f.configurations.view().voter {
		rpc.Respond(nil, errNoVote)
		return
	}
	if f.applier.quarantine.on() {
		rpc.Respond(nil, ErrQuarantined)
		return
	}
	f.hand(ctx, rpc)
}

func (f *rpcFilter) hand(ctx context.Context, rpc raft.RPC) {
	select {
	case f.requests <- rpc:
	case <-ctx.Done():
	}
}

// snapshotEnd is the newest snapshot, if the state machine has all the snapshot's entries; else nil.
func (f *rpcFilter) snapshotEnd() (*raft.SnapshotMeta, error) {
	stored, err := f.snapshots.List()
	if err != nil || len(stored) == 0 || stored[0].Index > f.raft.AppliedIndex() {
		return nil, err
	}
	return stored[0], nil
}

// afterSnapshot changes a request that goes on from an entry which only the snapshot has: raft
// could not compare that entry with the leader's.
//
// The logs agree up to end. A snapshot stands for committed entries, and every later leader has
// them. So the entries up to end are left out, and raft gets a request that begins where the log
// begins. Otherwise raft would refuse the request; the leader would go back to an own snapshot,
// which is late here; and so on for ever, if an entry follows the snapshot's end that this leader
// does not have.
func afterSnapshot(req *raft.AppendEntriesRequest, end uint64) {
	if req.PrevLogEntry > end {
		return
	}
	known := min(end-req.PrevLogEntry, uint64(len(req.Entries)))
	req.Entries = req.Entries[known:]
	req.PrevLogEntry, req.PrevLogTerm = 0, 0
}

// acceptAppends takes other nodes' connections until ctx ends.
func (f *rpcFilter) acceptAppends(ctx context.Context, from net.Listener) error {
	return wire.Accept(ctx, from, func(ctx context.Context, conn net.Conn) {
		_ = f.serveAppends(ctx, conn) // that the other node is gone is told where the node is missed
	})
}

// serveAppends answers the requests of a connection.
func (f *rpcFilter) serveAppends(ctx context.Context, conn net.Conn) error {
	br := bufio.NewReaderSize(conn, 64<<10)
	answers := make(chan raft.RPCResponse, 1)
	var out []byte
	for {
		// Entries stay in the frame: each frame has memory of its own.
		frame, err := wire.Read(br, nil, maxAppendFrame)
		if err != nil {
			return err
		}
		req, err := decodeAppend(frame)
		if err != nil {
			return err
		}
		f.handle(ctx, req, answers)
		select {
		case answer := <-answers:
			out = appendAppended(append(out[:0], make([]byte, wire.Head)...), answer)
		case <-ctx.Done():
			return nil
		}
		if _, err := conn.Write(wire.Seal(out)); err != nil {
			return err
		}
	}
}

// handle gives a request to raft. Raft may be busy with a snapshot, or wait for a disk. So a heartbeat of the leader
// that this node follows is answered at once, and raft notes the time of contact later.
//
// Raft would handle heartbeats on a goroutine beside its main loop, and so change its term and role while the main loop
// goes on in the former ones: a leader then writes an entry in its successor's term (hashicorp/raft#695).
func (f *rpcFilter) handle(ctx context.Context, req *raft.AppendEntriesRequest, answers chan raft.RPCResponse) {
	rpc := raft.RPC{Command: req, RespChan: answers}
	switch {
	case !isHeartbeat(req):
		f.pass(ctx, rpc)
	case f.follows(req.Term):
		rpc.Respond(&raft.AppendEntriesResponse{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: req.Term,
			LastLog: f.raft.LastIndex(), Success: true,
		}, nil)
		if time.Since(f.raft.LastContact()) < f.beatEvery {
			return
		}
		answered := raft.RPC{Command: req, RespChan: make(chan raft.RPCResponse, 1)}
		select {
		case f.beats <- answered:
		default: // raft has not taken the one before
		}
	default:
		f.hand(ctx, rpc)
	}
}

// follows reports whether this node is a follower in term, and so of the leader of that term.
func (f *rpcFilter) follows(term uint64) bool {
	return f.raft.State() == raft.Follower && f.raft.CurrentTerm() == term
}

// beat hands raft the heartbeats that were answered.
func (f *rpcFilter) beat(ctx context.Context) error {
	for {
		select {
		case rpc := <-f.beats:
			f.hand(ctx, rpc)
		case <-ctx.Done():
			return nil
		}
	}
}

// isHeartbeat tells raft's heartbeats from raft's replication.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}
