package protocol

import (
	"strconv"
)

// Requests about native locks, which only nodes write. A connection's number is the node's name for the
// connection, which no other connection of this life of the node has.

// Caller is the connection that sends a lock command.
type Caller struct {
	Conn int64
	// Ticket is the node's name for the request if the request may wait, else 0.
	Ticket uint64
	// GraceMillis is how long a place in a queue is kept for a client whose wait ended by time-out.
	GraceMillis int64
	// Address and Name are the client's, for the history of locks; empty: not told. Before version 6 of the entry they
	// must be. Neither has a blank.
	Address, Name string
	// Rights are what the user may do, of commands about a session; empty: everything, or another command. From version
	// 6 on.
	Rights string
}

// AppendAlive appends the request that renews all sessions that live with connections of this life of the
// node.
func AppendAlive(body []byte) []byte { return AppendRequest(body, 0, "alive", nil) }

// AppendGone appends the request that ends what lives with connections of this node that have closed:
// sessions, and places in queues. The reply is the number of sessions.
func AppendGone(body []byte, conns ...int64) []byte {
	words := make([][]byte, len(conns))
	for i, conn := range conns {
		words[i] = strconv.AppendInt(nil, conn, 10)
	}
	return AppendRequest(body, 0, "gone", words)
}

// Hold names a hold that a client of this node was granted while it waited.
type Hold struct {
	DB         int
	Key, Owner string
	Fence      int64
	Conn       int64
}

// AppendGiveBack appends the request that a hold ends since its client had gone before it heard of the grant.
// The reply is 1, or 0 if the hold is no more, or if the owner has asked again from elsewhere.
func AppendGiveBack(body []byte, h Hold) []byte {
	return AppendRequest(body, h.DB, "giveback", [][]byte{
		[]byte(h.Key), []byte(h.Owner), strconv.AppendInt(nil, h.Fence, 10), strconv.AppendInt(nil, h.Conn, 10),
	})
}
