package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// restored returns another machine with the state and the counts of m.
func restored(t testing.TB, m *machine) *machine {
	t.Helper()
	other := newMachine()
	require.NoError(t, other.Restore(bytes.NewReader(dump(t, m))))
	want, got := m.Stats(), other.Stats()
	want.Expired, want.Hits, want.Misses, want.PeakBytes = 0, 0, 0, got.PeakBytes // counted since the start
	require.Equal(t, want, got)
	require.Equal(t, lockStatsOf(m.st.Locks), lockStatsOf(other.st.Locks))
	return other
}

// furnished returns a machine with some of everything.
func furnished(t testing.TB) *driver {
	d := newDriver(t)
	g := newGenerator(42, "", "flushall", "flushdb", "script|flush")
	for range 500 {
		d.do(g.next()...)
		d.advance(int64(g.rng.Intn(10)))
	}
	d.do("set", "lock", "token", "px", "30000")
	d.do("set", "big", strings.Repeat("x", 100_000))
	d.do("append", "raw", "1")
	d.do("append", "raw", "2")
	d.do("incrbyfloat", "text", "1")
	d.place("small hash", newHash("field", "value"))
	d.place("large hash", newHash(manyWords(2000)...))
	d.place("integers", newSet("1", "-5", "7"))
	d.place("large set", newSet(manyWords(1000)...))
	changers(d)
	d.do("addlist", "list", "a", "b", "a")
	d.do(append([]string{"addlist", "long list"}, manyWords(3000)...)...)
	d.do("addzset", "sorted set", "a", "bb", "ccc")
	d.do(append([]string{"addzset", "large sorted set"}, manyWords(500)...)...)
	d.do("pexpire", "large set", "100000")
	d.db = 9
	d.do("set", "ninth", "", "px", "100000")
	d.do("script", "load", "return 1")
	d.do("eval", "return 2", "0")
	for _, seq := range []uint64{1, 2, 5, 9} {
		w := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits)
		w.Add(protocol.Incarnation{Node: "other", Epoch: 77}, 1, seq, nil)
		require.NoError(t, d.m.Apply(w.Bytes(), clientless{}))
	}
	return d
}

func TestSnapshotRoundTrip(t *testing.T) {
	d := furnished(t)
	other := restored(t, d.m)
	require.Equal(t, d.m.Hash(), other.Hash())
	require.Equal(t, dump(t, d.m), dump(t, other))
	stamp, offset := other.Clock()
	require.Equal(t, d.nowMillis, stamp)
	require.Equal(t, d.wallOffset, offset)
	require.True(t, other.Applied(protocol.Incarnation{Node: "other", Epoch: 77}, 9))
	require.False(t, other.Applied(protocol.Incarnation{Node: "other", Epoch: 77}, 4))
	for _, db := range other.st.Databases {
		require.NoError(t, db.Verify())
	}
	require.NotEqual(t, d.m.Hash(), newMachine().Hash())
	d.do("incr", "counter2")
	require.NotEqual(t, d.m.Hash(), other.Hash())
}

// A snapshot does not change while entries are applied, and its cost does not depend on the number of keys.
func TestSnapshotStandsStill(t *testing.T) {
	d := furnished(t)
	want := dump(t, d.m)
	s := d.m.Snapshot()
	g := newGenerator(7, "")
	for range 500 {
		d.do(g.next()...)
		d.advance(int64(g.rng.Intn(1000)))
	}
	d.db = 9
	d.do("flushall")
	d.do("script", "flush")
	var got bytes.Buffer
	_, err := s.WriteTo(&got)
	require.NoError(t, err)
	require.Equal(t, want, got.Bytes())
}

func TestSnapshotAllocatesLittle(t *testing.T) {
	d := newDriver(t)
	d.fill("k", 50_000, 1_000_000)
	allocations := testing.AllocsPerRun(10, func() { d.m.Snapshot() })
	require.Less(t, allocations, 100.0)
}

