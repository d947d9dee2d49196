package raftnode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// The append stream: one frame (package wire) for each request, and one for its answer.
//
//	request  protocol version, bytes id, bytes address of the leader, term, previous index, its term,
//	         commit index, count, (index, term, type, nanoseconds of Unix time or 0, bytes data, bytes extensions)*
//	answer   protocol version, term, last index, flags, bytes error

const (
	flagSuccess uint64 = 1 << iota
	flagNoRetryBackoff
)

func appendAppend(dst []byte, req *raft.AppendEntriesRequest) []byte {
	dst = binary.AppendUvarint(dst, uint64(req.ProtocolVersion))
	dst = wire.AppendBytes(wire.AppendBytes(dst, req.ID), req.Addr)
	for _, n := range []uint64{
		req.Term, req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex,
		uint64(len(req.Entries)),
	} {
		dst = binary.AppendUvarint(dst, n)
	}
	for _, e := range req.Entries {
		dst = binary.AppendUvarint(dst, e.Index)
		dst = binary.AppendUvarint(dst, e.Term)
		dst = binary.AppendUvarint(dst, uint64(e.Type))
		var at uint64
		if !e.AppendedAt.IsZero() {
			at = uint64(e.AppendedAt.UnixNano())
		}
		dst = binary.AppendUvarint(dst, at)
		dst = wire.AppendBytes(wire.AppendBytes(dst, e.Data), e.Extensions)
	}
	return dst
}

// decodeAppend decodes a request. Entries share memory with the frame, unless it is large and they are a small part of it:
// a few recent entries would hold as many frames.
func decodeAppend(frame []byte) (*raft.AppendEntriesRequest, error) {
	f := wire.Fields[[]byte]{Rest: frame}
	req := &raft.AppendEntriesRequest{}
	req.ProtocolVersion = raft.ProtocolVersion(f.Number())
	req.ID, req.Addr = f.Bytes(), f.Bytes()
	req.Term, req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex = f.Number(), f.Number(), f.Number(), f.Number()
	n := f.Number()
	if n > uint64(len(f.Rest)) { // each takes more than a byte
		return nil, fmt.Errorf("%w: count of entries", wire.ErrCorrupt)
	}
	if n > 0 {
		entries := make([]raft.Log, n)
		req.Entries = make([]*raft.Log, n)
		for i := range entries {
			e := &entries[i]
			e.Index, e.Term, e.Type = f.Number(), f.Number(), raft.LogType(f.Number())
			if at := f.Number(); at != 0 {
				e.AppendedAt = time.Unix(0, int64(at))
			}
			e.Data, e.Extensions = f.Bytes(), f.Bytes()
			if len(frame) > wire.Step && len(e.Data) < len(frame)/2 {
				e.Data, e.Extensions = bytes.Clone(e.Data), bytes.Clone(e.Extensions)
			}
			req.Entries[i] = e
		}
	}
	if f.Err == nil && len(f.Rest) > 0 {
		f.Err = fmt.Errorf("%w: request", wire.ErrCorrupt)
	}
	return req, f.Err
}

func appendAppended(dst []byte, answer raft.RPCResponse) []byte {
	resp, ok := answer.Response.(*raft.AppendEntriesResponse)
	if !ok || resp == nil {
		resp = &raft.AppendEntriesResponse{}
	}
	var flags uint64
	if resp.Success {
		flags |= flagSuccess
	}
	if resp.NoRetryBackoff {
		flags |= flagNoRetryBackoff
	}
	for _, n := range []uint64{uint64(resp.ProtocolVersion), resp.Term, resp.LastLog, flags} {
		dst = binary.AppendUvarint(dst, n)
	}
	var text string
	if answer.Error != nil {
		text = answer.Error.Error()
	}
	return wire.AppendBytes(dst, text)
}

// decodeAppended decodes an answer. The error is wire.ErrCorrupt, or the one that the other node reported.
func decodeAppended(frame []byte, resp *raft.AppendEntriesResponse) error {
	f := wire.Fields[[]byte]{Rest: frame}
	resp.ProtocolVersion = raft.ProtocolVersion(f.Number())
	resp.Term, resp.LastLog = f.Number(), f.Number()
	flags, text := f.Number(), f.Bytes()
	resp.Success, resp.NoRetryBackoff = flags&flagSuccess != 0, flags&flagNoRetryBackoff != 0
	switch {
	case f.Err != nil:
		return f.Err
	case len(f.Rest) > 0:
		return fmt.Errorf("%w: answer", wire.ErrCorrupt)
	case len(text) > 0:
		return errors.New(string(text))
	}
	return nil
}

const (
	// maxAppendFrame bounds a received request: maxAppend entries, each of the largest batch. Memory is allocated only
	// for bytes that have arrived.
	maxAppendFrame = maxAppend * (maxEntry + wire.Step)
	// maxEntry is the approximate size of the largest entry, a single batch.
	maxEntry = 32 << 20
	// appendGather bounds the bytes of a request's entries. A larger entry is sent alone.
	appendGather = 8 << 20
)

// commitOf returns the index up to which a follower that accepts args may consider its log committed.
func commitOf(args *raft.AppendEntriesRequest) uint64 {
	return min(args.LeaderCommitIndex, args.PrevLogEntry+uint64(len(args.Entries)))
}
