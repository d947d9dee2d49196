package fsm

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestLockWords runs testdata/locks/*.txt like [TestWaiting], with these additional lines:
//
//	n1@5 LOCK.CHECK k me          connection 5 of n1 sends a lock command, which may not wait
//	n1@5#7 LOCK.ACQUIRE …         under ticket 7, so it may wait
//	n1@5,10.0.0.7:4,ops …         with the client's address and name
//	n1@5 exec word … ; word …     in a transaction
//	n1 alive | gone 5             n1 renews the sessions of its connections | connection 5 has closed
//	n1 giveback k me 3 5          the client disconnected before the grant arrived
//	read LOCK.CHECK k me [at +5]  a read, that much later than the log
//
// Below a line are the reply, the messages of channels (~), and the events of nodes.
func TestLockWords(t *testing.T) {
	protocoltest.Transcripts(t, "testdata/locks/*.txt", playTrio(true))
}

// native appends a lock command of a connection, or another command with its connection.
func (s *trio) native(body []byte, conn, ticket string, words []string) []byte {
	row, _ := protocol.Find(words)
	if row == nil || row.Group != protocol.GroupModule || row.Route != protocol.Write {
		return s.from(body, conn, words)
	}
	head := protocol.Head{Lock: true, GraceMillis: 2000}
	var err error
	conn, head.Address, _ = strings.Cut(conn, ",")
	head.Address, head.Name, _ = strings.Cut(head.Address, ",")
	head.Conn, err = strconv.ParseInt(conn, 10, 64)
	require.NoError(s.t, err)
	if ticket != "" {
		head.Ticket, err = strconv.ParseUint(ticket, 10, 64)
		require.NoError(s.t, err)
	}
	return protocol.AppendRequest(body, head, row.Name, protocoltest.Args(words[1:]))
}

// from appends a command of a connection.
func (s *trio) from(body []byte, conn string, words []string) []byte {
	number, err := strconv.ParseInt(conn, 10, 64)
	require.NoError(s.t, err)
	head := protocol.Head{Conn: number}
	return protocol.AppendRequest(body, head, strings.ToLower(words[0]), protocoltest.Args(words[1:]))
}

// read runs a command as a read on the first machine.
func (s *trio) read(words []string) {
	now := s.nowMillis
	if n := len(words); n > 2 && words[n-2] == "at" {
		later, err := strconv.ParseInt(words[n-1], 10, 64)
		require.NoError(s.t, err)
		words, now = words[:n-2], now+later
	}
	replies, _, due, err := s.machines[0].Read(string(request(nil, 0, words...)), 1, now, 1_700_000_000_000, ReadLong)
	require.NoError(s.t, err)
	if due {
		s.said = append(s.said, "(due)")
		return
	}
	s.said = append(s.said, line(replies[0]))
}

// hear writes an event of a node's machine. Messages are the same on all.
func (s *trio) hear(i int, e *event.Event) {
	if i == 0 {
		e.Messages(func(channel, payload string) { s.said = append(s.said, "~ "+channel+" "+strconv.Quote(payload)) })
	}
	name, ok := map[event.Kind]string{
		event.LockLost: "lost", event.LockSlow: "slow", event.SessionKept: "kept",
		event.SessionLeft: "left",
	}[e.Kind]
	if !ok {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s@%d: %s", s.origin(i).Node, e.Lock.Conn, name)
	for _, part := range []struct {
		name  string
		value any
	}{
		{"key", e.Key},
		{"owner", e.Lock.Owner},
		{"fence", e.Lock.Fence},
		{"reason", e.Lock.Reason},
		{"text", e.Lock.Text},
		{"by", e.Lock.By},
		{"session", e.Lock.Session},
		{"waited", e.Lock.WaitedMillis},
		{"held", e.Lock.HeldMillis},
		{"used", e.Lock.SinceRenewedMillis},
		{"lease", e.Lock.LeaseMillis},
	} {
		if text := fmt.Sprint(part.value); text != "" && text != "0" {
			b.WriteString(" " + part.name + " " + text)
		}
	}
	s.said = append(s.said, b.String())
}

// lockRequest appends a lock command of a connection, or another request that nodes propose about locks.
func (l *log) lockRequest(body []byte, db int) []byte {
	key, owner := pick(l.rng, generatedKeys[:3]), pick(l.rng, []string{"me", "you", "them"})
	conn := int64(1 + l.rng.Intn(3))
	head := protocol.Head{DB: db, Lock: true, Conn: conn, Ticket: uint64(l.rng.Intn(50)), GraceMillis: int64(l.rng.Intn(100))}
	say := func(words ...string) []byte {
		return protocol.AppendRequest(body, head, words[0], protocoltest.Args(words[1:]))
	}
	number := func(n int) string { return strconv.Itoa(1 + l.rng.Intn(n)) }
	wait := []string{"wait", strconv.Itoa(l.rng.Intn(300))}[:2*l.rng.Intn(2)]
	switch l.rng.Intn(14) {
	case 0:
		return protocol.AppendNodeKeepalive(body)
	case 1:
		return protocol.AppendEndConnections(body, conn, 4)
	case 2:
		return protocol.AppendReturnGrant(body, protocol.Hold{
			DB: db, Key: key, Owner: owner, Fence: int64(1 + l.rng.Intn(200)),
			Conn: conn,
		})
	case 3:
		return protocol.AppendUnblock(body, pick(l.rng, []protocol.Leave{
			protocol.LeaveGone, protocol.LeaveError,
			protocol.LeaveTimeout,
		}), head.Ticket)
	case 4:
		return say("session.open", "px", number(2000), "connection")
	case 5:
		return say("session.attach", number(9))
	case 6:
		return say("lock.release", key, owner)
	case 7:
		head.Address, head.Name = pick(l.rng, []string{"", "10.0.0.7:4", "10.0.0.8:" + number(9)}),
			pick(l.rng, []string{"", "ops"})
		return say("lock.break", key, "delay", number(100), "reason", pick(l.rng, []string{"", "gone", owner}))
	case 8:
		return say(append([]string{"lock.acquireall", "2", key, pick(l.rng, generatedKeys[:3]), owner, "px", number(500)},
			wait...)...)
	case 9:
		return say(append([]string{"lock.acquire", key, owner, "session", number(9), "delay", number(50)}, wait...)...)
	case 10:
		return say(append([]string{"lock.acquire", key, owner, "px", number(500), "shared"}, wait...)...)
	case 11:
		return say(append([]string{"lock.acquire", key, owner, "px", number(500), "limit", number(4)}, wait...)...)
	}
	return say(append([]string{"lock.acquire", key, owner, "px", number(500)}, wait...)...)
}

// TestFencesAreRaised: completed commands raise fences, which restarts keep.
func TestFencesAreRaised(t *testing.T) {
	t.Parallel()
	d := newDriver(t)
	require.Equal(t, command.One, d.do("lock.acquire", "a", "me", "px", "1000"))
	require.True(t, d.do("eval", "redis.call('fence.raise', '1000') "+endless, "0").IsError())
	require.Equal(t, protocol.Integer(2), d.do("lock.acquire", "b", "me", "px", "1000"),
		"what is undone has raised nothing")
	require.Equal(t, protocol.Integer(41), d.do("fence.raise", "41"))
	require.NoError(t, d.m.Restore(bytes.NewReader(dump(t, d.m))))
	require.Equal(t, protocol.Integer(42), d.do("lock.acquire", "c", "me", "px", "1000"))
}

// TestNothingWritesALock: writes of other values do not change a lock, wherever its key is in the command.
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

// TestHelp: a lease may be given in seconds, and WRONGTYPE names the key's type where Redis has no such error.
func TestHelp(t *testing.T) {
	d := newDriver(t)
	d.do("lock.acquire", "k", "me", "px", "1000")
	d.do("set", "s", "token", "nx", "px", "1000")
	require.Equal(t, command.One, d.doLine("lock.renew k me ex 1"))
	require.Equal(t, errNativeThere, d.doLine("set k v"))
	require.Equal(t, errStockThere, d.doLine("lock.acquire s me ex 1"))
	d.do("set", "text", command.ErrWrongType.Str)
	require.Equal(t, protocol.Bulk(command.ErrWrongType.Str), d.do("get", "text"), "a value is no error")
}

// TestUnknownOptionsOfLocks: an option that a command lacks is a syntax error.
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

// TestClaimsOfLocks: SET NX on a lock's key is not answered outside of the log, where the reply would be nil.
func TestClaimsOfLocks(t *testing.T) {
	d := newDriver(t)
	d.do("lock.acquire", "k", "me", "px", "1000")
	require.False(t, d.m.IsNoop(string(request(nil, 0, "set", "k", "v", "nx")), d.nowMillis))
	require.Equal(t, errNativeThere, d.do("set", "k", "v", "nx"))
}

// TestWatchedLocks: every change of a lock is a change of its key.
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

// TestLocksInMemory: locks count as memory, and commands that create one are refused at the limit, also in
// transactions.
func TestLocksInMemory(t *testing.T) {
	d := newDriver(t)
	d.do("ping")
	before := d.m.Stats().UsedBytes
	d.do("lock.acquire", "k", "me", "px", "1000")
	require.Greater(t, d.m.Stats().UsedBytes, before+200)
	d.limits.MemoryBytes = uint64(before) + 100
	acquire := protocol.AppendRequest(nil, protocol.Head{Lock: true, Conn: 1}, "lock.acquire", [][]byte{
		[]byte("l"), []byte("me"),
		[]byte("px"), []byte("1000"),
	})
	require.Equal(t, protocol.ErrOOM.Value(), d.apply(acquire)[0])
	require.Equal(t, protocol.ErrOOM.Value(), d.do("lock.acquire", "l", "me", "px", "1000"))
	require.Equal(t, protocol.ErrOOM.Value(), d.do("session.open", "px", "1000"))
	aborted := protocol.ExecAbortedBy(protocol.ErrOOM).Value()
	require.Equal(t, aborted, d.apply(protocol.AppendTransaction(nil, 0, nil, acquire))[0])
	require.Equal(t, command.One, d.do("lock.renew", "k", "me", "px", "1000"))
	require.Equal(t, command.Zero, d.do("lock.release", "k", "me"))
	d.limits.MemoryBytes = 0
	require.Equal(t, before, d.m.Stats().UsedBytes)
}

// TestReadsLeaveLocks: a read of a lock that is due by its time, but not by the log's, changes nothing.
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

// TestForcedBreaksNameTheHolders: the node of the breaking client learns the holders.
func TestForcedBreaksNameTheHolders(t *testing.T) {
	d := newDriver(t)
	d.m.SeedReads(protocol.Incarnation{Node: "n1", Epoch: 1})
	d.native(1, 0, "lock.acquire", "k", "me", "px", "1000", "note", "why")
	told := 0
	for _, e := range d.record(request(nil, 0, "lock.break", "k")).events {
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

// TestForcedBreaksNameTheFirstKey: it is the first key that a command takes from its holders.
func TestForcedBreaksNameTheFirstKey(t *testing.T) {
	d := newDriver(t)
	d.m.SeedReads(protocol.Incarnation{Node: "n1", Epoch: 1})
	for _, key := range []string{"k", "l"} {
		d.native(1, 0, "lock.acquire", key, "me", "px", "1000")
	}
	var told []string
	for _, e := range d.record(request(nil, 0, "del", "none", "k", "l")).events {
		if e.Forced != nil {
			told = append(told, fmt.Sprint(e.Name, " ", e.Key, " ", e.Other, " ", len(e.Forced.Broken)))
		}
	}
	require.Equal(t, []string{"del k 2 2"}, told)
}

// TestListOfOneDatabase: a page that ends with the database's last lock is the last.
func TestListOfOneDatabase(t *testing.T) {
	d := newDriver(t)
	for d.db = range 3 {
		d.do("lock.acquire", "k", "me", "px", "1000")
	}
	for db, next := range map[string]string{"0": "0", "1": "0"} {
		page := d.do("lock.list", "db", db, "count", "1")
		require.Equal(t, next, page.Elems[0].Str, db)
		require.Len(t, page.Elems[1].Elems, 1, db)
	}
	require.NotEqual(t, "0", d.do("lock.list", "count", "1").Elems[0].Str)
}

// TestKeptSessionsAreAll: the list contains all of this node's, however many.
func TestKeptSessionsAreAll(t *testing.T) {
	d := newDriver(t)
	d.m.SeedReads(protocol.Incarnation{Node: "n1", Epoch: 1})
	const sessions = 2*maxListed + 1
	for conn := range int64(sessions) {
		d.native(conn+1, 0, "session.open", "px", "100000", "connection")
	}
	conns := make(map[int64]bool)
	d.m.KeptSessions(func(conn int64, _ uint64, _ int64) { conns[conn] = true })
	require.Len(t, conns, sessions)
}

// TestTooManySessions: a connection with too many sessions gets an error.
func TestTooManySessions(t *testing.T) {
	d := newDriver(t)
	for range locks.MaxAttached {
		d.native(1, 0, "session.open", "px", "100000", "connection")
	}
	require.Equal(t, errManySessions, d.native(1, 0, "session.open", "px", "100000", "connection"))
}

// TestCorruptLockRequests: requests that nodes propose about locks are validated before anything changes.
func TestCorruptLockRequests(t *testing.T) {
	d := newDriver(t)
	d.do("lock.acquire", "k", "me", "px", "1000")
	before := d.m.st.Versions
	for _, row := range []struct {
		line string
		want protocol.Value
	}{
		{"lock-command 1 0 0", command.ErrArity("lock-command")},
		{"lock-command x 0 0 lock.release k me", errLockRequest},
		{"lock-command -1 0 0 lock.release k me", errLockRequest},
		{"lock-command 1 x 0 lock.release k me", errLockRequest},
		{"lock-command 1 18446744073709551615 0 lock.release k me", errLockRequest},
		{"lock-command 1 0 x lock.release k me", errLockRequest},
		{"lock-command 1 0 -1 lock.release k me", errLockRequest},
		{"lock-command 1 0 " + strconv.Itoa(maxDuration+1) + " lock.release k me", errLockRequest},
		{"lock-command 1 0 0 nothing k me", errLockRequest},
		{"lock-command 1 0 0 drop n1 1", errLockRequest},
		{"lock-command 1 0 0 del k", errLockRequest},
		{"lock-command 1 0 0 lock.check k me", errLockRequest},
		{"lock-command 1 0 0 lock.release k", command.ErrArity("lock.release")},
		{"node-keepalive 1", command.ErrArity("node-keepalive")},
		{"end-connections x", errLockRequest},
		{"end-connections 0", errLockRequest},
		{"return-grant k me 1", command.ErrArity("return-grant")},
		{"return-grant k me x 0", errLockRequest},
		{"return-grant k me 1 x", errLockRequest},
	} {
		require.Equal(t, row.want, d.doLine(row.line), row.line)
		require.Equal(t, before, d.m.st.Versions, row.line)
	}
	for _, words := range [][]string{
		{"node-keepalive"}, {"end-connections", "1"}, {"return-grant", "k", "me", "1", "0"}, {"drop", "n1", "1"},
	} {
		require.Equal(t, command.ErrArity(words[0]), d.exec(nil, words).Elems[0], "no client queues those")
	}
	require.Equal(t, command.Zero, d.doLine("lock-command 1 0 "+strconv.Itoa(maxDuration)+" lock.release k me"))
}

// chunks is the size of the largest write.
type chunks int

func (c *chunks) Write(p []byte) (int, error) {
	*c = max(*c, chunks(len(p)))
	return len(p), nil
}

// TestSnapshotOfLocksIsWrittenInPieces: the size of writes does not grow with the number of locks.
func TestSnapshotOfLocksIsWrittenInPieces(t *testing.T) {
	d := newDriver(t)
	for i := range 40 {
		d.doLine(fmt.Sprint("lock.acquireall 128 ", each(128, strings.Repeat("k", 100)+fmt.Sprint(i, "/#")), " me px 1000"))
	}
	var largest chunks
	_, err := d.m.Snapshot().WriteTo(&largest)
	require.NoError(t, err)
	require.Less(t, int(largest), 1<<17)
}
