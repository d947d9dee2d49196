package locks

import (
	"crypto/sha256"
	"errors"
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// What is wrong with a stream.
var (
	errNumbers     = errors.New("a number of the lock table is out of range")
	errIncarnation = errors.New("an incarnation of a node is damaged")
	errSession     = errors.New("a lock session is damaged")
	errFlush       = errors.New("a flush of locks is damaged")
	errDrop        = errors.New("dropped waiters of locks are damaged")
	errLock        = errors.New("a lock is damaged")
	errHold        = errors.New("a hold is damaged")
	errWaiter      = errors.New("a waiter for a lock is damaged")
	errStuck       = errors.New("a waiter could be granted, and never would")
)

// loader makes a table of what a snapshot says.
type loader struct {
	Reader
	t       *Table
	err     error
	waiters []*waiter
}

// Load reads a table, and believes nothing.
func Load(r Reader) (*Table, error) {
	d := &loader{Reader: r, t: New()}
	t := d.t
	t.fences, t.orders, t.sessionIDs, t.secret = r.Uint(), r.Uint(), r.Uint(), r.String()
	// Flushes may have taken fences beyond MaxFence.
	d.must(len(t.secret) == 0 || len(t.secret) == sha256.Size, errNumbers)
	d.must(t.fences < noOrder && t.sessionIDs <= MaxFence && t.orders < noOrder, errNumbers)
	d.each(d.incarnation)
	d.each(d.session)
	for i := range t.incarnations {
		d.must(t.incarnations[i].sessions > 0, errIncarnation)
	}
	d.each(d.flush)
	d.each(d.drop)
	t.queuedAt = spot{int(d.flags(databases-1, errNumbers)), d.Uint(), d.String()}
	d.each(d.lock)
	if d.err == nil {
		d.line()
	}
	if d.err == nil {
		d.schedule()
	}
	if d.err != nil {
		return nil, d.err
	}
	t.effects = nil
	return t, nil
}

// must notes what is wrong, unless something was before.
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

// millis reads a number that is not negative.
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
	flags := d.flags(savedAttached|savedLeased|savedOver, errSession)
	s.leased, s.over = flags&savedLeased != 0, flags&savedOver != 0
	last, _ := d.t.sessions.Max()
	d.must(s.id <= MaxFence && s.id > 0 && (last == nil || s.id > last.id) && s.lease > 0, errSession)
	d.must(s.over != s.leased || !s.over && flags&savedAttached != 0, errSession)
	d.must(s.deadline < never, errSession)
	if flags&savedAttached != 0 {
		c := d.client()
		s.origin, s.conn = d.t.origin(c.Origin), c.Conn
		if !s.over {
			i, ok := d.t.incarnationAt(c.Origin)
			if d.must(ok && d.t.Attached(c) < MaxAttached, errSession); d.err != nil {
				return
			}
			d.must(s.leased || s.deadline <= saturated(d.t.incarnations[i].alive, s.lease), errSession)
			d.t.incarnations[i].sessions++
			d.t.connections.Set(bound{s.origin, s.conn, s.id})
		}
	}
	switch {
	case s.over:
		d.t.ended.Set(s.id)
	case s.leased:
		d.t.sessionEnds.Set(ending{s.deadline, s.id})
	case s.origin != nil:
		d.t.attached.Set(bound{s.origin, s.lease, s.id})
	}
	d.t.sessions.Set(s)
	d.t.bytes += s.bytes()
}

func (d *loader) flush() {
	f := flush{
		db: int(d.flags(databases-1, errFlush)), mark: d.Uint(), at: d.Int(), hash: d.Uint(), key: d.String(),
		cause: d.Uint(),
	}
	n := len(d.t.flushes)
	d.must(f.mark <= d.t.fences && (n == 0 || d.t.flushes[n-1].db < f.db), errFlush)
	d.t.flushes = append(d.t.flushes, f)
}

func (d *loader) drop() {
	name := waits.Name{Origin: protocol.Incarnation{Node: d.String(), Epoch: d.Uint()}, Ticket: d.Uint()}
	n := len(d.t.drops)
	d.must(n == 0 || d.t.drops[n-1].Origin.Node < name.Origin.Node, errDrop)
	d.t.drops = append(d.t.drops, name)
}

