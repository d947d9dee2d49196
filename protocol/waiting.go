package protocol

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// Requests about waiting that only nodes write, and replies that only nodes read. A ticket is the node's name for a
// waiting client.

// Parked is the reply to a command that waits. The reply of the command itself comes later, as an event of the state
// machine.
var Parked = Simple("PARKED")

// IsParked reports whether v is [Parked]. No command that may wait has that reply.
func IsParked(v Value) bool { return v.Kind == KindSimple && v.Str == Parked.Str }

// Refusal is a call in a script that the user's rights did not allow, in the words of ACL LOG.
type Refusal struct {
	Reason string // command, key or channel
	Object string
}

// Judged returns the reply to a script that ran with rights: the reply for the client, and the refusals.
func Judged(reply Value, refusals []Refusal) Value {
	elems := make([]Value, 0, 1+2*len(refusals))
	elems = append(elems, reply)
	for _, r := range refusals {
		elems = append(elems, Bulk(r.Reason), Bulk(r.Object))
	}
	return Array(elems...)
}

// Unwrap splits a reply of [Judged]. If v is anything else, such as an error, the script did not run.
func Unwrap(v Value) (reply Value, refusals []Refusal) {
	if v.Kind != KindArray || len(v.Elems)%2 == 0 {
		return v, nil
	}
	for i := 1; i < len(v.Elems); i += 2 {
		refusals = append(refusals, Refusal{Reason: v.Elems[i].Str, Object: v.Elems[i+1].Str})
	}
	return v.Elems[0], refusals
}

// Leave is the way in which waiters leave.
type Leave string

// The values of Leave.
const (
	LeaveGone    Leave = "gone"    // the client has disconnected
	LeaveTimeout Leave = "timeout" // CLIENT UNBLOCK TIMEOUT: as after a timeout
	LeaveError   Leave = "error"   // CLIENT UNBLOCK ERROR
)

// AppendUnblock appends the request that removes waiters of this node. The reply is their number.
func AppendUnblock(body []byte, how Leave, tickets ...uint64) []byte {
	words := make([][]byte, 0, len(tickets)+1)
	words = append(words, []byte(how))
	for _, ticket := range tickets {
		words = append(words, strconv.AppendUint(nil, ticket, 10))
	}
	return AppendRequest(body, Head{}, "unblock", words)
}

// AppendDrop appends the request that removes all waiters of a node, up to its incarnation with that epoch.
func AppendDrop(body []byte, node Incarnation) []byte {
	return AppendRequest(body, Head{}, "drop", [][]byte{[]byte(node.Node), strconv.AppendUint(nil, node.Epoch, 10)})
}

// Watch is a watched key. EXEC runs only if nothing has happened to it since WATCH.
type Watch struct {
	DB  int
	Key string
	// Mark is the state machine's reply to WATCH. Only the machine interprets it.
	Mark uint64
}

// AppendTransaction appends EXEC to a batch's body: the request "exec" with two
// arguments, the watches and the queued requests (themselves a body).
func AppendTransaction(body []byte, db int, watches []Watch, queued []byte) []byte {
	var blob []byte
	for _, w := range watches {
		blob = binary.AppendUvarint(blob, uint64(w.DB))
		blob = appendString(blob, w.Key)
		blob = binary.AppendUvarint(blob, w.Mark)
	}
	return AppendRequest(body, Head{DB: db}, "exec", [][]byte{blob, queued})
}

// NextWatch decodes the first watch of blob, an "exec" request's first
// argument, and returns the rest.
func NextWatch(blob string, w *Watch) (rest string, err error) {
	db, blob, ok := uvarint(blob)
	if !ok || db >= MaxDatabases {
		return "", fmt.Errorf("%w: watched database", ErrCorruptEntry)
	}
	if w.Key, blob, ok = str(blob); !ok {
		return "", fmt.Errorf("%w: watched key", ErrCorruptEntry)
	}
	if w.Mark, blob, ok = uvarint(blob); !ok {
		return "", fmt.Errorf("%w: mark of a watched key", ErrCorruptEntry)
	}
	w.DB = int(db)
	return blob, nil
}
