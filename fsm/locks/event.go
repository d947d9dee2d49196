package locks

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
)

// EventKind says what happened.
type EventKind uint8

// The kinds of events.
const (
	// Came, Went: the lock is there now, or is gone: the key's marker. After [Table.Flush] all locks of the
	// database count as gone; of those that stay (a request waits, a delay runs) Came tells again.
	Came EventKind = iota + 1
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
	// WaitEnded: the wait of the client with the name Name is over; one a wait, after its other events. Fence
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
	// Refused: a request for a held lock did not wait for it. Mismatched: Owner released a lock that Owner does not
	// hold. The owner of the table tells both.
	Refused
	Mismatched
	// Overwritten: of a stock lock, a command stored something that is no lock in its place.
	Overwritten
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
	WithError
	// Replaced: the owner asked for something else, which may stand in the queue now.
	Replaced
)

var departures = [...]string{
	OutOfTime: "timeout", Cancelled: "cancelled", WithSession: "session", Unblocked: "unblocked",
	Disconnected: "gone", WithError: "refused", Replaced: "replaced",
}

// String is the word of the departure in logs.
func (d Departure) String() string {
	if int(d) < len(departures) {
		return departures[d]
	}
	return ""
}

// Event is something that happened to a lock, or to a session. The table tells of native locks; commands on keys tell
// of stock locks.
type Event struct {
	Kind   EventKind
	Reason Reason
	// How a Left request left.
	How Departure
	// Notify: the waiter asked to be told beside its commands. ByTime: the wait that ended, did so by time.
	Notify     bool
	ByTime     bool
	DB         int
	Key, Owner string
	Fence      uint64
	Session    uint64
	// Client is the connection that acquired last, or that waits. Attached is the one that the hold's
	// session lives with, if any.
	Client, Attached Client
	// Name and Err are for WaitEnded. Again are the keys of the later request if Err is ErrAskedAgain and the same
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
	// many locks that Left, the first key's event says it. HeldMillis is how long the hold lasted. SinceRenewedMillis
	// of its lease, LeaseMillis long (0: a session, except if Late), were used up since the last renewal.
	WaitedMillis, HeldMillis, SinceRenewedMillis, LeaseMillis int64
	// Text is for Came: what [keyspace.NewLock] makes the marker of.
	Text keyspace.LockText
	// Stock is what is known of a stock lock beside Kind, Reason, DB, Key, Owner and Client; nil: the lock is native.
	Stock *StockLock
}

// StockLock is what an [Event] says of a stock lock.
type StockLock struct {
	// Item is the key's, with the mark of a stock lock. Of a string that was Granted and of a Mismatched key it is empty.
	// Next is what was stored when the lock was Overwritten.
	Item, Next keyspace.Item
	// Owners lost the lock if it was Broken, the first of Count. Lost for another reason, all owners have lost it.
	Owners []Hold
	Count  int
	// Ended: the release of a Mismatched lock came between the end of the owner's lease and the removal of the key.
	Ended bool
	// ByName: DEL or UNLINK Released the lock, and names no owner, so that an owner may have lost it. The machine sets it.
	ByName bool
}

// Events are the events since the last TakeEvents.
func (s *store) Events() []Event { return s.events }

// TakeEvents returns the events and forgets them. The slice is good until the next call that changes
// the table.
func (s *store) TakeEvents() []Event {
	taken := s.events
	if s.events = s.events[:0]; cap(taken) > 1<<8 {
		s.events = nil
	}
	return taken
}

func (s *store) emit(e Event) { s.events = append(s.events, e) }

// about is an event on a hold.
func (s *store) about(kind EventKind, h *hold) Event {
	told := Event{
		Kind: kind, DB: int(h.db), Key: h.key, Owner: h.owner, Fence: h.fence, Session: h.session(),
		Client: h.client(), LeaseMillis: h.lease(),
	}
	if told.Session != 0 {
		told.Attached = s.clientOf(told.Session)
	}
	return told
}

// aboutEnd is an event on a hold that ends at an instant.
func (s *store) aboutEnd(kind EventKind, h *hold, at int64) Event {
	told := s.about(kind, h)
	told.HeldMillis = at - h.since
	if h.deadline != never {
		told.SinceRenewedMillis = min(told.LeaseMillis, at-(h.deadline-told.LeaseMillis))
	}
	return told
}

// dismiss ends a wait without a grant. err is what the client is told; none is told of an absent one.
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
	case ErrDropped:
		return Disconnected
	}
	return WithError
}

// emitLeft tells who listens that a waiter is in its queues no more.
func (s *store) emitLeft(w *waiter, how Departure) {
	waited := s.now - w.since
	if w.absent { // the wait was over before, and the place kept
		how, waited = OutOfTime, max(0, w.deadline-w.grace-w.since)
	}
	for _, key := range w.keys() {
		l := s.find(int(w.db), key)
		s.emit(Event{
			Kind: Left, How: how, DB: int(w.db), Key: l.key(), Owner: w.owner, Session: w.session, Client: w.client(),
			Waiters: l.waiters(), WaitedMillis: waited,
		})
		waited = 0
	}
}

// emitEndOfWait tells the client of a waiter that the wait is over.
func (s *store) emitEndOfWait(w *waiter, fence uint64, err error) {
	if !w.absent {
		s.emit(s.endOfWait(w, fence, err))
	}
}

func (s *store) endOfWait(w *waiter, fence uint64, err error) Event {
	return Event{
		Kind: WaitEnded, DB: int(w.db), Key: w.keys()[0], Owner: w.owner, Fence: fence, Session: w.session,
		Notify: w.notify, Client: w.client(), Name: w.name(), Err: err, WaitedMillis: s.now - w.since,
	}
}

// emitLate tells, once a hold, that the hold is renewed or ends late: see [Late]. It reports whether that was told, now
// or before.
func (s *store) emitLate(h *hold, at int64) bool {
	if h.deadline == never {
		// A session that has ended was looked at when it did.
		if of := s.session(h.bound); !of.closed {
			s.emitLateFor(of, h, at)
		}
		return false
	}
	told := s.aboutEnd(Late, h, at)
	if h.late || told.SinceRenewedMillis <= told.LeaseMillis/5*4 {
		return h.late
	}
	s.emit(told)
	return true
}

// emitLateSession looks at a session that is renewed or ends: one look, however many holds are bound to the session.
func (s *store) emitLateSession(of *session, at int64) {
	if first := s.firstHold(of.id); first != nil {
		s.emitLateFor(of, first, at)
	}
}

// emitLateFor tells of h for all holds of its session.
func (s *store) emitLateFor(of *session, h *hold, at int64) {
	since := min(at-(s.endOf(of)-of.lease), at-h.since)
	if of.late || since <= of.lease/5*4 {
		return
	}
	s.ownSession(of.id).late = true
	told := s.aboutEnd(Late, h, at)
	told.SinceRenewedMillis, told.LeaseMillis = since, of.lease
	s.emit(told)
}
