package locks

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// The methods of this file are the calls of the naive table. All due events have run before each call.

// reply is the reply to a call, for comparisons. The model sets grant, whose fence it does not know yet.
type reply struct {
	grant *nGrant
	fence uint64
	n     int64
	ok    bool
	err   error
}

func (n *naive) acquire(asked *Request) reply {
	r := *asked
	if err := n.check(&r); err != nil {
		return reply{err: err}
	}
	if g, err := n.again(&r); g != nil || err != nil {
		return reply{grant: g, err: err}
	}
	same, place := n.placeOf(&r)
	blocked := n.late || !n.free(&r, place)
	switch {
	case blocked && !r.Waits:
		return reply{}
	case blocked && n.taken(&r):
		return reply{err: ErrTicket}
	case blocked && r.OverQuota && same == nil:
		return reply{err: ErrOverQuota}
	case blocked:
		n.enqueue(&r, same)
		return reply{ok: true}
	}
	since := n.now
	if same != nil {
		since = same.since
	}
	n.dismissAll(&r, same)
	return reply{grant: n.grant(&r, since)}
}

// taken reports whether another request of the same incarnation waits with the ticket of r.
func (n *naive) taken(r *Request) bool {
	return slices.ContainsFunc(n.queue, func(w *nWait) bool {
		return !w.absent && w.Client.Origin == r.Client.Origin && w.Ticket == r.Ticket
	})
}

