package locks

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// sharedAndAlone is a table with a lock of three holds and one whose holder lives with a session, sessions of both
// kinds, and a waiter.
func sharedAndAlone(t *testing.T) *Table {
	table := New()
	table.Begin(1000, plenty)
	session, err := table.OpenSession(500, Client{}, false, "s", "")
	require.NoError(t, err)
	_, err = table.OpenSession(500, Client{Conn: 2}, true, "", "")
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

// TestVerify: the check finds what contradicts something else.
func TestVerify(t *testing.T) {
	for want, damage := range map[string]func(t *Table, alone, shared *lock){
		"1 locks are touched":          func(t *Table, alone, shared *lock) { t.touched = []*lock{alone} },
		"is touched":                   func(t *Table, alone, shared *lock) { alone.head |= flagTouched },
		"is not present":               func(t *Table, alone, shared *lock) { alone.head &^= flagPresent },
		"queued says":                  func(t *Table, alone, shared *lock) { alone.head ^= flagQueued },
		"among those with waiters":     func(t *Table, alone, shared *lock) { t.queued.Delete(alone) },
		"among those that are due":     func(t *Table, alone, shared *lock) { t.timers.Delete(shared) },
		"is due at":                    func(t *Table, alone, shared *lock) { shared.due++ },
		"fence 4 comes behind 3, of 3": func(t *Table, alone, shared *lock) { t.fences = 3 },
		"holds are counted as 4":       func(t *Table, alone, shared *lock) { shared.more.holders++ },
		"permits are counted as":       func(t *Table, alone, shared *lock) { shared.more.permits++ },
		"of sessions are counted as":   func(t *Table, alone, shared *lock) { shared.more.sessionHolds++ },
		"its hold by owner":            func(t *Table, alone, shared *lock) { t.byOwner.PopMin() },
		"holds by the ends of leases":  func(t *Table, alone, shared *lock) { t.byEnd.PopMin() },
		"two modes": func(t *Table, alone, shared *lock) {
			m, _ := t.byFence.Min()
			m.hold.mode = Exclusive
		},
		"beside an exclusive hold": func(t *Table, alone, shared *lock) {
			t.eachHold(shared, func(h *hold) bool { h.mode = Exclusive; return true })
		},
		"does not stand in line by owner": func(t *Table, alone, shared *lock) { t.waiting.PopMin() },
		"places by owner are counted as": func(t *Table, alone, shared *lock) {
			s, _ := t.waiting.Min()
			s.lock = 99
			t.waiting.Set(s)
		},
		"is not granted to the first": func(t *Table, alone, shared *lock) {
			t.removeHold(alone, alone.hold)
			alone.due = t.dueOf(alone)
			t.touched = nil
			alone.head &^= flagTouched | flagWake
		},
		"accounts with [0 0 1] waiters": func(t *Table, alone, shared *lock) { t.counts.Add(2, 1) },
		"1 waiters are counted as 2":    func(t *Table, alone, shared *lock) { t.waiterCount++ },
		"session 1 has 1 holds, counted": func(t *Table, alone, shared *lock) {
			s, _ := t.sessions.Min()
			s.holds = 3
		},
		"its hold by session":              func(t *Table, alone, shared *lock) { t.bySession.PopMin() },
		"holds of sessions are counted as": func(t *Table, alone, shared *lock) { t.bySession.Set(&hold{bound: 9}) },
		"with delays are counted as 1":     func(t *Table, alone, shared *lock) { shared.more.delays++ },
		"line of another lock": func(t *Table, alone, shared *lock) {
			w, _ := t.names.Min()
			w.first[0] = "shared"
		},
		"order 1 of 0": func(t *Table, alone, shared *lock) { t.orders = 0 },
		"stand in line by rank": func(t *Table, alone, shared *lock) {
			w, _ := t.names.Min()
			w.absent = true
		},
		"1 of sessions, 0 for many are counted as": func(t *Table, alone, shared *lock) { alone.more.sessionWaits = 0 },
		"0 for many are counted as 1, 1":           func(t *Table, alone, shared *lock) { alone.more.many = 1 },
		"among the ends of waits": func(t *Table, alone, shared *lock) {
			w, _ := t.names.Min()
			other := *w
			t.waitEnds.Set(stand{alone.id(), &other})
		},
		"ends of waits are counted as": func(t *Table, alone, shared *lock) {
			t.waitEnds.Set(stand{99, firstWaiter})
		},
		"stands in 1 lines of 2": func(t *Table, alone, shared *lock) {
			w, _ := t.names.Min()
			w.options, alone.more.many = &options{several: append(w.keys(), "other")}, 1
		},
		"is not known by its ticket": func(t *Table, alone, shared *lock) { t.names.PopMin() },
		"waiters by name are counted as": func(t *Table, alone, shared *lock) {
			t.names.Set(&waiter{order: 9, origin: &noOrigin})
		},
		"bytes of waiters are counted as": func(t *Table, alone, shared *lock) { t.waitingBytes++ },
		"session 1 has 1 waiters, counted as 0": func(t *Table, alone, shared *lock) {
			s, _ := t.sessions.Min()
			s.waiters = 0
		},
		"session 1 is over: true, among the ended": func(t *Table, alone, shared *lock) {
			s, _ := t.sessions.Min()
			s.over = true
		},
		"sessions that have ended are counted as":  func(t *Table, alone, shared *lock) { t.ended.Set(9) },
		"session 1 has its own lease: true, among": func(t *Table, alone, shared *lock) { t.sessionEnds.PopMin() },
		"leases of sessions are counted as": func(t *Table, alone, shared *lock) {
			t.sessionEnds.Set(ending{9, 9})
		},
		"session 2 has its own lease: false, and lives": func(t *Table, alone, shared *lock) { t.attached.PopMin() },
		"not known by its connection":                   func(t *Table, alone, shared *lock) { t.connections.PopMin() },
		"1 sessions of incarnation":                     func(t *Table, alone, shared *lock) { t.incarnations[0].sessions++ },
		"sessions of connections are counted as": func(t *Table, alone, shared *lock) {
			t.connections.Set(bound{origin: &noOrigin})
		},
		"too much was given out":       func(t *Table, alone, shared *lock) { t.orders = noOrder },
		"waiters have 268435457 bytes": func(t *Table, alone, shared *lock) { t.waitingBytes = MaxWaitingBytes + 1 },
		"incarnations are out of order": func(t *Table, alone, shared *lock) {
			t.incarnations = append([]incarnation{{origin: protocol.Incarnation{Node: "z"}}}, t.incarnations...)
		},
		"flush of database 0 up to 99 of 4": func(t *Table, alone, shared *lock) { t.flushes = []flush{{mark: 99}} },
		"flush of database 0 up to 0 of 4":  func(t *Table, alone, shared *lock) { t.flushes = make([]flush, 2) },
		"drops are out of order":            func(t *Table, alone, shared *lock) { t.drops = make([]before, 2) },
		"session 1 has lease 0": func(t *Table, alone, shared *lock) {
			s, _ := t.sessions.Min()
			s.lease = 0
		},
		"session 2 ends behind its incarnation": func(t *Table, alone, shared *lock) {
			s, _ := t.sessions.Max()
			s.deadline = 1 << 40
		},
		"session 2 is one of too many": func(t *Table, alone, shared *lock) {
			s, _ := t.sessions.Max()
			for i := range uint64(MaxAttached) {
				t.connections.Set(bound{s.origin, s.conn, 100 + i})
			}
		},
		"3 holds, 2147483648 permits":  func(t *Table, alone, shared *lock) { shared.more.permits = MaxLimit + 1 },
		"needs no extension":           func(t *Table, alone, shared *lock) { shared.more.holders, shared.due = 1, never },
		"delays 0 and -1":              func(t *Table, alone, shared *lock) { shared.more.lost.delay = -1 },
		"created at 9":                 func(t *Table, alone, shared *lock) { shared.more.createdFence = 9 },
		"nothing is lost":              func(t *Table, alone, shared *lock) { shared.more.lost.at = 1 },
		"hold by 1 bytes, 0 times":     func(t *Table, alone, shared *lock) { m, _ := t.byFence.Min(); m.hold.count = 0 },
		"has the hold of no session 9": func(t *Table, alone, shared *lock) { alone.hold.bound = 9 },
		"has lease 0":                  func(t *Table, alone, shared *lock) { m, _ := t.byFence.Min(); m.hold.bound = 0 },
		"has lease 4611686018427387905": func(t *Table, alone, shared *lock) {
			m, _ := t.byFence.Min()
			m.hold.bound = Forever + 1
		},
		"has no permits": func(t *Table, alone, shared *lock) {
			m, _ := t.byFence.Min()
			m.hold.mode = Permits
		},
		"has 0 permits, delay -1": func(t *Table, alone, shared *lock) {
			m, _ := t.byFence.Min()
			m.hold.extra = &extra{delay: -1}
		},
		"texts of 1025 and 0 bytes": func(t *Table, alone, shared *lock) {
			m, _ := t.byFence.Min()
			m.hold.extra = &extra{note: strings.Repeat("x", MaxText+1)}
		},
		"waits for 129 keys": func(t *Table, alone, shared *lock) {
			w, _ := t.names.Min()
			w.options = &options{several: slices.Repeat(w.keys(), MaxKeys+1)}
		},
		"texts of a waiter": func(t *Table, alone, shared *lock) { w, _ := t.names.Min(); w.options = &options{call: "x"} },
		"is absent for ever": func(t *Table, alone, shared *lock) {
			w, _ := t.names.Min()
			kept := *w
			kept.absent, kept.deadline = true, never
			t.timers.Delete(alone)
			t.relined(w, &kept)
			alone.due, t.touched = t.dueOf(alone), nil
			alone.head &^= flagTouched | flagWake
		},
		"grace -1":                         func(t *Table, alone, shared *lock) { w, _ := t.names.Min(); w.grace = -1 },
		"waits with session 1 and lease 5": func(t *Table, alone, shared *lock) { w, _ := t.names.Min(); w.lease = 5 },
		"wants 0 permits of 0":             func(t *Table, alone, shared *lock) { w, _ := t.names.Min(); w.mode = Permits },
		"wants 1 permits of 1": func(t *Table, alone, shared *lock) {
			w, _ := t.names.Min()
			w.mode, w.options = Permits, &options{permits: 1, limit: 1}
		},
		"wants 1 permits of 0 in mode 0": func(t *Table, alone, shared *lock) { w, _ := t.names.Min(); w.options = &options{permits: 1} },
		"bytes are counted as":           func(t *Table, alone, shared *lock) { t.bytes-- },
	} {
		table := sharedAndAlone(t)
		require.NoError(t, table.Verify())
		damage(table, lockOf(table, "alone"), lockOf(table, "shared"))
		require.ErrorContains(t, table.Verify(), want, want)
	}
}

func lockOf(table *Table, key string) (found *lock) {
	table.locks.Scan(func(l *lock) bool {
		if l.key() == key {
			found = l
		}
		return found == nil
	})
	return found
}

// parts are what [sharedAndAlone] makes.
type parts struct {
	*Table
	alone, shared *lock
	h             *hold // of alone
	w             *waiter
	lease         *session // ends by itself
	many          *extension
}

// lined puts a changed copy of the waiter in its place, and leaves no lock touched.
func (p *parts) lined(change func(w *waiter)) {
	kept := *p.w
	change(&kept)
	p.relined(p.w, &kept)
	p.alone.head &^= flagTouched | flagWake
	p.touched, p.woken = nil, nil
	p.again(p.alone)
}

// again notes anew when a lock is due.
func (p *parts) again(l *lock) {
	p.timers.Delete(l)
	l.due = p.dueOf(l)
	p.timers.Set(l)
}

// TestVerifyLooksAtAll: each bound of a number, each length of a text, and each tree, one spoilt at a time.
func TestVerifyLooksAtAll(t *testing.T) {
	long := strings.Repeat("x", MaxText+1)
	for _, c := range []struct {
		want   string
		damage func(p *parts)
	}{
		{"is of no use", func(p *parts) { p.locks.Set(&lock{text: keyspace.NewLockText("x"), due: never, head: flagPresent}) }},
		{"among those with waiters", func(p *parts) { other := *p.alone; p.queued.Set(&other) }},
		{"among those that are due", func(p *parts) { other := *p.shared; p.timers.Set(&other) }},

		{"100001 holds", func(p *parts) { p.many.holders = MaxHolders + 1 }},
		{"alone: 1 waiters are counted as 2", func(p *parts) { p.alone.more.ranks[asleepOther]++ }},
		{"100001 waiters", func(p *parts) { p.alone.more.ranks[asleepOther] += MaxWaiters }},
		{"delays -1 and 0", func(p *parts) { p.many.delay = -1; p.again(p.shared) }},
		{"unfinished since -1", func(p *parts) { p.many.unfinished = -1; p.again(p.shared) }},
		{"unfinished since 9223372036854775807", func(p *parts) { p.many.unfinished = never }},
		{"lost below 9, of 4", func(p *parts) { p.many.lost = loss{below: 9, reason: Broken}; p.again(p.shared) }},
		{"nothing is lost, by", func(p *parts) { p.many.lost.below = 1 }},
		{"nothing is lost, by", func(p *parts) { p.many.lost.reason = Broken }},

		{"fence 0 comes behind 0", func(p *parts) { p.h.fence = 0 }},
		{"1 holds, and one alone is false", func(p *parts) { p.enrol(p.alone, p.h); p.alone.hold = nil }},
		{"its hold by session", func(p *parts) { other := *p.h; p.bySession.Set(&other) }},
		{"hold by 1025 bytes", func(p *parts) { p.h.owner = long }},
		{"in mode 3", func(p *parts) { p.h.mode = Permits + 1 }},
		{"texts of 0 and 1025 bytes", func(p *parts) { p.h.extra = &extra{call: long} }},
		{"has -1 permits", func(p *parts) { p.h.extra = &extra{permits: -1} }},
		{"has 2147483648 permits", func(p *parts) { p.h.extra = &extra{permits: MaxLimit + 1} }},
		{"has 0 permits, delay 0", func(p *parts) { p.h.mode, p.h.extra = Permits, &extra{} }},
		{"delay 4611686018427387905", func(p *parts) { p.h.extra = &extra{delay: Forever + 1} }},

		{"order 0 of ", func(p *parts) { p.w.order = 0 }},
		{"texts of a waiter", func(p *parts) { p.w.owner = long }},
		{"texts of a waiter", func(p *parts) { p.w.options = &options{note: long} }},
		{"texts of a waiter", func(p *parts) { p.w.reentrant, p.w.options = true, &options{call: long} }},
		{"waits for 1 keys, at 1", func(p *parts) { p.lined(func(w *waiter) { w.blocked = 1 }) }},
		{"with ticket 0", func(p *parts) { p.w.ticket = 0 }},
		{"with ticket 18446744073709551615", func(p *parts) { p.w.ticket = ^uint64(0) }},
		{"waits for -1", func(p *parts) { p.w.wait = -1 }},
		{"delay -1", func(p *parts) { p.w.options = &options{delay: -1} }},
		{"waits with session 0 and lease -1", func(p *parts) { p.w.session, p.w.lease = 0, -1 }},
		{"waits with session 9 and lease 0", func(p *parts) { p.w.session = 9 }},
		{"wants 0 permits of 2", func(p *parts) { p.w.mode, p.w.options = Permits, &options{limit: 2} }},
		{"wants 3 permits of 2", func(p *parts) { p.w.mode, p.w.options = Permits, &options{permits: 3, limit: 2} }},
		{"wants 0 permits of 0 in mode 3", func(p *parts) { p.w.mode = Permits + 1 }},
		{"wants 0 permits of 1 in mode 0", func(p *parts) { p.w.options = &options{limit: 1} }},

		{"too much was given out", func(p *parts) { p.fences = noOrder }},
		{"too much was given out", func(p *parts) { p.sessionIDs = MaxFence + 1 }},
		{"session 0 has", func(p *parts) { p.sessions.Set(&session{lease: 1}) }},
		{"session 9007199254740992 has", func(p *parts) { p.sessions.Set(&session{id: MaxFence + 1, lease: 1}) }},
		{"has lease 4611686018427387905", func(p *parts) { p.lease.lease = Forever + 1 }},
		{"until 9223372036854775807", func(p *parts) { p.lease.deadline = never }},
		{"texts of 1025 and 0 bytes", func(p *parts) { p.lease.name = long }},
		{"session 2 ends behind its incarnation", func(p *parts) { p.incarnations = nil }},
		{"session 1 has no end", func(p *parts) { p.lease.leased = false; p.sessionEnds.PopMin() }},
		{"0 sessions of incarnation", func(p *parts) {
			p.incarnations = append(p.incarnations, incarnation{origin: protocol.Incarnation{Node: "z"}})
		}},

		{"4 holds are counted as 5", func(p *parts) { p.holdCount++ }},
		{"waiters of sessions are counted as 0", func(p *parts) { p.waitsBySession.PopMin() }},
		{"1 places are counted as 2", func(p *parts) { p.places.Set(placeAt(p.shared, absent, 9)) }},
		{"locks that are due are counted as 3", func(p *parts) { p.timers.Set(&lock{text: keyspace.NewLockText("x"), due: 1}) }},
		{"locks with waiters are counted as 2", func(p *parts) { p.queued.Set(&lock{text: keyspace.NewLockText("x")}) }},
		{"holds by owner are counted as 4", func(p *parts) { p.byOwner.Set(member{99, p.h}) }},
		{"holds by fence are counted as 4", func(p *parts) { p.byFence.Set(member{99, p.h}) }},
	} {
		table := sharedAndAlone(t)
		p := &parts{Table: table, alone: lockOf(table, "alone"), shared: lockOf(table, "shared")}
		p.h, p.many = p.alone.hold, p.shared.more
		p.w, _ = table.names.Min()
		p.lease = table.session(1)
		c.damage(p)
		assert.ErrorContains(t, table.Verify(), c.want)
	}
}
