package locks

import (
	"cmp"
	"math"
	"strings"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// lock is a key that an owner holds or waits for, or whose delay runs.
//
// A lock is changed between take and finish alone. A lock that another generation of the table may know is
// copied by take.
type lock struct {
	// text is the key, and shares the memory of the item that marks the lock. Of a probe it is the key alone.
	text keyspace.LockText
	hash uint64
	// head is the lock's id, which is a number of the table's and the database, and the flags.
	head       uint64
	generation uint64
	due        int64 // as in the tree timers; never: in none
	hold       *hold // the only hold, if there is one only
	// more is what a lock needs beyond one hold. Nil: no request waits, no delay runs, nothing is unfinished.
	more *extension
}

// extension is what a lock has beyond one hold.
type extension struct {
	holders int
	// sessionHolds and sessionWaits are how many of the holds and the waiters are bound to sessions.
	sessionHolds, sessionWaits int
	delays                     int   // of the holds ask for a delay
	many                       int   // of the waiters want other locks, too
	permits                    int64 // held
	ranks                      [rankCount]int
	// delay is the last instant at which no request is granted; 0: no delay.
	delay int64
	// unfinished: a waiter could be granted as of this instant, and there were no steps left. 0: no.
	unfinished int64
	// createdFence is the last fence when the extension was made, or the flush that the lock went through last.
	createdFence uint64
	// lost: the holds with lower fences are lost, and not worked off.
	lost loss
}

// loss is what ends the holds with lower fences.
type loss struct {
	below  uint64
	reason Reason
	at     int64
	delays bool // delay is the delay afterwards, whatever the holds asked for
	delay  int64
	cause  uint64
}

const (
	flagTouched = 1 << iota // the lock is in Table.touched
	flagWake                // a waiter in the queue may be granted
	flagPresent             // Came was told
	flagQueued              // the lock is in Table.queued
	flagProbe               // the lock is in no table: see probeAt
	flagBits    = 0xff
	databases   = 256
)

// never is the due of what is not due.
const never = math.MaxInt64

// past is the due of what is unfinished.
const past = math.MinInt64

func (l *lock) id() uint64 { return l.head &^ flagBits }

func (l *lock) db() int { return int(l.head >> 8 & (databases - 1)) }

// key is the key, a part of the text's memory.
func (l *lock) key() string {
	if l.head&flagProbe != 0 {
		return string(l.text)
	}
	return l.text.Key()
}

// probeAt is a lock to search trees by.
func probeAt(db int, hash uint64, key string) lock {
	return lock{text: keyspace.LockText(key), hash: hash, head: uint64(db)<<8 | flagProbe}
}

// The orders of the trees read what comes last, and stands in memory of its own, only between equals.

func lockBefore(a, b *lock) bool {
	switch {
	case a.db() != b.db():
		return a.db() < b.db()
	case a.hash != b.hash:
		return a.hash < b.hash
	}
	return a.key() < b.key()
}

func dueBefore(a, b *lock) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return lockBefore(a, b)
}

// holders is the number of holds.
func (l *lock) holders() int {
	switch {
	case l.more != nil:
		return l.more.holders
	case l.hold != nil:
		return 1
	default:
		return 0
	}
}

// waiters is the length of the queue.
func (l *lock) waiters() (n int) {
	if l.more != nil {
		for _, count := range l.more.ranks {
			n += count
		}
	}
	return n
}

func (l *lock) delayed() bool { return l.more != nil && l.more.delay != 0 }

// hold is an owner's part in a lock. Invariant: never changed once in a table.
type hold struct {
	key, owner string
	extra      *extra // nil: nothing of it
	fence      uint64
	// bound is the session, if deadline is never; else the lease.
	bound    uint64
	deadline int64 // the last instant of the lease
	since    int64
	origin   *protocol.Incarnation
	conn     int64
	count    uint32 // acquires that were not given back
	mode     Mode
	db       uint8
	// asked: the owner has asked again since the grant, so it knows of the hold.
	asked bool
	late  bool // Late was told; in no snapshot
}

// extra is what few holds have.
type extra struct {
	note, call     string
	delay, permits int64
}

func (h *hold) session() uint64 {
	if h.deadline == never {
		return h.bound
	}
	return 0
}

func (h *hold) lease() int64 {
	if h.deadline == never {
		return 0
	}
	return int64(h.bound)
}

// sessions is 1 for a hold of a session.
func (h *hold) sessions() int {
	if h.deadline == never {
		return 1
	}
	return 0
}

