package replica

import (
	"context"
	"io"

	"github.com/hashicorp/raft"
)

// relay hands raft what other nodes ask of it, in order, but for snapshots that
// come too late.
//
// Raft installs whatever snapshot it is sent. One that a partition held up while
// the leader sent another, or one whose acknowledgement was lost, so takes the
// state machine back to what it was, until raft has applied the rest again.
// The leader is told what is true: this node has all that the snapshot stands for.
func (t *transport) relay(ctx context.Context, r *raft.Raft) error {
	for {
		select {
		case rpc := <-t.inner.Consumer():
			if req, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok && t.late(ctx, r, req) {
				// The rest of the connection can be read only after the snapshot's bytes.
				_, err := io.Copy(io.Discard, rpc.Reader)
				rpc.Respond(&raft.InstallSnapshotResponse{
					RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: r.CurrentTerm(), Success: err == nil,
				}, err)
				continue
			}
			t.pass(ctx, rpc)
		case <-ctx.Done():
			return nil
		}
	}
}

// late reports whether raft has applied everything up to the snapshot's end.
// One of an older term raft refuses itself.
func (t *transport) late(ctx context.Context, r *raft.Raft, req *raft.InstallSnapshotRequest) bool {
	if r.CurrentTerm() == 0 {
		return false
	}
	// Raft takes a request when it is through with the one before. So once it has taken this
	// one, which it refuses as it is of no term, all that came before the snapshot counts.
	t.pass(ctx, raft.RPC{
		Command:  &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}},
		RespChan: make(chan raft.RPCResponse, 1),
	})
	return req.Term >= r.CurrentTerm() && req.LastLogIndex <= r.AppliedIndex()
}

// pass gives one request to raft. Heartbeats alone do not come this way, and these
// acknowledge nothing.
//
// Raft acknowledges entries that it finds in its log, and those of a former leader may
// be on the way to the disk still. Another leader's request can speak of such
// entries alone as were appended here before that leader was elected, so
// before the request came: to wait for what has been appended by now is enough.
func (t *transport) pass(ctx context.Context, rpc raft.RPC) {
	if _, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
		if err := t.log.settle(); err != nil {
			rpc.Respond(nil, err)
			return
		}
	}
	select {
	case t.requests <- rpc:
	case <-ctx.Done():
	}
}
