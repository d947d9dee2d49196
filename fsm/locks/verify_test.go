package locks

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
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
		"contended says":               func(t *Table, alone, shared *lock) { alone.head ^= flagContended },
		"is not on the agenda":         func(t *Table, alone, shared *lock) { t.live[0].agenda.Delete(shared) },
		"is in database 1, not in 0":   func(t *Table, alone, shared *lock) { t.live = []*database{nil, t.live[0]} },
		"is live and flushed":          func(t *Table, alone, shared *lock) { t.live[0].flush = &flush{} },
		"is due at":                    func(t *Table, alone, shared *lock) { shared.due++ },
		"fence 4 comes behind 3, of 3": func(t *Table, alone, shared *lock) { t.fences = 3 },
		"locks are counted as 3":       func(t *Table, alone, shared *lock) { t.lockCount++ },
		"permits are counted as":       func(t *Table, alone, shared *lock) { shared.more.permits++ },
		"of sessions are counted as":   func(t *Table, alone, shared *lock) { shared.more.sessionHolds++ },
		"its hold by owner": func(t *Table, alone, shared *lock) {
			shared.more.holds.byOwner = shared.more.holds.byOwner[1:]
		},
		"by end of 3": func(t *Table, alone, shared *lock) {
			shared.more.holds.byEnd = append(shared.more.holds.byEnd, alone.hold)
		},
		"has holds out of order": func(t *Table, alone, shared *lock) {
			slices.Reverse(shared.more.holds.byEnd)
			t.live[0].schedule(shared, t.dueOf(shared), false)
		},
		"two modes": func(t *Table, alone, shared *lock) {
			shared.anyHold().mode = Exclusive
		},
		"beside an exclusive hold": func(t *Table, alone, shared *lock) {
			for _, h := range shared.holds() {
				h.mode = Exclusive
			}
		},
		"does not stand in line by owner": func(t *Table, alone, shared *lock) { t.byOwner.PopMin() },
		"places by owner are counted as": func(t *Table, alone, shared *lock) {
			k, _ := t.byOwner.Min()
			k.lock = 99
			t.byOwner.Set(k)
		},
		"is not granted to the first": func(t *Table, alone, shared *lock) {
			t.removeHold(alone, alone.hold)
			t.live[0].schedule(alone, t.dueOf(alone), true)
			t.touched = nil
			alone.head &^= flagTouched | flagWake
		},
		"accounts with [0 0 1] waiters": func(t *Table, alone, shared *lock) { t.counts.Add(2, 1) },
		"1 waiters are counted as 2":    func(t *Table, alone, shared *lock) { t.waiterCount++ },
		"session 1 has 1 holds, counted": func(t *Table, alone, shared *lock) {
			s, _ := t.byID.Min()
			s.holds = 3
		},
		"its hold by session":              func(t *Table, alone, shared *lock) { t.holdsOf.PopMin() },
		"holds of sessions are counted as": func(t *Table, alone, shared *lock) { t.holdsOf.Set(&hold{bound: 9}) },
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
			t.waitEnds.Set(queueKey{alone.id(), &other})
		},
		"ends of waits are counted as": func(t *Table, alone, shared *lock) {
			t.waitEnds.Set(queueKey{99, firstWaiter})
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
			s, _ := t.byID.Min()
			s.waiters = 0
		},
		"session 1 has 1 places, counted as 0": func(t *Table, alone, shared *lock) {
			s, _ := t.byID.Min()
			s.places = 0
		},
		"session 2 is closed and has no end": func(t *Table, alone, shared *lock) {
			s, _ := t.byID.Max()
			s.closed = true
		},
		"session 1 has its own lease: true, among": func(t *Table, alone, shared *lock) { t.ends.PopMin() },
		"leases of sessions are counted as": func(t *Table, alone, shared *lock) {
			t.ends.Set(sessionEnd{9, 9})
		},
		"session 2 has its own lease: false, and lives": func(t *Table, alone, shared *lock) { t.attached.PopMin() },
		"not known by its connection":                   func(t *Table, alone, shared *lock) { t.connections.PopMin() },
		"1 sessions of incarnation":                     func(t *Table, alone, shared *lock) { t.incarnations[0].sessions++ },
		"sessions of connections are counted as": func(t *Table, alone, shared *lock) {
			t.connections.Set(sessionKey{origin: &noOrigin})
		},
		"too much was given out":       func(t *Table, alone, shared *lock) { t.orders = noOrder },
		"waiters have 268435457 bytes": func(t *Table, alone, shared *lock) { t.waitingBytes = MaxWaitingBytes + 1 },
		"incarnations are out of order": func(t *Table, alone, shared *lock) {
			t.incarnations = append([]incarnation{{origin: protocol.Incarnation{Node: "z"}}}, t.incarnations...)
		},
		"drops are out of order": func(t *Table, alone, shared *lock) { t.drops = make([]waits.Name, 2) },
		"session 1 has lease 0": func(t *Table, alone, shared *lock) {
			s, _ := t.byID.Min()
			s.lease = 0
		},
		"session 2 ends behind its incarnation": func(t *Table, alone, shared *lock) {
			s, _ := t.byID.Max()
			s.deadline = 1 << 40
		},
		"session 2 is one of too many": func(t *Table, alone, shared *lock) {
			s, _ := t.byID.Max()
			for i := range uint64(MaxAttached) {
				t.connections.Set(sessionKey{s.origin, s.conn, 100 + i})
			}
		},
		"3 holds, 2147483648 permits":  func(t *Table, alone, shared *lock) { shared.more.permits = MaxLimit + 1 },
		"hold by 1 bytes, 0 times":     func(t *Table, alone, shared *lock) { shared.anyHold().count = 0 },
		"has the hold of no session 9": func(t *Table, alone, shared *lock) { alone.hold.bound = 9 },
		"has lease 0":                  func(t *Table, alone, shared *lock) { shared.anyHold().bound = 0 },
		"has lease 4611686018427387905": func(t *Table, alone, shared *lock) {
			shared.anyHold().bound = Forever + 1
		},
		"has no permits": func(t *Table, alone, shared *lock) {
			shared.anyHold().mode = Permits
		},
		"has 0 permits, delay -1": func(t *Table, alone, shared *lock) {
			shared.anyHold().extra = &extra{delay: -1}
		},
		"texts of 1025 and 0 bytes": func(t *Table, alone, shared *lock) {
			shared.anyHold().extra = &extra{note: strings.Repeat("x", MaxText+1)}
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
			t.replaceWaiter(w, &kept)
			t.live[0].schedule(alone, t.dueOf(alone), true)
			t.touched = nil
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
	table.live[0].locks.Scan(func(l *lock) bool {
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
	p.replaceWaiter(p.w, &kept)
	p.alone.head &^= flagTouched | flagWake
	p.touched, p.woken = nil, nil
	p.again(p.alone)
}

// again notes anew when a lock is due.
func (p *parts) again(l *lock) {
	p.live[0].schedule(l, p.dueOf(l), l.waiters() > 0)
}

// TestVerifyLooksAtAll: each bound of a number, each length of a text, and each tree, one spoilt at a time.
func TestVerifyLooksAtAll(t *testing.T) {
	long := strings.Repeat("x", MaxText+1)
	for _, c := range []struct {
		want   string
		damage func(p *parts)
	}{
		{"is of no use", func(p *parts) {
			p.live[0].locks.Set(&lock{text: keyspace.NewLockText("x"), due: never, head: flagPresent})
		}},
		{"is not on the agenda", func(p *parts) { other := *p.alone; p.live[0].agenda.Set(&other) }},

		{"alone: 1 waiters are counted as 2", func(p *parts) { p.alone.more.ranks[asleepOther]++ }},
		{"100001 waiters", func(p *parts) { p.alone.more.ranks[asleepOther] += MaxWaiters }},
		{"delay -1, a grant", func(p *parts) { p.many.delay = -1; p.again(p.shared) }},
		{"a grant as of -1", func(p *parts) { p.many.grantAt = -1; p.again(p.shared) }},
		{"a grant as of 9223372036854775807", func(p *parts) { p.many.grantAt = never }},

		{"fence 0 comes behind 0", func(p *parts) { p.h.fence = 0 }},
		{"needs no extension", func(p *parts) { p.many.holds.byFence = p.many.holds.byFence[:1] }},
		{"its hold by owner", func(p *parts) { p.alone.more.holds, p.alone.hold = &holdSet{byFence: []*hold{p.h}}, nil }},
		{"its hold by session", func(p *parts) { other := *p.h; p.holdsOf.Set(&other) }},
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
		{"session 0 has", func(p *parts) { p.byID.Set(&session{lease: 1}) }},
		{"session 9007199254740992 has", func(p *parts) { p.byID.Set(&session{id: MaxFence + 1, lease: 1}) }},
		{"has lease 4611686018427387905", func(p *parts) { p.lease.lease = Forever + 1 }},
		{"until 9223372036854775807", func(p *parts) { p.lease.deadline = never }},
		{"texts of 1025 and 0 bytes", func(p *parts) { p.lease.name = long }},
		{"session 2 ends behind its incarnation", func(p *parts) { p.incarnations = nil }},
		{"session 1 has no end", func(p *parts) { p.lease.leased = false; p.ends.PopMin() }},
		{"0 sessions of incarnation", func(p *parts) {
			p.incarnations = append(p.incarnations, incarnation{origin: protocol.Incarnation{Node: "z"}})
		}},

		{"4 holds are counted as 5", func(p *parts) { p.holdCount++ }},
		{"waiters of sessions are counted as 0", func(p *parts) { p.waitsOf.PopMin() }},
		{"1 places are counted as 2", func(p *parts) { p.places.Set(placeAt(p.shared, absent, 9)) }},
		{"2 locks on the agenda are counted as 3", func(p *parts) {
			p.live[0].agenda.Set(&lock{text: keyspace.NewLockText("x"), due: 1})
		}},
		{"places by owner are counted as 2", func(p *parts) { p.byOwner.Set(queueKey{99, p.w}) }},
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
