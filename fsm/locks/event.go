package locks

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
)

// EventKind says what happened.
type EventKind uint8

// The kinds of events.
const (
	// Created, Removed: a lock was made or removed, and with it the key's marker. [Table.Flush] removes the markers of a
	// database without Removed; a lock that stays, because of a queue, has another Created.
	Created EventKind = iota + 1
	Removed
	// Granted: Owner got the lock with Fence. A request for many locks has an event for each.
	Granted
	// Released: Owner gave its hold back.
	Released
	// Lost: Owner lost its hold, for Reason.
	Lost
	// TimedOut: Owner's wait for this lock ended by time.
	TimedOut
	// Waiting: a request joined the queue, which has Waiters entries now.
	JoinedQueue
	// WaitEnded: the wait named Name is over. Each wait has one, after its other events. Fence is the grant, or 0; Err
	// says why not. Key is the first of the request's keys.
	WaitEnded
	// SessionEnded: the session Session ended. The losses of its holds come before or after.
	SessionEnded
	// Left: a request left the queue, which has Waiters entries now, without a grant. Left and Late inform listeners, and
	// no work is charged for them. Left changes the version of the key.
	LeftQueue
	// Late: a hold was renewed, or ended, with less than a fifth of its lease left. Emitted once for each hold. A session
	// emits it once, for its first hold, and again only after it has held nothing. A loaded table has forgotten which
	// were emitted.
	Late
	// Refused: a request for a held lock did not wait for it. Mismatched: Owner released a lock that it does not hold.
	// The owner of the table emits both.
	Refused
	Mismatched
	// Overwritten: a command stored another value in the place of a stock lock.
	Overwritten
	// Renewed: another connection asked again for the hold of Owner, or bound it to another session.
	Renewed
)

// Departure says how a request left the queue without a grant.
type Departure uint8

