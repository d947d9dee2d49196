package locks

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
)

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events. The table emits all events of sessions, and the events of native locks except Refused and
// Mismatched. Commands emit Refused and Mismatched, and all events of stock locks. The package documentation explains
// the words native and stock.
const (
	// Created reports that the table made a lock. The state machine then stores the item that marks the lock.
	Created EventKind = iota + 1
	// Removed reports that the table removed a lock. The state machine then deletes the item that marks the lock.
	// [Table.Flush] emits no Removed, because the caller of Flush deletes all items. If a flushed lock has waiters, the
	// lock moves to the live database, and the table emits another Created.
	Removed
	// Granted reports that the lock was granted to Owner with Fence. A request for several locks causes one Granted for
	// each lock.
	Granted
	// Released reports that Owner released its hold, or that a command removed a stock lock.
	Released
	// Lost reports that Owner lost its hold. Reason is the reason of the loss.
	Lost
	// TimedOut reports that the wait of Owner for the lock ended by time.
	TimedOut
	// JoinedQueue reports that a request joined the queue of the lock. Waiters is the number of entries in the queue,
	// including the new entry.
	JoinedQueue
	// WaitEnded reports that the wait with the name Name ended. A wait causes at most one WaitEnded, and no WaitEnded if
	// the client disconnected. After WaitEnded, the wait can cause only LeftQueue. Key is the first key of the request.
	// If the request was granted, Fence is the fence of the grant. Otherwise Fence is 0, and Err is the error that ended
	// the wait.
	WaitEnded
	// SessionEnded reports that a session ended. The table may emit Lost for a hold of the session before or after
	// SessionEnded.
	SessionEnded
	// LeftQueue reports that a request left the queue of the lock without a grant. Waiters is the number of entries that
	// remain. The state machine gives the item of the lock another version.
	LeftQueue
	// Late reports that a hold was renewed or ended when less than a fifth of the lease was left. A hold with a lease of
	// its own causes at most one Late. All holds of a session together cause one Late. The session can cause another Late
	// only after it has had no holds. A table that was loaded from a snapshot may repeat a Late.
	Late
	// Refused reports that a request was blocked, and did not wait.
	Refused
	// Mismatched reports that Owner tried to release a lock that Owner does not hold.
	Mismatched
	// Overwritten reports that a command replaced a stock lock by an item that is not marked as a stock lock.
	Overwritten
	// Renewed reports a change of a hold by its owner: the owner requested the hold again from another connection, moved
	// the hold to another session, or downgraded the hold. A renewal without such a change emits no Renewed.
	Renewed
	// Stored reports that a command stored or deleted the item of a key. The old item or the new item may be a stock
	// lock. [StockLock] has the old item in Item, and the new item in Next. Next is empty if the command deleted the
	// item. Only audits read Stored, Joined and Parted.
	Stored
	// Joined reports that a command added the field Owner to a hash that is a stock lock. The fields of the hash are the
	// owners of the lock.
	Joined
	// Parted reports that a command removed the field Owner from a hash that is a stock lock.
	Parted
)

// Departure is the reason why a request left a queue without a grant.
type Departure uint8

// The departures.
const (
	OutOfTime    Departure = iota + 1 // the wait ended by time; the grace, if any, ended by time or otherwise
	Cancelled                         // LOCK.CANCEL, or CLIENT UNBLOCK with TIMEOUT
	WithSession                       // the session of the waiter ended
	Unblocked                         // CLIENT UNBLOCK with ERROR
	Disconnected                      // the client disconnected, or the node of the client ended
	WithError                         // any other error
	Replaced                          // the owner sent another request; the other request may be in the queue now
)

var departures = [...]string{
	OutOfTime: "timeout", Cancelled: "cancelled", WithSession: "session", Unblocked: "unblocked",
	Disconnected: "gone", WithError: "refused", Replaced: "replaced",
}

