package locks

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// sharedAndAlone returns a table with a lock of three holds, a lock with one hold and one waiter of a session, and
// sessions of both kinds.
func sharedAndAlone(t *testing.T) *Table {
	table := New()
	table.Begin(1000, plenty)
	session, err := table.OpenSession(500, Client{}, false, "s", "", 0)
	require.NoError(t, err)
	_, err = table.OpenSession(500, Client{Conn: 2}, true, "", "", 0)
	require.NoError(t, err)
	for _, r := range []Request{
		{Keys: []string{"alone"}, Owner: "a", LeaseMillis: 100, Session: session},
		{Keys: []string{"shared"}, Owner: "a", LeaseMillis: 100, Mode: Shared},
		{Keys: []string{"shared"}, Owner: "b", LeaseMillis: 100, Mode: Shared},
		{Keys: []string{"shared"}, Owner: "c", LeaseMillis: 100, Mode: Shared},
		{
			Keys: []string{"alone"}, Owner: "z", Waits: true, WaitMillis: 50, Session: session, Ticket: 1,
			Client: Client{Conn: 1}, Account: 2,
		},
	} {
		_, err := table.Acquire(&r)
		require.NoError(t, err)
	}
	return table
}

// parts has the records of the table that sharedAndAlone returns.
type parts struct {
	*Table
	alone, shared *lock
	h, s          *hold // the hold of alone, and the first hold of shared
	w             *waiter
	lease, with   *session // one ends by its own lease, the other with its node
	many          *extension
}

// settleAs completes the changes of a lock, as finishStep does.
func (p *parts) settleAs(l *lock) {
	l.idAndFlags &^= flagTouched | flagWoken
	p.touchedLocks, p.wokenLocks = nil, nil
	p.liveDatabases[0].schedule(l, p.firstDeadlineOf(l), l.waiters() > 0)
}

// replace replaces the waiter by a changed copy.
func (p *parts) replace(change func(w *waiter)) {
	kept := *p.w
	change(&kept)
	p.replaceWaiter(p.w, &kept)
	p.settleAs(p.alone)
}

