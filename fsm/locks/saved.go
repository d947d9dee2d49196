package locks

import "github.com/holdfast/holdfast/fsm/keyspace"

// Writer and Reader are the stream of a snapshot.
type Writer interface {
	Uint(n uint64)
	Int(n int64)
	String(s string)
}

// Reader reads the values of a Writer. The first error is sticky; later reads return zero values. Its strings share no
// memory with others. LockText reads the key of a lock, and returns it as text: the one in the item that marks the
// lock, if such an item exists.
type Reader interface {
	Uint() uint64
	Int() int64
	String() string
	LockText(db int) keyspace.LockText
	Err() error
}

// Save writes the table. Equal tables write the same:
//
//	fences, orders and ids of sessions given out, the secret of the ids
//	incarnations:         node, epoch, when it was heard of last
//	sessions, by id:      id, name, user, lease, since, deadline, flags, incarnation and connection
//	drops, by node:       node, epoch, ticket
//	live locks, in order: database, key, flags, extension, holds by fence, waiters in line whose first key it is
//	flushes, in order:    database, instant, cause, its locks
//
// Each list begins with its length.
func (s *store) Save(w Writer) {
	w.Uint(s.fences)
	w.Uint(s.orders)
	w.Uint(s.sessionIDs)
	w.String(s.secret)
	w.Uint(uint64(len(s.incarnations)))
	for i := range s.incarnations {
		w.String(s.incarnations[i].origin.Node)
		w.Uint(s.incarnations[i].origin.Epoch)
		w.Int(s.incarnations[i].alive)
	}
	w.Uint(uint64(s.byID.Len()))
	s.byID.Scan(func(each *session) bool {
		each.save(w)
		return true
	})
	w.Uint(uint64(len(s.nodeEnds)))
	for _, name := range s.nodeEnds {
		w.String(name.Origin.Node)
		w.Uint(name.Origin.Epoch)
		w.Uint(name.Ticket)
	}
	w.Uint(uint64(s.LiveLocks()))
	for _, d := range s.live {
		s.saveLocks(w, d)
	}
	w.Uint(uint64(len(s.flushed)))
	for _, d := range s.flushed {
		w.Int(d.flush.at)
		w.Uint(d.flush.cause)
		w.Uint(uint64(d.locks.Len()))
		s.saveLocks(w, d)
	}
}

func (s *store) saveLocks(w Writer, d *database) {
	d.locks.Scan(func(l *lock) bool {
		s.saveLock(w, l)
		return true
	})
}

func bit(set bool, flag uint64) uint64 {
	if set {
		return flag
	}
	return 0
}

// The flags of a session, a lock, a hold, a waiter.
const (
	savedAttached = 1 << iota
	savedLeased
	savedClosed
)

const savedExtension = 1

const (
	savedExtra = 1 << iota
	savedAsked
)

const (
	savedNotify = 1 << iota
	savedReentrant
	savedAbsent
	savedEnds
)

func (s *session) save(w Writer) {
	w.Uint(s.id)
	w.String(s.name)
	w.String(s.user)
	w.Int(s.lease)
	w.Int(s.opened)
	w.Int(s.deadline)
	w.Uint(bit(s.origin != nil, savedAttached) | bit(s.leased, savedLeased) | bit(s.closed, savedClosed))
	if s.origin != nil {
		saveClient(w, Client{*s.origin, s.conn})
	}
}

func saveClient(w Writer, c Client) {
	w.String(c.Origin.Node)
	w.Uint(c.Origin.Epoch)
	w.Int(c.Conn)
}

func (s *store) saveLock(w Writer, l *lock) {
	w.Uint(uint64(l.db()))
	w.String(l.key())
	m := l.ext
	if m == nil {
		w.Uint(0)
	} else {
		w.Uint(savedExtension)
		w.Int(m.grantAt)
		w.Int(m.delay)
	}
	w.Uint(uint64(l.holders()))
	for _, h := range l.holds() {
		h.save(w)
	}
	var homed []*waiter
	s.eachWaiter(l, func(each *waiter) bool {
		if each.keys()[0] == l.key() {
			homed = append(homed, each)
		}
		return true
	})
	w.Uint(uint64(len(homed)))
	for _, each := range homed {
		each.save(w)
		w.Uint(uint64(each.account))
	}
}

func (h *hold) save(w Writer) {
	w.String(h.owner)
	w.Uint(h.fence)
	w.Uint(uint64(h.mode))
	w.Uint(uint64(h.count))
	w.Uint(h.session())
	if h.session() == 0 {
		w.Int(h.lease())
		w.Int(h.deadline)
	}
	w.Int(h.since)
	saveClient(w, h.client())
	w.Uint(bit(h.extra != nil, savedExtra) | bit(h.asked, savedAsked))
	if h.extra == nil {
		return
	}
	w.String(h.extra.note)
	w.String(h.extra.call)
	w.Int(h.extra.delay)
	w.Int(h.extra.permits)
}

func (w *waiter) save(to Writer) {
	to.Uint(uint64(len(w.keys())))
	for _, key := range w.keys() {
		to.String(key)
	}
	to.Uint(w.order)
	to.Uint(bit(w.notify, savedNotify) | bit(w.reentrant, savedReentrant) | bit(w.absent,
		savedAbsent) | bit(w.deadline != never, savedEnds))
	to.Int(w.since)
	if w.deadline != never {
		to.Int(w.deadline)
	}
	to.Uint(uint64(w.blocked))
	to.String(w.owner)
	to.String(w.note)
	to.String(w.call)
	to.Uint(w.session)
	to.Int(w.lease)
	to.Uint(uint64(w.mode))
	to.Int(int64(w.limit))
	to.Int(int64(w.permits))
	to.Int(w.wait)
	to.Int(w.delay)
	to.Int(w.grace)
	saveClient(to, w.client())
	to.Uint(w.ticket)
}
