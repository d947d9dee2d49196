package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/invariant"
)

// TestDamagedSnapshots changes each byte of streams, with a valid checksum. An accepted stream must be consistent, and
// be written as the same bytes again.
func TestDamagedSnapshots(t *testing.T) {
	accepted := 0
	for name, good := range smallSnapshots(t) {
		st, err := readState(bytes.NewReader(good))
		require.NoError(t, err, name)
		require.NoError(t, st.verify(), name)
		for i := len(snapshotMagic) + 2; i < len(good)-sha256.Size; i++ {
			for _, other := range instead(good[i]) {
				bad := append(append(bytes.Clone(good[:i]), other...), good[i+1:]...)
				st, err := readState(bytes.NewReader(resum(bad)))
				if err != nil {
					require.ErrorIs(t, err, ErrCorruptSnapshot)
					continue
				}
				accepted++
				require.NoError(t, st.verify(), "%s, byte %d: %x in place of %x", name, i, other, good[i])
				again := dump(t, &machine{st: st})
				require.True(t, bytes.Equal(resum(bad), again), "%s, byte %d: %x in place of %x", name, i, other, good[i])
			}
		}
	}
	require.Greater(t, accepted, 500)
}

// TestLyingNumbers: the largest number in the place of any other is refused at once, or read unchanged.
func TestLyingNumbers(t *testing.T) {
	for name, good := range smallSnapshots(t) {
		for i := len(snapshotMagic) + 2; i < len(good)-sha256.Size; i++ {
			bad := append(binary.AppendUvarint(bytes.Clone(good[:i]), ^uint64(0)), good[i+1:]...)
			if st, err := readState(bytes.NewReader(resum(bad))); err == nil {
				require.Equal(t, resum(bad), dump(t, &machine{st: st}), "%s, byte %d", name, i)
			}
		}
	}
}

// instead returns bytes to replace a byte: other numbers, and none.
func instead(b byte) (others [][]byte) {
	others = [][]byte{{}}
	for _, n := range []uint64{0, 1, 2, uint64(b) - 1, uint64(b) + 1, 1 << 32, 1<<63 - 1, 1 << 63, ^uint64(0)} {
		if other := binary.AppendUvarint(nil, n); len(other) > 1 || other[0] != b {
			others = append(others, other)
		}
	}
	return others
}

