package locks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// The functions of this file make random calls for the model test. Each function makes a call to the table and to the
// model, and returns a text of the call and both replies.

func (p *twins) acquire() (string, reply, reply) {
	r := &Request{
		DB: p.db(), Keys: []string{p.key()}, Owner: p.owner(), Client: p.client(), LeaseMillis: p.millis(300),
		Mode: Mode([]int{0, 0, 1, 1, 2}[p.d.n(5)]),
	}
	switch {
	case p.d.one(5) && r.Mode != Permits && !p.coarse:
		p.aim = nil
		r.Keys = append(r.Keys, p.key(), p.key())[:2+p.d.n(2)]
		if p.d.one(2) {
			p.wantMore(r)
		}
	case r.Mode == Permits:
		r.Limit = int32(1 + p.d.n(4))
		r.Permits = 1 + int32(p.d.n(int(r.Limit)))
	}
	if l := p.model.lock(r.DB, r.Keys[0]); len(l.holds) > 0 && r.Mode != Permits && p.d.one(3) {
		r.Mode = min(l.holds[0].mode, Shared) // compatible with the holds
	}
	if r.Session == 0 && (p.d.one(4) || p.ragged && p.d.one(2)) {
		r.Session = p.session()
	}
	if !p.d.one(3) {
		p.tickets++
		r.Waits, r.Ticket, r.Notify = true, p.tickets, p.d.one(3)
		if !p.d.one(4) {
			r.WaitMillis = p.millis(200)
		}
		if p.d.one(2) {
			r.GraceMillis = p.millis(200)
		}
	}
	if p.d.one(3) {
		r.DelayMillis = p.millis(60)
	}
	if len(r.Keys) == 1 && p.d.one(3) {
		r.Reentrant = true
		r.Call = []string{"", "c1", "c2"}[p.d.n(3)]
	}
	if p.d.one(5) {
		r.Note = []string{"x", "y"}[p.d.n(2)]
	}
	if p.aim == nil && p.d.one(6) {
		p.repeat(r)
	}
	r.OverQuota = p.d.one(12)
	r.Account = int16(p.d.n(3))
	return p.ask(r)
}

// ask calls Acquire of the table and of the model.
func (p *twins) ask(r *Request) (string, reply, reply) {
	text := fmt.Sprintf("acquire %+v", *r)
	blocked := p.table.IsBlocked(r, p.table.now)
	undone := p.undone()
	a, err := p.table.Acquire(r)
	p.model.late = undone && a.Fence == 0
	want := p.model.acquire(r)
	p.model.late = false
	if blocked {
		require.Zero(p.t, a.Fence, "Blocked is sure")
	}
	return text, want, reply{fence: a.Fence, ok: a.Waiting, err: err}
}

// repeat changes a request into the request of a waiter, or into one that differs from it a little.
func (p *twins) repeat(r *Request) {
	if len(p.model.queue) == 0 {
		return
	}
	w := p.model.queue[p.d.n(len(p.model.queue))]
	if i := slices.IndexFunc(p.model.queue, func(w *nWait) bool { return w.absent }); i >= 0 && p.d.one(2) {
		w = p.model.queue[i]
	}
	r.DB, r.Owner, r.Mode, r.Limit, r.Permits = w.DB, w.Owner, w.Mode, w.Limit, w.Permits
	r.Keys = slices.Clone(w.Keys)
	slices.Reverse(r.Keys)
	if len(r.Keys) > 1 {
		r.Reentrant = false
	}
	switch p.d.n(8) {
	case 0:
		r.Keys = r.Keys[:1]
	case 1:
		r.Keys[0] = p.key()
	case 2:
		if r.Mode == Permits {
			r.Limit++
		} else {
			r.Mode = 1 - r.Mode
		}
	case 3:
		if r.Mode == Permits && r.Permits > 1 {
			r.Permits--
		}
	case 4: // the ticket of another request
		r.Client.Origin, r.Ticket, r.Waits = w.Client.Origin, w.Ticket, true
	}
}

// holder returns an owner that holds a lock, or the owner fallback if the lock has no holds.
func (p *twins) holder(db int, key, fallback string) string {
	if l := p.model.lock(db, key); len(l.holds) > 0 {
		return l.holds[p.d.n(len(l.holds))].owner
	}
	return fallback
}

