package locks

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
)

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events. The table emits the events of native locks and of sessions, except Refused and Mismatched.
// Commands emit these two, and all events of stock locks. The documentation of the package explains native and stock.
const (
	// Created reports that the table made a lock. The state machine stores an item, which marks the lock.
	Created EventKind = iota + 1
	// Removed reports that the table removed a lock. The state machine deletes the item that marks the lock.
	// [Table.Flush] emits no Removed, since its caller deletes all items. If a flushed lock stays in the table for its
	// queue, the table emits Created again.
	Removed
	// Granted reports that the lock was granted to Owner with Fence. A request for several locks causes an event for each
	// lock.
	Granted
	// Released reports that Owner released its hold.
	Released
	// Lost reports that Owner lost its hold. Reason tells why.
	Lost
	// TimedOut reports that the wait of Owner for this lock ended by time.
	TimedOut
	// JoinedQueue reports that a request joined the queue of the lock. Waiters counts the entries, the new one included.
	JoinedQueue
	// WaitEnded reports that the wait with Name ended. Each wait causes at most one, and none if the client disconnected.
	// Only LeftQueue may follow it. Fence is the fence of the grant; it is 0 if there was no grant, and then Err tells
	// why. Key is the first key of the request.
	WaitEnded
	// SessionEnded reports that a session ended. The table may emit Lost for the holds of the session before or after this
	// event.
	SessionEnded
	// LeftQueue reports that a request left the queue of the lock without a grant. Waiters counts the remaining entries.
	// The state machine gives the key another version. The budget is not charged for LeftQueue and Late.
	LeftQueue
	// Late reports that a hold was renewed, or ended, when less than a fifth of its lease was left. A hold causes at most
	// one Late. A session causes one Late, for its first hold, and causes another Late only after it has held no lock in
	// between. A table may repeat a Late after it was loaded from a snapshot.
	Late
	// Refused reports that a request for a held lock did not wait.
	Refused
	// Mismatched reports that Owner tried to release a lock that Owner does not hold.
	Mismatched
	// Overwritten reports that a command replaced the value of a stock lock.
	Overwritten
	// Renewed reports that the owner asked for its hold again from another connection, moved it to another session, or
	// downgraded it.
	Renewed
	// Stored reports that a command replaced the item of a key, and that the old or the new item may be a stock lock.
	// [StockLock] has them as Item and Next. Next is empty if the command deleted the item. Only audits read Stored,
	// Joined and Parted.
	Stored
	// Joined reports that a command added the field Owner to a hash that is a stock lock. Its fields are its owners.
	Joined
	// Parted reports that a command removed the field Owner from such a hash.
	Parted
)

// Departure is the reason why a request left a queue without a grant.
type Departure uint8

// The departures.
const (
	OutOfTime    Departure = iota + 1 // the wait and its grace ended by time
	Cancelled                         // LOCK.CANCEL, or CLIENT UNBLOCK with TIMEOUT
	WithSession                       // the session of the waiter ended
	Unblocked                         // CLIENT UNBLOCK with ERROR
	Disconnected                      // the client disconnected, or its node ended
	WithError                         // any other error
	Replaced                          // the owner sent another request, which may be in the queue now
)

var departures = [...]string{
	OutOfTime: "timeout", Cancelled: "cancelled", WithSession: "session", Unblocked: "unblocked",
	Disconnected: "gone", WithError: "refused", Replaced: "replaced",
}

// String returns the word for d in logs, or "" if d is unknown.
func (d Departure) String() string {
	if int(d) < len(departures) {
		return departures[d]
	}
	return ""
}

// Event reports a change of a lock or of a session.
type Event struct {
	Kind   EventKind
	Reason Reason    // in Lost: why the hold was lost
	How    Departure // in LeftQueue: why the request left the queue
	ByTime bool      // in WaitEnded: the wait ended by time
	DB     int
	Key    string
	Owner  string
	Fence  uint64
	// Session is the session of the hold or waiter, or 0.
	Session uint64
	// Client is the connection that acquired the hold last, or the connection of the waiter.
	Client Client
	// Attached is the connection to which the session of the hold is attached, or the zero Client.
	Attached Client
	Mode     Mode // the mode of the hold
	// Name and Err are set in WaitEnded. Name is the name of the wait. Err tells why there was no grant; it is nil after a
	// grant, a timeout or a LOCK.CANCEL.
	Name waits.Name
	Err  error
	// Again is set if Err is ErrAskedAgain, and the request that ended the wait came from the waiter's connection. It
	// lists the keys of that request. The reply to that request answers for these keys. The slice belongs to the request.
	Again   []string
	Waiters int    // in JoinedQueue and LeftQueue: the entries of the queue after the change
	Note    string // the note of the hold; in LeftQueue: the note of the request
	// SinceMillis is the time at which the hold was granted. It is set in Lost, and in Granted if the owner held the lock
	// already, under another fence. In LeftQueue it is the time at which the wait began.
	SinceMillis int64
	// Cause is set in Lost. It is the id that the caller of [Table.Break] or [Table.Flush] gave to the command that ended
	// the hold. It is 0 if no such command ended the hold.
	Cause uint64
	// WaitedMillis is the time for which a request waited before its grant, or before its wait ended.
	WaitedMillis int64
	HeldMillis   int64 // the time for which the hold existed
	// SinceRenewedMillis is the part of LeaseMillis that had passed since the last renewal.
	SinceRenewedMillis int64
	// LeaseMillis is the lease of the hold. For a hold of a session it is 0, or in a Late event the lease of the session.
	LeaseMillis int64
	// Text is the text for the item that marks a Created lock. See [keyspace.NewLock].
	Text keyspace.LockText
	// Stock describes a stock lock. It is nil for a native lock. Of the fields above, an event of a stock lock has Kind,
	// Reason, Cause, DB, Key, Owner and Client only.
	Stock *StockLock
}