func TestRestoreRefusesDamage(t *testing.T) {
	d := newDriver(t)
	d.do("set", "lock", "token", "px", "30000")
	d.do("script", "load", "return 1")
	good := dump(t, d.m)
	target := newDriver(t)
	target.do("set", "mine", "1")
	before := target.m.Hash()
	refuse := func(b []byte, what string, args ...any) {
		t.Helper()
		require.ErrorIs(t, target.m.Restore(bytes.NewReader(b)), ErrCorruptSnapshot, append([]any{what}, args...)...)
		require.Equal(t, before, target.m.Hash(), "the state must stay")
	}
	for n := range good {
		refuse(good[:n], "cut to %d bytes", n)
	}
	for i := range good {
		for bit := range 8 {
			if i == len(snapshotMagic) || i == len(snapshotMagic)+1 {
				continue // versions are checked below
			}
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			refuse(bad, "bit %d of byte %d", bit, i)
		}
	}
	refuse(append(bytes.Clone(good), 0), "a byte too many")
	refuse(nil, "empty")

	for at, want := range map[int]string{
		len(snapshotMagic): fmt.Sprintf("snapshot has version %d, this node knows %d", snapshotVersion+1,
			snapshotVersion),
		len(snapshotMagic) + 1: protocol.NewerError("snapshot is of a cluster of", protocol.EntryVersion+1).Error(),
	} {
		newer := bytes.Clone(good)
		newer[at]++
		err := target.m.Restore(bytes.NewReader(resum(newer)))
		require.ErrorContains(t, err, "restore state: "+want)
		require.ErrorContains(t, err, protocol.NewerAdvice)
		require.Equal(t, before, target.m.Hash())
	}
	require.NoError(t, target.m.Restore(bytes.NewReader(good)))
	require.Equal(t, d.m.Hash(), target.m.Hash())
}

// resum gives a damaged stream a valid checksum, so that other checks must detect the damage.
func resum(b []byte) []byte {
	body := b[:len(b)-sha256.Size]
	sum := sha256.Sum256(body)
	return append(bytes.Clone(body), sum[:]...)
}