// smallSnapshots are streams of small states, which together contain everything.
func smallSnapshots(t *testing.T) map[string][]byte {
	all := map[string][]byte{}
	locks := newDriver(t)
	locks.native(1, 0, "session.open", "px", "5000", "name", "s")
	locks.native(1, 0, "lock.acquire", "a", "me", "session", "1")
	locks.native(2, 1, "lock.acquire", "a", "you", "px", "1000", "wait", "0")
	locks.do("lock.acquire", "b", "x", "px", "100")
	locks.native(3, 0, "lock.break", "b", "reason", "why")
	locks.do("lock.acquire", "c", "x", "px", "1")
	locks.advance(2)

	waiting := newDriver(t)
	for i, key := range []string{"k", "l"} {
		quota := &protocol.Quota{User: key, Keys: 9, Bytes: 1000, Waiters: 3}
		waiting.apply(protocol.AppendRequest(protocol.AppendQuota(nil, quota), protocol.Head{Ticket: uint64(i + 1)},
			"blpop", [][]byte{[]byte(key), []byte("m"), []byte("10")}))
	}
	waiting.m.budgets.serving = 0
	last := protocol.NewEntry(nil, protocol.EntryVersion, waiting.nowMillis, waiting.wallOffset, protocol.EntryLimits{})
	for _, node := range []string{"n2", "n3"} {
		o := protocol.Incarnation{Node: node, Epoch: 7}
		last.Add(o, 1, 1, protocol.AppendRequest(nil, protocol.Head{Ticket: 1}, "blpop",
			[][]byte{[]byte("z"), []byte("0")}))
		last.Add(o, 1, 2, request(nil, 0, "drop", node, "7"))
	}
	last.Add(protocol.Incarnation{Node: "n1", Epoch: 1}, 3, 3, pipeline("rpush k v", "swapdb 0 1"))
	require.NoError(t, waiting.m.Apply(last.Bytes(), clientless{}))
	require.True(t, waiting.m.st.Waits.HasReady() && waiting.m.st.Waits.Sweeping())

	keys := newDriver(t)
	quota := &protocol.Quota{User: "alice", Keys: 9, Bytes: 1000, Waiters: 3}
	keys.apply(request(protocol.AppendQuota(nil, quota), 0, "set", "k", "v"))
	keys.apply(requestFrom(nil, 0, 5, "set", "s", "t", "nx", "px", "1000"))
	keys.do("hset", "h", "f", "v")
	keys.eval("return 1")
	keys.do("script", "load", "return 2")
	keys.do("set-notifications", "KEA")
	keys.apply(requestFrom(nil, 1, 6, "set", "s", "t", "nx", "px", "1000"))
	keys.do("flushdb")
	keys.apply(request(protocol.AppendQuota(nil, quota), 0, "set", "k", "v"))
	keys.do("sadd", "t", "1", "2")
	keys.seq += 3
	keys.do("set", "j", "1")
	w := protocol.NewEntry(nil, protocol.EntryVersion, keys.nowMillis, keys.wallOffset, protocol.EntryLimits{})
	w.Add(protocol.Incarnation{Node: "n2", Epoch: 7}, 1, 3, request(nil, 0, "set", "i", "v"))
	w.Add(protocol.Incarnation{Node: "n2", Epoch: 7}, 1, 6, request(nil, 0, "set", "i", "w"))
	require.NoError(t, keys.m.Apply(w.Bytes(), clientless{}))
	all["keys"], all["locks"], all["waiting"] = dump(t, keys.m), dump(t, locks.m), dump(t, waiting.m)
	return all
}