// StockLock is the part of an [Event] about a stock lock.
type StockLock struct {
	// Item is the item of the key, with the mark of a stock lock. Item is empty in a Mismatched event, and when a string
	// was Granted.
	Item keyspace.Item
	// Next is the item that replaces Item in an Overwritten or Stored event.
	Next keyspace.Item
	// Owners and Count are set only in a Lost event whose Reason is Broken. Count is the number of owners that lost the
	// lock. Owners describes the first few of them.
	Owners []Hold
	Count  int
	// Ended is set in a Mismatched event if the owner's lease had ended and the key was not removed yet.
	Ended bool
	// ByName is set in a Released event if DEL or UNLINK removed the key. These commands name no owner, so the owner may
	// have lost the lock against its will. The machine sets ByName.
	ByName bool
}

// Events returns the events that TakeEvents has not returned yet.
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

// holdEvent returns an event about a hold, without times.
func (s *store) holdEvent(kind EventKind, h *hold) Event {
	event := Event{
		Kind: kind, DB: int(h.db), Key: h.key, Owner: h.owner, Fence: h.fence, Session: h.session(),
		Client: h.client(), LeaseMillis: h.lease(), Mode: h.mode, Note: h.note(),
	}
	if event.Session != 0 {
		event.Attached = s.session(event.Session).client()
	}
	return event
}

// timedHoldEvent returns an event about a hold that ended or was renewed. at is the time of the end or of the renewal.
func (s *store) timedHoldEvent(kind EventKind, h *hold, at int64) Event {
	event := s.holdEvent(kind, h)
	event.HeldMillis = at - h.since
	if h.deadline != noDeadline {
		event.SinceRenewedMillis = min(event.LeaseMillis, at-(h.deadline-event.LeaseMillis))
	}
	return event
}

// dismiss removes a waiter from its queues without a grant. If the client still waits, its reply is err, or a timeout
// if err is nil.
func (s *store) dismiss(w *waiter, err error) {
	s.dequeueWaiter(w)
	s.wakeQueuesOf(w)
	s.emitEndOfWait(w, 0, err)
	s.emitLeft(w, departureOf(err))
}

// departureOf returns the departure of a waiter that was dismissed with err.
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

// emitLeft emits LeftQueue for each key of a removed waiter.
func (s *store) emitLeft(w *waiter, how Departure) {
	waited := s.now - w.since
	if w.absent { // the wait ended before the grace
		how, waited = OutOfTime, max(0, w.deadline-w.grace-w.since)
	}
	for _, key := range w.keys() {
		e := s.waitEvent(LeftQueue, w, key)
		e.How, e.Waiters, e.Note = how, s.find(e.DB, key).waiters(), w.note
		e.SinceMillis, e.WaitedMillis = w.since, waited
		s.emit(e)
	}
}

// emitEndOfWait emits WaitEnded, unless the waiter is absent: its WaitEnded was emitted before the grace.
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

// waitEvent returns an event about a waiter in the queue of one of its keys.
func (s *store) waitEvent(kind EventKind, w *waiter, key string) Event {
	return Event{
		Kind: kind, DB: int(w.db), Key: key, Owner: w.owner, Session: w.session, Client: w.client(),
		WaitedMillis: s.now - w.since,
	}
}

// emitLate emits [Late] for a hold that is renewed or ends late, unless the hold has caused a Late before. It reports
// whether the hold has caused a Late. For a hold of a session it reports false, since the session records that.
func (s *store) emitLate(h *hold, at int64) bool {
	if h.deadline == noDeadline {
		// While endPending is set, endSession emits the Late of the session, or has emitted it.
		if sess := s.session(h.sessionOrLease); !sess.endPending {
			s.emitLateFor(sess, h, at)
		}
		return false
	}
	event := s.timedHoldEvent(Late, h, at)
	if h.lateEmitted || event.SinceRenewedMillis <= event.LeaseMillis/5*4 {
		return h.lateEmitted
	}
	s.emit(event)
	return true
}

// emitLateSession emits [Late] for a session that is renewed or ends late. The event describes only the first hold,
// since a session may have many holds.
func (s *store) emitLateSession(sess *session, at int64) {
	if first := s.firstHold(sess.id); first != nil {
		s.emitLateFor(sess, first, at)
	}
}

// emitLateFor emits [Late] about hold h of a session, if less than a fifth of the session's lease is left, and if h has
// existed for more than four fifths of it. It emits another Late only after the session has been without holds.
func (s *store) emitLateFor(sess *session, h *hold, at int64) {
	since := min(at-(s.endOf(sess)-sess.lease), at-h.since)
	if sess.lateEmitted || since <= sess.lease/5*4 {
		return
	}
	s.mutableSession(sess.id).lateEmitted = true
	event := s.timedHoldEvent(Late, h, at)
	event.SinceRenewedMillis, event.LeaseMillis = since, sess.lease
	s.emit(event)
}
