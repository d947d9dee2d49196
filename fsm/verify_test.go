package fsm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
)

// TestVerify: the check finds what contradicts something else.
func TestVerify(t *testing.T) {
	for want, damage := range map[string]func(st *state){
		"counted as": func(st *state) { st.ItemBytes++ },
		"database 1: ": func(st *state) {
			it := keyspace.NewItem(1, "k", "v", command.Never, keyspace.EncodingAuto)
			st.Databases[1].Put(&it)
			st.Databases[1].Find(1, "k").Hash = 2
		},
		"session of \"n1\": range 4 to 4": func(st *state) {
			st.sessions[0].applied = []appliedRange{{st.sessions[0].low, st.sessions[0].low}}
		},
		"is out of order": func(st *state) { st.sessions = append(st.sessions, st.sessions[0]) },
		"at turn 7 of": func(st *state) {
			st.scripts.bySHA.Scan(func(_ string, s *script) bool { s.turn = 7; return false })
		},
		"stands as": func(st *state) {
			st.scripts.bySHA.Scan(func(_ string, s *script) bool { s.sha = "x"; return false })
		},
		"scripts of":                   func(st *state) { st.scripts.rememberedBytes++ },
		"causes of 0 bytes":            func(st *state) { st.history.kinds[stockLocks].causeBytes++ },
		"causes of":                    func(st *state) { st.history.kinds[0].causeBytes++ },
		"0 losses of 0 bytes":          func(st *state) { st.history.kinds[stockLocks].byTime.bytes++ },
		"cause 1 comes behind 0, of 0": func(st *state) { st.history.kinds[0].causeIDs = 0 },
		"losses of":                    func(st *state) { st.history.kinds[0].byForce.bytes++ },
		"loss 1 comes behind 0, of 0":  func(st *state) { st.history.lossIDs = 0 },
	} {
		d := newDriver(t)
		d.do("set", "k", "v")
		d.eval("return 1")
		d.do("lock.acquire", "l", "me", "px", "1000")
		d.do("lock.break", "l")
		require.NoError(t, d.m.st.verify())
		damage(d.m.st)
		require.ErrorContains(t, d.m.st.verify(), want)
	}
}

// TestRisingNumbers: what never falls is compared with the entry before, and begins anew with another state.
func TestRisingNumbers(t *testing.T) {
	for name, fall := range map[string]func(st *state){
		"version":  func(st *state) { st.version-- },
		"clock":    func(st *state) { st.ClockMillis-- },
		"versions": func(st *state) { st.Versions-- },
		"turns":    func(st *state) { st.scripts.turns-- },
		"fences":   func(st *state) { st.Locks = locks.New() },
		"swaps":    func(st *state) { st.Swaps[0] = st.Versions + 1 },
	} {
		d := newDriver(t)
		d.do("set", "k", "v")
		d.eval("return 1")
		d.do("lock.acquire", "l", "me", "px", "1000")
		d.m.verify()
		fall(d.m.st)
		require.Panics(t, d.m.verify, name)
		d.m.st = newState()
		require.NotPanics(t, d.m.verify, "another state")
	}
}

// TestVerifyPolls: the check of those who poll finds what contradicts itself.
func TestVerifyPolls(t *testing.T) {
	at := lockKey{0, "k"}
	for want, p := range map[string]polls{
		"0 poll for a key of 1 bytes": {byKey: map[lockKey][]poll{at: nil}},
		"1 poll, counted as 0":        {byKey: map[lockKey][]poll{at: {{refusals: 1}}}},
		`refusals of "k"`:             {byKey: map[lockKey][]poll{at: {{refusals: 1, first: 2, last: 1}}}, count: 1},
	} {
		require.ErrorContains(t, p.verify(), want)
	}
	fine := polls{byKey: map[lockKey][]poll{at: {{refusals: 1}}}, count: 1}
	require.NoError(t, fine.verify())
}
