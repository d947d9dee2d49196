package locks

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// The errors of a damaged snapshot.
var (
	errNumbers     = errors.New("a number of the lock table is out of range")
	errIncarnation = errors.New("an incarnation of a node is damaged")
	errSession     = errors.New("a lock session is damaged")
	errFlush       = errors.New("a flush of locks is damaged")
	errNodeEnd     = errors.New("dropped waiters of locks are damaged")
	errLock        = errors.New("a lock is damaged")
	errHold        = errors.New("a hold is damaged")
	errWaiter      = errors.New("a waiter for a lock is damaged")
	errStuck       = errors.New("a waiter could be granted, and never would")
)

// loader builds a table from a snapshot.
type loader struct {
	Reader
	t       *Table
	err     error
	key     string // of the lock at hand
	waiters []*waiter
	lastDB  int // of the live locks
}

// Load reads a table, and checks everything that it reads.
func Load(r Reader) (*Table, error) {
	d := &loader{Reader: r, t: New()}
	t := d.t
	t.fences, t.orders, t.sessionIDs, t.secret = r.Uint(), r.Uint(), r.Uint(), r.String()
	d.must(len(t.secret) == 0 || len(t.secret) == sha256.Size, errNumbers)
	d.must(t.fences < noOrder && t.sessionIDs <= MaxFence && t.orders < noOrder, errNumbers)
	d.each(d.incarnation)
	d.each(d.session)
	for i := range t.incarnations {
		d.must(t.incarnations[i].sessions > 0, errIncarnation)
	}
	d.each(d.drop)
	d.each(func() { d.lock(nil) })
	d.each(d.flush)
	if d.err == nil {
		d.queue()
	}
	if d.err == nil {
		d.schedule()
	}
	if d.err != nil && d.key != "" {
		return nil, fmt.Errorf("%w: %q", d.err, d.key)
	} else if d.err != nil {
		return nil, d.err
	}
	t.events = nil
	return t, nil
}

// must records the first thing that is wrong.
func (d *loader) must(ok bool, wrong error) {
	if d.err == nil {
		if d.err = d.Err(); d.err == nil && !ok {
			d.err = wrong
		}
	}
}

// each reads a list.
func (d *loader) each(read func()) {
	for n := d.Uint(); n > 0; n-- {
		if d.must(true, nil); d.err != nil {
			return
		}
		read()
	}
}

// millis reads a number from 0 to most.
func (d *loader) millis(most int64, wrong error) int64 {
	n := d.Int()
	d.must(n >= 0 && n <= most, wrong)
	return n
}

func (d *loader) text(wrong error) string {
	s := d.String()
	d.must(len(s) <= MaxText, wrong)
	return s
}

func (d *loader) flags(most uint64, wrong error) uint64 {
	n := d.Uint()
	d.must(n <= most, wrong)
	return n
}

// limit reads a number of permits.
func (d *loader) limit() int32 {
	n := d.Int()
	d.must(n >= 0 && n <= MaxLimit, errWaiter)
	return int32(n)
}

func (d *loader) client() Client {
	return Client{protocol.Incarnation{Node: d.String(), Epoch: d.Uint()}, d.Int()}
}

func (d *loader) incarnation() {
	l := incarnation{origin: protocol.Incarnation{Node: d.String(), Epoch: d.Uint()}, alive: d.Int()}
	n := len(d.t.incarnations)
	d.must(n == 0 || d.t.incarnations[n-1].origin.Compare(l.origin) < 0, errIncarnation)
	d.t.incarnations = append(d.t.incarnations, l)
}

func (d *loader) session() {
	s := &session{
		id: d.Uint(), name: d.text(errSession), user: d.text(errSession), lease: d.millis(Forever, errSession),
		opened: d.Int(), deadline: d.Int(),
	}
	flags := d.flags(savedAttached|savedLeased|savedClosed, errSession)
	s.leased, s.closed = flags&savedLeased != 0, flags&savedClosed != 0
	last, _ := d.t.byID.Max()
	d.must(s.id <= MaxFence && s.id > 0 && (last == nil || s.id > last.id) && s.lease > 0, errSession)
	d.must(s.leased || flags&savedAttached != 0, errSession)
	d.must(!s.closed || s.leased, errSession)
	d.must(s.deadline < never, errSession)
	if flags&savedAttached != 0 {
		c := d.client()
		s.origin, s.conn = d.t.origin(c.Origin), c.Conn
		if !s.closed {
			d.connect(s)
		}
	}
	if d.err != nil {
		return
	}
	switch {
	case s.leased:
		d.t.ends.Set(s.endKey())
	case s.origin != nil:
		d.t.attached.Set(sessionKey{s.origin, s.lease, s.id})
	}
	d.t.byID.Set(s)
	d.t.bytes += s.bytes()
}