func TestRestoreRefusesNonsense(t *testing.T) {
	wait := func(w waits.Waiter) func(st *state) {
		return func(st *state) {
			w.Words, w.KeyFrom, w.KeyCount = []string{"blpop", "a", "0"}, 1, 1
			st.Waits.Add(&w)
		}
	}
	cameFrom := func(n int, number func(i int) uint64) func(st *state) {
		return func(st *state) {
			st.incarnations.issued = maxIncarnations + 1
			for i := range n {
				st.incarnations.known = append(st.incarnations.known, incarnation{number: number(i)})
			}
		}
	}
	mark := func(m keyspace.Mark) func(st *state) {
		return func(st *state) {
			it := keyspace.NewItem(keyspace.Hash("a"), "a", "", command.Never, keyspace.EncodingAuto)
			it = it.WithMark(m)
			it.SetVersion(1)
			st.Databases[0].Put(&it)
		}
	}
	history := func(kind int, k kindHistory) func(st *state) {
		return func(st *state) { st.history.lossIDs, st.history.kinds[kind] = 1000, k }
	}
	lost := func(losses ...lockLoss) func(st *state) {
		var k kindHistory
		for i := range losses {
			k.byTime.rows = append(k.byTime.rows, &losses[i])
		}
		return history(losses[0].kind, k)
	}
	caused := func(given uint64, causes ...lossCause) func(st *state) {
		k := kindHistory{causeIDs: given}
		for i := range causes {
			k.causes = append(k.causes, &causes[i])
		}
		return history(stockLocks, k)
	}
	tooMany, tooManyCauses := make([]lockLoss, keptLosses+1), make([]lossCause, keptCauses+1)
	for i := range tooMany {
		tooMany[i] = lockLoss{id: uint64(i + 1), reason: locks.Expired, fence: 1}
		tooManyCauses[i].id = uint64(i + 1)
	}
	long := strings.Repeat("x", keptLossBytes/2)
	nonsense := map[string]func(st *state){
		"an incarnation of the future":  cameFrom(1, func(int) uint64 { return maxIncarnations + 2 }),
		"incarnations out of order":     cameFrom(2, func(i int) uint64 { return uint64(2 - i) }),
		"an incarnation without number": cameFrom(1, func(int) uint64 { return 0 }),
		"too many incarnations":         cameFrom(maxIncarnations+1, func(i int) uint64 { return uint64(i + 1) }),
		"a mark of no incarnation":      mark(keyspace.Mark{Incarnation: 1}),
		"a mark with a negative lease":  mark(keyspace.Mark{LeaseMillis: -1}),
		"events of no class":            func(st *state) { st.Notifies = event.AllClasses + 1 },
		"two scripts of a turn": func(st *state) {
			for _, source := range []string{"return 1", "return 2"} {
				st.scripts.add(compile(source, scriptSHA(source), 1))
			}
			st.scripts.turns = 1
		},
		"a waiter for no kind":             wait(waits.Waiter{Kind: keyspace.KindSortedSet + 1}),
		"a wait that ended before time":    wait(waits.Waiter{DeadlineMillis: -1}),
		"a cause of the future":            caused(1, lossCause{id: 2}),
		"a cause without id":               caused(1, lossCause{}),
		"causes out of order":              caused(2, lossCause{id: 2}, lossCause{id: 1}),
		"too many causes":                  caused(1000, tooManyCauses...),
		"causes of too many bytes":         caused(1, lossCause{id: 1, text: long}),
		"a loss of the future":             lost(lockLoss{id: 1001, reason: locks.Expired, fence: 1}),
		"a loss without id":                lost(lockLoss{reason: locks.Expired, fence: 1}),
		"losses out of order":              lost(tooMany[1], tooMany[0]),
		"too many losses":                  lost(tooMany...),
		"losses of too many bytes":         lost(lockLoss{id: 1, reason: locks.Expired, fence: 1, key: long, note: long}),
		"a loss for no reason":             lost(lockLoss{id: 1, fence: 1}),
		"a loss for a reason to come":      lost(lockLoss{id: 1, fence: 1, reason: locks.Flushed + 1}),
		"a native loss without fence":      lost(lockLoss{id: 1, reason: locks.Expired}),
		"a loss of a stock lock's fence":   lost(lockLoss{kind: stockLocks, id: 1, reason: locks.Expired, fence: 1}),
		"a loss by force among others":     lost(lockLoss{id: 1, reason: locks.Broken, fence: 1}),
		"a loss in a database that is not": lost(lockLoss{id: 1, reason: locks.Expired, fence: 1, db: protocol.MaxDatabases}),
		"deadline that has passed": func(st *state) {
			st.ClockMillis = -5
			put(st, -3, 1, 0)
		},
		"version of the future": func(st *state) { put(st, command.Never, 2, 0) },
		"no version":            func(st *state) { put(st, command.Never, 0, 0) },
		"wrong order": func(st *state) {
			for i, key := range []string{"a", "b", "c"} {
				it := keyspace.NewItem(uint64(i), key, "", command.Never, keyspace.EncodingAuto)
				it.SetVersion(1)
				st.Databases[0].Put(&it)
			}
		},
		"a swap of the future":         func(st *state) { st.Swaps[3] = 2 },
		"a new key of the future":      func(st *state) { st.NewKeys[3] = 2 },
		"an account that is not there": func(st *state) { put(st, command.Never, 1, 1) },
		"two accounts of a user":       func(st *state) { st.accounts.users = []string{"alice", "alice"} },
		"an account of nobody":         func(st *state) { st.accounts.users = []string{""} },
		"a waiter's account that is not there": func(st *state) {
			st.Waits.Add(&waits.Waiter{Words: []string{"blpop", "a", "0"}, KeyFrom: 1, KeyCount: 1, Account: 1})
		},
		"a lock waiter's account that is not there": func(st *state) {
			for ticket := range uint64(2) {
				_, err := st.Locks.Acquire(&locks.Request{
					Keys: []string{"a"}, Owner: strconv.Itoa(int(ticket)), LeaseMillis: 5, Waits: true, Ticket: ticket + 1, Account: 1,
				})
				require.NoError(t, err)
			}
			st.Locks.TakeEvents()
			it := keyspace.NewLock(keyspace.Hash("a"), keyspace.NewLockText("a"))
			it.SetVersion(1)
			st.Databases[0].Put(&it)
		},
		"ranges": func(st *state) {
			st.sessions = sessions{{node: "a", low: 5, applied: []appliedRange{{3, 4}}}}
		},
		"empty range": func(st *state) {
			st.sessions = sessions{{node: "a", applied: []appliedRange{{3, 3}}}}
		},
		"sessions out of order": func(st *state) { st.sessions = sessions{{node: "b"}, {node: "a"}} },
		"a turn of the future":  func(st *state) { st.scripts.add(compile("return 1", scriptSHA("return 1"), 5)) },
	}
	for what, spoil := range nonsense {
		t.Run(what, func(t *testing.T) {
			m := newMachine()
			m.st.version, m.st.Versions = protocol.EntryVersion, 1
			require.NoError(t, newMachine().Restore(bytes.NewReader(dump(t, m))))
			spoil(m.st)
			require.ErrorIs(t, newMachine().Restore(bytes.NewReader(dump(t, m))), ErrCorruptSnapshot)
		})
	}
}

