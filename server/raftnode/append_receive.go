package raftnode

import (
	"bufio"
	"context"
	"net"
	"sync"
	"sync/atomic"

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

// heartbeats lets heartbeats be handled until close. They are handled on the connections'
// goroutines, and raft's shutdown does not wait for these: a late heartbeat could write to a closed
// store, and panic.
type heartbeats struct {
	handler atomic.Pointer[func(raft.RPC)] // raft's
	// handling is held by heartbeats that are being handled.
	handling    sync.RWMutex
	closed      bool
	nominations int // that raft may not be through with
}

// handle reports whether the heartbeat was handled. Else raft takes it as any other request.
func (h *heartbeats) handle(rpc raft.RPC) bool {
	handler := h.handler.Load()
	if handler == nil {
		return false
	}
	h.handling.RLock()
	defer h.handling.RUnlock()
	switch {
	case h.closed:
		rpc.Respond(nil, raft.ErrTransportShutdown)
	case h.nominations > 0:
		return false
	default:
		(*handler)(rpc)
	}
	return true
}

// nominating returns when no heartbeat is being handled, and handles none while the sum is above 0.
func (h *heartbeats) nominating(more int) {
	h.handling.Lock()
	defer h.handling.Unlock()
	h.nominations += more
}

// close returns when no heartbeat is being handled, and lets none in.
func (h *heartbeats) close() {
	h.handling.Lock()
	defer h.handling.Unlock()
	h.closed = true
}