func (d *loader) lock() {
	db := d.flags(databases-1, errLock)
	l := &lock{text: d.LockText(int(db)), due: never}
	l.hash = keyspace.Hash(l.key())
	d.t.lockIDs++
	l.head = d.t.lockIDs<<16 | db<<8 | flagPresent | flagTouched // nothing happens to the lock before settle
	last, _ := d.t.locks.Max()
	d.must(last == nil || lockBefore(last, l), errLock)
	flags := d.flags(savedCrowd|savedDelays|savedAway, errLock)
	if flags&savedAway != 0 {
		l.head &^= flagPresent
	}
	if flags&savedCrowd != 0 {
		l.more = &extension{unfinished: d.millis(never-1, errLock), createdFence: d.Uint(), delay: d.millis(Forever, errLock)}
		lost := loss{
			below: d.Uint(), reason: Reason(d.flags(uint64(Flushed), errLock)), at: d.Int(),
			delays: flags&savedDelays != 0, delay: d.millis(Forever, errLock), cause: d.Uint(),
		}
		l.more.lost = lost
		d.must(l.more.createdFence <= d.t.fences && lost.below <= d.t.fences+1 && (lost.below == 0) == (lost.reason == 0),
			errLock)
		d.must(lost.below != 0 || lost == loss{}, errLock)
		d.t.bytes += extensionBytes
	} else {
		d.must(flags == 0, errLock)
	}
	d.t.locks.Set(l)
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
	if first := d.t.anyHold(l); first != nil {
		last := d.t.lastFence(l)
		d.must(h.fence > last && first.mode == h.mode && h.mode != Exclusive, errHold)
		d.must(l.more != nil && l.more.holders < MaxHolders && d.t.holdOf(l, h.owner) == nil, errHold)
		d.must(l.more == nil || l.more.permits+h.permits() <= MaxLimit, errHold)
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
	w := d.t.newWaiter(&q)
	w.order, w.since, w.deadline, w.blocked, w.absent = order, since, deadline, uint8(blocked), absent
	d.waiters = append(d.waiters, w)
}

// line puts the waiters into the queues, when all locks are known.
func (d *loader) line() {
	slices.SortFunc(d.waiters, func(a, b *waiter) int {
		if a.order < b.order {
			return -1
		}
		return 1
	})
	last := uint64(0)
	for _, w := range d.waiters {
		d.must(w.order > last, errWaiter)
		last = w.order
		_, taken := d.t.names.Get(w)
		if d.must(w.absent || !taken, errWaiter); d.err != nil {
			return
		}
		for i, key := range w.keys() {
			l := d.t.peek(int(w.db), key)
			if d.must(l != nil && l.more != nil && l.waiters() < MaxWaiters && d.t.waiterOf(l, w.owner) == nil,
				errWaiter); d.err != nil {
				return
			}
			w.keys()[i] = l.key()
		}
		d.t.line(w)
	}
	d.must(d.t.waitingBytes <= MaxWaitingBytes, errWaiter)
}

// schedule notes when locks are due. A lock must be in its least form, and stuck it must not be.
func (d *loader) schedule() {
	var locks []*lock
	d.t.locks.Scan(func(l *lock) bool {
		locks = append(locks, l)
		return true
	})
	for _, l := range locks {
		l.head &^= flagTouched | flagWake
		extended, away := l.more != nil, l.head&flagPresent == 0
		d.t.normalize(l)
		d.must((l.more != nil) == extended, errLock)
		d.must(!away || l.head&flagPresent == 0, errLock)
		if !away { // the lock was not looked at since what it held was lost
			l.head |= flagPresent
		}
		d.must(!d.t.stuck(l), errStuck)
	}
	d.must(d.t.locks.Len() == len(locks), errLock)
}

// stuck reports whether a waiter could be granted, and nothing will ever look.
func (t *Table) stuck(l *lock) bool {
	return l.more != nil && l.due == never && l.more.sessionHolds == 0 && t.pendingFlush(l) == nil && t.candidate(l) != nil
}