// The departures.
const (
	// OutOfTime: the wait and the grace are over.
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

// String returns the word for the departure in logs.
func (d Departure) String() string {
	if int(d) < len(departures) {
		return departures[d]
	}
	return ""
}

// Event is what happened to a lock or a session. The table emits the events of native locks, and commands on keys those
// of stock locks.
type Event struct {
	Kind   EventKind
	Reason Reason
	// How says how a Left request left.
	How Departure
	// Notify: the waiter asked for notices beside its commands. ByTime: the wait ended by time.
	Notify     bool
	ByTime     bool
	DB         int
	Key, Owner string
	Fence      uint64
	Session    uint64
	// Client is the connection that acquired the hold last, or that waits. Attached is the connection to which the hold's
	// session is attached, if any.
	Client, Attached Client
	// Name and Err are for WaitEnded. Again has the keys of the later request if Err is ErrAskedAgain and the same
	// connection sent it: the reply to that request covers these keys. Again is valid as long as the request's arguments.
	Name  waits.Name
	Err   error
	Again []string
	// Waiters is the length of the queue.
	Waiters int
	// Note, SinceMillis (of the grant) and Cause (from [Break] or Flush) are for Lost.
	Note        string
	SinceMillis int64
	Cause       uint64
	// WaitedMillis is the time that a request waited, at its grant or the end of its wait; of a request for many locks
	// that Left, the first key's event has it. HeldMillis is the duration of the hold. SinceRenewedMillis is the part of
	// the lease, LeaseMillis, that was used since the last renewal. LeaseMillis is 0 for a session's hold, except if
	// Late.
	WaitedMillis, HeldMillis, SinceRenewedMillis, LeaseMillis int64
	// Text is for Created: the text of the key's marker, see [keyspace.NewLock].
	Text keyspace.LockText
	// Stock is for stock locks, beside Kind, Reason, DB, Key, Owner and Client; nil: the lock is native.
	Stock *StockLock
}

// StockLock is what an [Event] says of a stock lock.
type StockLock struct {
	// Item is the key's, with the mark of a stock lock; empty for a Mismatched key, and for a string that was Granted.
	// Next is the new value if the lock was Overwritten.
	Item, Next keyspace.Item
	// Owners are the first of Count owners that lost a Broken lock. If the lock was lost for another reason, the list is
	// complete.
	Owners []Hold
	Count  int
	// Ended: a Mismatched release came after the end of the owner's lease and before the removal of the key.
	Ended bool
	// ByName: DEL or UNLINK Released the lock without an owner, which may be a loss. The machine sets it.
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

// holdEvent returns an event of a hold.
func (s *store) holdEvent(kind EventKind, h *hold) Event {
	told := Event{
		Kind: kind, DB: int(h.db), Key: h.key, Owner: h.owner, Fence: h.fence, Session: h.session(),
		Client: h.client(), LeaseMillis: h.lease(),
	}
	if told.Session != 0 {
		told.Attached = s.session(told.Session).client()
	}
	return told
}

// holdEndEvent returns an event of a hold that ends, or is renewed, at an instant.
func (s *store) holdEndEvent(kind EventKind, h *hold, at int64) Event {
	told := s.holdEvent(kind, h)
	told.HeldMillis = at - h.since
	if h.deadline != never {
		told.SinceRenewedMillis = min(told.LeaseMillis, at-(h.deadline-told.LeaseMillis))
	}
	return told
}

// dismiss ends a wait without a grant. err is for the client, if it still waits.
func (s *store) dismiss(w *waiter, err error) {
	s.removeQueue(w)
	s.wakeAll(w)
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
	if w.absent { // the wait was over before, and the place kept
		how, waited = OutOfTime, max(0, w.deadline-w.grace-w.since)
	}
	for _, key := range w.keys() {
		l := s.find(int(w.db), key)
		s.emit(Event{
			Kind: LeftQueue, How: how, DB: int(w.db), Key: l.key(), Owner: w.owner, Session: w.session, Client: w.client(),
			Waiters: l.waiters(), WaitedMillis: waited,
		})
		waited = 0
	}
}

// emitEndOfWait emits the end of a wait, unless the client has heard of it before.
func (s *store) emitEndOfWait(w *waiter, fence uint64, err error) {
	if !w.absent {
		s.emit(s.waitEndedEvent(w, fence, err))
	}
}

func (s *store) waitEndedEvent(w *waiter, fence uint64, err error) Event {
	return Event{
		Kind: WaitEnded, DB: int(w.db), Key: w.keys()[0], Owner: w.owner, Fence: fence, Session: w.session,
		Notify: w.notify, Client: w.client(), Name: w.name(), Err: err, WaitedMillis: s.now - w.since,
	}
}

// emitLate emits [Late] for a hold that is renewed or ends late, unless it was emitted before. It reports whether it
// was emitted, now or before; false for a session's hold, as the session keeps that.
func (s *store) emitLate(h *hold, at int64) bool {
	if h.deadline == never {
		// A session that has ended emitted its own event.
		if of := s.session(h.bound); !of.closed {
			s.emitLateFor(of, h, at)
		}
		return false
	}
	told := s.holdEndEvent(Late, h, at)
	if h.late || told.SinceRenewedMillis <= told.LeaseMillis/5*4 {
		return h.late
	}
	s.emit(told)
	return true
}

// emitLateSession emits [Late] for a session that is renewed or ends late, unless it did since the session held
// nothing. It looks at the first hold only, as a session may have many.
func (s *store) emitLateSession(of *session, at int64) {
	if first := s.firstHold(of.id); first != nil {
		s.emitLateFor(of, first, at)
	}
}

// emitLateFor emits h for all holds of its session.
func (s *store) emitLateFor(of *session, h *hold, at int64) {
	since := min(at-(s.endOf(of)-of.lease), at-h.since)
	if of.late || since <= of.lease/5*4 {
		return
	}
	s.mutableSession(of.id).late = true
	told := s.holdEndEvent(Late, h, at)
	told.SinceRenewedMillis, told.LeaseMillis = since, of.lease
	s.emit(told)
}
