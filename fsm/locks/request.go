package locks

import (
	"errors"

	"github.com/holdfast/holdfast/protocol"
)

// Client is the connection of a client to a node. The zero Client stands for no connection.
type Client struct {
	Origin protocol.Incarnation // the incarnation of the node
	Conn   int64                // identifies the connection within the incarnation
}

// Mode is the mode of a hold. It decides which other holds the lock may have at the same time.
type Mode uint8

// The modes.
const (
	// Exclusive allows no other hold.
	Exclusive Mode = iota
	// Shared allows other shared holds.
	Shared
	// Permits allows other holds of permits. A request is granted if the sum of the permits of all holds, the new hold
	// included, is at most the Limit of this request.
	Permits
)

// These bounds must be the same on all nodes of a cluster.
const (
	// MaxText bounds the length in bytes of the texts of a request (Owner, Note and Call), and of the name and the user of
	// a session.
	MaxText = 1 << 10
	// MaxKeys bounds the number of keys of a request.
	MaxKeys = 128
	// MaxWaiters bounds the number of entries of a queue. The grants of a long queue may take many steps.
	MaxWaiters = 100_000
	// MaxLimit bounds the limit of a request for permits.
	MaxLimit = 1<<31 - 1
	// MaxWaitingBytes bounds the estimated memory of all waiters together.
	MaxWaitingBytes = 256 << 20
	// MaxAttached bounds the number of sessions that are attached to one connection.
	MaxAttached = 1000
	// MaxFence is the largest fence and the largest session id. A double represents all integers up to MaxFence exactly.
	MaxFence = 1<<53 - 1
	// Forever bounds leases, delays, waits and graces in milliseconds, and the deadlines that are computed from them.
	Forever = 1 << 62
)

// The table returns one of these errors to refuse a request. The field Err of [Event] has one of them if a wait ended
// with an error. A refused request changes nothing, apart from due events of its keys and its session.
var (
	// ErrMode refuses a request for a lock that the owner already holds, if the present hold is not exclusive and has
	// another mode or fewer permits than the request. ErrMode also ends a wait if [Table.Downgrade] makes the owner's hold
	// too weak for the waiting request. Downgrade returns ErrMode for a hold of permits.
	ErrMode = errors.New("the owner holds the lock in another mode")
	// ErrNoSession refuses a request if its session does not exist or has ended. When a session ends, ErrNoSession also
	// ends the waits of the session.
	ErrNoSession = errors.New("no such session")
	// ErrTooLong refuses a text of more than [MaxText] bytes.
	ErrTooLong = errors.New("text too long")
	// ErrRequest refuses a request with no keys, with too many keys, or with a number out of range. It also refuses an
	// attachment of a session that names no connection. Callers validate requests first, so that clients do not see
	// ErrRequest.
	ErrRequest = errors.New("the request is corrupt")
	// ErrTicket refuses a request that must wait, if the ticket of the request already names a wait.
	ErrTicket = errors.New("the ticket is taken")
	// ErrFull refuses a waiter beyond [MaxWaiters] or [MaxWaitingBytes], a session beyond [MaxAttached], and a fence or a
	// session id beyond [MaxFence]. It also ends a wait if the grant would need a fence beyond MaxFence.
	ErrFull = errors.New("too many wait")
	// ErrSessionFull refuses a hold or a queue entry beyond [MaxPerSession].
	ErrSessionFull = errors.New("too many holds and waits of the session")
	// ErrOverQuota refuses a request that must wait, if its OverQuota is true and it repeats no waiter.
	ErrOverQuota = errors.New("too many of the account wait")
	// ErrNodeEnded ends the waits of the clients of a node. It is used if the node was silent for too long, or if a later
	// incarnation of the node is running. If the silent node comes back, the node sends ErrNodeEnded to these clients.
	ErrNodeEnded = errors.New("the node was cut off")
	// ErrUnblocked ends a wait on which CLIENT UNBLOCK was called with ERROR.
	ErrUnblocked = errors.New("unblocked")
	// ErrAskedAgain ends a wait if the log has a later request of the same owner for one of the same locks. The owner may
	// have sent the two requests in the opposite order.
	ErrAskedAgain = errors.New("the owner asked again")
)