func (h *hold) permits() int64 {
	if h.mode == Permits {
		return h.extra.permits
	}
	return 0
}

func (h *hold) delay() int64 {
	if h.extra == nil {
		return 0
	}
	return h.extra.delay
}

// delays is 1 for a hold that asks for a delay.
func (h *hold) delays() int {
	if h.delay() > 0 {
		return 1
	}
	return 0
}

func (h *hold) client() Client { return Client{*h.origin, h.conn} }

func (h *hold) leftMillis(now int64) int64 {
	if h.deadline == never {
		return -1
	}
	return max(0, h.deadline-now)
}

// member is a hold of a lock with several.
type member struct {
	lock uint64
	hold *hold
}

func ownerBefore(a, b member) bool {
	if a.lock != b.lock {
		return a.lock < b.lock
	}
	return a.hold.owner < b.hold.owner
}

func fenceBefore(a, b member) bool {
	if a.lock != b.lock {
		return a.lock < b.lock
	}
	return a.hold.fence < b.hold.fence
}

func endBefore(a, b member) bool {
	switch {
	case a.lock != b.lock:
		return a.lock < b.lock
	case a.hold.deadline != b.hold.deadline:
		return a.hold.deadline < b.hold.deadline
	}
	return a.hold.fence < b.hold.fence
}

func bySessionBefore(a, b *hold) bool {
	switch {
	case a.bound != b.bound:
		return a.bound < b.bound
	case a.fence != b.fence:
		return a.fence < b.fence
	case a.db != b.db:
		return a.db < b.db
	}
	return a.key < b.key
}

// waiter is a request in line. It stands in the queues of all its keys, with one order. Invariant: never
// changed once in a table.
type waiter struct {
	first    [1]string // the only key: see keys
	owner    string
	*options // nil in probes alone
	origin   *protocol.Incarnation
	conn     int64
	ticket   uint64
	// session is the session that the hold is to be bound to; 0: to the lease.
	session  uint64
	lease    int64
	wait     int64 // how long the request may wait; 0: for ever
	grace    int64 // how long the place is kept afterwards
	order    uint64
	since    int64
	deadline int64 // the last instant of the wait, or of the grace; never: no end
	account  int16
	db       uint8
	mode     Mode
	// blocked is the index of the key that blocked the request last. In the other queues it sleeps: only a
	// change at that key can help it.
	blocked uint8
	// absent: the wait has ended by time, and the place is kept until deadline.
	absent            bool
	notify, reentrant bool
}

// options is what few waiters have. The others share noOptions.
type options struct {
	several        []string // the keys, if there is more than one
	note, call     string
	delay          int64
	limit, permits int32
}

var noOptions options

// newWaiter is a request that waits from now on, without an order. The keys and texts are the request's.
func (t *Table) newWaiter(q *Request) *waiter {
	w := &waiter{
		owner: q.Owner, options: &noOptions, origin: t.origin(q.Client.Origin), conn: q.Client.Conn, ticket: q.Ticket,
		session: q.Session, lease: q.LeaseMillis, wait: q.WaitMillis, grace: q.GraceMillis, since: t.now,
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

// request is what the waiter asked for.
func (w *waiter) request() Request {
	return Request{
		Keys: w.keys(), Owner: w.owner, Session: w.session, LeaseMillis: w.lease, WaitMillis: w.wait,
		DelayMillis: w.delay, GraceMillis: w.grace, Ticket: w.ticket, Call: w.call, Note: w.note, Client: w.client(),
		Limit: w.limit, Permits: w.permits, DB: int(w.db), Account: w.account, Mode: w.mode, Waits: true,
		Notify: w.notify, Reentrant: w.reentrant,
	}
}

// keys are the keys, in the memory of the waiter.
func (w *waiter) keys() []string {
	if w.several != nil {
		return w.several
	}
	return w.first[:]
}

func (w *waiter) client() Client { return Client{*w.origin, w.conn} }

func (w *waiter) name() waits.Name { return waits.Name{Origin: *w.origin, Ticket: w.ticket} }

// rank is the part of a queue that a place is in. Each part is in order; together they are the queue.
type rank uint8

const (
	awakeShared  rank = iota // shared requests that nothing but this lock blocks
	awakeOther               // the other requests of that kind
	asleepShared             // shared requests that another lock blocks
	asleepOther
	absent // places that are kept for who comes back
	rankCount
)

// rankAt is the waiter's rank in the queue of its key with that index.
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

// lastInstant is the last instant at which a waiter has a place.
func (w *waiter) lastInstant() int64 {
	if w.absent || w.deadline == never || w.grace <= 0 {
		return w.deadline
	}
	return saturated(w.deadline, w.grace)
}

// place is a waiter's place in the queue of a lock.
type place struct {
	lock   uint64
	at     uint64 // rank and order
	waiter *waiter
}

const orderBits = 60

// noOrder is behind every order.
const noOrder = 1<<orderBits - 1

func placeAt(l *lock, r rank, order uint64) place {
	return place{lock: l.id(), at: uint64(r)<<orderBits | order}
}

func (p place) order() uint64 { return p.at & (1<<orderBits - 1) }

func placeBefore(a, b place) bool {
	if a.lock != b.lock {
		return a.lock < b.lock
	}
	return a.at < b.at
}

// stand is a waiter of a lock.
type stand struct {
	lock   uint64
	waiter *waiter
}

func waitingBefore(a, b stand) bool {
	if a.lock != b.lock {
		return a.lock < b.lock
	}
	return a.waiter.owner < b.waiter.owner
}

func waitEndBefore(a, b stand) bool {
	switch {
	case a.lock != b.lock:
		return a.lock < b.lock
	case a.waiter.deadline != b.waiter.deadline:
		return a.waiter.deadline < b.waiter.deadline
	}
	return a.waiter.order < b.waiter.order
}

func nameBefore(a, b *waiter) bool { return a.name().Compare(b.name()) < 0 }

func waitBySessionBefore(a, b *waiter) bool {
	return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.order, b.order)) < 0
}

