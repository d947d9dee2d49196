package locks

import (
	"errors"

	"github.com/holdfast/holdfast/protocol"
)

// Client is a client's connection to a node. The zero Client stands for no connection.
type Client struct {
	Origin protocol.Incarnation
	Conn   int64
}

// Mode is the mode of a hold. It decides which other holds the lock may have at the same time.
type Mode uint8

// The modes.
const (
	// Exclusive allows no other hold.
	Exclusive Mode = iota
	// Shared allows other shared holds.
	Shared
	// Permits allows other holds of permits. A request is granted if the sum of all permits is within its own limit.
	Permits
)

// These bounds must be the same on all nodes of a cluster.
const (
	// MaxText bounds the bytes of an owner, a note, a call, and the name of a session.
	MaxText = 1 << 10
	// MaxKeys bounds the keys of a request.
	MaxKeys = 128
	// MaxWaiters bounds the entries of a queue. The grants of a long queue may take many steps.
	MaxWaiters = 100_000
	// MaxLimit bounds the limit of a request for permits.
	MaxLimit = 1<<31 - 1
	// MaxWaitingBytes bounds the counted memory of all waiters together.
	MaxWaitingBytes = 256 << 20
	// MaxAttached bounds the sessions of one connection.
	MaxAttached = 1000
	// MaxFence is the largest fence. Clients can keep it exactly in a double.
	MaxFence = 1<<53 - 1
	// Forever bounds leases, delays, waits and graces in milliseconds, and the deadlines that are computed from them.
	Forever = 1 << 62
)

// These errors refuse a request or end a wait. A refused request has changed nothing, but due events of its keys may
// have run.
var (
	// ErrMode refuses a request of an owner whose present hold does not cover the request, and ends such a wait.
	ErrMode = errors.New("the owner holds the lock in another mode")
	// ErrNoSession refuses a request whose session does not exist or has ended. It also ends the waits of a session that
	// has ended.
	ErrNoSession = errors.New("no such session")
	// ErrTooLong refuses a text of more than [MaxText] bytes.
	ErrTooLong = errors.New("text too long")
	// ErrRequest refuses a request without keys, or with a number out of range. Callers validate requests before, so that
	// users do not see the error.
	ErrRequest = errors.New("the request is corrupt")
	// ErrTicket refuses a request whose ticket already names another wait.
	ErrTicket = errors.New("the ticket is taken")
	// ErrFull refuses a waiter beyond [MaxWaiters] or [MaxWaitingBytes], a session beyond [MaxAttached], and a fence or a
	// session id beyond [MaxFence].
	ErrFull = errors.New("too many wait")
	// ErrSessionFull refuses a hold or a queue entry beyond [MaxPerSession].
	ErrSessionFull = errors.New("too many holds and waits of the session")
	// ErrOverQuota refuses a request that is marked OverQuota and would have to wait.
	ErrOverQuota = errors.New("too many of the account wait")
	// ErrNodeEnded ends the waits of the clients of a node that was silent for too long. If the node comes back, it sends
	// these clients the error.
	ErrNodeEnded = errors.New("the node was cut off")
	// ErrUnblocked ends a wait by CLIENT UNBLOCK ERROR.
	ErrUnblocked = errors.New("unblocked")
	// ErrAskedAgain ends a wait whose owner sent another request. Requests may reach the log in another order than their
	// owner has sent them in.
	ErrAskedAgain = errors.New("the owner asked again")
)

// Request asks for a hold of one lock, or of several locks at once.
type Request struct {
	// Keys are the locks. Repetitions of a key are ignored.
	Keys  []string
	Owner string
	// Session is the session to which the hold will belong. If Session is 0, the hold has the lease LeaseMillis instead.
	Session     uint64
	LeaseMillis int64
	// WaitMillis bounds the wait if Waits is true. A wait with the bound 0 has no deadline.
	WaitMillis int64
	// DelayMillis is the duration of the delay after a loss of the hold. No request is granted during a delay.
	DelayMillis int64
	// GraceMillis is the time for which the request keeps its queue entries after its wait has ended by time.
	GraceMillis int64
	// Ticket names the wait, together with the incarnation of the client's node. A request with the ticket 0 cannot wait.
	Ticket     uint64
	Call, Note string
	Client     Client
	// Permits is the number of permits to hold. Limit bounds the permits of all holds of the lock, including these. Both
	// are used only in the mode Permits, where the limit 1 means an exclusive hold.
	Limit, Permits int32
	DB             int
	// Account is the number of the user whose quota counts the waiter, or 0. If OverQuota is true, the quota is used up,
	// and only a request that repeats a waiter may wait.
	Account   int16
	OverQuota bool
	Mode      Mode
	// Waits says whether a blocked request joins the queues.
	Waits bool
	// Notify says whether the client wants a notice of the end of the wait, apart from its reply. The table only shows
	// Notify in [Wait].
	Notify bool
	// Reentrant says whether a request for a lock that the owner holds increments the count of the hold. If Call is not
	// empty and the hold has the same call, the request repeats the last one that was counted, and the count stays.
	Reentrant bool
}

// Answer is the outcome of a request. A granted request has a Fence, a request that waits has Waiting, and a request
// that is blocked and may not wait has neither.
type Answer struct {
	Fence   uint64
	Waiting bool
	// Kept is true if the request repeated a waiter, and took over its queue entries.
	Kept bool
}

// Break selects holds of a lock for [Table.Break], which ends them by force.
type Break struct {
	DB  int
	Key string
	// If ByOwner is true, only the hold of Owner is selected. If Fence is not 0, only the hold with that fence is.
	ByOwner bool
	Owner   string
	Fence   uint64
	// If ByDelay is true, DelayMillis replaces the delays of the holds.
	ByDelay     bool
	DelayMillis int64
	// Reason is the reason in the events for the holders: [Broken] or [Flushed].
	Reason Reason
	// Cause is an id of the command, or 0. The caller chooses it, and the table copies it to the Lost events.
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

// String returns the word for the reason in notices, or an empty string for no reason.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return ""
}