func (d *loader) flush() {
	old := newDatabase(nil)
	old.flush = &flush{at: d.Int(), cause: d.Uint()}
	d.each(func() { d.lock(old) })
	first, _ := old.locks.Min()
	last, _ := old.locks.Max()
	d.must(first == nil || first.db() == last.db(), errFlush)
	d.t.flushed = append(d.t.flushed, old)
}

// connect attaches a session to its connection.
func (d *loader) connect(s *session) {
	i, ok := d.t.incarnationAt(*s.origin)
	if d.must(ok && d.t.SessionsOf(Client{*s.origin, s.conn}) < MaxAttached, errSession); d.err != nil {
		return
	}
	d.must(s.leased || s.deadline <= saturated(d.t.incarnations[i].alive, s.lease), errSession)
	d.t.incarnations[i].sessions++
	d.t.connections.Set(sessionKey{s.origin, s.conn, s.id})
}

func (d *loader) drop() {
	name := waits.Name{Origin: protocol.Incarnation{Node: d.String(), Epoch: d.Uint()}, Ticket: d.Uint()}
	n := len(d.t.nodeEnds)
	d.must(n == 0 || d.t.nodeEnds[n-1].Origin.Node < name.Origin.Node, errNodeEnd)
	d.t.nodeEnds = append(d.t.nodeEnds, name)
}

// lock reads a lock of a flushed database, or of a live one if flushed is nil.
func (d *loader) lock(flushed *database) {
	db := d.flags(maxDatabases-1, errLock)
	l := &lock{text: d.LockText(int(db)), due: never}
	d.key = l.key()
	l.hash = keyspace.Hash(d.key)
	d.t.lockIDs++
	d.t.lockCount++
	// flagTouched keeps the lock out of store.touched until schedule.
	l.head = d.t.lockIDs<<16 | db<<8 | flagPresent | flagTouched
	if d.must(!d.t.HasOrFlushed(int(db), l.key()), errLock); d.err != nil {
		return
	}
	home := flushed
	if flushed == nil {
		home = d.t.makeDatabase(int(db))
		d.must(d.lastDB <= int(db), errLock)
		d.lastDB = int(db)
	}
	last, _ := home.locks.Max()
	d.must(last == nil || lockBefore(last, l), errLock)
	if d.flags(savedExtension, errLock) != 0 {
		l.ext = &extension{grantAt: d.millis(never-1, errLock), delay: d.millis(Forever, errLock)}
		d.t.bytes += extensionBytes
	}
	home.set(l)
	d.t.bytes += l.bytes()
	d.each(func() { d.hold(l) })
	d.each(func() { d.waiter(l) })
}

func (d *loader) hold(l *lock) {
	h := &hold{key: l.key(), owner: d.text(errHold), fence: d.Uint(), db: uint8(l.db())}
	h.mode = Mode(d.flags(uint64(Permits), errHold))
	h.count = uint32(d.flags(maxCount, errHold))
	h.bound, h.deadline = d.Uint(), never
	if h.bound == 0 {
		h.bound, h.deadline = uint64(d.millis(Forever, errHold)), d.Int()
		d.must(h.bound > 0 && h.deadline < never, errHold)
	} else {
		d.must(d.t.session(h.bound) != nil, errHold)
	}
	h.since = d.Int()
	c := d.client()
	h.origin, h.conn = d.t.origin(c.Origin), c.Conn
	flags := d.flags(savedExtra|savedAsked, errHold)
	h.asked = flags&savedAsked != 0
	if flags&savedExtra != 0 {
		h.extra = &extra{d.text(errHold), d.text(errHold), d.millis(Forever, errHold), d.millis(MaxLimit, errHold)}
	}
	d.must(h.count > 0 && h.fence > 0 && h.fence <= d.t.fences, errHold)
	d.must(h.mode != Permits || h.extra != nil && h.extra.permits > 0, errHold)
	if d.err != nil {
		return
	}
	d.must(!d.t.isFull(h.session(), 1), errHold)
	if holds := l.holds(); len(holds) > 0 {
		last := holds[len(holds)-1]
		d.must(h.fence > last.fence && last.mode == h.mode && h.mode != Exclusive, errHold)
		d.must(l.ext != nil && len(holds) < MaxHolders && l.holdOf(h.owner) == nil, errHold)
		d.must(l.permits()+h.permits() <= MaxLimit, errHold)
	}
	if d.err == nil {
		d.t.addHold(l, h)
	}
}

