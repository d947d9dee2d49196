package locks

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// waiter is a request that waits for its locks. A waiter has an entry in the queue of each of its keys. All entries of
// a waiter have the order of the waiter. A waiter is immutable once it is in a table.
type waiter struct {
	oneKey   [1]string // the key of a request for one lock
	owner    string
	*options // nil only in probes; several waiters may share them
	origin   *protocol.Incarnation
	conn     int64
	ticket   uint64
	term     int64  // the lease of the requested hold in milliseconds, or minus the id of the session that it will have
	wait     int64  // the longest wait in milliseconds, or 0 for a wait without a deadline
	order    uint64 // the place in each queue: see the package documentation
	since    int64  // the instant at which the owner joined the queues
	deadline int64  // the last instant of the wait, or of the grace if absent is true, or noDeadline
	account  int16
	db       uint8
	mode     Mode
	// blockingKey is the index of the key whose lock has blocked the request last. The waiter is awake in the queue of
	// that lock, and asleep in its other queues. Only an event of that lock can lead to a grant.
	blockingKey uint8
	// absent is true during the grace: the wait has ended by time, and the owner may repeat the request until deadline.
	absent            bool
	notify, reentrant bool
}

// options has the grace of a waiter, and the fields that only some waiters need. A client's node chooses the grace, so
// the waiters without such fields share the options: see optionsOf.
type options struct {
	grace          int64    // the time in milliseconds for which an absent waiter keeps its entries
	manyKeys       []string // the keys of a request for several locks
	note, call     string
	delay          int64
	limit, permits int32
}

// optionsOf returns options for a request, without the keys.
func (s *store) optionsOf(q *Request) *options {
	switch {
	case len(q.Keys) > 1, q.Note != "", q.Call != "", q.DelayMillis != 0, q.Mode == Permits:
		return &options{
			grace: q.GraceMillis, note: q.Note, call: q.Call, delay: q.DelayMillis, limit: q.Limit, permits: q.Permits,
		}
	case s.plainOptions == nil, s.plainOptions.grace != q.GraceMillis:
		s.plainOptions = &options{grace: q.GraceMillis}
	}
	return s.plainOptions
}

// newWaiter returns a waiter for a request. The texts and keys share the memory of the request. The caller sets order,
// deadline and blockingKey.
func (s *store) newWaiter(q *Request, origin *protocol.Incarnation, now int64) *waiter {
	w := &waiter{
		owner: q.Owner, options: s.optionsOf(q), origin: origin, conn: q.Client.Conn, ticket: q.Ticket,
		term: q.LeaseMillis - int64(q.Session), wait: q.WaitMillis, since: now, deadline: noDeadline,
		account: q.Account, db: uint8(q.DB), mode: q.Mode, notify: q.Notify, reentrant: q.Reentrant,
	}
	if len(q.Keys) > 1 {
		w.manyKeys = make([]string, len(q.Keys))
	}
	copy(w.keys(), q.Keys)
	return w
}

// request returns the request of the waiter. Its Keys are the slice of the waiter, and not a copy.
func (w *waiter) request() Request {
	return Request{
		Keys: w.keys(), Owner: w.owner, Session: w.session(), LeaseMillis: w.lease(), WaitMillis: w.wait,
		DelayMillis: w.delay, GraceMillis: w.grace, Ticket: w.ticket, Call: w.call, Note: w.note, Client: w.client(),
		Limit: w.limit, Permits: w.permits, DB: int(w.db), Account: w.account, Mode: w.mode, Waits: true,
		Notify: w.notify, Reentrant: w.reentrant,
	}
}

// session returns the id of the session of the requested hold, or 0 if the hold will have a lease.
func (w *waiter) session() uint64 { return uint64(max(0, -w.term)) }

// lease returns the lease of the requested hold, or 0 if the hold will have a session.
func (w *waiter) lease() int64 { return max(0, w.term) }

// keys returns the keys of the request: the slice of the waiter, and not a copy.
func (w *waiter) keys() []string {
	if w.manyKeys != nil {
		return w.manyKeys
	}
	return w.oneKey[:]
}

func (w *waiter) client() Client { return Client{*w.origin, w.conn} }

func (w *waiter) name() waits.Name { return waits.Name{Origin: *w.origin, Ticket: w.ticket} }

// rankAt returns the rank of the waiter's entry in the queue of its i-th key.
func (w *waiter) rankAt(i int) rank {
	switch {
	case w.absent:
		return absent
	case w.mode == Shared && i == int(w.blockingKey):
		return awakeShared
	case w.mode == Shared:
		return asleepShared
	case i == int(w.blockingKey):
		return awakeOther
	default:
		return asleepOther
	}
}

func (w *waiter) passFields(c *codec) {
	c.recordErr = errWaiter
	keys := w.keys()
	passSlice(c, &keys, passString)
	passUint(c, &w.order, anyUint)
	ends := w.deadline != noDeadline
	passFlags(c, &w.notify, &w.reentrant, &w.absent, &ends)
	passInt(c, &w.since, minInstant, noDeadline)
	if ends {
		passInt(c, &w.deadline, minInstant, noDeadline-1)
	}
	passUint(c, &w.blockingKey, MaxKeys)
	passText(c, &w.owner)
	passText(c, &w.note)
	passText(c, &w.call)
	session, lease := w.session(), w.lease()
	passUint(c, &session, MaxFence)
	passInt(c, &lease, 0, Forever)
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
		c.require(session == 0 || lease == 0)
		w.manyKeys, w.term = keys, lease-int64(session)
	}
}

func (c *codec) readWaiter(home *lock) {
	t, read := c.t, &waiter{options: &options{manyKeys: []string{}}, db: uint8(home.db()), deadline: noDeadline}
	read.passFields(c)
	q := read.request()
	c.require(len(q.Keys) > 0 && int(read.blockingKey) < len(q.Keys) && q.Keys[0] == home.key())
	c.require(read.order > 0 && read.order <= t.orders && (!read.absent || read.deadline != noDeadline))
	if !c.require(q.Session == 0 || t.session(q.Session) != nil) {
		return
	}
	checked := q
	if q.Session != 0 {
		checked.Session, checked.LeaseMillis = 0, 1
	}
	c.require(t.prepareRequest(&checked) == nil && len(checked.Keys) == len(q.Keys) && checked.Mode == q.Mode &&
		checked.Limit == q.Limit && checked.Permits == q.Permits && checked.Waits && checked.Call == q.Call)
	w := t.newWaiter(&q, read.origin, read.since)
	w.order, w.deadline, w.blockingKey, w.absent = read.order, read.deadline, read.blockingKey, read.absent
	c.waiters = append(c.waiters, w)
}