// Request asks for a hold of one lock, or of several locks at once.
type Request struct {
	// Keys are the keys of the locks. A repeated key counts once.
	Keys  []string
	Owner string
	// Session is the id of the session to which the hold will belong. If Session is 0, the hold has a lease of its own,
	// with the duration LeaseMillis.
	Session     uint64
	LeaseMillis int64
	// WaitMillis is the longest duration of the wait if Waits is true. If WaitMillis is 0, the wait has no deadline.
	WaitMillis int64
	// DelayMillis is the duration of the delay that a loss of the hold starts. During a delay, the lock gets no new
	// holder.
	DelayMillis int64
	// GraceMillis is the duration of the grace. The grace starts when the wait has ended by time; the request keeps its
	// queue entries until the grace ends.
	GraceMillis int64
	// Ticket and the incarnation of the client's node together are the name of the wait. A request with the ticket 0
	// cannot wait.
	Ticket uint64
	// Call is used only if Reentrant is true. Note is a text of the client; [Hold], [Wait] and [Event] show it.
	Call, Note string
	Client     Client
	// Permits is the number of permits to hold. Limit bounds the sum of the permits of all holds of the lock, the new hold
	// included. The table ignores both fields unless Mode is Permits. A request for permits with Limit 1 is an exclusive
	// request.
	Limit, Permits int32
	DB             int
	// Account identifies the user whose quota includes the waiter, or is 0. OverQuota is true if that quota allows no
	// further waiter. A request with OverQuota may wait only if it repeats a waiter.
	Account   int16
	OverQuota bool
	Mode      Mode
	// Waits says whether a blocked request joins the queues.
	Waits bool
	// Notify says that the client gets its reply at once, and a notice when the wait ends. The table only stores Notify
	// and shows it in [Wait].
	Notify bool
	// If Reentrant is true and the owner holds the lock already, the request increments the count of the hold. Call
	// identifies a call of the client, so that a repeated request does not count twice: if Call is not empty and is equal
	// to the Call of the last request that was counted, the count stays.
	Reentrant bool
}

// Answer is the outcome of a request. Fence is not 0 if the request was granted. Waiting is true if the request waits.
// Both are zero if the request is blocked and may not wait.
type Answer struct {
	Fence   uint64
	Waiting bool
	// Kept is true if the request repeated a waiter and took over the queue entries of that waiter.
	Kept bool
}

// Break selects holds of a lock for [Table.Break], which ends them by force.
type Break struct {
	DB  int
	Key string
	// If ByOwner is true, Break does not select holds of other owners than Owner. If Fence is not 0, Break does not select
	// holds with another fence. Break selects all other holds.
	ByOwner bool
	Owner   string
	Fence   uint64
	// If OverridesDelay is true, DelayMillis is the delay after the losses, in place of the delays that the requests for
	// the holds have set.
	OverridesDelay bool
	DelayMillis    int64
	// Reason becomes the Reason of the Lost events.
	Reason Reason
	// CauseID is an id that the caller has given to the command, or 0. The table copies CauseID to the Lost events.
	CauseID uint64
}

// Reason is the reason for the loss of a hold.
type Reason uint8

// The reasons.
const (
	Expired     Reason = iota + 1 // the lease of the hold has ended
	SessionGone                   // the session of the hold has ended
	Broken                        // a command has ended the hold by force
	Flushed                       // a flush has ended all holds of the database
)

var reasons = [...]string{Expired: "expired", SessionGone: "session", Broken: "broken", Flushed: "flushed"}

// String returns the word for r in notices. It returns an empty string if r is 0 or unknown.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return ""
}
