package replica

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

func anAppend() *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n1"), Addr: []byte("n1:7379")},
		Term:      7, PrevLogEntry: 1 << 40, PrevLogTerm: 6, LeaderCommitIndex: 300,
		Entries: []*raft.Log{
			{Index: 1<<40 + 1, Term: 7, Type: raft.LogNoop, Data: []byte{}, Extensions: []byte{}},
			{Index: 1<<40 + 2, Term: 7, Type: raft.LogCommand, Data: bytes.Repeat([]byte("x"), 300), Extensions: []byte{7}, AppendedAt: time.Unix(1700000000, 5)},
		},
	}
}

func TestAppendFrames(t *testing.T) {
	for _, req := range []*raft.AppendEntriesRequest{
		anAppend(),
		{RPCHeader: raft.RPCHeader{ID: []byte("n1"), Addr: []byte("a")}, Term: 1},
	} {
		read, err := decodeAppend(appendAppend(nil, req))
		require.NoError(t, err)
		require.Equal(t, req, read)
	}
	for _, answer := range []raft.RPCResponse{
		{Response: &raft.AppendEntriesResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: 3}, Term: 7, LastLog: 400, Success: true}},
		{Response: &raft.AppendEntriesResponse{Term: 8, NoRetryBackoff: true}},
		{Response: &raft.AppendEntriesResponse{Term: 8}, Error: errors.New("no")},
	} {
		var read raft.AppendEntriesResponse
		err := decodeAppended(appendAppended(nil, answer), &read)
		require.Equal(t, answer.Response, &read)
		require.Equal(t, answer.Error, err)
	}
	var read raft.AppendEntriesResponse
	require.EqualError(t, decodeAppended(appendAppended(nil, raft.RPCResponse{Error: errors.New("closed")}), &read), "closed")
}

// What is cut short or goes on too long is an error, wherever.
func TestBrokenAppendFrames(t *testing.T) {
	whole := appendAppend(nil, anAppend())
	for n := range whole {
		_, err := decodeAppend(whole[:n])
		require.ErrorIs(t, err, errFrame, "%d bytes", n)
	}
	_, err := decodeAppend(append(whole, 0))
	require.ErrorIs(t, err, errFrame)
	answer := appendAppended(nil, raft.RPCResponse{Response: &raft.AppendEntriesResponse{Success: true}})
	var read raft.AppendEntriesResponse
	for n := range answer {
		require.ErrorIs(t, decodeAppended(answer[:n], &read), errFrame, "%d bytes", n)
	}
	require.ErrorIs(t, decodeAppended(append(answer, 0), &read), errFrame)
}

func FuzzAppendFrames(f *testing.F) {
	f.Add(appendAppend(nil, anAppend()))
	f.Fuzz(func(t *testing.T, frame []byte) {
		req, err := decodeAppend(frame)
		if err != nil {
			return
		}
		again, err := decodeAppend(appendAppend(nil, req))
		require.NoError(t, err)
		require.Equal(t, req, again)
	})
}
