package locks

import (
	"fmt"
	"maps"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// What the model test draws: each function does a call to both, and returns the call in words and both replies.

func (p *twins) acquire() (string, reply, reply) {
	r := &Request{
		DB: p.db(), Keys: []string{p.key()}, Owner: p.owner(), Client: p.client(), LeaseMillis: int64(1 + p.d.n(300)),
		Mode: Mode([]int{0, 0, 1, 1, 2}[p.d.n(5)]),
	}
	switch {
	case p.d.one(5) && r.Mode != Permits:
		r.Keys = append(r.Keys, p.key(), p.key())[:2+p.d.n(2)]
	case r.Mode == Permits:
		r.Limit = int64(1 + p.d.n(4))
		r.Permits = 1 + int64(p.d.n(int(r.Limit)))
	}
	if p.d.one(4) {
		r.Session = p.session()
	}
	if !p.d.one(3) {
		p.tickets++
		r.Waits, r.Ticket, r.Notify = true, p.tickets, p.d.one(3)
		if !p.d.one(4) {
			r.WaitMillis = int64(1 + p.d.n(200))
		}
		if p.d.one(2) {
			r.GraceMillis = int64(1 + p.d.n(80))
		}
	}
	if p.d.one(3) {
		r.DelayMillis = int64(p.d.n(60))
	}
	if len(r.Keys) == 1 && p.d.one(3) {
		r.Reentrant = true
		r.Call = []string{"", "c1", "c2"}[p.d.n(3)]
	}
	if p.d.one(5) {
		r.Note = []string{"x", "y"}[p.d.n(2)]
	}
	text := fmt.Sprintf("acquire %+v", *r)
	want := p.model.acquire(r)
	blocked := p.table.Blocked(r, p.table.now)
	a, err := p.table.Acquire(r)
	if blocked {
		require.Zero(p.t, a.Fence, "Blocked is sure")
	}
	return text, want, reply{fence: a.Fence, ok: a.Waiting, err: err}
}

func (p *twins) release() (string, reply, reply) {
	db, key, owner, all := p.db(), p.key(), p.owner(), p.d.one(4)
	if l := p.model.lock(db, key); len(l.holds) > 0 && !p.d.one(5) {
		owner = l.holds[p.d.n(len(l.holds))].owner
	}
	want := p.model.release(db, key, owner, all)
	left, ok := p.table.Release(db, key, owner, all)
	return fmt.Sprint("release ", db, key, " ", owner, all), want, reply{n: left, ok: ok}
}

func (p *twins) renew() (string, reply, reply) {
	db, key, owner, lease := p.db(), p.key(), p.owner(), int64(1+p.d.n(300))
	want := p.model.renew(db, key, owner, lease)
	return fmt.Sprint("renew ", db, key, " ", owner, " ", lease), want, reply{fence: p.table.Renew(db, key, owner, lease)}
}

func (p *twins) cancel() (string, reply, reply) {
	db, key, owner := p.db(), p.key(), p.owner()
	want := p.model.cancel(db, key, owner)
	return fmt.Sprint("cancel ", db, key, " ", owner), want, reply{ok: p.table.Cancel(db, key, owner)}
}

func (p *twins) breaks() (string, reply, reply) {
	b := &Break{DB: p.db(), Key: p.key(), Reason: Broken, ByOwner: p.d.one(2), ByDelay: p.d.one(3), DelayMillis: int64(p.d.n(50))}
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
	want := p.model.downgrade(db, key, owner)
	fence, err := p.table.Downgrade(db, key, owner)
	return fmt.Sprint("downgrade ", db, key, " ", owner), want, reply{fence: fence, err: err}
}

func (p *twins) releaseAll() (string, reply, reply) {
	db, keys, owner := p.db(), []string{p.key(), p.key(), p.key()}, p.owner()
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
	return fmt.Sprint("giveback ", db, key, owner, fence, client), want, reply{ok: p.table.GiveBack(db, key, owner, fence, client)}
}

func (p *twins) open() (string, reply, reply) {
	lease, client, connection := int64(1+p.d.n(400)), p.client(), p.d.one(2)
	if !connection {
		client = Client{}
	}
	want := p.model.openSession(lease, client, connection, "name")
	id, err := p.table.OpenSession(lease, client, connection, "name")
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
	return fmt.Sprint("close ", id), want, reply{n: int64(holds), ok: ok}
}

func (p *twins) alive() (string, reply, reply) {
	o := p.client().Origin
	p.model.alive[o] = p.model.now
	p.table.Alive(o)
	return fmt.Sprint("alive ", o), reply{}, reply{}
}

func (p *twins) gone() (string, reply, reply) {
	c := p.client()
	want := p.model.gone(c)
	return fmt.Sprint("gone ", c), want, reply{n: int64(p.table.Gone(c))}
}

func (p *twins) unblock() (string, reply, reply) {
	name := waits.Name{Origin: p.client().Origin, Ticket: p.tickets}
	if n := len(p.model.queue); n > 0 {
		w := p.model.queue[p.d.n(n)]
		name = waits.Name{Origin: w.Client.Origin, Ticket: w.Ticket}
	}
	how := []protocol.Leave{protocol.LeaveGone, protocol.LeaveTimeout, protocol.LeaveError}[p.d.n(3)]
	want := p.model.unblock(name, how)
	return fmt.Sprint("unblock ", name, how), want, reply{ok: p.table.Unblock(name, how)}
}

func (p *twins) dropped() (string, reply, reply) {
	o := p.client().Origin
	if p.d.one(2) {
		want := p.model.dropWaits(o.Node, func(*nWait) bool { return true })
		p.table.DropLife(o.Node, 1)
		p.drain()
		return fmt.Sprint("drop ", o), want, reply{}
	}
	name := waits.Name{Origin: o, Ticket: p.tickets - min(p.tickets, uint64(p.d.n(10)))}
	want := p.model.dropWaits(o.Node, func(w *nWait) bool { return w.Ticket < name.Ticket })
	p.table.Drop(name)
	p.drain()
	return fmt.Sprint("drop before ", name), want, reply{}
}

func (p *twins) flush() (string, reply, reply) {
	if !p.d.one(3) {
		return p.acquire()
	}
	db := p.db()
	want := p.model.flush(db)
	p.table.Flush(db)
	maps.DeleteFunc(p.present, func(name string, _ bool) bool { return strings.HasPrefix(name, fmt.Sprint(db, " ")) })
	p.drain()
	return fmt.Sprint("flush ", db), want, reply{}
}