// TestVerify: Verify detects contradictions and exceeded limits.
func TestVerify(t *testing.T) {
	someScript := func(st *state) (some *script) {
		st.scripts.bySHA.Scan(func(_ string, s *script) bool { some = s; return false })
		return some
	}
	ranges := func(all ...appliedRange) func(st *state) {
		return func(st *state) { st.sessions[0].low, st.sessions[0].applied = 4, all }
	}
	known := func(numbers ...uint64) func(st *state) {
		return func(st *state) {
			st.incarnations.issued = maxIncarnations + 1
			for _, n := range numbers {
				st.incarnations.known = append(st.incarnations.known, incarnation{number: n})
			}
		}
	}
	users := func(n int) func(st *state) {
		return func(st *state) {
			for i := range n {
				st.accounts.set(i+1, strconv.Itoa(i))
			}
		}
	}
	causes := func(n, bytes int) func(st *state) {
		return func(st *state) {
			k := &st.history.kinds[stockLocks]
			for range n {
				k.addCause(lossCause{text: strings.Repeat("x", bytes)})
			}
		}
	}
	losses := func(n, bytes int) func(st *state) {
		return func(st *state) {
			list := &st.history.kinds[stockLocks].byTime
			for range n {
				st.history.lossIDs++
				l := &lockLoss{id: st.history.lossIDs, key: strings.Repeat("x", bytes)}
				list.rows, list.bytes = append(list.rows, l), list.bytes+l.bytes()
			}
		}
	}
	numbers := make([]uint64, maxIncarnations+1)
	for i := range numbers {
		numbers[i] = uint64(i + 1)
	}
	for want, damage := range map[string]func(st *state){
		"waits: ": func(st *state) {
			w := &waits.Waiter{Words: []string{"blpop", "a", "0"}, KeyFrom: 1, KeyCount: 1}
			st.Waits.Add(w)
			w.Account = 1
		},
		"locks: ":    func(st *state) { st.Locks.RaiseFences(math.MaxUint64) },
		"counted as": func(st *state) { st.ItemBytes++ },
		"database 1: ": func(st *state) {
			it := keyspace.NewItem(1, "k", "v", command.Never, keyspace.EncodingAuto)
			st.Databases[1].Put(&it)
			st.Databases[1].Find(1, "k").Hash = 2
		},
		"1 accounts have 0 users":                         func(st *state) { st.accounts.users = []string{"alice"} },
		fmt.Sprintf("%d accounts", keyspace.MaxAccount+1): users(keyspace.MaxAccount + 1),
		`session of "n1": range 4 to 4 follows 4`:         ranges(appliedRange{4, 4}),
		`session of "n1": range 3 to 5 follows 4`:         ranges(appliedRange{3, 5}),
		`session of "n1": range 7 to 8 follows 7`:         ranges(appliedRange{4, 7}, appliedRange{7, 8}),
		"is out of order":                                 func(st *state) { st.sessions = append(st.sessions, st.sessions[0]) },
		"incarnation 0 follows 0, of 65":                  known(0),
		"incarnation 2 follows 2, of 65":                  known(1, 2, 2),
		"incarnation 66 follows 2, of 65":                 known(2, 66),
		"65 incarnations are known":                       known(numbers...),
		"at turn 7 of 1":                                  func(st *state) { someScript(st).turn = 7 },
		"at turn 1 of 0":                                  func(st *state) { st.scripts.turns = 0 },
		"is cached as":                                    func(st *state) { someScript(st).sha = "x" },
		"counted as 0 and 9":                              func(st *state) { st.scripts.rememberedBytes++ },
		"counted as 1 and 8":                              func(st *state) { st.scripts.loadedBytes++ },
		"1 of 2 in turn":                                  func(st *state) { st.scripts.byTurn.Set(9, someScript(st)) },
		"0 causes of 0 bytes":                             func(st *state) { st.history.kinds[stockLocks].causeBytes++ },
		"1 causes of":                                     func(st *state) { st.history.kinds[nativeLocks].causeBytes++ },
		"501 causes of":                                   causes(keptCauses+1, 1),
		"3 causes of":                                     causes(3, keptCauseBytes/3),
		"cause 1 follows 0, of 0":                         func(st *state) { st.history.kinds[nativeLocks].causeIDs = 0 },
		"cause 1 follows 1, of 1": func(st *state) {
			k := &st.history.kinds[nativeLocks]
			k.causes = append(k.causes, k.causes[0])
		},
		"0 losses of 0 bytes":    func(st *state) { st.history.kinds[stockLocks].byTime.bytes++ },
		"1 losses of":            func(st *state) { st.history.kinds[nativeLocks].byForce.bytes++ },
		"501 losses of":          losses(keptLosses+1, 1),
		"3 losses of":            losses(3, keptLossBytes/3),
		"loss 1 follows 0, of 0": func(st *state) { st.history.lossIDs = 0 },
		"loss 1 follows 1, of 1": func(st *state) {
			list := &st.history.kinds[nativeLocks].byForce
			list.rows = append(list.rows, list.rows[0])
		},
	} {
		d := newDriver(t)
		d.do("set", "k", "v")
		d.eval("return 1")
		d.do("lock.acquire", "l", "me", "px", "1000")
		d.do("lock.break", "l")
		require.NoError(t, d.m.st.verify())
		damage(d.m.st)
		require.ErrorContains(t, d.m.st.verify(), want, want)
	}
}

// TestVerifyInTurn: the whole state is verified once entries have paid for its size.
func TestVerifyInTurn(t *testing.T) {
	d := newDriver(t)
	d.fill("k", 3*paidByEntry, 1<<40)
	d.eval("return 1")
	d.native(1, 0, "session.open", "px", "100000")
	d.native(1, 0, "lock.acquire", "l", "me", "px", "100000")
	d.native(1, 1, "lock.acquire", "l", "you", "px", "100000", "wait", "0")
	d.apply(protocol.AppendRequest(nil, protocol.Head{Ticket: 2}, "blpop", [][]byte{[]byte("q"), []byte("0")}))
	const items, scripts, ofLocks, waiters = 3*paidByEntry + 1, 1, 4, 1
	require.Equal(t, items+scripts+ofLocks+waiters, d.m.st.recordCount())
	d.m.verifier.paid = 0
	for _, damage := range []func(n int){
		func(n int) { d.m.st.accounts.users = make([]string, n) },
		func(n int) { d.m.call.watch.polls.count += 2*n - 1 },
	} {
		for range 4 {
			require.NotPanics(t, d.m.verify)
		}
		damage(1)
		for range 3 {
			require.NotPanics(t, d.m.verify)
		}
		require.Panics(t, d.m.verify)
		damage(0)
	}
}