// String returns the word for d in logs, or "" if d has no word.
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
	ByTime bool      // in WaitEnded: whether the wait ended by time
	DB     int
	Key    string
	Owner  string
	Fence  uint64
	// Session is the session of the hold or waiter, or 0.
	Session uint64
	// Client is the connection that requested the hold last, or the connection of the waiter. In SessionEnded, Client is
	// the connection of the session.
	Client Client
	// Attached is the connection to which the session is attached. Without a session, or if the session is not attached,
	// Attached is the zero Client.
	Attached Client
	Mode     Mode // the mode of the hold
	// Name and Err are set in WaitEnded. Name is the name of the wait. Err is nil if the wait ended by a grant, by time,
	// by LOCK.CANCEL or by CLIENT UNBLOCK with TIMEOUT. Otherwise Err is the error that ended the wait.
	Name waits.Name
	Err  error
	// Again has the keys of a later request that ended the wait. Again is set only if Err is ErrAskedAgain and the
	// waiter's connection sent the later request. The reply to the later request answers for these keys. The slice
	// belongs to the later request.
	Again   []string
	Waiters int    // in JoinedQueue and LeftQueue: the entries of the queue after the change
	Note    string // the note of the hold; in LeftQueue: the note of the request
	// SinceMillis is a time in three kinds of events. In Lost, it is the time at which the owner was granted the lock. In
	// Granted, it is the time since which the owner has held the lock under earlier fences, or 0 if the owner did not
	// hold the lock. In LeftQueue, it is the time at which the wait began.
	SinceMillis int64
	// CauseID is set in Lost. It is the id of the command that ended the hold, or 0 if no command did. For a native lock,
	// the caller of [Table.Break] or [Table.Flush] chooses the id.
	CauseID uint64
	// WaitedMillis is the time for which the request had waited. A grace is not part of that time.
	WaitedMillis int64
	HeldMillis   int64 // the time for which the hold existed; in SessionEnded: for which the session existed
	// SinceRenewedMillis is the part of LeaseMillis that had passed since the last renewal of the lease.
	SinceRenewedMillis int64
	// LeaseMillis is the lease of the hold, or 0 if the hold has a session. In SessionEnded, and in a Late for a hold
	// that has a session, LeaseMillis is the lease of the session.
	LeaseMillis int64
	// Text is set in Created. It is the text of the item that will mark the lock: see [keyspace.NewLock].
	Text keyspace.LockText
	// Stock describes a stock lock. Stock is nil in an event of a native lock or of a session. An event of a stock lock
	// sets no other fields than Stock, Kind, Reason, Cause, DB, Key, Owner and Client.
	Stock *StockLock
}

// StockLock describes the stock lock of an [Event].
type StockLock struct {
	// Item is the item of the key. If the command replaced or deleted the item, Item is the old item. Item is empty in
	// Mismatched, and in Granted if the lock is a string.
	Item keyspace.Item
	// Next is the new item. It is set in Overwritten and Stored.
	Next keyspace.Item
	// Owners and Count are set in Lost if Reason is Broken. Count is the number of owners that lost the lock. Owners
	// describes the first owners, and may be shorter than Count.
	Owners []Hold
	Count  int
	// Ended is set in Mismatched. It is true if the lease of Owner had ended, and the key was not removed yet.
	Ended bool
	// ByName is set in Released. It is true if DEL or UNLINK removed the key. These commands name the key and no owner,
	// so the owner may have lost the lock against its will. The state machine sets ByName.
	ByName bool
}

// Events returns the events that TakeEvents has not returned yet.
func (s *store) Events() []Event { return s.events }

// TakeEvents returns the events that were emitted since the last call of TakeEvents. The slice is valid until the next
// call that changes the table.
func (s *store) TakeEvents() []Event {
	taken := s.events
	if s.events = s.events[:0]; cap(taken) > 1<<8 {
		s.events = nil
	}
	return taken
}

// emit emits an event with the given fields, and returns the event, so that the caller can set the other fields. The
// pointer is valid until the next event. An event has 300 bytes, so the table never passes one by value.
func (s *store) emit(kind EventKind, db int, key string) *Event {
	n := len(s.events)
	s.events = slices.Grow(s.events, 1)[:n+1]
	s.events[n] = Event{Kind: kind, DB: db, Key: key}
	return &s.events[n]
}

