package raftnode

import (
	"bufio"
	"context"
	"net"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/peer/wire"
)

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

// handle gives a request to raft. A heartbeat is handled at once, so as not to wait for a disk.
func (f *rpcFilter) handle(ctx context.Context, req *raft.AppendEntriesRequest, answers chan raft.RPCResponse) {
	rpc := raft.RPC{Command: req, RespChan: answers}
	if isHeartbeat(req) && f.heartbeats.handle(rpc) {
		return
	}
	f.pass(ctx, rpc)
}

// isHeartbeat tells raft's heartbeats from raft's replication.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}