// TestVerify requires that Verify returns an error for each number, text, tree or count that contradicts another. Each
// bound of [Load] has a row here. The golden file has the errors.
func TestVerify(t *testing.T) {
	long := strings.Repeat("x", MaxText+1)
	var got strings.Builder
	for _, row := range []struct {
		name   string
		damage func(p *parts)
	}{
		{"a lock is touched", func(p *parts) { p.touchedLocks = []*lock{p.alone} }},
		{"its flag says so", func(p *parts) { p.alone.idAndFlags |= flagTouched }},
		{"not present", func(p *parts) { p.alone.idAndFlags &^= flagPresent }},
		{"contended", func(p *parts) { p.alone.idAndFlags ^= flagContended }},
		{"not on the agenda", func(p *parts) { p.liveDatabases[0].agenda.Delete(p.shared) }},
		{"another record on the agenda", func(p *parts) { other := *p.alone; p.liveDatabases[0].agenda.Set(&other) }},
		{"one more on the agenda", func(p *parts) {
			p.liveDatabases[0].agenda.Set(&lock{text: keyspace.NewLockText("x"), deadline: 1})
		}},
		{"in another database", func(p *parts) { p.liveDatabases = []*database{newDatabase(), p.liveDatabases[0]} }},
		{"live and flushed", func(p *parts) { p.liveDatabases[0].flush = &flush{} }},
		{"a later deadline", func(p *parts) { p.shared.deadline++ }},
		{"a lock of no use", func(p *parts) {
			p.liveDatabases[0].locks.Set(&lock{text: keyspace.NewLockText("x"), deadline: noDeadline, idAndFlags: flagPresent})
		}},
		{"locks", func(p *parts) { p.lockCount++ }},
		{"holds", func(p *parts) { p.holdCount++ }},
		{"waiters", func(p *parts) { p.waiterCount++ }},
		{"bytes", func(p *parts) { p.bytes-- }},
		{"bytes of waiters", func(p *parts) { p.waitingBytes++ }},
		{"accounts", func(p *parts) { p.counts.Add(2, 1) }},
		{"accounts of sessions", func(p *parts) { p.sessionCounts.Add(2, 1) }},
		{"bytes of accounts", func(p *parts) { p.sessionMemory.Add(2, 1) }},
		{"fences given out", func(p *parts) { p.fences = noOrder }},
		{"orders given out", func(p *parts) { p.orders = noOrder }},
		{"ids given out", func(p *parts) { p.sessionIDs = MaxFence + 1 }},
		{"drops out of order", func(p *parts) { p.nodeEnds = make([]waits.Name, 2) }},

		{"an extension for nothing", func(p *parts) { p.many.holds.byFence = p.many.holds.byFence[:1] }},
		{"permits", func(p *parts) { p.many.permits++ }},
		{"holds of sessions", func(p *parts) { p.many.sessionHolds++ }},
		{"waiters of sessions", func(p *parts) { p.alone.ext.sessionWaits = 0 }},
		{"a rank", func(p *parts) { p.alone.ext.ranks[asleepOther]++ }},
		{"delay -1", func(p *parts) { p.many.delayEnd = -1; p.settleAs(p.shared) }},
		{"grant as of -1", func(p *parts) { p.many.grantPendingSince = -1; p.settleAs(p.shared) }},
		{"grant as of never", func(p *parts) { p.many.grantPendingSince = noDeadline }},

		{"a fence that was not given out", func(p *parts) { p.fences = 3 }},
		{"fence 0", func(p *parts) { p.h.fence = 0 }},
		{"not by owner", func(p *parts) { p.many.holds.byOwner = p.many.holds.byOwner[1:] }},
		{"one more by end", func(p *parts) { p.many.holds.byEnd = append(p.many.holds.byEnd, p.h) }},
		{"ends out of order", func(p *parts) { slices.Reverse(p.many.holds.byEnd); p.settleAs(p.shared) }},
		{"several that are one", func(p *parts) {
			p.alone.ext.holds, p.alone.hold = &holdSet{byFence: []*hold{p.h}}, nil
		}},
		{"two modes", func(p *parts) { p.s.mode = Exclusive }},
		{"beside an exclusive hold", func(p *parts) {
			for _, h := range p.shared.holds() {
				h.mode = Exclusive
			}
		}},
		{"too many holds", func(p *parts) {
			for i := range MaxHolders - 2 {
				other := *p.s
				other.owner, other.fence = fmt.Sprint("o", i), uint64(i+10)
				p.many.holds.change(&other, 1)
			}
			p.fences = 1 << 20
		}},
		{"a hold not by session", func(p *parts) { p.holdsBySession.PopMin() }},
		{"another hold by session", func(p *parts) { p.holdsBySession.Set(&sessionHold{*p.h, "alone"}) }},
		{"one more hold by session", func(p *parts) {
			p.holdsBySession.Set(&sessionHold{hold: hold{sessionOrLease: 9}})
		}},
		{"owner of a hold", func(p *parts) { p.h.owner = long }},
		{"count 0", func(p *parts) { p.s.count = 0 }},
		{"mode 3", func(p *parts) { p.h.mode = Permits + 1 }},
		{"hold of no session", func(p *parts) { p.h.sessionOrLease = 9 }},
		{"lease 0", func(p *parts) { p.s.sessionOrLease = 0 }},
		{"lease beyond", func(p *parts) { p.s.sessionOrLease = Forever + 1 }},
		{"no permits", func(p *parts) { p.s.mode = Permits }},
		{"0 permits", func(p *parts) { p.h.mode, p.h.extra = Permits, &extra{} }},
		{"-1 permits", func(p *parts) { p.h.extra = &extra{permits: -1} }},
		{"permits beyond", func(p *parts) { p.h.extra = &extra{permits: MaxLimit + 1} }},
		{"delay of a hold -1", func(p *parts) { p.s.extra = &extra{delay: -1} }},
		{"delay of a hold beyond", func(p *parts) { p.h.extra = &extra{delay: Forever + 1} }},
		{"note of a hold", func(p *parts) { p.s.extra = &extra{note: long} }},
		{"call of a hold", func(p *parts) { p.h.extra = &extra{call: long} }},

		{"not granted to the first in line", func(p *parts) { p.removeHold(p.alone, p.h); p.settleAs(p.alone) }},
		{"waiter not by owner", func(p *parts) { p.waitersByOwner.PopMin() }},
		{"waiter by owner elsewhere", func(p *parts) {
			k, _ := p.waitersByOwner.Min()
			k.lock = 99
			p.waitersByOwner.Set(k)
		}},
		{"owners out of order", func(p *parts) {
			other := *p.w
			other.owner, other.order, other.ticket, p.orders = "y", 2, 2, 2
			p.enqueueWaiter(&other)
			p.settleAs(p.alone)
			p.w.owner = "b"
		}},
		{"one more queue entry", func(p *parts) { p.queueEntries.Set(entryAt(p.shared, absent, p.w)) }},
		{"waits elsewhere", func(p *parts) { p.w.oneKey[0] = "shared" }},
		{"order 0", func(p *parts) { p.w.order = 0 }},
		{"order that was not given out", func(p *parts) { p.orders = 0 }},
		{"another rank", func(p *parts) { p.w.absent = true }},
		{"another end of a wait", func(p *parts) { other := *p.w; p.waitEnds.Set(waiterKey{p.alone.id(), &other}) }},
		{"one more end of a wait", func(p *parts) { p.waitEnds.Set(waiterKey{99, waitEndProbe}) }},
		{"in one line of two", func(p *parts) { p.w.options = &options{manyKeys: append(p.w.keys(), "other")} }},
		{"not by name", func(p *parts) { p.waitersByName.PopMin() }},
		{"one more by name", func(p *parts) { p.waitersByName.Set(&waiter{order: 9, origin: &noOrigin}) }},
		{"another by name", func(p *parts) { other := *p.w; p.waitersByName.Set(&other) }},
		{"a waiter not by session", func(p *parts) { p.waitersBySession.PopMin() }},
		{"another by session", func(p *parts) { other := *p.w; p.waitersBySession.Set(&other) }},
		{"129 keys", func(p *parts) { p.w.options = &options{manyKeys: slices.Repeat(p.w.keys(), MaxKeys+1)} }},
		{"a call that is not counted", func(p *parts) { p.w.options = &options{call: "x"} }},
		{"owner of a waiter", func(p *parts) { p.w.owner = long }},
		{"note of a waiter", func(p *parts) { p.w.options = &options{note: long} }},
		{"call of a waiter", func(p *parts) { p.w.reentrant, p.w.options = true, &options{call: long} }},
		{"absent for ever", func(p *parts) { p.replace(func(w *waiter) { w.absent, w.deadline = true, noDeadline }) }},
		{"blocked at no key", func(p *parts) { p.replace(func(w *waiter) { w.blockingKey = 1 }) }},
		{"ticket 0", func(p *parts) { p.w.ticket = 0 }},
		{"last ticket", func(p *parts) { p.w.ticket = ^uint64(0) }},
		{"wait -1", func(p *parts) { p.w.wait = -1 }},
		{"grace -1", func(p *parts) { p.w.options = &options{grace: -1} }},
		{"delay of a waiter -1", func(p *parts) { p.w.options = &options{delay: -1} }},
		{"no lease", func(p *parts) { p.w.term = 0 }},
		{"waits with no session", func(p *parts) { p.w.term = -9 }},
		{"no limit", func(p *parts) { p.w.mode = Permits }},
		{"limit 1", func(p *parts) { p.w.mode, p.w.options = Permits, &options{permits: 1, limit: 1} }},
		{"no permits of 2", func(p *parts) { p.w.mode, p.w.options = Permits, &options{limit: 2} }},
		{"3 permits of 2", func(p *parts) { p.w.mode, p.w.options = Permits, &options{permits: 3, limit: 2} }},
		{"permits, but exclusive", func(p *parts) { p.w.options = &options{permits: 1} }},
		{"limit, but exclusive", func(p *parts) { p.w.options = &options{limit: 1} }},
		{"mode 3 of a waiter", func(p *parts) { p.w.mode = Permits + 1 }},

		{"holds of a session", func(p *parts) { p.lease.holds = 3 }},
		{"waiters of a session", func(p *parts) { p.lease.waiters = 0 }},
		{"queue entries of a session", func(p *parts) { p.lease.queueEntries = 0 }},
		{"session 0", func(p *parts) { p.sessionsByID.Set(&session{lease: 1}) }},
		{"id beyond", func(p *parts) { p.sessionsByID.Set(&session{id: MaxFence + 1, lease: 1, hasOwnLease: true}) }},
		{"lease of a session 0", func(p *parts) { p.lease.lease = 0 }},
		{"lease of a session beyond", func(p *parts) { p.lease.lease = Forever + 1 }},
		{"a session for ever", func(p *parts) { p.lease.deadline = noDeadline }},
		{"name of a session", func(p *parts) { p.lease.name = long }},
		{"user of a session", func(p *parts) { p.lease.user = long }},
		{"a pending end that is not due", func(p *parts) { p.with.endPending = true }},
		{"a session without an end", func(p *parts) { p.lease.hasOwnLease = false; p.sessionEnds.PopMin() }},
		{"not by its lease", func(p *parts) { p.sessionEnds.PopMin() }},
		{"one more by its lease", func(p *parts) { p.sessionEnds.Set(sessionEnd{9, 9}) }},
		{"not with its node", func(p *parts) { p.sessionsByNode.PopMin() }},
		{"not by its connection", func(p *parts) { p.sessionsByConnection.PopMin() }},
		{"one more by its connection", func(p *parts) { p.sessionsByConnection.Set(sessionKey{origin: &noOrigin}) }},
		{"one more with its node", func(p *parts) { p.incarnations[0].sessions++ }},
		{"of no incarnation", func(p *parts) { p.incarnations = nil }},
		{"behind its incarnation", func(p *parts) { p.with.deadline = 1 << 40 }},
		{"an incarnation without sessions", func(p *parts) {
			p.incarnations = append(p.incarnations, incarnation{origin: protocol.Incarnation{Node: "z"}})
		}},
		{"incarnations out of order", func(p *parts) {
			p.incarnations = append([]incarnation{{origin: protocol.Incarnation{Node: "z"}}}, p.incarnations...)
		}},
	} {
		table := sharedAndAlone(t)
		require.NoError(t, table.Verify())
		p := &parts{Table: table, alone: table.peek(0, "alone"), shared: table.peek(0, "shared")}
		p.h, p.s, p.many = p.alone.hold, p.shared.anyHold(), p.shared.ext
		p.w, _ = table.waitersByName.Min()
		p.lease, p.with = table.session(1), table.session(2)
		row.damage(p)
		err := table.Verify()
		require.Error(t, err, row.name)
		fmt.Fprintf(&got, "%s\n  %v\n", row.name, err)
	}
	require.Equal(t, protocoltest.Golden(t, "testdata/golden/verify.txt", got.String()), got.String())
}
