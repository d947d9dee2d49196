package locks

import (
	"errors"

	"github.com/holdfast/holdfast/protocol"
)

// Client is a connection of a node. The zero Client is no connection.
type Client struct {
	Origin protocol.Incarnation
	Conn   int64
}

// Mode is the way in which a lock is held, and says which holds may be beside it.
type Mode uint8

// The modes.
const (
	// Exclusive: none.
	Exclusive Mode = iota
	// Shared: other shared holds.
	Shared
	// Permits: other holds of permits, while the sum of the permits is at most the request's own limit.
	Permits
)

// The bounds. All nodes of a cluster must have the same.
const (
	// MaxText bounds the bytes of an owner, a note, a call, and a session's name.
	MaxText = 1 << 10
	// MaxKeys bounds the keys of a request.
	MaxKeys = 128
	// MaxWaiters bounds the requests in a queue. The grants of a queue may take many steps.
	MaxWaiters = 100_000
	// MaxLimit bounds the limit of permits.
	MaxLimit = 1<<31 - 1
	// MaxWaitingBytes bounds the memory of all waiters together.
	MaxWaitingBytes = 256 << 20
	// MaxAttached bounds the sessions of one connection.
	MaxAttached = 1000
	// MaxFence is the largest fence. Clients may keep fences as doubles.
	MaxFence = 1<<53 - 1
	// Forever bounds leases, delays, waits and graces, and the deadlines made from them.
	Forever = 1 << 62
)

// The errors of a request that is refused. Such a request has changed nothing.
var (
	// ErrMode: the owner holds the lock in a mode that does not cover the request.
	ErrMode = errors.New("the owner holds the lock in another mode")
	// ErrNoSession: there is no such session, or it has ended.
	ErrNoSession = errors.New("no such session")
	// ErrTooLong: an owner, a note, a call or a name has more than MaxText bytes.
	ErrTooLong = errors.New("text too long")
	// ErrRequest: a number is out of range, or a key is missing. Callers check that before.
	ErrRequest = errors.New("the request is corrupt")
	// ErrTicket: another request waits under the ticket.
	ErrTicket = errors.New("the ticket is taken")
	// ErrFull: the lock or the table has too many waiters, or the connection too many sessions, or no fence or number of a
	// session is left.
	ErrFull = errors.New("too many wait")
	// ErrSessionFull: the session has [MaxPerSession] holds and places in queues.
	ErrSessionFull = errors.New("too many holds and waits of the session")
	// ErrOverQuota: the request is marked OverQuota, and would have to wait.
	ErrOverQuota = errors.New("too many of the account wait")
	// ErrNodeEnded ends the waits of a node that was silent for too long. The node may come back, and tell its clients.
	ErrNodeEnded = errors.New("the node was cut off")
	// ErrUnblocked ends a wait by CLIENT UNBLOCK ERROR.
	ErrUnblocked = errors.New("unblocked")
	// ErrAskedAgain ends a wait whose owner sent another request. Requests can enter the log in another order than they
	// were sent in.
	ErrAskedAgain = errors.New("the owner asked again")
)

// Request asks for one lock, or for several locks as a whole.
type Request struct {
	// Keys are the locks. A repeated key counts once.
	Keys  []string
	Owner string
	// Session is the session of the hold. 0: the hold has the lease LeaseMillis.
	Session     uint64
	LeaseMillis int64
	// WaitMillis bounds the wait, if the request Waits. 0: no bound.
	WaitMillis int64
	// DelayMillis is the time after a loss of the hold in which no request is granted.
	DelayMillis int64
	// GraceMillis is the time for which the place in the queue is kept after the wait has ended by time.
	GraceMillis int64
	// Ticket names the wait. No other wait of the client's node has the same ticket. 0: the request may not wait.
	Ticket     uint64
	Call, Note string
	Client     Client
	// Permits is the number of permits wanted. They are granted if at most Limit permits are held then, these included.
	// Permits and Limit are for the mode Permits; a limit of 1 is exclusive.
	Limit, Permits int32
	DB             int
	// Account is the number of the user that the waiter counts for, 0 for none. OverQuota: the account has no room for
	// another waiter, so only an owner that waits already may wait.
	Account   int16
	OverQuota bool
	Mode      Mode
	// Waits: the request may wait, if it has a ticket.
	Waits bool
	// Notify: the client wants a notice of the end of the wait outside of its replies. The table keeps Notify for its
	// events.
	Notify bool
	// Reentrant: the hold counts how often it was acquired. A Call that repeats the last counted one does not count.
	Reentrant bool
}

// Answer is the outcome of a request: a grant (Fence is not 0), a place in the queue (Waiting), or neither.
type Answer struct {
	Fence   uint64
	Waiting bool
	// Kept: the owner waited before, and has kept its place.
	Kept bool
}

// Break selects the holds of a lock that end by force.
type Break struct {
	DB  int
	Key string
	// ByOwner: only the hold of Owner. Fence other than 0: only the hold with that fence.
	ByOwner bool
	Owner   string
	Fence   uint64
	// ByDelay: DelayMillis replaces the delays that the holds asked for.
	ByDelay     bool
	DelayMillis int64
	// Reason is the reason for the holders: Broken or Flushed.
	Reason Reason
	// Cause is the number of the command for the events. 0: none.
	Cause uint64
}

// Reason is the reason for the loss of a hold.
type Reason uint8

// The reasons.
const (
	Expired Reason = iota + 1
	SessionGone
	Broken
	Flushed
)

var reasons = [...]string{Expired: "expired", SessionGone: "session", Broken: "broken", Flushed: "flushed"}

// String returns the word for notices.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return ""
}