// session groups holds and waiters that live and die together. A session is changed by ownSession alone.
type session struct {
	id         uint64
	generation uint64
	name       string
	// user is the one that may use the session, besides users who may do everything; empty: those alone.
	user     string
	lease    int64
	deadline int64 // the last instant of its own lease
	opened   int64
	// origin is the incarnation of the node with whose connection the session lives; nil: with none.
	origin *protocol.Incarnation
	conn   int64 // of no meaning without an origin
	// leased: the session stands in sessionEnds, by its own lease. Else it stands in attached, and lives
	// while its node is heard of.
	leased bool
	// over: the session ended after the instant deadline, and its holds and waiters are not worked off.
	over           bool
	late           bool // Late was told since the session held nothing; in no snapshot
	holds, waiters int
}

// ending is the end of a session's own lease.
type ending struct {
	deadline int64
	id       uint64
}

func sessionEndBefore(a, b ending) bool {
	return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.id, b.id)) < 0
}

// bound is a session that lives with a connection.
type bound struct {
	origin *protocol.Incarnation
	by     int64 // the lease in attached, the connection in connections
	id     uint64
}

func boundBefore(a, b bound) bool {
	return cmp.Or(a.origin.Compare(*b.origin), cmp.Compare(a.by, b.by), cmp.Compare(a.id, b.id)) < 0
}

// incarnation is one of a node, with sessions that live with its connections.
type incarnation struct {
	origin   protocol.Incarnation
	alive    int64 // when the node was heard of last
	sessions int
}

// flush is a database whose holds with lower fences are lost, and not all worked off.
type flush struct {
	db   int
	mark uint64
	at   int64
	// hash and key are where to go on.
	hash  uint64
	key   string
	cause uint64
}

// spot is where a pass over locks goes on, in the order of locks.
type spot struct {
	db   int
	hash uint64
	key  string
}

// before is a name: all waiters of its node with lower ones are gone, and not all removed.
type before = waits.Name

// cloned is a copy of s that shares no memory with a log entry.
func cloned(s string) string { return strings.Clone(s) }

// What the table counts for, in bytes: measured by TestMemory, and rounded up.
const (
	lockBytes      = 120
	extensionBytes = 176
	holdBytes      = 136
	extraBytes     = 48
	memberBytes    = 80
	waiterBytes    = 400
	placeBytes     = 96
	sessionBytes   = 220
)

func (l *lock) bytes() int64 { return int64(lockBytes + len(l.key())) }

func (h *hold) bytes() int64 {
	n := int64(holdBytes + len(h.owner))
	if h.extra != nil {
		n += int64(extraBytes + len(h.extra.note) + len(h.extra.call))
	}
	return n
}

func (w *waiter) bytes() int64 {
	return int64(waiterBytes + len(w.owner) + len(w.note) + len(w.call) + len(w.keys())*placeBytes)
}

func (s *session) bytes() int64 { return int64(sessionBytes + len(s.name) + len(s.user)) }
