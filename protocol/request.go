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
// the command waits the reply is [Parked], or 0 with NOTIFY, and the reply of the command itself comes later, as an event
// of the state machine. A transaction may contain the request.
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
