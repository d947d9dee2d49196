package fsm

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// native runs a lock command of a connection of n1.
func (d *driver) native(conn int64, ticket uint64, words ...string) protocol.Value {
	d.t.Helper()
	args := protocoltest.Args(words[1:])
	head := protocol.Head{DB: d.db, Lock: true, Conn: conn, Ticket: ticket, GraceMillis: 500}
	return d.apply(protocol.AppendRequest(nil, head, words[0], args))[0]
}

// sampledLocks returns a machine with some of every kind of lock record.
func sampledLocks(t *testing.T) *driver {
	d := sampledKinds(t)
	d.do("flushall")
	d.native(1, 0, "session.open", "px", "5000", "name", "s")
	d.native(2, 0, "session.open", "px", "2000", "connection")
	d.native(1, 0, "lock.acquire", "a", "me", "session", "1", "note", "text", "delay", "300")
	d.native(2, 0, "lock.acquire", "b", "me", "session", "2")
	d.native(1, 0, "lock.acquire", "c", "x", "px", "4000", "shared", "reentrant", "call", "q")
	d.native(1, 0, "lock.acquire", "c", "y", "px", "6000", "shared")
	d.native(1, 0, "lock.acquire", "d", "x", "px", "100", "delay", "8000")
	d.native(1, 0, "lock.acquire", "e", "x", "px", "9000", "limit", "4", "permits", "2")
	d.native(3, 1, "lock.acquire", "a", "you", "px", "1000", "wait", "0")
	d.native(3, 2, "lock.acquireall", "2", "a", "c", "all", "px", "1000", "wait", "1000")
	d.native(4, 3, "lock.acquire", "c", "z", "px", "1000", "wait", "100")
	d.native(4, 4, "lock.acquire", "e", "w", "px", "1000", "limit", "3", "permits", "2", "wait", "0", "notify")
	d.advance(101)
	d.db = 1
	d.do("lock.acquire", "f", "me", "px", "1000")
	d.native(5, 5, "lock.acquire", "f", "you", "px", "1000", "wait", "0")
	d.do("lock.acquire", "g", "me", "px", "1000")
	d.db = 2
	d.apply(requestFrom(nil, 2, 300, "set", "stock", "token", "nx", "px", "1000"))
	d.apply(requestFrom(nil, 2, 300, "eval", "redis.call('hset','hash','f',1) redis.call('pexpire','hash',900)", "0"))
	d.do("pexpire", "stock", "2000")
	d.db = 1
	d.m.budgets.serving, d.m.budgets.lockChanges = 0, 0
	d.do("flushdb")
	return d
}

