package protocol

import "strconv"

// Requests about waiting, which only nodes write. A ticket is the node's name for a client that waits.

// Parked is the reply to a command that waits. The reply of the command itself comes later, as an event of
// the state machine.
var Parked = Simple("PARKED")

// IsParked reports whether v is [Parked]. No command that may wait has such a reply.
func IsParked(v Value) bool { return v.Kind == KindSimple && v.Str == Parked.Str }

// Leave says how waiters leave.
type Leave string

// The ways to leave.
const (
	LeaveGone    Leave = "gone"    // the client has gone
	LeaveTimeout Leave = "timeout" // CLIENT UNBLOCK TIMEOUT: as if the time were over
	LeaveError   Leave = "error"   // CLIENT UNBLOCK ERROR
)

// AppendUnblock appends the request that waiters of this node leave. The reply is their number.
func AppendUnblock(body []byte, how Leave, tickets ...uint64) []byte {
	words := make([][]byte, 0, len(tickets)+1)
	words = append(words, []byte(how))
	for _, ticket := range tickets {
		words = append(words, strconv.AppendUint(nil, ticket, 10))
	}
	return AppendRequest(body, 0, "unblock", words)
}

// AppendDrop appends the request that all waiters of a node leave, up to its life with that epoch.
func AppendDrop(body []byte, node Origin) []byte {
	return AppendRequest(body, 0, "drop", [][]byte{[]byte(node.Node), strconv.AppendUint(nil, node.Epoch, 10)})
}
