package protocol

import (
	"encoding/binary"
	"strconv"
)

// Head has what a request contains beside the command's words. The zero Head is that of a command for database 0 that a
// node sends itself.
type Head struct {
	DB int
	// Conn is the number of the client's connection, unique in this incarnation of the node, or 0 if the log needs none.
	Conn int64
	// User is the user of a script or of a lock command, since sessions belong to users. It is empty for a user who may do
	// everything.
	User string
	// Rights has the rights of the user, if the command's [Reach] is judged by rights. It is empty for a user who may do
	// everything. The reply to a script with rights is [Judged].
	Rights string
	// Ticket is the node's name for a request that may wait, or 0 if it must not. If it waits, the reply is [Parked], or 0
	// with NOTIFY, and the reply of the command comes later, as an event of the state machine.
	Ticket uint64
	// Lock is set for a lock command. The fields below are only for these.
	Lock bool
	// GraceMillis is the time for which a client whose wait has timed out keeps its place in the queue.
	GraceMillis int64
	// Address and Name are those of the client, for the history of locks, or empty. Neither has a blank.
	Address, Name string
}

// AppendRequest appends a command to a batch's body. It wraps a command that may wait in a request "wait-for-key", and
// a lock command in a request "lock-command". Requires: name is in lower case.
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

// Requests about native locks that only nodes write.

// AppendNodeKeepalive appends the request that renews all sessions that are attached to connections of this incarnation
// of the node.
func AppendNodeKeepalive(body []byte) []byte {
	return AppendRequest(body, Head{}, "node-keepalive", nil)
}

// AppendEndConnections appends the request that ends the sessions and the waits of closed connections of this node. The
// reply is the number of sessions.
func AppendEndConnections(body []byte, conns ...int64) []byte {
	words := make([][]byte, len(conns))
	for i, conn := range conns {
		words[i] = strconv.AppendInt(nil, conn, 10)
	}
	return AppendRequest(body, Head{}, "end-connections", words)
}

// Hold identifies a hold that was granted to a client of this node after a wait.
type Hold struct {
	DB         int
	Key, Owner string
	Fence      int64
	Conn       int64
}

// AppendReturnGrant appends the request that releases a hold whose client had disconnected before it got the grant. The
// reply is 1, or 0 if the hold has ended, or if the owner has repeated the request from elsewhere.
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
	// Keys and Bytes limit the keys that the user has created, Waiters the requests that wait for keys and locks.
	Keys, Bytes, Waiters uint64
}

// MaxUser bounds the bytes of a user's name.
const MaxUser = 256

// ofUser replaces the database of a request, and marks a quota before the request.
const ofUser = 4 * MaxDatabases

// AppendQuota appends a quota for the request that is appended next.
func AppendQuota(body []byte, q *Quota) []byte {
	body = appendString(append(body, ofUser), q.User)
	body = binary.AppendUvarint(body, q.Keys)
	body = binary.AppendUvarint(body, q.Bytes)
	return binary.AppendUvarint(body, q.Waiters)
}

// cutQuota decodes a quota at the beginning of a body, after ofUser.
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
