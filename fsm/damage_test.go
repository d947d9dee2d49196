package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// TestDamagedSnapshots changes streams in each byte, with a checksum that fits: what is read all the same contradicts
// itself in nothing, and is written as the same bytes again.
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

// TestLyingNumbers: the largest number in place of any is refused at once, or read as it is.
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

// instead are bytes that may stand in place of one: other numbers, and none.
func instead(b byte) (others [][]byte) {
	others = [][]byte{{}}
	for _, n := range []uint64{0, 1, 2, uint64(b) - 1, uint64(b) + 1, 1 << 32, 1<<63 - 1, 1 << 63, ^uint64(0)} {
		if other := binary.AppendUvarint(nil, n); len(other) > 1 || other[0] != b {
			others = append(others, other)
		}
	}
	return others
}

// smallSnapshots are streams of small states, with a little of everything between them.
func smallSnapshots(t *testing.T) map[string][]byte {
	all := map[string][]byte{}
	for version := byte(protocol.OldestEntryVersion); version <= protocol.EntryVersion; version++ {
		locks := newDriverOf(t, version)
		locks.native(1, 0, "session.open", "px", "5000", "name", "s")
		locks.native(1, 0, "lock.acquire", "a", "me", "session", "1")
		locks.native(2, 1, "lock.acquire", "a", "you", "px", "1000", "wait", "0")
		locks.do("lock.acquire", "b", "x", "px", "100")
		locks.native(3, 0, "lock.break", "b", "reason", "why")
		locks.do("lock.acquire", "c", "x", "px", "1")
		locks.advance(2)

		waiting := newDriverOf(t, version)
		for i, key := range []string{"k", "l"} {
			quota := &protocol.Quota{User: key, Keys: 9, Bytes: 1000, Waiters: 3}
			waiting.apply(protocol.AppendBlock(protocol.AppendQuota(nil, quota), 0, uint64(i+1), "blpop",
				[][]byte{[]byte(key), []byte("m"), []byte("10")}))
		}
		waiting.m.budgets.serving = 0
		waiting.apply(pipeline("rpush k v", "swapdb 0 1"))
		waiting.apply(protocol.AppendUnblock(nil, protocol.LeaveGone, 2))

		keys := newDriverOf(t, version)
		quota := &protocol.Quota{User: "alice", Keys: 9, Bytes: 1000, Waiters: 3}
		keys.apply(request(protocol.AppendQuota(nil, quota), 0, "set", "k", "v"))
		keys.apply(requestFrom(nil, 0, 5, "set", "s", "t", "nx", "px", "1000"))
		keys.do("hset", "h", "f", "v")
		keys.eval("return 1")
		keys.do("script", "load", "return 2")
		keys.do("notify", "KEA")
		keys.apply(requestFrom(nil, 1, 6, "set", "s", "t", "nx", "px", "1000"))
		keys.do("flushdb")
		keys.apply(request(protocol.AppendQuota(nil, quota), 0, "set", "k", "v"))
		keys.do("sadd", "t", "1", "2")
		keys.seq += 3
		keys.do("set", "j", "1")
		w := protocol.NewEntry(nil, version, keys.nowMillis, keys.wallOffset, 0)
		w.Add(protocol.Incarnation{Node: "n2", Epoch: 7}, 1, 3, request(nil, 0, "set", "i", "v"))
		w.Add(protocol.Incarnation{Node: "n2", Epoch: 7}, 1, 6, request(nil, 0, "set", "i", "w"))
		require.NoError(t, keys.m.Apply(w.Bytes(), clientless{}))
		all[fmt.Sprint("keys of version ", version)] = dump(t, keys.m)
		all["locks"], all["waiting"] = dump(t, locks.m), dump(t, waiting.m) // of the last version
	}
	return all
}

// TestDamagedOldSnapshots is the same of streams that are written no more.
func TestDamagedOldSnapshots(t *testing.T) {
	accepted := 0
	for _, name := range []string{"testdata/snapshot-v1.bin", "testdata/snapshot-v2.bin"} {
		good, err := os.ReadFile(name)
		require.NoError(t, err)
		for i := len(snapshotMagic) + 1; i < len(good)-sha256.Size; i++ {
			for _, other := range instead(good[i]) {
				bad := append(append(bytes.Clone(good[:i]), other...), good[i+1:]...)
				st, err := readState(bytes.NewReader(resum(bad)))
				if err != nil {
					continue
				}
				accepted++
				require.NoError(t, st.verify(), "%s, byte %d: %x in place of %x", name, i, other, good[i])
				again, err := readState(bytes.NewReader(dump(t, &machine{st: st})))
				require.NoError(t, err)
				require.NoError(t, again.verify())
			}
		}
	}
	require.Positive(t, accepted)
}

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
