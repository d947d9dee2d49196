package locks

import (
	"errors"

	"github.com/holdfast/holdfast/protocol"
)

// Client is a connection of a node. The zero Client is no connection. A script or transaction has a Client if the owner
// of the table gives it one.
type Client struct {
	Origin protocol.Incarnation
	Conn   int64
}

// Mode says which holds may be beside a hold.
type Mode uint8

// The modes.
const (
	// Exclusive: none.
	Exclusive Mode = iota
	// Shared: other shared holds.
	Shared
	// Permits: other holds with permits, while the sum is at most a request's own limit.
	Permits
)

// The bounds. Nodes must agree on them.
const (
	// MaxText is the most bytes of an owner, a note, the id of a call and the name of a session.
	MaxText = 1 << 10
	// MaxKeys is the most keys of a request.
	MaxKeys = 128
	// MaxWaiters bounds the requests in a queue. The grants of a queue may take many steps.
	MaxWaiters = 100_000
	// MaxLimit is the largest limit of permits.
	MaxLimit = 1<<31 - 1
	// MaxWaitingBytes is what all waiters together count for at most.
	MaxWaitingBytes = 256 << 20
	// MaxAttached is the most sessions of one connection.
	MaxAttached = 1000
	// MaxFence is the largest fence: clients keep fences as doubles, too.
	MaxFence = 1<<53 - 1
	// Forever caps leases, delays, waits, graces, and the deadlines made from them.
	Forever = 1 << 62
)

// The errors of a request that is refused. It has changed nothing.
var (
	// ErrMode: the owner holds the lock in a mode that does not cover the one asked for.
	ErrMode = errors.New("the owner holds the lock in another mode")
	// ErrNoSession: there is no such session, or it has ended.
	ErrNoSession = errors.New("no such session")
	// ErrTooLong: an owner, a note, a call or a name has more than MaxText bytes.
	ErrTooLong = errors.New("text too long")
	// ErrRequest: a number is out of range, or a key is missing. Callers should have checked.
	ErrRequest = errors.New("the request is corrupt")
	// ErrTicket: another request waits under the ticket.
	ErrTicket = errors.New("the ticket is taken")
	// ErrFull: the lock or the table has too many waiters, or the connection too many sessions, or no fence is left.
	ErrFull = errors.New("too many wait")
	// ErrSessionFull: the session has as many holds and places in queues as it may have.
	ErrSessionFull = errors.New("too many holds and waits of the session")
	// ErrOverQuota: the request is marked OverQuota, and would have to wait.
	ErrOverQuota = errors.New("too many of the account wait")
	// ErrNodeEnded ends the waits of a node that was silent for long, should it come back.
	ErrNodeEnded = errors.New("the node was cut off")
	// ErrUnblocked ends a wait by CLIENT UNBLOCK ERROR.
	ErrUnblocked = errors.New("unblocked")
	// ErrAskedAgain ends a wait whose owner sent another request. The client may have sent this one last, as requests can
	// enter the log in another order.
	ErrAskedAgain = errors.New("the owner asked again")
)

// Request asks for one lock, or for many as a whole.
type Request struct {
	// Keys are the locks. A key that is named twice counts once.
	Keys  []string
	Owner string
	// Session is the session that the hold is bound to. 0: the hold is bound to LeaseMillis.
	Session     uint64
	LeaseMillis int64
	// WaitMillis is how long the request may wait, if it Waits. 0: for ever.
	WaitMillis int64
	// DelayMillis is the time after a loss of the hold in which no request is granted.
	DelayMillis int64
	// GraceMillis is the time for which the place in the queue is kept after the wait ended by time.
	GraceMillis int64
	// Ticket names the wait. No other wait of the client's node has the same ticket. 0: the request may not wait.
	Ticket     uint64
	Call, Note string
	Client     Client
	// Permits is the number of permits wanted. The request is granted if at most Limit are held then, these included.
	// Both are for mode Permits; a limit of 1 is exclusive.
	Limit, Permits int32
	DB             int
	// Account is the number of the user that the waiter counts for; 0: none. OverQuota: the account has no room for
	// another waiter, so only an owner that waits already may.
	Account int16
	OverQuota bool
	Mode    Mode
	// Waits: the request may wait, if it has a ticket.
	Waits bool
	// Notify: the client wants a notice of the end of the wait beside its commands. The table only keeps this.
	Notify bool
	// Reentrant: the hold counts how often it was acquired; a Call that repeats the last counted one does
	// not count.
	Reentrant bool
}

// Answer is the outcome of a request: a grant (Fence is not 0), a place in the queue (Waiting), or neither.
type Answer struct {
	Fence   uint64
	Waiting bool
	// Kept: the owner waited before, and kept its place.
	Kept bool
}

// Break says which holds of a lock end by force.
type Break struct {
	DB  int
	Key string
	// ByOwner: only the hold of Owner. Fence other than 0: only the hold with that fence.
	ByOwner bool
	Owner   string
	Fence   uint64
	// ByDelay: the delay afterwards is DelayMillis, whatever the holds asked for.
	ByDelay     bool
	DelayMillis int64
	// Reason is the reason for the holders: Broken or Flushed.
	Reason Reason
	// Cause is the number of the command for the events. 0: none.
	Cause uint64
}

// Reason says why a hold was lost.
type Reason uint8

// The reasons.
const (
	Expired Reason = iota + 1
	SessionGone
	Broken
	Flushed
)

var reasons = [...]string{Expired: "expired", SessionGone: "session", Broken: "broken", Flushed: "flushed"}

// String returns the word for the reason in notices.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return ""
}
