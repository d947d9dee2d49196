package locks

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
)

// EffectKind says what happened.
type EffectKind uint8

// The kinds of effects.
const (
	// Came, Went: the lock is there now, or is gone: the key's marker. After [Table.Flush] all locks of the
	// database count as gone; of those that stay (a request waits, a delay runs) Came tells again.
	Came EffectKind = iota + 1
	Went
	// Granted: Owner got the lock with Fence. A request for many locks is told for each of them.
	Granted
	// Released: Owner gave its hold back.
	Released
	// Lost: Owner lost its hold, for Reason.
	Lost
	// TimedOut: a wait of Owner for this lock ended by time.
	TimedOut
	// Waiting: a request joined the queue, which has Waiters places now.
	Waiting
	// WaitEnded: the wait of the client with the name Name is over; one a wait, after its other effects. Fence
	// is the grant, or 0; Err says why not. Key is the first of the request's keys.
	WaitEnded
	// SessionEnded: the session Session ended. Its holds may be told later.
	SessionEnded
	// Left: a request left the queue without a grant, which has Waiters places now. Left and Late are for listeners:
	// neither is work. Left gives the key another version.
	Left
	// Late: when a hold was renewed or ended, more than four fifths of its lease were used up since the last renewal.
	// Told once a hold. Of a session's holds the first is told for all, once a session that holds something. A table
	// that was loaded has forgotten what was told.
	Late
)

// Departure says how a request left the queue without a grant.
type Departure uint8

// The departures.
const (
	// OutOfTime: the wait was over, and so is the grace in which the owner might have come back.
	OutOfTime Departure = iota + 1
	Cancelled
	WithSession
	Unblocked
	Disconnected
	Refused
	// Replaced: the owner asked for something else, which may stand in the queue now.
	Replaced
)

var departures = [...]string{
	OutOfTime: "timeout", Cancelled: "cancelled", WithSession: "session", Unblocked: "unblocked",
	Disconnected: "gone", Refused: "refused", Replaced: "replaced",
}

// String is the word of the departure in logs.
func (d Departure) String() string {
	if int(d) < len(departures) {
		return departures[d]
	}
	return ""
}

// Effect is something that the owner of the table tells others.
type Effect struct {
	Kind   EffectKind
	Reason Reason
	// How a Left request left.
	How Departure
	// Notify: the waiter asked to be told beside its commands. ByTime: the wait that is Told ended by time.
	Notify     bool
	ByTime     bool
	DB         int
	Key, Owner string
	Fence      uint64
	Session    uint64
	// Client is the connection that acquired last, or that waits. Attached is the one that the hold's
	// session lives with, if any.
	Client, Attached Client
	// Name and Err are for Told. Again are the keys of the later request if Err is ErrAskedAgain and the same
	// connection asked: it hears of those by that request. Good as long as the request's words are.
	Name  waits.Name
	Err   error
	Again []string
	// Waiters is the length of the queue.
	Waiters int
	// Of a hold that is Lost: its Note, since when it was held, and what ended it by force, as [Break] or Flush said.
	Note        string
	SinceMillis int64
	Cause       uint64
	// WaitedMillis is, at a grant and the end of a wait, how long the request waited (0: not at all). Of a request for
	// many locks that Left, the first key's effect says it. HeldMillis is how long the hold lasted. SinceRenewedMillis
	// of its lease, LeaseMillis long (0: a session, except if Late), were used up since the last renewal.
	WaitedMillis, HeldMillis, SinceRenewedMillis, LeaseMillis int64
	// Text is for Came: what [keyspace.NewLock] makes the marker of.
	Text keyspace.LockText
}
