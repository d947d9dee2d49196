package protocol

import (
	"encoding/binary"
	"strconv"
)

// Head is what a request says beside the command's words. The zero Head is of a command at database 0 that a node sends.
type Head struct {
	DB int
	// Conn is the node's number of the client's connection, which no other connection of this incarnation of the node has;
	// 0: not told.
	Conn int64
	// User is the user of a script or of a lock command, if the user may not do everything: sessions are their users'.
	User string
	// Rights are what the user may do, of a command whose [Reach] is judged by rights; empty: everything. The reply to a
	// script with rights is [Judged].
	Rights string
	// Ticket is the node's name for a request that may wait; 0: the request must not wait. If it waits the reply is
	// [Parked], or 0 with NOTIFY, and the reply of the command itself comes later, as an event of the state machine.
	Ticket uint64
	// Lock: a lock command. The fields below are for these alone.
	Lock bool
	// GraceMillis is how long a place in a queue is kept for a client whose wait ended by time-out.
	GraceMillis int64
	// Address and Name are the client's, for the history of locks; empty: not told. Neither has a blank.
	Address, Name string
}

// AppendRequest appends a command to a batch's body. A command that may wait is an argument of the request
// "wait-for-key", a lock command one of the request "lock-command". Requires: name is in lower case.
func AppendRequest(body []byte, h Head, name string, args [][]byte) []byte {
	conn, words := uint64(max(0, h.Conn)), len(args)+1
	marks := uint64(h.DB)
	switch {
	case h.Lock:
		words += 4
	case h.Ticket != 0:
		words += 2
	}
	if conn != 0 && !h.Lock {
		marks |= fromConn
	}
	if h.User != "" || h.Rights != "" {
		marks |= withUser
	}
	body = binary.AppendUvarint(body, marks)
	if marks&fromConn != 0 {
		body = binary.AppendUvarint(body, conn)
	}
	if marks&withUser != 0 {
		body = appendString(appendString(body, h.User), h.Rights)
	}
	body = binary.AppendUvarint(body, uint64(words))
	switch {
	case h.Lock:
		body = appendString(body, "lock-command")
		if h.Address == "" {
			body = appendDecimal(body, conn)
		} else {
			body = appendString(body, strconv.FormatUint(conn, 10)+" "+h.Address+" "+h.Name)
		}
		body = appendDecimal(appendDecimal(body, h.Ticket), uint64(max(0, h.GraceMillis)))
	case h.Ticket != 0:
		body = appendDecimal(appendString(body, "wait-for-key"), h.Ticket)
	}
	body = appendString(body, name)
	for _, arg := range args {
		body = append(binary.AppendUvarint(body, uint64(len(arg))), arg...)
	}
	return body
}

// appendDecimal appends a number as a word.
func appendDecimal(body []byte, n uint64) []byte {
	var room [20]byte
	digits := strconv.AppendUint(room[:0], n, 10)
	return append(binary.AppendUvarint(body, uint64(len(digits))), digits...)
}

// Requests about native locks, which only nodes write.

// AppendNodeKeepalive appends the request that renews all sessions that live with connections of this life of the
// node.
func AppendNodeKeepalive(body []byte) []byte {
	return AppendRequest(body, Head{}, "node-keepalive", nil)
}

// AppendEndConnections appends the request that ends what lives with connections of this node that have closed:
// sessions, and places in queues. The reply is the number of sessions.
func AppendEndConnections(body []byte, conns ...int64) []byte {
	words := make([][]byte, len(conns))
	for i, conn := range conns {
		words[i] = strconv.AppendInt(nil, conn, 10)
	}
	return AppendRequest(body, Head{}, "end-connections", words)
}

// Hold names a hold that a client of this node was granted while it waited.
type Hold struct {
	DB         int
	Key, Owner string
	Fence      int64
	Conn       int64
}

// AppendReturnGrant appends the request that a hold ends since its client had gone before it heard of the grant.
// The reply is 1, or 0 if the hold is no more, or if the owner has asked again from elsewhere.
func AppendReturnGrant(body []byte, h Hold) []byte {
	return AppendRequest(body, Head{DB: h.DB}, "return-grant", [][]byte{
		[]byte(h.Key), []byte(h.Owner), strconv.AppendInt(nil, h.Fence, 10), strconv.AppendInt(nil, h.Conn, 10),
	})
}

// Quota is what a user may have in the state. A limit of 0 is none. The quota travels with each request of the user, so
// that all nodes judge alike, whatever their files say. A user without a quota has none in the log either.
//
// In front of the request stand:
//
//	uvarint 64
//	bytes   user
//	uvarint keys, bytes, waiters
type Quota struct {
	User string
	// Keys and Bytes are for the keys that the user created, Waiters for requests that wait for keys and locks.
	Keys, Bytes, Waiters uint64
}

// MaxUser is the longest name of a user, in bytes.
const MaxUser = 256

// ofUser stands where a request has its database, and says that a quota stands before it.
const ofUser = 4 * MaxDatabases

// AppendQuota appends the quota of the request that is appended next.
func AppendQuota(body []byte, q *Quota) []byte {
	body = appendString(append(body, ofUser), q.User)
	body = binary.AppendUvarint(body, q.Keys)
	body = binary.AppendUvarint(body, q.Bytes)
	return binary.AppendUvarint(body, q.Waiters)
}

// cutQuota takes a quota from the front of a body, behind ofUser.
func cutQuota[T string | []byte](body T) (q Quota, rest T, ok bool) {
	user, rest, ok := str(body)
	if !ok || len(user) == 0 || len(user) > MaxUser {
		return q, rest, false
	}
	q.User = string(user)
	for _, limit := range [...]*uint64{&q.Keys, &q.Bytes, &q.Waiters} {
		if *limit, rest, ok = uvarint(rest); !ok {
			return q, rest, false
		}
	}
	return q, rest, true
}