// TestRisingNumbers: counters that never fall are compared with the previous entry, until the state is replaced.
func TestRisingNumbers(t *testing.T) {
	for name, fall := range map[string]func(st *state){
		"version":        func(st *state) { st.version-- },
		"clock":          func(st *state) { st.ClockMillis-- },
		"versions":       func(st *state) { st.Versions-- },
		"turns":          func(st *state) { st.scripts.turns-- },
		"fences":         func(st *state) { st.Locks = locks.New() },
		"swaps":          func(st *state) { st.Swaps = [protocol.MaxDatabases]uint64{} },
		"a swap to come": func(st *state) { st.Swaps[0] = st.Versions + 1 },
	} {
		d := newDriver(t)
		d.m.verify()
		d.do("set", "k", "v")
		d.do("swapdb", "3", "4")
		d.eval("return 1")
		d.do("lock.acquire", "l", "me", "px", "1000")
		d.m.verify()
		fall(d.m.st)
		require.Panics(t, d.m.verify, name)
		d.m.st = newState()
		require.NotPanics(t, d.m.verify, "another state")
	}
}

// TestVerifyLockEvents: the lock table's events are published before it changes again, and before the entry ends.
func TestVerifyLockEvents(t *testing.T) {
	d := newDriver(t)
	d.do("lock.acquire", "k", "me", "px", "1000")
	d.m.verify()
	_, err := d.m.st.Locks.Acquire(&locks.Request{Keys: []string{"l"}, Owner: "me", LeaseMillis: 1000})
	require.NoError(t, err)
	require.Panics(t, d.m.verify)
	if invariant.On {
		require.Panics(t, func() { d.m.call.changeLocks(0) })
	}
	d.m.call.publishLockEvents()
	d.m.verify()
	d.m.call.changeLocks(0)
}

// TestVerifyPolls: the check of polling clients detects contradictions.
func TestVerifyPolls(t *testing.T) {
	at := lockKey{0, "k"}
	long := strings.Repeat("x", maxPolledKey+1)
	many := make([]poll, maxPollsOfKey+1)
	crowd := polls{byKey: map[lockKey]*pollers{}}
	for i := range many {
		many[i].refusals = 1
	}
	for crowd.count <= maxPolls {
		crowd.byKey[lockKey{0, strconv.Itoa(crowd.count)}] = &pollers{many[:maxPollsOfKey]}
		crowd.count += maxPollsOfKey
	}
	for want, p := range map[string]polls{
		"0 poll for a key of 1 bytes":    {byKey: map[lockKey]*pollers{at: {}}},
		"129 poll for a key of 1 bytes":  {byKey: map[lockKey]*pollers{at: {many}}, count: len(many)},
		"1 poll for a key of 1025 bytes": {byKey: map[lockKey]*pollers{{0, long}: {many[:1]}}, count: 1},
		"1 poll, counted as 0":           {byKey: map[lockKey]*pollers{at: {many[:1]}}},
		"8320 poll, counted as 8320":     crowd,
		`"k" are {token:late`:            {byKey: map[lockKey]*pollers{at: {[]poll{{token: "late", refusals: 1, first: 2, last: 1}}}}, count: 1},
		`"k" are {token:none`:            {byKey: map[lockKey]*pollers{at: {[]poll{{token: "none"}}}}, count: 1},
		`"k" are {token:xxx`:             {byKey: map[lockKey]*pollers{at: {[]poll{{token: long, refusals: 1}}}}, count: 1},
	} {
		require.ErrorContains(t, p.verify(), want)
	}
	fine := polls{byKey: map[lockKey]*pollers{at: {[]poll{{refusals: 1}}}}, count: 1}
	require.NoError(t, fine.verify())
}
