package locks

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
)

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events.
const (
	// Created, Removed: a lock was made or removed, and so was the item that marks it. [Table.Flush] removes the items of
	// a database without Removed; a lock that stays for its queue has another Created.
	Created EventKind = iota + 1
	Removed
	// Granted: Owner got the lock with Fence. A request for many locks has an event for each lock.
	Granted
	// Released: Owner gave up its hold.
	Released
	// Lost: Owner lost its hold, for Reason.
	Lost
	// TimedOut: Owner's wait for this lock ended by time.
	TimedOut
	// JoinedQueue: a request joined the queue, which has Waiters entries now.
	JoinedQueue
	// WaitEnded: the wait Name ended. Each wait has one such event, after its other events. Fence is the grant, or 0; Err
	// is the reason if there was no grant. Key is the first key of the request.
	WaitEnded
	// SessionEnded: the session Session ended. Its holds may be lost before or after.
	SessionEnded
	// LeftQueue: a request left the queue, which has Waiters entries now, without a grant. The key gets another version.
	// LeftQueue and Late are free of charge.
	LeftQueue
	// Late: a hold was renewed, or ended, with less than a fifth of its lease left. Each hold has one such event at most.
	// A session has one for its first hold, and another one only after it has held nothing. A loaded table may repeat
	// these events.
	Late
	// Refused: a request for a held lock did not wait. Mismatched: Owner released a lock that it does not hold. The owner
	// of the table emits both.
	Refused
	Mismatched
	// Overwritten: a command replaced the value of a stock lock.
	Overwritten
	// Renewed: another connection asked again for the hold of Owner, or Owner bound the hold to another session.
	Renewed
	// Stored: a command stored Next, or nothing, in the place of Item, and one of them may be a stock lock. Joined and
	// Parted: Owner came to, or was taken out of, the hash of a stock lock. Only who audits is told of these three.
	Stored
	Joined
	Parted
)

// Departure is the way in which a request left a queue without a grant.
type Departure uint8

// The departures.
const (
	// OutOfTime: the wait and the grace ended by time.
	OutOfTime Departure = iota + 1
	Cancelled
	WithSession
	Unblocked
	Disconnected
	WithError
	// Replaced: the owner sent another request, which may be in the queue now.
	Replaced
)

var departures = [...]string{
	OutOfTime: "timeout", Cancelled: "cancelled", WithSession: "session", Unblocked: "unblocked",
	Disconnected: "gone", WithError: "refused", Replaced: "replaced",
}

// String returns the word for logs.
func (d Departure) String() string {
	if int(d) < len(departures) {
		return departures[d]
	}
	return ""
}

// Event is something that happened to a lock or a session. The table emits the events of native locks, and commands
// emit those of stock locks.
type Event struct {
	Kind   EventKind
	Reason Reason
	// How is the departure of a LeftQueue event.
	How Departure
	ByTime     bool // the wait ended by time
	DB         int
	Key, Owner string
	Fence      uint64
	Session    uint64
	// Client is the connection that acquired the hold last, or that waits. Attached is the connection to which the hold's
	// session is attached, if any.
	Client, Attached Client
	// Mode is of a hold that was Granted.
	Mode Mode
	// Name and Err are for WaitEnded. Again has the keys of the later request if Err is ErrAskedAgain and the same
	// connection sent that request: the reply to that request covers these keys. Again is valid as long as the request's
	// arguments.
	Name  waits.Name
	Err   error
	Again []string
	// Waiters is the length of the queue.
	Waiters int
	// Note, SinceMillis (the grant) and Cause (from [Break] or Flush) are for Lost.
	Note        string
	SinceMillis int64
	Cause       uint64
	// WaitedMillis is the time that a request waited, at the grant or at the end of the wait. If a request for many locks
	// leaves its queues, only the event of the first key has it. HeldMillis is the duration of the hold.
	// SinceRenewedMillis is the part of LeaseMillis, the lease, that was used since the last renewal. LeaseMillis is 0 for
	// a session's hold, unless the event is Late.
	WaitedMillis, HeldMillis, SinceRenewedMillis, LeaseMillis int64
	// Text is for Created: the text of the item that marks the lock, see [keyspace.NewLock].
	Text keyspace.LockText
	// Stock describes a stock lock, beside Kind, Reason, DB, Key, Owner and Client. Nil: the lock is native.
	Stock *StockLock
}

// StockLock is the part of an [Event] about a stock lock.
type StockLock struct {
	// Item is the item of the key, with the mark of a stock lock. It is empty for a Mismatched key, and for a string that
	// was Granted. Next is the new item if the lock was Overwritten
	// or Stored.
	Item, Next keyspace.Item
	// Owners are the first of the Count owners that lost a Broken lock. For other losses the list is complete.
	Owners []Hold
	Count  int
	// Ended: a Mismatched release came after the end of the owner's lease, and before the removal of the key.
	Ended bool
	// ByName: DEL or UNLINK Released the lock without naming an owner, so an owner may have lost it. The machine sets
	// ByName.
	ByName bool
}

