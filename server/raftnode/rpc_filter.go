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

// rpcFilter passes other nodes' requests to raft, one at a time. It changes or answers requests that raft would handle
// incorrectly.
type rpcFilter struct {
	requests chan raft.RPC // raft receives from it
	log      *parallelLog
	// configurations tells whether this node has a vote.
	configurations *configurations
	raft           *raft.Raft // set before run and acceptAppends
	applier        *applier
	snapshots      raft.SnapshotStore
	// installing is a semaphore, held while a snapshot is passed to raft and while a request is compared with the
	// newest snapshot. Waiting for a mutex instead would stop virtual time while raft waits for a disk.
	installing chan struct{}
	// beats passes heartbeats that were answered to raft, one at a time. Those within beatEvery of raft's last contact
	// are dropped, since each round of reads causes one.
	beats     chan raft.RPC
	beatEvery time.Duration
	// campaigns is called with each node that requests pre-votes. It must not block.
	campaigns func(id raft.ServerID)
}

// run passes other nodes' requests to raft in order, except late snapshots.
//
// Raft installs every snapshot that arrives. One that a partition delayed, or that is resent because the
// acknowledgement was lost, would set the state machine back until raft has applied the later entries again. Such a
// snapshot is acknowledged without being installed, since this node has all its entries.
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

// install passes raft a snapshot that is not late, and acknowledges a late one.
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
	// The snapshot's bytes precede the next request on the connection.
	if _, unread := io.Copy(io.Discard, rpc.Reader); err == nil {
		err = unread
	}
	rpc.Respond(&raft.InstallSnapshotResponse{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: f.raft.CurrentTerm(),
		Success: err == nil,
	}, err)
}

// beginInstalling acquires installing until endInstalling, or returns false if ctx ends first.
func (f *rpcFilter) beginInstalling(ctx context.Context) bool {
	select {
	case f.installing <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *rpcFilter) endInstalling() { <-f.installing }

// late reports whether this node has every entry of the snapshot, applied or in the log. It returns an error if the
// node has applied another entry at the snapshot's end. A snapshot of an older term is left to raft, which refuses it.
//
// If raft installed a snapshot that ends within the log, it would return to the snapshot's configuration for good,
// although a later one in the log is in effect (paper, figure 13, step 6: later entries are retained).
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

// errNoVote is the answer to a nomination of a node without a vote.
var errNoVote = errors.New("this node has no vote")

// drain waits until raft has handled all earlier requests. It passes raft a request of term 0, which raft accepts after
// finishing the previous one, and refuses.
func (f *rpcFilter) drain(ctx context.Context) {
	f.hand(ctx, raft.RPC{
		Command:  &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}},
		RespChan: make(chan raft.RPCResponse, 1),
	})
}

// pass passes a request to raft, once it is safe. Heartbeats, which acknowledge no entry, do not need it.
//
// Raft acknowledges entries that it finds in the log, and those of a former leader may not be on the disk yet. They
// were appended before the new leader was elected, so it suffices to wait for everything appended by now.
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
		f.noteCandidateBehind(command.LastLogTerm, command.LastLogIndex)
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
	// The commit index is valid only up to the request's entries, since later ones in this log may be another leader's
	// (paper, figure 2, AppendEntries, step 5). Raft would use it up to the end of the log.
	req.LeaderCommitIndex = commitOf(req)
	// A request that begins with the first entry has no previous entry.
	from := req.PrevLogEntry
	if from == 0 && len(req.Entries) > 0 {
		from = 1
	}
	if from == 0 || f.log.reaches(from) {
		f.hand(ctx, rpc)
		return
	}
	if !f.beginInstalling(ctx) { // no other snapshot is installed until raft has the request
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

// judge compares a request whose previous entry precedes the log with the newest snapshot.
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

// noteCandidateBehind records in quarantine that a candidate's log is behind this node's.
func (f *rpcFilter) noteCandidateBehind(term, last uint64) {
	var end raft.Log
	if !f.applier.quarantine.on() || f.log.GetLog(f.raft.LastIndex(), &end) != nil {
		return
	}
	if end.Term > term || end.Term == term && end.Index > last {
		now := time.Now()
		f.applier.quarantine.needed.Store(&now)
	}
}

// admitCandidate makes raft judge a candidate by its log alone. Raft refuses a candidate that has no vote in this
// node's configuration, although the candidate's log may have a newer one (Ongaro's thesis, section 4.1). Raft uses the
// ID for nothing else, so the request gets the ID of a voter.
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

// nominate passes raft a request to start an election, if this node has a vote and is not in quarantine.
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

// snapshotEnd returns the newest snapshot, or nil if the state machine lacks entries of it.
func (f *rpcFilter) snapshotEnd() (*raft.SnapshotMeta, error) {
	stored, err := f.snapshots.List()
	if err != nil || len(stored) == 0 || stored[0].Index > f.raft.AppliedIndex() {
		return nil, err
	}
	return stored[0], nil
}

// afterSnapshot changes a request whose previous entry only the snapshot has, so that raft cannot compare it: it
// removes the entries up to end, the snapshot's last, so that the request begins where the log begins.
//
// That is safe, since the entries of a snapshot are committed and every later leader has them. Otherwise raft would
// refuse the request, and the leader would send its own snapshot, which is late here, again and again if an entry
// behind the snapshot's end is not the leader's.
func afterSnapshot(req *raft.AppendEntriesRequest, end uint64) {
	if req.PrevLogEntry > end {
		return
	}
	known := min(end-req.PrevLogEntry, uint64(len(req.Entries)))
	req.Entries = req.Entries[known:]
	req.PrevLogEntry, req.PrevLogTerm = 0, 0
}

// acceptAppends accepts and serves other nodes' connections until ctx ends.
func (f *rpcFilter) acceptAppends(ctx context.Context, from net.Listener) error {
	return wire.Accept(ctx, from, func(ctx context.Context, conn net.Conn) {
		_ = f.serveAppends(ctx, conn) // a missing node is reported elsewhere
	})
}

// serveAppends answers the requests of a connection.
func (f *rpcFilter) serveAppends(ctx context.Context, conn net.Conn) error {
	br := bufio.NewReaderSize(conn, 64<<10)
	answers := make(chan raft.RPCResponse, 1)
	var out []byte
	for {
		// Each frame needs its own memory, which its entries share.
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

// handle passes a request to raft. A heartbeat of the leader that this node follows is answered at once instead, and
// raft records the contact later, since raft may be busy with a snapshot or wait for a disk.
//
// Raft's own fast path for heartbeats is not used. It changes raft's term and role outside the main loop, so that a
// leader may write an entry in its successor's term (hashicorp/raft#695).
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
		default: // raft has not received the previous one
		}
	default:
		f.hand(ctx, rpc)
	}
}

// follows reports whether this node is a follower in term.
func (f *rpcFilter) follows(term uint64) bool {
	return f.raft.State() == raft.Follower && f.raft.CurrentTerm() == term
}

// beat passes answered heartbeats to raft until ctx ends.
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

// isHeartbeat reports whether req is one of raft's heartbeats, which acknowledge no entries.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}
