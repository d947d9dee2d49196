package protocol

import (
	"encoding/binary"
	"strconv"
)

// A command of a client becomes a request of a batch's body in one of four forms: plain, of a connection or with
// rights, with a ticket under which it may wait, or, for lock commands, with all that.

// AppendRequest appends a command to a batch's body.
// Requires: name is in lower case.
func AppendRequest(body []byte, db int, name string, args [][]byte) []byte {
	return appendArgs(appendRequestHead(body, db, len(args)+1, name), args)
}

// AppendRequestFrom is [AppendRequest] of a connection. Requires: the cluster has version 6.
func AppendRequestFrom(body []byte, db int, conn uint64, name string, args [][]byte) []byte {
	return AppendScript(body, db, conn, "", name, args)
}

// AppendScript is [AppendRequest] of a connection, unless conn is 0, and of a user who may do what the rights allow,
// unless they are empty; then the reply is [Judged]. Requires: the cluster has version 6.
func AppendScript(body []byte, db int, conn uint64, rights, name string, args [][]byte) []byte {
	body = appendRights(body, db, conn, rights)
	body = binary.AppendUvarint(body, uint64(len(args)+1))
	return appendArgs(appendString(body, name), args)
}

// appendRights appends what stands before the words of a request.
func appendRights(body []byte, db int, conn uint64, rights string) []byte {
	marks := uint64(0)
	if conn != 0 {
		marks |= fromConn
	}
	if rights != "" {
		marks |= withRights
	}
	body = binary.AppendUvarint(body, uint64(db)|marks)
	if conn != 0 {
		body = binary.AppendUvarint(body, conn)
	}
	if rights != "" {
		body = appendString(body, rights)
	}
	return body
}

// AppendBlock appends a command that may wait under a ticket: the request "block" with the ticket, the
// command's name, and the command's arguments.
func AppendBlock(body []byte, db int, ticket uint64, name string, args [][]byte) []byte {
	body = appendDecimal(appendRequestHead(body, db, len(args)+3, "block"), ticket)
	return appendArgs(appendString(body, name), args)
}

// AppendLockCommand appends a lock command: the request "native" with the caller, the command's name and arguments. If
// the command waits the reply is [Parked], or 0 with NOTIFY, and the reply of the command itself comes later, as an
// event of the state machine. A transaction may contain the request.
func AppendLockCommand(body []byte, db int, from Caller, name string, args [][]byte) []byte {
	body = appendRights(body, db, 0, from.Rights)
	body = appendString(binary.AppendUvarint(body, uint64(len(args)+5)), "native")
	if from.Address == "" {
		body = appendDecimal(body, uint64(max(0, from.Conn)))
	} else {
		body = appendString(body, strconv.FormatInt(max(0, from.Conn), 10)+" "+from.Address+" "+from.Name)
	}
	body = appendDecimal(body, from.Ticket)
	body = appendDecimal(body, uint64(max(0, from.GraceMillis)))
	return appendArgs(appendString(body, name), args)
}

func appendRequestHead(body []byte, db, args int, name string) []byte {
	body = binary.AppendUvarint(body, uint64(db))
	body = binary.AppendUvarint(body, uint64(args))
	return appendString(body, name)
}

func appendArgs(body []byte, args [][]byte) []byte {
	for _, arg := range args {
		body = binary.AppendUvarint(body, uint64(len(arg)))
		body = append(body, arg...)
	}
	return body
}

// appendDecimal appends a number as a word.
func appendDecimal(body []byte, n uint64) []byte {
	var room [20]byte
	digits := strconv.AppendUint(room[:0], n, 10)
	return append(binary.AppendUvarint(body, uint64(len(digits))), digits...)
}

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

// MaxQuotaUser is the longest name of a user with a quota, in bytes.
const MaxQuotaUser = 256

// ofUser stands where a request has its database, and says that a quota stands before it.
const ofUser = 4 * MaxDatabases

// AppendQuota appends the quota of the request that is appended next. Requires: the cluster has version 6.
func AppendQuota(body []byte, q *Quota) []byte {
	body = appendString(append(body, ofUser), q.User)
	body = binary.AppendUvarint(body, q.Keys)
	body = binary.AppendUvarint(body, q.Bytes)
	return binary.AppendUvarint(body, q.Waiters)
}

// cutQuota takes a quota from the front of a body, behind ofUser: the user, and the limits in order.
func cutQuota[T string | []byte](body T) (user T, limits [3]uint64, rest T, ok bool) {
	if user, rest, ok = str(body); !ok || len(user) == 0 || len(user) > MaxQuotaUser {
		return user, limits, rest, false
	}
	for i := range limits {
		if limits[i], rest, ok = uvarint(rest); !ok {
			return user, limits, rest, false
		}
	}
	return user, limits, rest, true
}
