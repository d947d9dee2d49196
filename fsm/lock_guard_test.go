package fsm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestNothingWritesALock: whatever writes other values leaves a lock as it is, wherever the lock's key
// stands in the command.
func TestNothingWritesALock(t *testing.T) {
	d := newDriver(t)
	fence := d.do("lock.acquire", "key:0", "me", "px", "1000000", "reentrant")
	require.Equal(t, command.One, fence)
	g := protocoltest.New(1)
	met := 0
	for i := range protocol.Commands() {
		row := &protocol.Commands()[i]
		if row.Route != protocol.Write || len(row.KeySpecs) == 0 || !isGuarded(row) {
			continue
		}
		for n := 0; n < 12; n++ {
			line := g.Line(row)
			positions, err := row.KeyPositions(line)
			require.NoError(t, err)
			words := make([]string, len(line))
			for j, w := range line {
				words[j] = string(w)
			}
			hit := false
			for _, p := range positions {
				hit = hit || words[p] == "key:0"
			}
			reply := d.do(words...)
			if hit {
				met++
				require.Equal(t, errNativeThere, reply, "%q", words)
			}
			require.Equal(t, fence, d.do("lock.check", "key:0", "me"), "%q", words)
			require.Equal(t, "lock", d.do("type", "key:0").Str, "%q", words)
		}
	}
	require.Greater(t, met, 100)
	require.Equal(t, command.Zero, d.do("lock.release", "key:0", "me"))
}

// TestHelpBeginsWithItsVersion: in older entries EX is no word of locks, and WRONGTYPE is as short as in Redis.
func TestHelpBeginsWithItsVersion(t *testing.T) {
	d := newDriverOf(t, versionHelps-1)
	d.do("lock.acquire", "k", "me", "px", "1000")
	d.do("set", "s", "token", "nx", "px", "1000")
	for _, words := range []string{
		"lock.acquire k me ex 1", "lock.acquireall 1 k me ex 1", "lock.renew k me ex 1",
		"session.open ex 1",
	} {
		require.Equal(t, command.ErrSyntax, d.doLine(words), words)
	}
	require.Equal(t, command.ErrWrongType, d.doLine("get k"))
	require.Equal(t, command.ErrWrongType, d.doLine("lock.acquire s me px 1"))
	d.version = versionHelps
	d.do("del", "s")
	d.do("set", "s", "token", "nx", "px", "1000")
	require.Equal(t, command.One, d.doLine("lock.renew k me ex 1"))
	require.Equal(t, errNativeThere, d.doLine("set k v"))
	require.Equal(t, errStockThere, d.doLine("lock.acquire s me ex 1"))
	d.do("set", "text", command.ErrWrongType.Str)
	require.Equal(t, protocol.Bulk(command.ErrWrongType.Str), d.do("get", "text"), "a value is no error")
}

// TestUnknownOptionsOfLocks: an option that a word does not have is an error of syntax.
func TestUnknownOptionsOfLocks(t *testing.T) {
	d := newDriver(t)
	for _, words := range []string{
		"lock.acquire k me px 1 foo 1", "lock.acquire k me px 1 limit 2 foo 1", "lock.list held foo",
		"lock.acquireall 1 k me px 1 limit 2", "lock.acquireall 1 k me px 1 permits 1", "lock.acquireall 1 k me px 1 call x",
		"lock.break k foo 1", "lock.list foo 1", "lock.history foo 1", "session.list foo 1",
		"session.open px 1 foo 1", "lock.list count",
	} {
		require.Equal(t, command.ErrSyntax, d.doLine(words), words)
	}
	require.Equal(t, command.Zero, d.do("exists", "k"))
}

// TestClaimsOfLocks: a claim of a lock's key is not refused beside the log, where the answer would be nil.
func TestClaimsOfLocks(t *testing.T) {
	d := newDriver(t)
	d.do("lock.acquire", "k", "me", "px", "1000")
	claim := ClaimOf(request(nil, 0, "set", "k", "v", "nx"))
	require.False(t, d.m.WouldRefuse(claim, d.nowMillis))
	require.Equal(t, errNativeThere, d.do("set", "k", "v", "nx"))
}