// put stores key "a".
func put(st *state, deadlineMillis int64, version uint64, account int) {
	it := keyspace.NewItem(keyspace.Hash("a"), "a", "", deadlineMillis, keyspace.EncodingAuto)
	it.SetVersion(version)
	it.SetAccount(account)
	st.Databases[0].Put(&it)
}

func TestRestoreOfTooLongNumber(t *testing.T) {
	b := []byte(snapshotMagic + "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
	require.ErrorIs(t, newMachine().Restore(bytes.NewReader(b)), ErrCorruptSnapshot)
	// Equal states have equal bytes, so a number has only one encoding.
	for clusterTime, right := range map[string]bool{
		"\x00": true, "\x80\x01": true, "\x80\x00": false, strings.Repeat("\xff", 9) + "\x01": true,
		strings.Repeat("\xff", 9) + "\x02": false, strings.Repeat("\xff", 10): false,
	} {
		b = []byte(snapshotMagic + "\x01\x01" + clusterTime + string(make([]byte, 10+2*protocol.MaxDatabases+emptyTables+
			sha256.Size)))
		if err := newMachine().Restore(bytes.NewReader(resum(b))); right {
			require.NoError(t, err, "%x", clusterTime)
		} else {
			require.ErrorContains(t, err, "cluster time", "%x", clusterTime)
		}
	}
}

func TestRestoreOfCreations(t *testing.T) {
	head := snapshotMagic + "\x01\x01\x00\x00\x05" + string(make([]byte, protocol.MaxDatabases))
	tail := string(make([]byte, 7+protocol.MaxDatabases+emptyTables+sha256.Size))
	for newKeys, right := range map[string]bool{
		"\x00":                     true,
		"\x02\x03\x01\x04\x05":     true,
		"\x01\x03\x00":             false,
		"\x01\x03\x06":             false,
		"\x02\x03\x01\x03\x01":     false,
		"\x02\x03\x01\x02\x01":     false,
		"\x01\xff\x7f\x01":         true,
		"\x01\x80\x80\x01\x01":     false,
		"\xff\xff\xff\xff\x7f\x01": false,
	} {
		err := newMachine().Restore(bytes.NewReader(resum([]byte(head + newKeys + tail))))
		require.Equal(t, right, err == nil, "%q: %v", newKeys, err)
	}
}

// A wrong length allocates no memory.
func TestRestoreOfLyingLength(t *testing.T) {
	b := []byte(snapshotMagic + "\x01\x01\x00\x00\x00" + string(make([]byte, protocol.MaxDatabases+1)) +
		"\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
	require.ErrorIs(t, newMachine().Restore(bytes.NewReader(resum(append(b, make([]byte, sha256.Size)...)))),
		ErrCorruptSnapshot)
}

type brokenWriter struct{ left int }

var errDisk = errors.New("disk is full")

func (w *brokenWriter) Write(b []byte) (int, error) {
	if len(b) > w.left {
		return 0, errDisk
	}
	w.left -= len(b)
	return len(b), nil
}

func TestSnapshotReportsWriteErrors(t *testing.T) {
	d := furnished(t)
	for _, left := range []int{0, 1 << 16, 1 << 17} {
		_, err := d.m.Snapshot().WriteTo(&brokenWriter{left: left})
		if left < 100_000 {
			require.ErrorIs(t, err, errDisk)
		}
	}
}

type brokenReader struct{ r io.Reader }

func (r brokenReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if err == io.EOF {
		err = errDisk
	}
	return n, err
}

func TestRestoreReportsReadErrors(t *testing.T) {
	d := furnished(t)
	b := dump(t, d.m)
	for _, n := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, len(b) / 2} {
		require.ErrorIs(t, newMachine().Restore(brokenReader{bytes.NewReader(b[:n])}), errDisk, "%d bytes", n)
	}
	require.ErrorIs(t, newMachine().Restore(brokenReader{bytes.NewReader(b)}), errDisk, "the end must be the end")
}

// sampledKinds returns a machine with some of everything except locks.
func sampledKinds(t *testing.T) *driver {
	d := sampled(t)
	d.place("hash", newHash("f", "v"))
	d.place("large hash", newHash(manyWords(1000)...))
	d.place("set", newSet("a", "b"))
	changers(d)
	d.do("addlist", "list", "a", "b", "a")
	d.do("addzset", "sorted set", "a", "bb", "ccc")
	d.do("pexpire", "hash", "20000")
	d.do("set-notifications", "KEA")
	d.do("set", "ended", "", "px", "1")
	d.nowMillis++
	d.fill("swept first", sweepLimit, 1)
	d.advance(2)
	return d
}

// sampled returns a machine with strings, scripts, and swapped databases.
func sampled(t *testing.T) *driver {
	d := newDriver(t)
	d.do("set", "lock", "token", "px", "30000")
	d.do("incr", "fence")
	d.do("append", "raw", "x")
	d.do("append", "raw", "y")
	d.do("script", "load", "return 1")
	d.eval("return 2")
	d.db = 15
	d.do("set", "", "")
	d.do("swapdb", "2", "3")
	return d
}

// Cursors and snapshots depend on the hash of keys, on every processor.
func TestHashIsFixed(t *testing.T) {
	for key, want := range map[string]uint64{
		"":      0x2d06800538d394c2,
		"hello": 0x9555e8555c62dcfd,
		"v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd": 0x00006c38adf31777,
	} {
		require.Equal(t, want, keyspace.Hash(key), "%q", key)
	}
}

// TestSnapshotKeepsItsScripts: later changes of the script cache do not affect the snapshot.
func TestSnapshotKeepsItsScripts(t *testing.T) {
	d := newDriver(t)
	d.do("script", "load", "return 1")
	d.do("eval", "return 2", "0")
	want := d.m.Hash()
	s := d.m.Snapshot()
	d.do("script", "load", "return 2")
	d.do("eval", "return 3", "0")
	require.Equal(t, want, s.Hash())
	require.NotEqual(t, want, d.m.Hash())
}

// TestVersionOfTheCluster: it is the newest version of the entries and never falls. Older entries after newer ones have
// the newer meaning. Snapshots keep it.
func TestVersionOfTheCluster(t *testing.T) {
	d := newDriver(t)
	of := func(want byte, wantFresh bool) {
		t.Helper()
		version, fresh := d.m.Version()
		require.Equal(t, want, version)
		require.Equal(t, wantFresh, fresh)
		require.Equal(t, want, d.m.Snapshot().Version())
		require.EqualValues(t, snapshotVersion, dump(t, d.m)[len(snapshotMagic)])
		other := restored(t, d.m)
		require.Equal(t, d.m.Hash(), other.Hash())
		version, fresh = other.Version()
		require.Equal(t, want, version)
		require.Equal(t, wantFresh, fresh)
	}
	applied := func(version, meaning byte) {
		t.Helper()
		require.Equal(t, meaning, d.m.st.raiseVersion(version))
		if version <= protocol.EntryVersion {
			d.doLine("incr n")
			require.Equal(t, meaning, d.m.call.EntryVersion)
		}
	}
	of(protocol.OldestEntryVersion, true)
	for version := byte(protocol.OldestEntryVersion); version <= protocol.EntryVersion; version++ {
		d.version = version
		applied(version, version)
		of(version, false)
	}
	applied(protocol.OldestEntryVersion, protocol.EntryVersion)
	of(protocol.EntryVersion, false)
	applied(protocol.EntryVersion+1, protocol.EntryVersion+1)
	applied(protocol.EntryVersion, protocol.EntryVersion+1)
}

// emptyTables is the size in bytes of waits, locks and history without content.
const emptyTables = 4 + 9 + 13

// streamOf returns a snapshot whose first database has one item, given by its bytes.
func streamOf(item string) []byte {
	var b []byte
	b = append(b, snapshotMagic...)
	b = append(b, snapshotVersion, protocol.EntryVersion, 0, 0, 5)
	// swaps, new keys, sessions, incarnations, accounts, scripts, settings
	b = append(b, make([]byte, protocol.MaxDatabases+8)...)
	b = append(b, 1)
	b = append(b, item...)
	b = append(b, make([]byte, protocol.MaxDatabases-1+emptyTables)...)
	return resum(append(b, make([]byte, sha256.Size)...))
}

// words encodes words of a collection.
func words(kind keyspace.Kind, all ...string) string {
	b := []byte{byte(kind), byte(len(all))}
	for _, w := range all {
		b = append(b, byte(len(w)))
		b = append(b, w...)
	}
	return string(b)
}

// TestRestoreOfCollections: words that no collection saves are refused, and no others.
func TestRestoreOfCollections(t *testing.T) {
	const key, tail = "\x01k", "\x00\x01\x00" // no deadline, version 1, no mark
	for item, right := range map[string]bool{
		key + "\x00\x01v\x00" + tail:                                          true,
		key + "\x00\x01v\x03" + tail:                                          false,
		key + "\x00\x01v\x04" + tail:                                          false,
		key + "\x00\x01v\x00\x00\x01\x01\x08\x05\x00\x00\x02":                 true,
		key + "\x00\x01v\x00\x00\x01\x03\x08\x05\x00\x00\x02":                 false,
		key + "\x00\x01v\x01\x00\x01\x01\x08\x05\x00\x00\x02":                 false,
		key + "\x00\x01v\x00\x00\x01\x01\x08\x05\x01\x00\x02":                 false,
		key + words(keyspace.KindHash, "listpack", "f", "v") + tail:           true,
		key + words(keyspace.KindHash, "listpack", "f", "v") + "\x00\x00":     false,
		key + words(keyspace.KindHash, "listpack", "f", "v") + "\x00\x06":     false,
		key + "\x00\x01v\x00\x00\x01\x02\x01":                                 false, // no such account
		key + "\x00\x01v\x00\x00\x01\x04":                                     false,
		key + words(keyspace.KindHash, "listpack", "f") + tail:                false,
		key + words(keyspace.KindHash, "listpack", "f", "v", "f", "w") + tail: false,
		key + words(keyspace.KindHash, "other", "f", "v") + tail:              false,
		key + words(keyspace.KindHash, "listpack") + tail:                     false,
		key + words(keyspace.KindHash) + tail:                                 false,
		key + words(keyspace.KindSet, "intset", "1", "2") + tail:              true,
		key + words(keyspace.KindSet, "intset", "2", "1") + tail:              false,
		key + words(keyspace.KindSet, "intset", "x") + tail:                   false,
		key + words(99, "listpack", "x") + tail:                               false,
		key + "\x81\x02\x02\x01a\x01b" + tail:                                 false,
	} {
		m := newMachine()
		err := m.Restore(bytes.NewReader(streamOf(item)))
		if right {
			require.NoError(t, err, "%q", item)
			require.Equal(t, streamOf(item), dump(t, m))
			continue
		}
		require.ErrorIs(t, err, ErrCorruptSnapshot, "%q", item)
	}
}

// TestRestoreOfLyingCollection: a wrong number of words or length of a word allocates no memory.
func TestRestoreOfLyingCollection(t *testing.T) {
	huge := string(binary.AppendUvarint(nil, 1<<62))
	for _, kind := range []keyspace.Kind{keyspace.KindHash, keyspace.KindSet, keyspace.KindList, keyspace.KindSortedSet} {
		for _, item := range []string{
			"\x01k" + string(rune(kind)) + huge + "\x08listpack",
			"\x01k" + string(rune(kind)) + "\x05\x08listpack" + huge + "x",
			"\x01k" + string(rune(kind)) + huge + strings.Repeat("\x09hashtable", 2),
		} {
			stream := streamOf(item)
			allocated := testing.AllocsPerRun(1, func() { // which would run out of memory
				require.ErrorIs(t, newMachine().Restore(bytes.NewReader(stream)), ErrCorruptSnapshot)
			})
			require.Less(t, allocated, 10_000.0)
		}
	}
}

// TestRestoredCollectionsGoOn: a restored collection can be changed like any other.
func TestRestoredCollectionsGoOn(t *testing.T) {
	d := furnished(t)
	d.m = restored(t, d.m)
	before := d.m.Snapshot()
	want := before.Hash()
	for _, key := range []string{"small hash", "large hash", "integers", "large set"} {
		it := d.m.st.Databases[0].Find(keyspace.Hash(key), key)
		require.False(t, it.OwnedBy(d.m.st.Generation))
	}
	require.Equal(t, want, before.Hash())
	require.Equal(t, dump(t, d.m), dump(t, restored(t, d.m)))
}
