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
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestLockWords runs testdata/locks/*.txt, as [TestWaiting] does, with these lines besides:
//
//	n1@5 LOCK.CHECK k me          connection 5 of n1 sends a word of locks, which may not wait
//	n1@5#7 LOCK.ACQUIRE …         under ticket 7, so it may
//	n1@5,10.0.0.7:4,ops …         with the address and the name of the client
//	n1@5 exec word … ; word …     in a transaction
//	n1 alive | gone 5             n1 renews what lives with its connections | connection 5 has closed
//	n1 giveback k me 3 5          the client had gone
//	read LOCK.CHECK k me [at +5]  a read, beside the log, so much later than the log
//
// Below a line are the reply, what listeners to channels hear (~), and what nodes hear.
func TestLockWords(t *testing.T) {
	protocoltest.Transcripts(t, "testdata/locks/*.txt", playTrio(true))
}

// native appends a word of a connection, or another command with the connection that sends it.
func (s *trio) native(body []byte, conn, ticket string, words []string) []byte {
	row, _ := protocol.Find(words)
	if row == nil || row.Group != protocol.GroupModule || row.Route != protocol.Write {
		return s.from(body, conn, words)
	}
	from := protocol.Caller{GraceMillis: 2000}
	var err error
	conn, from.Address, _ = strings.Cut(conn, ",")
	from.Address, from.Name, _ = strings.Cut(from.Address, ",")
	from.Conn, err = strconv.ParseInt(conn, 10, 64)
	require.NoError(s.t, err)
	if ticket != "" {
		from.Ticket, err = strconv.ParseUint(ticket, 10, 64)
		require.NoError(s.t, err)
	}
	return protocol.AppendLockCommand(body, 0, from, row.Name, protocoltest.Args(words[1:]))
}

// from appends a command of a connection.
func (s *trio) from(body []byte, conn string, words []string) []byte {
	number, err := strconv.ParseUint(conn, 10, 64)
	require.NoError(s.t, err)
	var args [][]byte
	for _, w := range words[1:] {
		args = append(args, []byte(w))
	}
	return protocol.AppendRequestFrom(body, 0, number, strings.ToLower(words[0]), args)
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

// hear writes an event of the machine of a node. Messages are the same on all.
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

// lockRequest appends a word of locks by a connection, or another request that nodes write about locks.
func (l *log) lockRequest(body []byte, db int) []byte {
	key, owner := pick(l.rng, generatedKeys[:3]), pick(l.rng, []string{"me", "you", "them"})
	conn := int64(1 + l.rng.Intn(3))
	from := protocol.Caller{Conn: conn, Ticket: uint64(l.rng.Intn(50)), GraceMillis: int64(l.rng.Intn(100))}
	say := func(words ...string) []byte {
		return protocol.AppendLockCommand(body, db, from, words[0], protocoltest.Args(words[1:]))
	}
	number := func(n int) string { return strconv.Itoa(1 + l.rng.Intn(n)) }
	wait := []string{"wait", strconv.Itoa(l.rng.Intn(300))}[:2*l.rng.Intn(2)]
	switch l.rng.Intn(14) {
	case 0:
		return protocol.AppendAlive(body)
	case 1:
		return protocol.AppendGone(body, conn, 4)
	case 2:
		return protocol.AppendGiveBack(body, protocol.Hold{
			DB: db, Key: key, Owner: owner, Fence: int64(1 + l.rng.Intn(200)),
			Conn: conn,
		})
	case 3:
		return protocol.AppendUnblock(body, pick(l.rng, []protocol.Leave{
			protocol.LeaveGone, protocol.LeaveError,
			protocol.LeaveTimeout,
		}), from.Ticket)
	case 4:
		return say("session.open", "px", number(2000), "connection")
	case 5:
		return say("session.attach", number(9))
	case 6:
		return say("lock.release", key, owner)
	case 7:
		from.Address, from.Name = pick(l.rng, []string{"", "10.0.0.7:4", "10.0.0.8:" + number(9)}),
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

// TestFencesAreRaised from version 6 of the entry on, by words that run to their end, and restarts keep it.
func TestFencesAreRaised(t *testing.T) {
	t.Parallel()
	d := newDriverOf(t, versionLocks)
	require.True(t, d.do("eval", "return redis.call('fence.raise', '41')", "0").IsError())
	require.Equal(t, command.One, d.do("lock.acquire", "a", "me", "px", "1000"))
	d.version = versionHistory
	require.True(t, d.do("eval", "redis.call('fence.raise', '1000') "+endless, "0").IsError())
	require.Equal(t, protocol.Integer(2), d.do("lock.acquire", "b", "me", "px", "1000"),
		"what is undone has raised nothing")
	require.Equal(t, protocol.Integer(41), d.do("fence.raise", "41"))
	require.NoError(t, d.m.Restore(bytes.NewReader(dump(t, d.m))))
	require.Equal(t, protocol.Integer(42), d.do("lock.acquire", "c", "me", "px", "1000"))
}