// Events returns the events since the last TakeEvents.
func (s *store) Events() []Event { return s.events }

// TakeEvents returns the events and forgets them. The slice is valid until the next call that changes the table.
func (s *store) TakeEvents() []Event {
	taken := s.events
	if s.events = s.events[:0]; cap(taken) > 1<<8 {
		s.events = nil
	}
	return taken
}

func (s *store) emit(e Event) { s.events = append(s.events, e) }

// holdEvent returns an event about a hold.
func (s *store) holdEvent(kind EventKind, h *hold) Event {
	event := Event{
		Kind: kind, DB: int(h.db), Key: h.key, Owner: h.owner, Fence: h.fence, Session: h.session(),
		Client: h.client(), LeaseMillis: h.lease(),
	}
	if event.Session != 0 {
		event.Attached = s.session(event.Session).client()
	}
	return event
}

// holdEndEvent returns an event about a hold that ended, or was renewed, at an instant.
func (s *store) holdEndEvent(kind EventKind, h *hold, at int64) Event {
	event := s.holdEvent(kind, h)
	event.HeldMillis = at - h.since
	if h.deadline != noDeadline {
		event.SinceRenewedMillis = min(event.LeaseMillis, at-(h.deadline-event.LeaseMillis))
	}
	return event
}

// dismiss ends a wait without a grant. err is the reason for a client that still waits.
func (s *store) dismiss(w *waiter, err error) {
	s.dequeueWaiter(w)
	s.wakeQueuesOf(w)
	s.emitEndOfWait(w, 0, err)
	s.emitLeft(w, departureOf(err))
}

func departureOf(err error) Departure {
	switch err {
	case nil:
		return Cancelled
	case ErrNoSession:
		return WithSession
	case ErrUnblocked:
		return Unblocked
	case ErrNodeEnded:
		return Disconnected
	}
	return WithError
}

// emitLeft emits that a waiter has left its queues.
func (s *store) emitLeft(w *waiter, how Departure) {
	waited := s.now - w.since
	if w.absent { // the wait ended before the grace
		how, waited = OutOfTime, max(0, w.deadline-w.grace-w.since)
	}
	for _, key := range w.keys() {
		e := s.waitEvent(LeftQueue, w, key)
		e.How, e.Waiters, e.WaitedMillis = how, s.find(e.DB, key).waiters(), waited
		s.emit(e)
		waited = 0
	}
}

// emitEndOfWait emits the end of a wait, unless the wait ended before the grace.
func (s *store) emitEndOfWait(w *waiter, fence uint64, err error) {
	if !w.absent {
		s.emit(s.waitEndedEvent(w, fence, err))
	}
}

func (s *store) waitEndedEvent(w *waiter, fence uint64, err error) Event {
	e := s.waitEvent(WaitEnded, w, w.keys()[0])
	e.Fence, e.Name, e.Err = fence, w.name(), err
	return e
}

// waitEvent returns an event about a waiter at one of its keys.
func (s *store) waitEvent(kind EventKind, w *waiter, key string) Event {
	return Event{
		Kind: kind, DB: int(w.db), Key: key, Owner: w.owner, Session: w.session, Client: w.client(),
		WaitedMillis: s.now - w.since,
	}
}

// emitLate emits [Late] for a hold that is renewed or ends late, and reports whether the hold has had its Late event. A
// session's hold reports false, since the session keeps track.
func (s *store) emitLate(h *hold, at int64) bool {
	if h.deadline == noDeadline {
		// The end of a session has its own Late event.
		if sess := s.session(h.sessionOrLease); !sess.endPending {
			s.emitLateFor(sess, h, at)
		}
		return false
	}
	event := s.holdEndEvent(Late, h, at)
	if h.lateEmitted || event.SinceRenewedMillis <= event.LeaseMillis/5*4 {
		return h.lateEmitted
	}
	s.emit(event)
	return true
}

// emitLateSession emits [Late] for a session that is renewed or ends late. It looks at the first hold only, since a
// session may have many.
func (s *store) emitLateSession(sess *session, at int64) {
	if first := s.firstHold(sess.id); first != nil {
		s.emitLateFor(sess, first, at)
	}
}

// emitLateFor emits [Late] for a session, about its hold h, unless the session has had that event since it held
// nothing.
func (s *store) emitLateFor(sess *session, h *hold, at int64) {
	since := min(at-(s.endOf(sess)-sess.lease), at-h.since)
	if sess.lateEmitted || since <= sess.lease/5*4 {
		return
	}
	s.mutableSession(sess.id).lateEmitted = true
	event := s.holdEndEvent(Late, h, at)
	event.SinceRenewedMillis, event.LeaseMillis = since, sess.lease
	s.emit(event)
}
