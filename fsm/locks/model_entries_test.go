package locks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEntriesWithoutSteps makes random log entries that spend their budget before their last call. It compares each
// reply with that of the naive table. A call must treat a hold of its keys as ended, even if the budget does not
// suffice for other events. Grants may come later than in the naive table, but in the same order. At the end all events
// must be equal.
func TestEntriesWithoutSteps(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			runEntries(t, &dice{rand: r}, 60)
		})
	}
}

// FuzzEntries does the work of TestEntriesWithoutSteps with numbers of a fuzzer.
func FuzzEntries(f *testing.F) {
	fuzz(f, func(t *testing.T, d *dice, _ bool) { runEntries(t, d, 400) })
}

// runEntries runs rounds. In each round it advances the time, runs all due events, and then runs log entries of the
// same time that leave due events behind.
func runEntries(t *testing.T, d *dice, rounds int) {
	p := newTwins(t, d, false)
	p.loose = true
	for range rounds {
		p.passBy(int64(d.n(4) * d.n(60)))
		p.copies()
		p.ragged, p.model.held, p.ghosts = true, true, nil
		for range 1 + d.n(5) {
			p.entry()
		}
		if d.one(6) {
			p.restore()
		}
		p.model.held = false
		p.model.pump()
		p.model.tidy()
		p.drain()
		p.match("the rest")
		p.ragged = false
		p.compare()
		if d.over {
			break
		}
	}
	p.passBy(10_000)
	p.end()
}

// restore makes the table and the model what a restore from a backup with due events makes of them.
func (p *twins) restore() {
	p.log = append(p.log, "restore")
	p.table.Begin(p.model.now, 0)
	p.table.RenewAll()
	require.Empty(p.t, p.table.Events())
	p.model.renewHolds()
	p.told, p.present = nil, map[string]bool{}
	for _, l := range p.model.locks {
		p.present[fmt.Sprint(l.db, " ", l.key)] = true
	}
}

// passBy advances the time, and stops at each time at which an event is due, as a leader does.
func (p *twins) passBy(millis int64) {
	for until := p.rounded(p.model.now + millis); p.model.now < until; {
		due, ok := p.table.NextDue()
		if !ok || due > until {
			due = until
		}
		p.model.now = due
		p.model.catchUp()
		p.drain()
		p.match("time " + fmt.Sprint(p.model.now))
	}
}

// entry runs a log entry: a sweep with a small budget, and then calls with the rest of the budget.
func (p *twins) entry() {
	p.table.Begin(p.model.now, p.d.n(3)*p.d.n(4)*ChangeUnits)
	p.table.Sweep()
	p.follow("sweep")
	for range p.d.n(6) {
		if p.d.one(20) {
			left := p.table.BudgetLeft()
			p.table = reloaded(p.t, p.table)
			p.table.Begin(p.model.now, left)
		}
		p.settleAll()
		before := p.parties()
		if p.aim = nil; len(p.ghosts) > 0 && p.d.one(2) {
			p.aim = &p.ghosts[p.d.n(len(p.ghosts))]
		}
		text, want, got := p.word()
		p.aim = nil
		after := p.parties()
		for _, one := range before {
			if !slices.Contains(after, one) {
				p.ghosts = append(p.ghosts, one)
			}
		}
		if want.grant != nil {
			if want.grant.fence == 0 {
				want.grant.fence = got.fence
			}
			want.fence, want.grant = want.grant.fence, nil
		}
		p.log = append(p.log, fmt.Sprintf("%d, %d units left: %s -> %+v", p.model.now, p.table.BudgetLeft(), text, got))
		require.Equal(p.t, fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got), text)
		p.follow(text)
		p.moment()
	}
	require.NoError(p.t, p.table.Verify())
}

// party is an owner that holds a lock or waits for it.
type party struct {
	db         int
	key, owner string
}

// parties returns all owners that hold a lock of the model or wait for one.
func (p *twins) parties() (all []party) {
	for _, l := range p.model.locks {
		for _, h := range l.holds {
			all = append(all, party{l.db, l.key, h.owner})
		}
	}
	for _, w := range p.model.queue {
		for _, key := range w.Keys {
			all = append(all, party{w.DB, key, w.Owner})
		}
	}
	return all
}

// settleKeys settles all locks before a call, so that the model knows the grants that come before the call.
func (p *twins) settleAll() {
	for db := range 2 {
		for _, key := range modelKeys {
			p.table.Begin(p.model.now, max(0, p.table.BudgetLeft()))
			p.table.Settle(db, key)
		}
	}
	p.table.Begin(p.model.now, max(0, p.table.BudgetLeft()))
	p.follow("settle")
}

// undone reports whether the table has an event that is due, or a pending grant.
func (p *twins) undone() bool {
	due, ok := p.table.NextDue()
	return ok && due <= p.table.now
}