// TestWatchedLocks: what happens to a lock is a change of its key.
func TestWatchedLocks(t *testing.T) {
	d := newDriver(t)
	d.do("lock.acquire", "k", "me", "px", "1000", "reentrant")
	for _, change := range []string{
		"lock.acquire k me px 1000 reentrant", "lock.renew k me px 500", "lock.release k me", "lock.downgrade k me",
		"lock.acquire k you px 1000 shared", "lock.break k owner you", "lock.release k me",
		"lock.acquire k me px 1000", "del k",
	} {
		watched := d.do("watch", "k").Elems[0].Num
		queued := request(nil, 0, "ping")
		again := protocol.AppendTransaction(nil, 0, []protocol.Watch{{Key: "k", Mark: uint64(watched)}}, queued)
		require.Equal(t, "[PONG]", line(d.apply(again)[0]), "before %s", change)
		require.False(t, d.doLine(change).IsError(), change)
		require.Equal(t, protocol.NullArray, d.apply(again)[0], change)
	}
	watched := d.do("watch", "k").Elems[0].Num
	require.Equal(t, protocol.Null, d.doLine("lock.release k me"))
	unchanged := protocol.AppendTransaction(nil, 0, []protocol.Watch{{Key: "k", Mark: uint64(watched)}},
		request(nil, 0, "ping"))
	require.Equal(t, "[PONG]", line(d.apply(unchanged)[0]))
}

// TestLocksInMemory: locks count against the limit of memory, and words that make one are refused when it is
// reached, in transactions too.
func TestLocksInMemory(t *testing.T) {
	d := newDriver(t)
	d.do("ping")
	before := d.m.Stats().UsedBytes
	d.do("lock.acquire", "k", "me", "px", "1000")
	require.Greater(t, d.m.Stats().UsedBytes, before+200)
	d.memoryLimit = uint64(before) + 100
	acquire := protocol.AppendLockCommand(nil, 0, protocol.Caller{Conn: 1}, "lock.acquire", [][]byte{
		[]byte("l"), []byte("me"),
		[]byte("px"), []byte("1000"),
	})
	require.Equal(t, command.ErrOOM, d.apply(acquire)[0])
	require.Equal(t, command.ErrOOM, d.do("lock.acquire", "l", "me", "px", "1000"))
	require.Equal(t, command.ErrOOM, d.do("session.open", "px", "1000"))
	require.Equal(t, errOOMExec, d.apply(protocol.AppendTransaction(nil, 0, nil, acquire))[0])
	require.Equal(t, command.One, d.do("lock.renew", "k", "me", "px", "1000"))
	require.Equal(t, command.Zero, d.do("lock.release", "k", "me"))
	d.memoryLimit = 0
	require.Equal(t, before, d.m.Stats().UsedBytes)
}

// TestReadsLeaveLocks: a read meets what is due and not in the log, and changes nothing.
func TestReadsLeaveLocks(t *testing.T) {
	d := newDriver(t)
	d.do("lock.acquire", "k", "me", "px", "10")
	d.do("session.open", "px", "10")
	want := dump(t, d.m)
	d.nowMillis += 11
	for _, words := range []string{
		"lock.check k me", "lock.info k", "lock.list", "exists k", "type k", "ttl k", "dbsize", "keys *", "scan 0",
		"session.info 1", "session.list", "randomkey",
	} {
		_, due := d.read(strings.Fields(words)...)
		require.True(t, due, words)
	}
	for _, words := range []string{"lock.check other me", "get s", "session.info 2"} {
		_, due := d.read(strings.Fields(words)...)
		require.False(t, due, words)
	}
	require.Equal(t, want, dump(t, d.m))
	d.advance(0)
	reply, due := d.read("lock.check", "k", "me")
	require.False(t, due)
	require.Equal(t, protocol.Null, reply)
}

// TestForcedBreaksNameTheHolders to the node of who broke.
func TestForcedBreaksNameTheHolders(t *testing.T) {
	d := newDriver(t)
	d.m.SeedReads(protocol.Incarnation{Node: "n1", Epoch: 1})
	d.native(1, 0, "lock.acquire", "k", "me", "px", "1000", "note", "why")
	told := 0
	for _, e := range d.record(d.version, request(nil, 0, "lock.break", "k")).events {
		if e.Forced == nil {
			continue
		}
		told++
		require.Len(t, e.Forced.Broken, 1)
		require.Equal(t, []string{"k", "me", "why"}, []string{
			e.Forced.Broken[0].Key, e.Forced.Broken[0].Owner, e.Forced.Broken[0].Note,
		})
	}
	require.Equal(t, 1, told)
}