// wantMore changes a request into one of an owner that holds a lock. The request is for this lock and a lock of another
// owner, or only for another lock.
func (p *twins) wantMore(r *Request) {
	var held []*nLock
	for _, l := range p.model.locks {
		if l.db == r.DB && len(l.holds) > 0 {
			held = append(held, l)
		}
	}
	if len(held) == 0 {
		return
	}
	i := p.d.n(len(held))
	h := held[i].holds[p.d.n(len(held[i].holds))]
	r.Owner, r.Mode = h.owner, min(h.mode, Shared)
	if p.d.one(2) {
		r.Session = h.session
	}
	if r.Keys = []string{held[i].key, p.key()}; p.d.one(2) {
		r.Keys[1] = held[(i+1)%len(held)].key
	}
}

// holderInLine returns a waiter for several locks whose owner holds one of them, or nil.
func (p *twins) holderInLine() *nWait {
	for _, w := range p.model.queue {
		for _, key := range w.Keys {
			if p.model.lock(w.DB, key).holdOf(w.Owner) != nil {
				return w
			}
		}
	}
	return nil
}

func (p *twins) release() (string, reply, reply) {
	db, key, owner, all := p.db(), p.key(), p.owner(), p.d.one(4)
	if p.aim == nil && !p.d.one(5) {
		owner = p.holder(db, key, owner)
	}
	want := p.model.release(db, key, owner, all)
	left, ok := p.table.Release(db, key, owner, all)
	return fmt.Sprint("release ", db, key, " ", owner, all), want, reply{n: left, ok: ok}
}

func (p *twins) renew() (string, reply, reply) {
	db, key, owner, lease := p.db(), p.key(), p.owner(), p.millis(300)
	want := p.model.renew(db, key, owner, lease)
	return fmt.Sprint("renew ", db, key, " ", owner, " ", lease), want, reply{fence: p.table.Renew(db, key, owner, lease)}
}

func (p *twins) cancel() (string, reply, reply) {
	db, key, owner := p.db(), p.key(), p.owner()
	want := p.model.cancel(db, key, owner)
	return fmt.Sprint("cancel ", db, key, " ", owner), want, reply{ok: p.table.Cancel(db, key, owner)}
}

func (p *twins) breaks() (string, reply, reply) {
	b := &Break{
		DB: p.db(), Key: p.key(), Reason: Broken, CauseID: causes[Broken], ByOwner: p.d.one(2),
		OverridesDelay: p.d.one(3), DelayMillis: p.millis(50) * int64(p.d.n(4)/3),
	}
	if b.ByOwner {
		b.Owner = p.owner()
	}
	if l := p.model.lock(b.DB, b.Key); len(l.holds) > 0 && p.d.one(2) {
		b.Fence = l.holds[0].grant.fence + uint64(p.d.n(2))
	}
	want := p.model.breaks(b)
	return fmt.Sprintf("break %+v", *b), want, reply{n: int64(p.table.Break(b))}
}

func (p *twins) downgrade() (string, reply, reply) {
	db, key, owner := p.db(), p.key(), p.owner()
	if p.aim == nil && !p.d.one(5) {
		owner = p.holder(db, key, owner)
	}
	if w := p.holderInLine(); w != nil && p.d.one(2) {
		db, key, owner = w.DB, w.Keys[p.d.n(len(w.Keys))], w.Owner
	}
	want := p.model.downgrade(db, key, owner)
	fence, err := p.table.Downgrade(db, key, owner)
	return fmt.Sprint("downgrade ", db, key, " ", owner), want, reply{fence: fence, err: err}
}

func (p *twins) releaseAll() (string, reply, reply) {
	db, keys, owner := p.db(), []string{p.key(), p.key(), p.key()}, p.owner()
	if p.ragged {
		keys = keys[:1] // the table may grant between two releases
	}
	want := p.model.releaseAll(db, keys, owner)
	return fmt.Sprint("releaseall ", db, keys, owner), want, reply{n: int64(p.table.ReleaseAll(db, keys, owner))}
}

func (p *twins) giveBack() (string, reply, reply) {
	db, key, owner, client := p.db(), p.key(), p.owner(), p.client()
	var fence uint64
	if h := p.model.lock(db, key).holdOf(owner); h != nil && !p.d.one(4) {
		fence = h.grant.fence
	}
	want := p.model.giveBack(db, key, owner, fence, client)
	return fmt.Sprint("return-grant ", db, key, owner, fence, client), want,
		reply{ok: p.table.ReturnGrant(db, key, owner, fence, client)}
}