// check validates a request, and normalizes its fields.
func (n *naive) check(r *Request) error {
	if r.Mode == Permits && r.Limit == 1 {
		r.Mode = Exclusive
	}
	if r.Mode != Permits {
		r.Limit, r.Permits = 0, 0
	}
	if r.Session != 0 {
		if r.LeaseMillis = 0; n.session(r.Session) == nil {
			return ErrNoSession
		}
	}
	if r.Waits = r.Waits && r.Ticket != 0; !r.Reentrant {
		r.Call = ""
	}
	var keys []string
	for _, key := range r.Keys {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	r.Keys = keys
	return nil
}

// again renews the owner's holds if they cover the request under one grant.
func (n *naive) again(r *Request) (*nGrant, error) {
	var grant *nGrant
	all := true
	for _, key := range r.Keys {
		h := n.lock(r.DB, key).holdOf(r.Owner)
		switch {
		case h == nil:
			all = false
		case h.mode != Exclusive && (h.mode != r.Mode || int64(r.Permits) > h.permits):
			return nil, ErrMode
		case grant != nil && grant != h.grant:
			all = false
		default:
			grant = h.grant
		}
	}
	if !all {
		return nil, nil
	}
	for _, key := range r.Keys {
		h := n.lock(r.DB, key).holdOf(r.Owner)
		h.asked = true
		note, call, delay := h.note, h.call, h.delay
		client, session := h.client, h.session
		n.bind(h, r)
		if r.Note == "" {
			h.note = note
		}
		if r.DelayMillis == 0 {
			h.delay = delay
		}
		if h.call = call; r.Reentrant && (r.Call == "" || r.Call != call) {
			h.count++
			h.call = r.Call
		}
		if h.client != client || h.session != session {
			n.tell(n.holdEvent(Renewed, n.lock(r.DB, key), h), h.grant)
		}
	}
	return grant, nil
}

// placeOf returns the owner's waiter for the same request, or nil, and the position of the request in the queue.
func (n *naive) placeOf(r *Request) (*nWait, int) {
	for i, w := range n.queue {
		alike := w.DB == r.DB && w.Owner == r.Owner && w.Mode == r.Mode && w.Limit == r.Limit && w.Permits == r.Permits &&
			len(w.Keys) == len(r.Keys)
		for _, key := range r.Keys {
			alike = alike && slices.Contains(w.Keys, key)
		}
		if alike {
			return w, i
		}
	}
	return nil, len(n.queue)
}

func (n *naive) dismissAll(r *Request, same *nWait) {
	for _, key := range r.Keys {
		if w := n.waitOf(r.DB, key, r.Owner); w != nil {
			n.leave(w)
			n.emitAskedAgain(w, r)
			if w != same {
				n.emitLeft(w, Replaced)
			}
		}
	}
}

// emitAskedAgain emits that a wait ended because its owner sent request r. The event has the keys of r if the same
// connection sent it.
func (n *naive) emitAskedAgain(w *nWait, r *Request) {
	told := len(n.events)
	n.emitEndOfWait(w, nil, ErrAskedAgain)
	if len(n.events) > told && w.Client == r.Client {
		n.events[told].Again = r.Keys
	}
}

func (n *naive) enqueue(r *Request, same *nWait) {
	deadline := int64(noDeadline)
	if r.WaitMillis > 0 {
		deadline = n.now + r.WaitMillis
	}
	if same != nil {
		n.emitAskedAgain(same, r)
		keys := same.Keys
		same.Request, same.deadline, same.absent = *r, deadline, false
		same.Keys = keys
		return
	}
	n.dismissAll(r, nil)
	w := &nWait{Request: *r, since: n.now, deadline: deadline}
	n.queue = append(n.queue, w)
	for _, key := range w.Keys {
		n.tell(Event{
			Kind: JoinedQueue, DB: w.DB, Key: key, Owner: w.Owner, Session: w.Session, Client: w.Client,
			Waiters: n.inLine(w.DB, key),
		}, nil)
	}
}

func (n *naive) renew(db int, key, owner string, lease int64) reply {
	h := n.lock(db, key).holdOf(owner)
	if h == nil {
		return reply{}
	}
	h.asked = true
	if h.session == 0 {
		h.lease, h.deadline = lease, n.now+lease
	}
	return reply{grant: h.grant}
}

func (n *naive) release(db int, key, owner string, all bool) reply {
	l := n.lock(db, key)
	h := l.holdOf(owner)
	if h == nil {
		return reply{}
	}
	if h.count--; h.count > 0 && !all {
		return reply{n: h.count, ok: true}
	}
	n.drop(Released, 0, l, h, n.now)
	return reply{ok: true}
}

func (n *naive) releaseAll(db int, keys []string, owner string) (r reply) {
	for _, key := range keys {
		if n.release(db, key, owner, true).ok {
			r.n++
		}
		n.pump() // a free lock is granted before the next release
	}
	return r
}

func (n *naive) giveBack(db int, key, owner string, fence uint64, client Client) reply {
	l := n.lock(db, key)
	h := l.holdOf(owner)
	if h == nil || h.grant.fence != fence || h.client != client || h.asked {
		return reply{}
	}
	n.drop(Released, 0, l, h, n.now)
	return reply{ok: true}
}

func (n *naive) cancel(db int, key, owner string) reply {
	w := n.waitOf(db, key, owner)
	if w == nil {
		return reply{}
	}
	n.leave(w)
	n.emitEndOfWait(w, nil, nil)
	n.emitLeft(w, Cancelled)
	return reply{ok: true}
}

func (n *naive) downgrade(db int, key, owner string) reply {
	h := n.lock(db, key).holdOf(owner)
	switch {
	case h == nil:
		return reply{}
	case h.mode == Permits:
		return reply{err: ErrMode}
	case h.mode == Exclusive:
		if w := n.waitOf(db, key, owner); w != nil && w.Mode != Shared {
			n.leave(w)
			n.emitEndOfWait(w, nil, ErrMode)
			n.emitLeft(w, WithError)
		}
		h.mode = Shared
		n.tell(n.holdEvent(Renewed, n.lock(db, key), h), h.grant)
	}
	return reply{grant: h.grant}
}

func (n *naive) breaks(b *Break) (r reply) {
	l := n.lock(b.DB, b.Key)
	if !b.ByOwner && b.Fence == 0 && b.OverridesDelay {
		there := len(l.holds) > 0 || n.inLine(b.DB, b.Key) > 0 || l.delay != 0
		if l.delay = 0; there && b.DelayMillis > 0 {
			l.delay = n.now + b.DelayMillis
		}
	}
	for _, h := range slices.Clone(l.holds) {
		if b.ByOwner && h.owner != b.Owner || b.Fence != 0 && h.grant.fence != b.Fence {
			continue
		}
		delay := h.delay
		if b.OverridesDelay {
			delay = b.DelayMillis
		}
		n.loseHold(b.Reason, l, h, n.now, delay)
		r.n++
	}
	return r
}

func (n *naive) flush(db int) reply {
	for _, l := range n.locks {
		if l.db != db {
			continue
		}
		l.there = false
		for _, h := range slices.Clone(l.holds) {
			n.loseHold(Flushed, l, h, n.now, 0)
		}
		l.delay = 0
	}
	return reply{}
}

func (n *naive) unblock(name waits.Name, how protocol.Leave) reply {
	for _, w := range n.queue {
		if w.absent || w.Client.Origin != name.Origin || w.Ticket != name.Ticket {
			continue
		}
		n.leave(w)
		switch how {
		case protocol.LeaveTimeout:
			n.emitEndOfWait(w, nil, nil)
			n.emitLeft(w, Cancelled)
		case protocol.LeaveError:
			n.emitEndOfWait(w, nil, ErrUnblocked)
			n.emitLeft(w, Unblocked)
		default:
			n.emitLeft(w, Disconnected)
		}
		return reply{ok: true}
	}
	return reply{}
}

func (n *naive) dropWaits(node string, gone func(w *nWait) bool) reply {
	for _, w := range slices.Clone(n.queue) {
		if !w.absent && w.Client.Origin.Node == node && gone(w) {
			n.leave(w)
			n.emitEndOfWait(w, nil, ErrNodeEnded)
			n.emitLeft(w, Disconnected)
		}
	}
	return reply{}
}

func (n *naive) openSession(lease int64, client Client, connection bool, name, user string) reply {
	n.lastID++
	s := &nSession{id: n.lastID, name: name, user: user, lease: lease, deadline: n.now + lease, opened: n.now}
	n.sessions = append(n.sessions, s)
	if connection {
		n.attachTo(s, client)
	}
	return reply{fence: s.id}
}

func (n *naive) attachTo(s *nSession, client Client) {
	s.client, s.deadline = client, n.now
	n.alive[client.Origin] = n.now
}

func (n *naive) keepAlive(id uint64) reply {
	s := n.session(id)
	if s == nil {
		return reply{}
	}
	s.deadline = n.now + s.lease
	return reply{n: s.lease, ok: true}
}

func (n *naive) attach(id uint64, client Client) reply {
	s := n.session(id)
	if s == nil {
		return reply{}
	}
	n.attachTo(s, client)
	return reply{ok: true}
}

func (n *naive) closeSession(id uint64) reply {
	s := n.session(id)
	if s == nil {
		return reply{}
	}
	holds := 0
	for _, l := range n.locks {
		for _, h := range l.holds {
			if h.session == id {
				holds++
			}
		}
	}
	n.endSession(s, n.now)
	return reply{n: int64(holds), ok: true}
}

func (n *naive) gone(c Client) (r reply) {
	for _, s := range slices.Clone(n.sessions) {
		if s.client == c {
			n.endSession(s, n.now)
			r.n++
		}
	}
	return r
}

// renewHolds removes all waiters, and restarts all leases.
func (n *naive) renewHolds() {
	n.queue = nil
	for _, l := range n.locks {
		for _, h := range l.holds {
			if h.client = (Client{}); h.session == 0 {
				h.deadline = n.now + h.lease
			}
		}
	}
	for _, s := range n.sessions {
		s.client, s.deadline = Client{}, n.now+s.lease
	}
	n.tidy()
	n.events = nil
}

// info returns the description of a lock that the table should return.
func (n *naive) info(db int, key string) *Info {
	l := n.lock(db, key)
	i := &Info{DB: db, Key: key}
	for _, h := range l.holds {
		i.Holds = append(i.Holds, Hold{
			Owner: h.owner, Fence: h.grant.fence, Mode: h.mode, Count: h.count, Permits: h.permits, Session: h.session,
			LeftMillis: h.left(n.now), LeaseMillis: h.lease, SinceMillis: h.since, Note: h.note, Client: h.client,
		})
		i.Mode, i.Permits = h.mode, i.Permits+h.permits
	}
	slices.SortFunc(i.Holds, func(a, b Hold) int { return int(a.Fence) - int(b.Fence) })
	for _, w := range n.queue {
		if w.DB != db || !slices.Contains(w.Keys, key) {
			continue
		}
		v := Wait{
			Owner: w.Owner, Mode: w.Mode, Limit: int64(w.Limit), Permits: int64(w.Permits), Session: w.Session,
			SinceMillis: w.since, LeftMillis: -1, Absent: w.absent, Notify: w.Notify, Keys: len(w.Keys), Note: w.Note,
			Client: w.Client,
		}
		if w.deadline != noDeadline {
			v.LeftMillis = w.deadline - n.now
		}
		i.Waits = append(i.Waits, v)
	}
	i.Holders, i.Waiters = len(i.Holds), len(i.Waits)
	if l.delay != 0 {
		i.DelayLeftMillis = l.delay - n.now
	}
	if i.Holders == 0 && i.Waiters == 0 && l.delay == 0 {
		return nil
	}
	return i
}

func (h *nHold) left(now int64) int64 {
	if h.session != 0 {
		return -1
	}
	return h.deadline - now
}

func (n *naive) sessionInfo(id uint64) *SessionInfo {
	s := n.session(id)
	if s == nil {
		return nil
	}
	i := &SessionInfo{
		ID: id, Name: s.name, User: s.user, LeaseMillis: s.lease, LeftMillis: n.endOf(s) - n.now, OpenedMillis: s.opened,
		Connection: s.client != (Client{}), Client: s.client,
	}
	for _, l := range n.locks {
		for _, h := range l.holds {
			if h.session == id {
				i.Holds++
			}
		}
	}
	for _, w := range n.queue {
		if w.Session == id {
			i.Waiters++
		}
	}
	return i
}