// follow makes the grants of the table in the model, and requires that each of them was next in line.
func (p *twins) follow(text string) {
	for _, e := range p.hear() {
		if e.Kind != WaitEnded || e.Fence == 0 {
			continue
		}
		i := slices.IndexFunc(p.model.queue, func(w *nWait) bool {
			return !w.absent && w.Client.Origin == e.Name.Origin && w.Ticket == e.Name.Ticket
		})
		require.GreaterOrEqual(p.t, i, 0, "%s: %s does not wait for %s", text, e.Owner, e.Key)
		w := p.model.queue[i]
		require.True(p.t, p.model.free(&w.Request, i), "%s: it is not the turn of %s", text, e.Owner)
		p.model.leave(w)
		g := p.model.grant(&w.Request, w.since)
		g.fence = e.Fence
		p.model.emitEndOfWait(w, g, nil)
	}
}

// soften clears the fields of an event that depend on the time at which the event ran.
func (p *twins) soften(e *Event) {
	e.Waiters, e.Attached = 0, Client{}
	if e.Kind == Lost {
		e.Reason, e.CauseID = 0, 0 // the hold may have ended for several reasons
	}
	if e.Err == ErrNodeEnded { // both the session and the node of a waiter may have ended
		e.Err = ErrNoSession
	}
	if e.How == Disconnected {
		e.How = WithSession
	}
}

// moment compares the table with the model in the middle of a log entry. Holds and delays of settled keys must be
// equal. The table may still show a waiter whose node or session has ended.
func (p *twins) moment() {
	p.settleAll()
	now := p.model.now
	for db := range 2 {
		for _, key := range modelKeys {
			want, got := p.model.info(db, key), p.table.Info(db, key, now, enough)
			if want == nil {
				want = &Info{}
			}
			if got == nil {
				got = &Info{}
			}
			require.Equal(p.t, []any{want.Holds, want.Holders, want.Permits, want.DelayLeftMillis},
				[]any{got.Holds, got.Holders, got.Permits, got.DelayLeftMillis}, "%d %s", db, key)
			safe(p.t, got)
			require.LessOrEqual(p.t, want.Waiters, got.Waiters)
			left := got.Waits
			for _, w := range want.Waits {
				i := slices.Index(left, w)
				require.GreaterOrEqual(p.t, i, 0, "%s is not in line for %d %s", w.Owner, db, key)
				left = left[i+1:]
			}
			p.fences(db, key)
		}
	}
	for id := range p.model.lastID + 1 {
		want, got := p.model.sessionInfo(id), p.table.Session(id, now)
		require.Equal(p.t, want != nil, got != nil, "session %d", id)
	}
}

// estimate compares a read of the table at a later time with the state of the model at that time. If an event is due by
// then, the table must report that, so that the caller commits the time first.
func (p *twins) estimate() {
	now := p.model.now
	until := now + 1 + int64(p.d.n(120))
	then := p.model.copy()
	then.now = until
	then.catchUp()
	for db := range 2 {
		for _, key := range modelKeys {
			due := p.table.HasDue(db, key, until)
			require.True(p.t, due || !p.model.dueAt(db, key, until), "%d %s is due by %d", db, key, until)
			if due || p.model.waitsElsewhere(db, key) {
				continue
			}
			require.Equal(p.t, then.info(db, key), p.table.Info(db, key, until, enough), "%d %s at %d", db, key, until)
			if few := p.table.Info(db, key, until, 1); few != nil {
				whole := then.info(db, key)
				require.Equal(p.t, []int{whole.Holders, whole.Waiters}, []int{few.Holders, few.Waiters}, "%d %s at %d", db, key,
					until)
			}
		}
	}
	if now < until && p.table.HasAnyDue(until) {
		return
	}
	require.Empty(p.t, then.events)
	for id := range then.lastID + 1 {
		require.Equal(p.t, then.sessionInfo(id), p.table.Session(id, until), "session %d at %d", id, until)
	}
}

// dueAt reports whether a hold, a wait or the delay of a lock ends by the time until.
func (n *naive) dueAt(db int, key string, until int64) bool {
	l := n.lock(db, key)
	over := func(session uint64, deadline int64) bool {
		if session != 0 {
			deadline = n.endOf(n.session(session))
		}
		return deadline < until
	}
	return l.delay != 0 && l.delay < until ||
		slices.ContainsFunc(l.holds, func(h *nHold) bool { return over(h.session, h.deadline) }) ||
		slices.ContainsFunc(n.queue, func(w *nWait) bool {
			if w.DB != db || !slices.Contains(w.Keys, key) {
				return false
			}
			return w.Keys[0] == key && w.deadline < until || w.Session != 0 && over(w.Session, 0)
		})
}

// waitsElsewhere reports whether a waiter of a lock also waits for other locks. Their events may lead to its grant.
func (n *naive) waitsElsewhere(db int, key string) bool {
	return slices.ContainsFunc(n.queue, func(w *nWait) bool {
		return w.DB == db && slices.Contains(w.Keys, key) && len(w.Keys) > 1
	})
}