// TestSnapshotBytes reads a stream that an earlier build wrote: streams on disks must stay readable, and equal states
// have equal bytes. -rewrite writes the stream anew, which is correct until the version is released.
func TestSnapshotBytes(t *testing.T) {
	const golden = "testdata/snapshot.bin"
	d := sampledLocks(t)
	if protocoltest.Rewriting() {
		require.NoError(t, os.WriteFile(golden, dump(t, d.m), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, dump(t, d.m)), golden)
	read := newMachine()
	require.NoError(t, read.Restore(bytes.NewReader(want)))
	require.True(t, bytes.Equal(want, dump(t, read)), golden)
	m := restored(t, d.m)
	require.True(t, bytes.Equal(want, dump(t, m)))
	m.budgets = d.m.budgets
	for _, millis := range []int64{1, 400, 1000, 2000, 4000, 9000, 9000, 9000} {
		d.nowMillis += millis
		entry := protocol.NewEntry(nil, protocol.EntryVersion, d.nowMillis, d.wallOffset, d.limits).Bytes()
		require.NoError(t, d.m.Apply(entry, clientless{}))
		require.NoError(t, m.Apply(entry, clientless{}))
		require.Equal(t, d.m.Hash(), m.Hash())
	}
	require.Zero(t, d.m.LockStats().Locks)
}

// TestMarkersOfRestoredLocks: a stream whose keys and locks do not match is refused.
func TestMarkersOfRestoredLocks(t *testing.T) {
	d := newDriver(t)
	d.do("lock.acquire", "k", "me", "px", "1000")
	good := dump(t, d.m)
	require.NoError(t, newMachine().Restore(bytes.NewReader(good)))
	at := bytes.Index(good, []byte("\x01k\x05\x00\x00"))
	require.Positive(t, at)
	for what, spoil := range map[string]func(b []byte) []byte{
		"another key":  func(b []byte) []byte { b[at+1] = 'l'; return b },
		"a string":     func(b []byte) []byte { b[at+2] = 0; return b },
		"a collection": func(b []byte) []byte { b[at+2] = 1; return b },
		"words":        func(b []byte) []byte { b[at+3] = 1; return b },
		"a deadline":   func(b []byte) []byte { b[at+4] = 0x70; return b },
	} {
		b := spoil(bytes.Clone(good))
		require.ErrorIs(t, newMachine().Restore(bytes.NewReader(resum(b))), ErrCorruptSnapshot, what)
	}
}

// TestLockWithoutItsMarker: a stream without the item of a lock is refused, also if another lock's item is there.
func TestLockWithoutItsMarker(t *testing.T) {
	for _, gone := range []string{"k", "l"} {
		d := newDriver(t)
		d.do("lock.acquire", "k", "me", "px", "1000")
		d.do("lock.acquire", "l", "me", "px", "1000")
		require.NoError(t, newMachine().Restore(bytes.NewReader(dump(t, d.m))))
		d.m.st.Databases[0].Remove(keyspace.Hash(gone), gone)
		require.ErrorIs(t, newMachine().Restore(bytes.NewReader(dump(t, d.m))), ErrCorruptSnapshot, gone)
	}
}

// TestHoldsLostInARestore: a node that skips entries reports lost holds to its clients.
func TestHoldsLostInARestore(t *testing.T) {
	d := newDriver(t)
	ahead := newDriver(t)
	mine := protocol.Incarnation{Node: "n1", Epoch: 1}
	d.m.SeedReads(mine)
	for _, each := range []*driver{d, ahead} {
		each.native(7, 0, "session.open", "px", "100000", "connection")
		each.native(7, 0, "lock.acquire", "kept", "me", "px", "100000")
		each.native(7, 0, "lock.acquire", "lost", "me", "px", "100000")
		each.native(8, 0, "lock.acquire", "other", "me", "session", "1")
		each.do("lock.acquire", "nobodys", "me", "px", "100000")
	}
	ahead.do("lock.break", "lost", "reason", "why")
	ahead.do("lock.break", "nobodys")
	ahead.do("lock.break", "other")
	ahead.do("lock.acquire", "other", "me", "px", "1000")
	byForce := &ahead.m.st.history.kinds[nativeLocks].byForce
	byForce.rows = byForce.rows[:1] // the other rows were evicted
	require.NoError(t, d.m.Restore(bytes.NewReader(dump(t, ahead.m))))
	var told []string
	for _, e := range d.m.Skipped() {
		require.Equal(t, event.LockLost, e.Kind)
		told = append(told, strings.Join([]string{e.Key, e.Lock.Reason, e.Lock.Text, e.Lock.By}, " "))
	}
	require.ElementsMatch(t, []string{"lost broken why n1", "other unknown  "}, told)
	require.Empty(t, d.m.Skipped())
	kept := 0
	d.m.KeptSessions(func(conn int64, session uint64, leaseMillis int64) {
		kept++
		require.Equal(t, []int64{7, 1, 100000}, []int64{conn, int64(session), leaseMillis})
	})
	require.Equal(t, 1, kept)
}

// TestCrowdLostInARestore: all holds are compared, however many there are.
func TestCrowdLostInARestore(t *testing.T) {
	d := newDriver(t)
	d.m.SeedReads(origin)
	const calls = maxListed/locks.MaxKeys + 2
	for i := range calls {
		keys := each(locks.MaxKeys, fmt.Sprint("k", i, "/#"))
		d.native(7, 0, strings.Fields(fmt.Sprint("lock.acquireall 128 ", keys, " me px 1000"))...)
	}
	require.NoError(t, d.m.Restore(bytes.NewReader(dump(t, newMachine()))))
	lost := map[string]int{}
	for _, e := range d.m.Skipped() {
		lost[e.Key]++
	}
	require.Len(t, lost, calls*locks.MaxKeys)
	require.Equal(t, 1, lost["k0/0"])
}

// TestLockStats counts what happens.
func TestLockStats(t *testing.T) {
	d := newDriver(t)
	d.native(1, 0, "lock.acquire", "k", "me", "px", "1000")
	d.native(1, 0, "lock.acquire", "k", "you", "px", "1000")
	d.native(1, 1, "lock.acquire", "k", "you", "px", "1000", "wait", "5000")
	d.native(1, 2, "lock.acquire", "k", "them", "px", "1000", "wait", "10")
	d.advance(11)
	d.do("lock.acquire", "l", "me", "px", "1000")
	d.native(1, 3, "lock.acquire", "k", "other", "px", "1000", "wait", "0")
	d.native(1, 0, "lock.cancel", "k", "other")
	d.do("lock.break", "l")
	d.do("lock.break", "l")
	d.do("fence.pass", "f", "5")
	d.do("fence.pass", "f", "4")
	d.do("session.open", "px", "1000")
	d.advance(990)
	s := d.m.LockStats()
	require.Zero(t, s.LostSession+s.LostFlushed)
	require.Equal(t, []int{1, 1, 0, 1}, []int{s.Locks, s.Holds, s.Waiting, s.Sessions})
	require.Equal(t, []uint64{3, 1, 1, 1, 1, 1, 1}, []uint64{
		s.Grants, s.Refusals, s.Timeouts, s.LostExpired,
		s.LostBroken, s.Breaks, s.FencesRefused,
	})
	require.Equal(t, []uint64{1, 1001, 2, 1000}, []uint64{
		s.Waited.Count, s.Waited.SumMillis, s.Held.Count,
		s.Held.SumMillis,
	})
	require.Equal(t, uint64(1), s.Waited.Steps[10])
}

// TestLossesAreCounted: losses are counted by reason and hold.
func TestLossesAreCounted(t *testing.T) {
	d := newDriver(t)
	hold := func(key string, how ...string) {
		require.Positive(t, d.do(append([]string{"lock.acquire", key, "me"}, how...)...).Num)
	}
	hold("late", "px", "10")
	d.advance(11)
	d.do("session.open", "px", "1000")
	for range 2 {
		hold(fmt.Sprint("s", d.seq), "session", "1")
	}
	d.do("session.close", "1")
	for range 3 {
		hold("broken", "px", "1000")
		d.do("lock.break", "broken")
	}
	for range 4 {
		hold(fmt.Sprint("f", d.seq), "px", "1000")
	}
	d.do("flushdb")
	hold("again", "px", "1000")
	d.do("flushall")
	s := d.m.LockStats()
	require.Equal(t, []uint64{1, 2, 3, 5}, []uint64{s.LostExpired, s.LostSession, s.LostBroken, s.LostFlushed})
	require.EqualValues(t, 11, s.Held.Count)
}

// TestListeningIsFree: events for listeners only cost an entry nothing.
func TestListeningIsFree(t *testing.T) {
	d := newDriver(t)
	d.native(1, 0, "lock.acquire", "k", "me", "px", "1000")
	d.native(1, 1, "lock.acquire", "k", "you", "px", "1000", "wait", "0")
	d.native(1, 0, "lock.cancel", "k", "you")
	require.Zero(t, d.m.budgets.serving-d.m.call.wakeBudget.left)
	require.Zero(t, d.m.budgets.lockChanges-d.m.call.lockWorkLeft, "no step was taken")
}

// TestLocksOfNestedScripts: a stopped script in a transaction undoes its own changes of locks, and none of the
// transaction's earlier ones.
func TestLocksOfNestedScripts(t *testing.T) {
	d := newDriver(t)
	queued := request(nil, 0, "lock.acquire", "before", "me", "px", "1000")
	queued = request(queued, 0, "eval",
		"redis.call('lock.acquire','inside','me','px','1000') redis.call('lock.release','before','me') while true do end",
		"0")
	queued = request(queued, 0, "lock.check", "before", "me")
	queued = request(queued, 0, "lock.acquire", "after", "me", "px", "1000")
	replies := d.apply(protocol.AppendTransaction(nil, 0, nil, queued))[0].Elems
	require.Len(t, replies, 4)
	require.True(t, replies[1].IsError())
	require.Equal(t, []protocol.Value{command.One, command.One, protocol.Integer(2)}, []protocol.Value{replies[0], replies[2], replies[3]})
	require.Equal(t, protocol.Integer(2), d.do("dbsize"))
	require.Equal(t, command.Zero, d.do("exists", "inside"))
	require.Equal(t, dump(t, d.m), dump(t, restored(t, d.m)))
}

// TestCapturedLocksStay: a captured snapshot does not change with the state.
func TestCapturedLocksStay(t *testing.T) {
	log := newLog(7)
	log.bodies = func() (body []byte) {
		for range 1 + log.rng.Intn(4) {
			body = log.lockRequest(body, log.rng.Intn(2))
		}
		return body
	}
	m := newMachine()
	captured := map[Snapshot]string{}
	most := 0
	for i := range 600 {
		require.NoError(t, m.Apply(log.next(), clientless{}))
		if i%20 == 0 {
			s := m.Snapshot()
			captured[s] = s.Hash()
		}
		most = max(most, m.LockStats().Holds+m.LockStats().Waiting)
	}
	require.Greater(t, most, 5)
	for s, want := range captured {
		require.Equal(t, want, s.Hash())
	}
	require.Equal(t, m.Hash(), restored(t, m).Hash())
}

// TestLocksShareTheirTexts: a lock and its item share the key's memory, also after a restore.
func TestLocksShareTheirTexts(t *testing.T) {
	m := sampledLocks(t).m
	for _, m := range []*machine{m, restored(t, m)} {
		locks := 0
		for db, space := range m.st.Databases {
			space.Ascend(0, 0, 0, func(it *keyspace.Item) bool {
				if it.IsLock() {
					locks++
					own := m.st.Locks.Info(db, it.Key(), 0, 0).Key
					require.Same(t, unsafe.StringData(it.Key()), unsafe.StringData(own), it.Key())
				}
				return true
			})
		}
		require.Greater(t, locks, 3)
	}
}
