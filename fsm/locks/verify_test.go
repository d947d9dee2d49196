package locks

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVerify: the check finds what contradicts something else.
func TestVerify(t *testing.T) {
	for want, damage := range map[string]func(t *Table, alone, shared *lock){
		"1 locks are touched":          func(t *Table, alone, shared *lock) { t.touched = []*lock{alone} },
		"is touched":                   func(t *Table, alone, shared *lock) { alone.head |= flagTouched },
		"is not present":               func(t *Table, alone, shared *lock) { alone.head &^= flagPresent },
		"queued says":                  func(t *Table, alone, shared *lock) { alone.head ^= flagQueued },
		"among those with waiters":     func(t *Table, alone, shared *lock) { t.queued.Delete(alone) },
		"among those that are due":     func(t *Table, alone, shared *lock) { t.dues.Delete(shared) },
		"is due at":                    func(t *Table, alone, shared *lock) { shared.due++ },
		"fence 2 comes behind 0, of 0": func(t *Table, alone, shared *lock) { t.fences = 0 },
		"holds are counted as 4":       func(t *Table, alone, shared *lock) { shared.more.holders++ },
		"permits are counted as":       func(t *Table, alone, shared *lock) { shared.more.permits++ },
		"of sessions are counted as":   func(t *Table, alone, shared *lock) { shared.more.sessionHolds++ },
		"its hold by owner":            func(t *Table, alone, shared *lock) { t.byOwner.PopMin() },
		"holds by the ends of leases":  func(t *Table, alone, shared *lock) { t.byEnd.PopMin() },
		"two modes":                    func(t *Table, alone, shared *lock) { m, _ := t.byFence.Min(); m.hold.mode = Exclusive },
		"beside an exclusive hold": func(t *Table, alone, shared *lock) {
			t.eachHold(shared, func(h *hold) bool { h.mode = Exclusive; return true })
		},
		"does not stand in line by owner": func(t *Table, alone, shared *lock) { t.waiting.PopMin() },
		"places by owner are counted as":  func(t *Table, alone, shared *lock) { s, _ := t.waiting.Min(); s.lock = 99; t.waiting.Set(s) },
		"is not granted to the first": func(t *Table, alone, shared *lock) {
			t.removeHold(alone, alone.hold)
			alone.due = t.dueOf(alone)
			t.touched = nil
			alone.head &^= flagTouched | flagWake
		},
		"1 waiters are counted as 2":       func(t *Table, alone, shared *lock) { t.waiterCount++ },
		"session 1 has 1 holds, counted":   func(t *Table, alone, shared *lock) { s, _ := t.sessions.Min(); s.holds = 3 },
		"holds of sessions are counted as": func(t *Table, alone, shared *lock) { t.bySession.PopMin() },
		"bytes are counted as":             func(t *Table, alone, shared *lock) { t.bytes-- },
	} {
		table := New()
		table.Begin(1000, plenty)
		session, err := table.OpenSession(500, Client{}, false, "s")
		require.NoError(t, err)
		for _, r := range []Request{
			{Keys: []string{"alone"}, Owner: "a", LeaseMillis: 100, Session: session},
			{Keys: []string{"shared"}, Owner: "a", LeaseMillis: 100, Mode: Shared},
			{Keys: []string{"shared"}, Owner: "b", LeaseMillis: 100, Mode: Shared},
			{Keys: []string{"shared"}, Owner: "c", LeaseMillis: 100, Mode: Shared},
			{Keys: []string{"alone"}, Owner: "z", LeaseMillis: 100, Waits: true, Ticket: 1, Client: Client{Conn: 1}},
		} {
			_, err := table.Acquire(&r)
			require.NoError(t, err)
		}
		require.NoError(t, table.Verify())
		find := func(key string) (found *lock) {
			table.locks.Scan(func(l *lock) bool {
				if l.key == key {
					found = l
				}
				return found == nil
			})
			return found
		}
		damage(table, find("alone"), find("shared"))
		require.ErrorContains(t, table.Verify(), want, want)
	}
}
