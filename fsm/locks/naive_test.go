package locks

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// naive is a simple model of the table, with slices and loops instead of trees. Its author used only the contract of
// the calls. Before each call it runs all due events, without a budget.
//
// Some events of one time may come in any order: grants of several locks, grants of a lock to neighbours in its queue
// that share it, and losses for the same reason. So the test copies the fences of the table's grants to the model: see
// match in model_test.go.
type naive struct {
	now      int64
	locks    []*nLock
	queue    []*nWait // by order, for any keys
	sessions []*nSession
	lastID   uint64
	alive    map[protocol.Incarnation]int64
	events   []nEffect
	// held is set if only follow makes grants (model_entries_test.go). late is set if even a new request is not granted.
	held, late bool
}

// nEffect is an event whose fence the table chooses.
type nEffect struct {
	Event
	grant *nGrant
	// beside marks an event that may come in any order among neighbours with the same text, unless it is "".
	beside string
}

type nGrant struct{ fence uint64 }

type nLock struct {
	db    int
	key   string
	holds []*nHold
	delay int64 // the deadline of the delay, or 0
	there bool  // Created was emitted
}

type nHold struct {
	owner, call, note     string
	grant                 *nGrant
	asked                 bool // the owner has asked for the lock again or renewed the hold since the grant
	mode                  Mode
	permits, count, delay int64
	session               uint64
	lease, deadline       int64 // without a session
	since                 int64
	client                Client
}

type nWait struct {
	Request
	since, deadline int64
	absent          bool
}

type nSession struct {
	id                      uint64
	name, user              string
	lease, deadline, opened int64
	client                  Client // the zero Client if the session is not attached
}

func newNaive() *naive { return &naive{alive: map[protocol.Incarnation]int64{}} }

// copy returns a deep copy.
func (n *naive) copy() *naive {
	c := *n
	c.locks, c.queue, c.sessions, c.alive = nil, nil, nil, map[protocol.Incarnation]int64{}
	for _, l := range n.locks {
		m := *l
		m.holds = nil
		for _, h := range l.holds {
			g := *h
			m.holds = append(m.holds, &g)
		}
		c.locks = append(c.locks, &m)
	}
	for _, w := range n.queue {
		v := *w
		c.queue = append(c.queue, &v)
	}
	for _, s := range n.sessions {
		r := *s
		c.sessions = append(c.sessions, &r)
	}
	for o, at := range n.alive {
		c.alive[o] = at
	}
	c.events = nil
	return &c
}

func (n *naive) tell(e Event, g *nGrant) {
	n.events = append(n.events, nEffect{Event: e, grant: g})
}

// tellBeside is tell for an event that may come in any order among its neighbours with the same beside.
func (n *naive) tellBeside(e Event, g *nGrant, beside string) {
	n.events = append(n.events, nEffect{Event: e, grant: g, beside: beside})
}

// lock returns the lock of a key, and makes it if it is missing.
func (n *naive) lock(db int, key string) *nLock {
	for _, l := range n.locks {
		if l.db == db && l.key == key {
			return l
		}
	}
	l := &nLock{db: db, key: key}
	n.locks = append(n.locks, l)
	return l
}