// emitHold emits an event about the hold of a key, without SinceMillis, HeldMillis and SinceRenewedMillis.
func (s *store) emitHold(kind EventKind, key string, h *hold) *Event {
	e := s.emit(kind, int(h.db), key)
	e.Owner, e.Fence, e.Session, e.Client = h.owner, h.fence, h.session(), h.client()
	e.LeaseMillis, e.Mode, e.Note = h.lease(), h.mode, h.note
	if e.Session != 0 {
		e.Attached = s.session(e.Session).client()
	}
	return e
}

// emitTimedHold emits an event about a hold that ended or was renewed, with HeldMillis and SinceRenewedMillis. The
// parameter at is the time of the end or of the renewal.
func (s *store) emitTimedHold(kind EventKind, key string, h *hold, at int64) *Event {
	e := s.emitHold(kind, key, h)
	e.HeldMillis, e.SinceRenewedMillis = at-h.since, h.sinceRenewed(at)
	return e
}

// dismiss removes a waiter from its queues without a grant. If the waiter is not absent, the client of the waiter gets
// err as the reply to the request. If err is nil, the client gets the reply of a timeout.
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

// emitLeft emits LeftQueue for each key of a waiter that was removed from its queues.
func (s *store) emitLeft(w *waiter, how Departure) {
	waited := s.now - w.since
	if w.absent { // the wait ended by time when the grace began
		how, waited = OutOfTime, max(0, w.deadline-w.grace-w.since)
	}
	for _, key := range w.keys() {
		e := s.emitWait(LeftQueue, w, key)
		e.How, e.Waiters, e.Note = how, s.find(e.DB, key).waiters(), w.note
		e.SinceMillis, e.WaitedMillis = w.since, waited
	}
}

// emitEndOfWait emits WaitEnded for a waiter. It emits nothing and returns nil for an absent waiter, whose WaitEnded
// was emitted when the grace began.
func (s *store) emitEndOfWait(w *waiter, fence uint64, err error) *Event {
	if w.absent {
		return nil
	}
	e := s.emitWait(WaitEnded, w, w.keys()[0])
	e.Fence, e.Name, e.Err = fence, w.name(), err
	return e
}

// emitWait emits an event about a waiter in the queue of one of its keys.
func (s *store) emitWait(kind EventKind, w *waiter, key string) *Event {
	e := s.emit(kind, int(w.db), key)
	e.Owner, e.Session, e.Client, e.WaitedMillis = w.owner, w.session(), w.client(), s.now-w.since
	return e
}

// emitLate handles the hold of a key that is renewed or ends. It emits [Late] if less than a fifth of the hold's lease
// is left, and if no Late was emitted for the hold before. The parameter at is the time of the renewal or of the end.
// The result is the new value of the hold's field lateEmitted. For a hold of a session the result is false, because the
// session has a field lateEmitted of its own.
func (s *store) emitLate(key string, h *hold, at int64) bool {
	if h.deadline == noDeadline {
		// If endPending is set, endSession has emitted the Late of the session, or will emit it.
		if sess := s.session(h.sessionOrLease); !sess.endPending {
			s.emitLateFor(sess, key, h, at)
		}
		return false
	}
	if h.lateEmitted || h.sinceRenewed(at) <= h.lease()/5*4 {
		return h.lateEmitted
	}
	s.emitTimedHold(Late, key, h, at)
	return true
}

// emitLateSession does the work of emitLate for a session that is renewed or ends. A session may have many holds, so
// the event describes only the first hold.
func (s *store) emitLateSession(sess *session, at int64) {
	if first := s.firstHold(sess.id); first != nil {
		s.emitLateFor(sess, first.key, &first.hold, at)
	}
}

// emitLateFor emits [Late] about hold h of a session and a key, if three conditions are met:
//   - Less than a fifth of the session's lease is left.
//   - The hold has existed for more than four fifths of the duration of the lease.
//   - No Late was emitted for the session since it got the first of its present holds.
func (s *store) emitLateFor(sess *session, key string, h *hold, at int64) {
	since := min(at-(s.endOf(sess)-sess.lease), at-h.since)
	if sess.lateEmitted || since <= sess.lease/5*4 {
		return
	}
	s.mutableSession(sess.id).lateEmitted = true
	e := s.emitTimedHold(Late, key, h, at)
	e.SinceRenewedMillis, e.LeaseMillis = since, sess.lease
}