// users are the users who open sessions. The first user may use all sessions.
var users = []string{"", "ann", "bob"}

func (p *twins) open() (string, reply, reply) {
	lease, client, connection := p.millis(400), p.client(), p.d.one(2)
	if !connection {
		client = Client{}
	}
	account := p.d.n(len(users))
	user := users[account]
	want := p.model.openSession(lease, client, connection, "name", user)
	id, err := p.table.OpenSession(lease, client, connection, "name", user, int16(account))
	return fmt.Sprint("open ", lease, client), want, reply{fence: id, err: err}
}

func (p *twins) keepAlive() (string, reply, reply) {
	id := p.session()
	want := p.model.keepAlive(id)
	left, ok := p.table.KeepAlive(id)
	return fmt.Sprint("keepalive ", id), want, reply{n: left, ok: ok}
}

func (p *twins) attach() (string, reply, reply) {
	id, client := p.session(), p.client()
	want := p.model.attach(id, client)
	ok, err := p.table.Attach(id, client)
	return fmt.Sprint("attach ", id, client), want, reply{ok: ok, err: err}
}

func (p *twins) close() (string, reply, reply) {
	id := p.session()
	want := p.model.closeSession(id)
	holds, ok := p.table.CloseSession(id)
	if p.ragged {
		want.n = max(want.n, int64(holds)) // the count includes flushed holds that are not removed
	}
	return fmt.Sprint("close ", id), want, reply{n: int64(holds), ok: ok}
}

func (p *twins) alive() (string, reply, reply) {
	o := p.client().Origin
	p.model.alive[o] = p.model.now
	p.table.KeepNodeAlive(o)
	return fmt.Sprint("node-keepalive ", o), reply{}, reply{}
}

func (p *twins) gone() (string, reply, reply) {
	c := p.client()
	want := p.model.gone(c)
	return fmt.Sprint("end-connections ", c), want, reply{n: int64(p.table.EndSessionsOf(c))}
}

func (p *twins) unblock() (string, reply, reply) {
	name := waits.Name{Origin: p.client().Origin, Ticket: p.tickets - min(p.tickets, uint64(p.d.n(4)))}
	if n := len(p.model.queue); n > 0 && !p.d.one(3) {
		w := p.model.queue[p.d.n(n)]
		name = waits.Name{Origin: w.Client.Origin, Ticket: w.Ticket}
	}
	how := []protocol.Leave{protocol.LeaveGone, protocol.LeaveGone, protocol.LeaveTimeout, protocol.LeaveError}[p.d.n(4)]
	want := p.model.unblock(name, how)
	if p.ragged && !want.ok {
		how = protocol.LeaveTimeout // a client that has disconnected gets no error of its session
	}
	return fmt.Sprint("unblock ", name, how), want, reply{ok: p.table.RemoveWaiter(name, how)}
}

func (p *twins) dropped() (string, reply, reply) {
	o := p.client().Origin
	name := waits.Name{Origin: o, Ticket: p.tickets - min(p.tickets, uint64(p.d.n(10)))}
	switch p.d.n(4) {
	case 0, 1:
		p.table.EndNodeWaits(o.Node, o.Epoch)
		name = waits.Name{Origin: o, Ticket: ^uint64(0)}
	case 2: // a new incarnation of the node
		p.epochs[o.Node]++
		name = waits.Name{Origin: p.origin(o.Node)}
		p.table.EndNodeWaitsBefore(name)
	default:
		if p.d.one(2) { // a lower name has no effect
			p.table.EndNodeWaitsBefore(waits.Name{Origin: o, Ticket: name.Ticket - min(name.Ticket, 3)})
		}
		p.table.EndNodeWaitsBefore(name)
	}
	want := p.model.dropWaits(o.Node, func(w *nWait) bool {
		return waits.Name{Origin: w.Client.Origin, Ticket: w.Ticket}.Compare(name) < 0
	})
	p.goOn()
	return fmt.Sprint("drop before ", name), want, reply{}
}

func (p *twins) flush() (string, reply, reply) {
	if !p.ragged && !p.d.one(3) {
		return p.acquire()
	}
	db := p.db()
	want := p.model.flush(db)
	p.table.Flush(db, causes[Flushed])
	maps.DeleteFunc(p.present, func(name string, _ bool) bool { return strings.HasPrefix(name, fmt.Sprint(db, " ")) })
	p.goOn()
	return fmt.Sprint("flush ", db), want, reply{}
}