func (n *naive) session(id uint64) *nSession {
	for _, s := range n.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

// endOf returns the deadline of a session.
func (n *naive) endOf(s *nSession) int64 {
	if s.client == (Client{}) {
		return s.deadline
	}
	return max(s.deadline, n.alive[s.client.Origin]+s.lease)
}

func (n *naive) attachedTo(id uint64) Client {
	if s := n.session(id); s != nil {
		return s.client
	}
	return Client{}
}

func (l *nLock) holdOf(owner string) *nHold {
	for _, h := range l.holds {
		if h.owner == owner {
			return h
		}
	}
	return nil
}

// waitOf returns the owner's waiter in the queue of a key, or nil.
func (n *naive) waitOf(db int, key, owner string) *nWait {
	for _, w := range n.queue {
		if w.DB == db && w.Owner == owner && slices.Contains(w.Keys, key) {
			return w
		}
	}
	return nil
}

// joins reports whether a request is compatible with all holds.
func (l *nLock) joins(r *Request) bool {
	sum := int64(r.Permits)
	for _, h := range l.holds {
		if h.mode == Exclusive || r.Mode == Exclusive || h.mode != r.Mode {
			return false
		}
		sum += h.permits
	}
	return r.Mode != Permits || sum <= int64(r.Limit)
}

// free reports whether neither a lock nor a waiter blocks a request at a place of the queue.
func (n *naive) free(r *Request, place int) bool {
	for _, key := range r.Keys {
		l := n.lock(r.DB, key)
		if l.holdOf(r.Owner) != nil {
			continue // a hold of the owner covers the request
		}
		if l.delay != 0 || !l.joins(r) {
			return false
		}
		for _, w := range n.queue[:place] {
			before := !w.absent && w.DB == r.DB && slices.Contains(w.Keys, key)
			if before && !(w.Mode == Shared && r.Mode == Shared) {
				return false
			}
		}
	}
	return true
}

// pump makes all possible grants, from the head of the queue.
func (n *naive) pump() {
	if n.held {
		return
	}
	for i := 0; i < len(n.queue); i++ {
		w := n.queue[i]
		if w.absent || !n.free(&w.Request, i) {
			continue
		}
		n.queue = slices.Delete(n.queue, i, i+1)
		if n.hasLapsed(w) {
			n.emitEndOfWait(w, nil, ErrNoSession)
			n.emitLeft(w, WithSession)
		} else {
			n.emitEndOfWait(w, n.grant(&w.Request, w.since), nil)
		}
		i = -1
	}
}

// hasLapsed reports whether the session of a waiter has ended. The end may have become due after the last catchUp.
func (n *naive) hasLapsed(w *nWait) bool {
	return w.Session != 0 && n.endOf(n.session(w.Session)) < n.now
}

func (n *naive) grant(r *Request, since int64) *nGrant {
	g := &nGrant{}
	for _, key := range r.Keys {
		l := n.lock(r.DB, key)
		h := &nHold{owner: r.Owner, mode: r.Mode, permits: int64(r.Permits), count: 1, since: n.now, grant: g}
		heldSince := int64(0)
		if old := l.holdOf(r.Owner); old != nil {
			*h = *old
			h.grant, h.asked, heldSince = g, false, old.since
			l.holds = slices.DeleteFunc(l.holds, func(o *nHold) bool { return o == old })
		}
		n.bind(h, r)
		l.holds = append(l.holds, h)
		e := n.holdEvent(Granted, l, h)
		e.SinceMillis, e.WaitedMillis = heldSince, n.now-since
		if h.mode == Shared {
			n.tellBeside(e, g, "shared")
		} else {
			n.tell(e, g)
		}
	}
	return g
}

// bind sets the fields of a hold that the last request of its owner determines.
func (n *naive) bind(h *nHold, r *Request) {
	h.session, h.lease, h.deadline = r.Session, r.LeaseMillis, n.now+r.LeaseMillis
	if r.Session != 0 {
		h.lease, h.deadline = 0, noDeadline
	}
	h.delay, h.note, h.client, h.call = r.DelayMillis, r.Note, r.Client, r.Call
}

func (n *naive) holdEvent(kind EventKind, l *nLock, h *nHold) Event {
	e := Event{
		Kind: kind, DB: l.db, Key: l.key, Owner: h.owner, Session: h.session, Client: h.client,
		LeaseMillis: h.lease, Mode: h.mode, Note: h.note,
	}
	if h.session != 0 {
		e.Attached = n.attachedTo(h.session)
	}
	return e
}

// emitEndOfWait emits the end of a wait.
func (n *naive) emitEndOfWait(w *nWait, g *nGrant, err error) {
	if w.absent {
		return
	}
	n.tell(Event{
		Kind: WaitEnded, DB: w.DB, Key: w.Keys[0], Owner: w.Owner, Session: w.Session, Client: w.Client,
		Name: waits.Name{Origin: w.Client.Origin, Ticket: w.Ticket}, Err: err, WaitedMillis: n.now - w.since,
	}, g)
}

// emitLeft emits LeftQueue for each key of a waiter.
func (n *naive) emitLeft(w *nWait, how Departure) {
	waited := n.now - w.since
	if w.absent {
		waited, how = w.deadline-w.GraceMillis-w.since, OutOfTime
	}
	for _, key := range w.Keys {
		e := Event{Kind: LeftQueue, How: how, DB: w.DB, Key: key, Owner: w.Owner, Session: w.Session, Client: w.Client}
		e.Waiters, e.Note, e.SinceMillis, e.WaitedMillis = n.inLine(w.DB, key), w.Note, w.since, waited
		n.tell(e, nil)
	}
}

// inLine returns the length of the queue of a key.
func (n *naive) inLine(db int, key string) (waiters int) {
	for _, w := range n.queue {
		if w.DB == db && slices.Contains(w.Keys, key) {
			waiters++
		}
	}
	return waiters
}

func (n *naive) leave(w *nWait) {
	n.queue = slices.DeleteFunc(n.queue, func(o *nWait) bool { return o == w })
}

// causes has the ids of the commands that end holds.
var causes = map[Reason]uint64{Broken: 7, Flushed: 8}

// drop removes a hold. at is the time at which the hold ended.
func (n *naive) drop(kind EventKind, reason Reason, l *nLock, h *nHold, at int64) {
	l.holds = slices.DeleteFunc(l.holds, func(o *nHold) bool { return o == h })
	e := n.holdEvent(kind, l, h)
	e.Reason, e.CauseID, e.HeldMillis = reason, causes[reason], at-h.since
	if h.session == 0 {
		e.SinceRenewedMillis = min(h.lease, at-(h.deadline-h.lease))
	}
	if kind == Lost {
		e.SinceMillis = h.since
		n.tellBeside(e, h.grant, fmt.Sprint(reason, " ", at))
	} else {
		n.tell(e, h.grant)
	}
}

// loseHold removes a hold against its owner's will, and starts the delay. at is the time at which the hold ended.
func (n *naive) loseHold(reason Reason, l *nLock, h *nHold, at, delay int64) {
	n.drop(Lost, reason, l, h, at)
	if delay > 0 {
		l.delay = max(l.delay, at+delay)
	}
}

// nDue is an event that is due at a time.
type nDue struct {
	at   int64
	rank int // orders events of one time: ends of sessions first, then ends of holds, delays and waits of each lock
	lock *nLock
	do   func()
}

// before orders events by time, lock and rank.
func (d nDue) before(e nDue) int {
	if d.at != e.at || d.lock == nil || e.lock == nil {
		return cmp.Or(cmp.Compare(d.at, e.at), cmp.Compare(d.rank, e.rank))
	}
	return cmp.Or(cmp.Compare(d.lock.db, e.lock.db), cmp.Compare(keyspace.Hash(d.lock.key), keyspace.Hash(e.lock.key)),
		cmp.Compare(d.lock.key, e.lock.key), cmp.Compare(d.rank, e.rank))
}

// timers returns all future events.
func (n *naive) timers() (all []nDue) {
	for _, s := range n.sessions {
		all = append(all, nDue{at: n.endOf(s), do: func() { n.endSession(s, n.endOf(s)) }})
	}
	for _, l := range n.locks {
		for _, h := range l.holds {
			if h.session == 0 {
				all = append(all, nDue{h.deadline, 1, l, func() { n.loseHold(Expired, l, h, h.deadline, h.delay) }})
			}
		}
		if l.delay != 0 {
			all = append(all, nDue{l.delay, 2, l, func() { l.delay = 0 }})
		}
	}
	for _, w := range n.queue {
		if w.deadline != noDeadline {
			all = append(all, nDue{w.deadline, 3, n.lock(w.DB, w.Keys[0]), func() { n.endWait(w) }})
		}
	}
	slices.SortStableFunc(all, nDue.before)
	return all
}

// catchUp runs all due events in the order of time.
func (n *naive) catchUp() {
	n.pump()
	for {
		all := n.timers()
		if len(all) == 0 || all[0].at >= n.now {
			break
		}
		all[0].do()
		n.pump()
	}
	n.tidy()
}

// tidy removes locks without holds, waiters and delay, and emits Created and Removed.
func (n *naive) tidy() {
	for _, l := range slices.Clone(n.locks) {
		there := len(l.holds) > 0 || l.delay != 0 ||
			slices.ContainsFunc(n.queue, func(w *nWait) bool { return w.DB == l.db && slices.Contains(w.Keys, l.key) })
		switch {
		case there && !l.there:
			n.tell(Event{Kind: Created, DB: l.db, Key: l.key}, nil)
		case !there && l.there:
			n.tell(Event{Kind: Removed, DB: l.db, Key: l.key}, nil)
		}
		if l.there = there; !there {
			n.locks = slices.DeleteFunc(n.locks, func(o *nLock) bool { return o == l })
		}
	}
}

func (n *naive) endWait(w *nWait) {
	if n.hasLapsed(w) {
		n.leave(w)
		n.emitEndOfWait(w, nil, ErrNoSession)
		n.emitLeft(w, WithSession)
		return
	}
	if !w.absent {
		n.timedOut(w)
		n.emitEndOfWait(w, nil, nil)
		n.events[len(n.events)-1].ByTime = true
	}
	if w.absent || w.GraceMillis <= 0 {
		n.leave(w)
		n.emitLeft(w, OutOfTime)
		return
	}
	w.absent, w.deadline = true, w.deadline+w.GraceMillis
}

func (n *naive) timedOut(w *nWait) {
	for _, key := range w.Keys {
		n.tell(Event{
			Kind: TimedOut, DB: w.DB, Key: key, Owner: w.Owner, Session: w.Session, Client: w.Client,
			WaitedMillis: n.now - w.since,
		}, nil)
	}
}

// endSession ends a session whose deadline was at, with its waits and its holds.
func (n *naive) endSession(s *nSession, at int64) {
	n.tell(Event{
		Kind: SessionEnded, Session: s.id, LeaseMillis: s.lease, HeldMillis: at - s.opened, Client: s.client,
		Attached: s.client,
	}, nil)
	for _, w := range slices.Clone(n.queue) {
		if w.Session == s.id {
			n.leave(w)
			n.emitEndOfWait(w, nil, ErrNoSession)
			from := len(n.events)
			n.emitLeft(w, WithSession)
			for i := range n.events[from:] { // another hold may end before this one
				n.events[from+i].beside = fmt.Sprint(SessionGone, " ", at)
			}
		}
	}
	for _, l := range n.locks {
		for _, h := range slices.Clone(l.holds) {
			if h.session == s.id {
				n.loseHold(SessionGone, l, h, at, h.delay)
			}
		}
	}
	n.sessions = slices.DeleteFunc(n.sessions, func(o *nSession) bool { return o == s })
}
