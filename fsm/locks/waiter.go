package locks

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// waiter is a request that waits. It is in the queues of all its keys, with one order. A waiter in a table is
// immutable.
type waiter struct {
	first    [1]string // the key, if there is only one
	owner    string
	*options // nil in probes only
	origin   *protocol.Incarnation
	conn     int64
	ticket   uint64
	// session is the session of the later hold. 0: the hold will have the lease.
	session  uint64
	lease    int64
	wait     int64 // the longest wait; 0: no bound
	grace    int64 // the time for which the place is kept afterwards
	order    uint64
	since    int64
	deadline int64 // the last instant of the wait, or of the grace; never: no end
	account  int16
	db       uint8
	mode     Mode
	// blocked is the index of the key that blocked the request last. The waiter is asleep in its other queues: only a
	// change at that key can lead to its grant.
	blocked uint8
	// absent: the wait ended by time, and the place is kept until deadline.
	absent            bool
	notify, reentrant bool
}

// options has the fields that few waiters need. Waiters without them share noOptions.
type options struct {
	several        []string // the keys, if there is more than one
	note, call     string
	delay          int64
	limit, permits int32
}

var noOptions options

// newWaiter returns a waiter, without an order, for a request. It shares the keys and texts of the request.
func newWaiter(q *Request, origin *protocol.Incarnation, now int64) *waiter {
	w := &waiter{
		owner: q.Owner, options: &noOptions, origin: origin, conn: q.Client.Conn, ticket: q.Ticket,
		session: q.Session, lease: q.LeaseMillis, wait: q.WaitMillis, grace: q.GraceMillis, since: now,
		deadline: never, account: q.Account, db: uint8(q.DB), mode: q.Mode, notify: q.Notify, reentrant: q.Reentrant,
	}
	several := len(q.Keys) > 1
	if several || q.Note != "" || q.Call != "" || q.DelayMillis != 0 || q.Mode == Permits {
		w.options = &options{note: q.Note, call: q.Call, delay: q.DelayMillis, limit: q.Limit, permits: q.Permits}
	}
	if several {
		w.several = make([]string, len(q.Keys))
	}
	copy(w.keys(), q.Keys)
	return w
}

func (w *waiter) request() Request {
	return Request{
		Keys: w.keys(), Owner: w.owner, Session: w.session, LeaseMillis: w.lease, WaitMillis: w.wait,
		DelayMillis: w.delay, GraceMillis: w.grace, Ticket: w.ticket, Call: w.call, Note: w.note, Client: w.client(),
		Limit: w.limit, Permits: w.permits, DB: int(w.db), Account: w.account, Mode: w.mode, Waits: true,
		Notify: w.notify, Reentrant: w.reentrant,
	}
}

// keys returns the keys, in the memory of the waiter.
func (w *waiter) keys() []string {
	if w.several != nil {
		return w.several
	}
	return w.first[:]
}

func (w *waiter) client() Client { return Client{*w.origin, w.conn} }

func (w *waiter) name() waits.Name { return waits.Name{Origin: *w.origin, Ticket: w.ticket} }

// rankAt returns the waiter's rank in the queue of its i-th key.
func (w *waiter) rankAt(i int) rank {
	switch {
	case w.absent:
		return absent
	case w.mode == Shared && i == int(w.blocked):
		return awakeShared
	case w.mode == Shared:
		return asleepShared
	case i == int(w.blocked):
		return awakeOther
	default:
		return asleepOther
	}
}

func (w *waiter) snapshot(c *codec) {
	c.wrong = errWaiter
	keys := w.keys()
	passSlice(c, &keys, passString)
	passUint(c, &w.order, anyUint)
	ends := w.deadline != never
	passFlags(c, &w.notify, &w.reentrant, &w.absent, &ends)
	passInt(c, &w.since, past, never)
	if ends {
		passInt(c, &w.deadline, past, never-1)
	}
	passUint(c, &w.blocked, MaxKeys)
	passText(c, &w.owner)
	passText(c, &w.note)
	passText(c, &w.call)
	passUint(c, &w.session, anyUint)
	passInt(c, &w.lease, past, Forever)
	passUint(c, &w.mode, uint64(Permits))
	passInt(c, &w.limit, 0, MaxLimit)
	passInt(c, &w.permits, 0, MaxLimit)
	passInt(c, &w.wait, 0, Forever)
	passInt(c, &w.delay, 0, Forever)
	passInt(c, &w.grace, 0, Forever)
	passClient(c, &w.origin, &w.conn)
	passUint(c, &w.ticket, anyUint)
	passUint(c, &w.account, keyspace.MaxAccount)
	if c.w == nil {
		w.several = keys
	}
}

func (c *codec) readWaiter(home *lock) {
	t, read := c.t, &waiter{options: &options{several: []string{}}, db: uint8(home.db()), deadline: never}
	read.snapshot(c)
	q := read.request()
	c.require(len(q.Keys) > 0 && int(read.blocked) < len(q.Keys) && q.Keys[0] == home.key())
	c.require(read.order > 0 && read.order <= t.orders && (!read.absent || read.deadline != never))
	if !c.require(q.Session == 0 || t.session(q.Session) != nil && q.LeaseMillis == 0) {
		return
	}
	checked := q
	if q.Session != 0 {
		checked.Session, checked.LeaseMillis = 0, 1
	}
	c.require(t.check(&checked) == nil && len(checked.Keys) == len(q.Keys) && checked.Mode == q.Mode &&
		checked.Limit == q.Limit && checked.Permits == q.Permits && checked.Waits && checked.Call == q.Call)
	w := newWaiter(&q, read.origin, read.since)
	w.order, w.deadline, w.blocked, w.absent = read.order, read.deadline, read.blocked, read.absent
	c.waiters = append(c.waiters, w)
}