func (d *loader) waiter(home *lock) {
	q := Request{DB: home.db(), Waits: true}
	d.each(func() {
		q.Keys = append(q.Keys, d.String())
	})
	order := d.Uint()
	flags := d.flags(savedNotify|savedReentrant|savedAbsent|savedEnds, errWaiter)
	q.Notify, q.Reentrant = flags&savedNotify != 0, flags&savedReentrant != 0
	absent, since, deadline := flags&savedAbsent != 0, d.Int(), int64(never)
	if flags&savedEnds != 0 {
		deadline = d.Int()
	}
	blocked := int(d.flags(MaxKeys, errWaiter))
	q.Owner, q.Note, q.Call = d.text(errWaiter), d.text(errWaiter), d.text(errWaiter)
	q.Session, q.LeaseMillis = d.Uint(), d.Int()
	q.Mode, q.Limit, q.Permits = Mode(d.flags(uint64(Permits), errWaiter)), d.limit(), d.limit()
	q.WaitMillis, q.DelayMillis, q.GraceMillis = d.millis(Forever, errWaiter), d.millis(Forever, errWaiter),
		d.millis(Forever, errWaiter)
	q.Client, q.Ticket = d.client(), d.Uint()
	q.Account = int16(d.flags(keyspace.MaxAccount, errWaiter))
	d.must(len(q.Keys) > 0 && blocked < len(q.Keys) && q.Keys[0] == home.key() && order > 0 && order <= d.t.orders,
		errWaiter)
	d.must(!absent || deadline != never, errWaiter)
	d.must(flags&savedEnds == 0 || deadline < never, errWaiter)
	d.must(q.LeaseMillis <= Forever && (q.Session == 0 || d.t.session(q.Session) != nil && q.LeaseMillis == 0), errWaiter)
	if d.err != nil {
		return
	}
	checked := q
	if q.Session != 0 {
		checked.Session, checked.LeaseMillis = 0, 1
	}
	ok := d.t.check(&checked) == nil
	d.must(ok && len(checked.Keys) == len(q.Keys) && checked.Mode == q.Mode && checked.Limit == q.Limit &&
		checked.Permits == q.Permits && checked.Waits && checked.Call == q.Call, errWaiter)
	w := newWaiter(&q, d.t.origin(q.Client.Origin), d.t.now)
	w.order, w.since, w.deadline, w.blocked, w.absent = order, since, deadline, uint8(blocked), absent
	d.waiters = append(d.waiters, w)
}

// queue puts the waiters into the queues, when all locks have been read.
func (d *loader) queue() {
	slices.SortFunc(d.waiters, func(a, b *waiter) int { return cmp.Compare(a.order, b.order) })
	last := uint64(0)
	for _, w := range d.waiters {
		d.key = w.keys()[0]
		d.must(w.order > last, errWaiter)
		last = w.order
		_, taken := d.t.names.Get(w)
		if d.must(w.absent || !taken, errWaiter); d.err != nil {
			return
		}
		for i, key := range w.keys() {
			l := d.t.search(new(lock), int(w.db), key, keyspace.Hash(key))
			if d.must(l != nil && l.ext != nil && l.waiters() < MaxWaiters && d.t.waiterOf(l, w.owner) == nil,
				errWaiter); d.err != nil {
				return
			}
			w.keys()[i] = l.key()
		}
		d.must(!d.t.isFull(w.session, len(w.keys())), errWaiter)
		d.t.pushQueue(w)
	}
	d.must(d.t.waitingBytes <= MaxWaitingBytes, errWaiter)
}

// schedule puts the locks on the agenda. A lock must be in its least form, and no waiter may be stuck.
func (d *loader) schedule() {
	t := d.t
	n := t.lockCount
	for _, l := range slices.Collect(t.all()) {
		if d.err != nil {
			return
		}
		d.key = l.key()
		l.head &^= flagTouched | flagWake
		extended := l.ext != nil
		t.normalize(l)
		d.must((l.ext != nil) == extended, errLock)
		d.must(!t.isStuck(l), errStuck)
	}
	t.touched, t.woken, t.last = nil, nil, lastLookup{}
	d.must(t.lockCount == n, errLock)
}

// isStuck reports whether a waiter could be granted, and no later event would grant it.
func (s *store) isStuck(l *lock) bool {
	return l.ext != nil && l.due == never && l.ext.sessionHolds == 0 && s.flushOf(l) == nil && s.nextInLine(l) != nil
}
