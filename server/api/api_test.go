package api_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/api"
	"github.com/holdfast/holdfast/server/servertest"
)

// asks sends a command, and returns the reply, which must be no error.
func asks(t *testing.T, c *servertest.Client, words ...string) protocol.Value {
	t.Helper()
	require.NoError(t, c.Send(words))
	v, err := c.Receive()
	require.NoError(t, err, words)
	require.False(t, v.IsError(), "%s: %s", words, v.Str)
	return v
}

// nowMillis returns cluster time as Unix time in milliseconds.
func nowMillis(t *testing.T, c *servertest.Client) int64 {
	v := asks(t, c, "TIME")
	seconds, err := strconv.ParseInt(v.Elems[0].Str, 10, 64)
	require.NoError(t, err)
	micros, err := strconv.ParseInt(v.Elems[1].Str, 10, 64)
	require.NoError(t, err)
	return seconds*1000 + micros/1000
}

// inBoth runs f twice, with a client of a follower in RESP2 and in RESP3.
func inBoth(t *testing.T, f func(t *testing.T, c *servertest.Client)) {
	for _, resp := range []int{protocol.RESP2, protocol.RESP3} {
		synctest.Test(t, func(t *testing.T) {
			c := servertest.New(t, servertest.Options{NoRefusalDelay: true})
			c.Lead(c.Node("n1"))
			client := c.Client(c.Node("n2"), resp)
			f(t, client)
			client.Close()
			c.Stop()
		})
	}
}

const odd = "\xff\n</script>" // not valid UTF-8

// TestLocks shows that a document has the fields of LOCK.LIST and LOCK.INFO, in RESP2 and in RESP3.
func TestLocks(t *testing.T) {
	inBoth(t, func(t *testing.T, c *servertest.Client) {
		other := *c
		asks(t, c, "SELECT", "3")
		fence := asks(t, c, "LOCK.ACQUIRE", odd, odd, "PX", "30000", "NOTE", "why").Num
		id := asks(t, c, "SESSION.OPEN", "PX", "60000", "NAME", "report").Num
		asks(t, c, "LOCK.ACQUIRE", "pool", "a", "SESSION", strconv.FormatInt(id, 10), "LIMIT", "5", "PERMITS", "2")
		asks(t, &other, "SELECT", "3")
		require.NoError(t, other.Send([]string{"LOCK.ACQUIRE", odd, "next", "PX", "1000", "WAIT", "90000"}))
		time.Sleep(7 * time.Second)

		now := nowMillis(t, c)
		cursor, page, err := api.PageOfLocks(asks(t, c, "LOCK.LIST", "MATCH", "\xff*"), 3, now)
		require.NoError(t, err)
		require.Equal(t, "0", cursor)
		require.Len(t, page, 1)
		left, waits := int64(23_000), int64(83_000)
		l := page[0]
		near(t, left, l.Holders[0].LeaseLeftMillis)
		near(t, waits, l.Waiters[0].WaitLeftMillis)
		held, waited := l.Holders[0].HeldMillis, l.Waiters[0].WaitedMillis
		near(t, 7000, &held)
		near(t, 7000, &waited)
		require.Equal(t, now-held, l.Holders[0].SinceUnixMillis)
		require.Equal(t, now-waited, l.Waiters[0].SinceUnixMillis)
		holder, waiter := l.Holders[0].Client, l.Waiters[0].Client
		require.Equal(t, "n2", holder.Node)
		require.Equal(t, "n2", waiter.Node)
		require.Positive(t, holder.Number)
		require.NotEmpty(t, holder.Address)
		require.NotNil(t, holder.IdleMillis)
		require.NotEqual(t, holder.Number, waiter.Number)
		require.Equal(t, api.Lock{
			Key: odd, KeyBase64: []byte(odd), DB: 3, Mode: "exclusive", HoldersCount: 1, WaitersCount: 1,
			Holders: []api.Hold{{
				Owner: odd, OwnerBase64: []byte(odd), Fence: fence, Mode: "exclusive", Holds: 1, Note: "why", Client: holder,
				LeaseMillis:     30_000,
				LeaseLeftMillis: l.Holders[0].LeaseLeftMillis, SinceUnixMillis: now - held, HeldMillis: held,
			}},
			Waiters: []api.Wait{{
				Owner: "next", Mode: "exclusive", Keys: 1, Client: waiter,
				WaitLeftMillis: l.Waiters[0].WaitLeftMillis, SinceUnixMillis: now - waited, WaitedMillis: waited,
			}},
		}, l)
		again, there, err := api.LockOf(asks(t, c, "LOCK.INFO", odd), odd, 3, nowMillis(t, c))
		require.NoError(t, err)
		require.True(t, there)
		require.Equal(t, l.Holders[0].Owner, again.Holders[0].Owner)
		require.Equal(t, l.KeyBase64, again.KeyBase64)

		pool, there, err := api.LockOf(asks(t, c, "LOCK.INFO", "pool"), "pool", 3, nowMillis(t, c))
		require.NoError(t, err)
		require.True(t, there)
		require.Equal(t, "permits", pool.Mode)
		require.EqualValues(t, 2, pool.Permits)
		require.Nil(t, pool.KeyBase64)
		require.Nil(t, pool.Holders[0].LeaseLeftMillis)
		require.Equal(t, &api.Session{ID: id}, pool.Holders[0].Session)
		s := api.SessionOf(asks(t, c, "SESSION.INFO", strconv.FormatInt(id, 10)))
		near(t, 53_000, s.LeftMillis)
		require.Equal(t, &api.Session{ID: id, Name: "report", LeaseMillis: 60_000, LeftMillis: s.LeftMillis, Holds: 1}, s)

		_, there, err = api.LockOf(asks(t, c, "LOCK.INFO", "nope"), "nope", 3, now)
		require.NoError(t, err)
		require.False(t, there)
		require.Nil(t, api.SessionOf(asks(t, c, "SESSION.INFO", "999")))
		other.Close()
	})
}

// near requires that a duration is right to about a second, since cluster time advances with entries.
func near(t *testing.T, want int64, got *int64) {
	t.Helper()
	require.NotNil(t, got)
	require.InDelta(t, want, *got, 1100)
}

// TestCluster shows that a document has the fields of RAFT.STATUS, in RESP2 and in RESP3.
func TestCluster(t *testing.T) {
	inBoth(t, func(t *testing.T, c *servertest.Client) {
		time.Sleep(10 * time.Second) // all have heard of each other
		asks(t, c, "SET", "k", "v")
		doc, err := api.ClusterOf(asks(t, c, "RAFT.STATUS"))
		require.NoError(t, err)
		require.Equal(t, api.Format, doc.Format)
		require.Equal(t, []any{"n2", "n1", "follower"}, []any{doc.Node, doc.Leader, doc.Role})
		require.Equal(t, []int64{3, 3, 2, 1}, []int64{doc.Voters, doc.LiveVoters, doc.Quorum, doc.Margin})
		require.Positive(t, doc.Term)
		require.Positive(t, doc.AppliedIndex)
		require.GreaterOrEqual(t, doc.LastIndex, doc.AppliedIndex)
		require.Len(t, doc.Members, 3)
		for i, m := range doc.Members {
			require.Equal(t, []string{"n1", "n2", "n3"}[i], m.Name)
			require.True(t, m.Voter)
			require.True(t, m.Answers)
			require.NotEmpty(t, m.PeerAddress)
		}
		leader := doc.Members[0]
		require.Equal(t, "leader", leader.Role)
		require.NotNil(t, leader.LagEntries)
		require.Zero(t, *leader.LagEntries)
	})
}

// TestClients shows that a document has exactly what a node knows of a client.
func TestClients(t *testing.T) {
	idle := int64(7)
	for state, want := range map[string]*api.Client{
		"connected": {Node: "n1", Number: 12, Address: "10.0.0.9:1", Name: "billing", IdleMillis: &idle},
		"gone":      {Node: "n1", Number: 12, Gone: true},
		"unknown":   {Node: "n1", Number: 12},
	} {
		word := protocol.Bulk
		v := protocol.Map(word("mode"), word("exclusive"), word("holders"), protocol.Array(protocol.Map(
			word("client"), word("n1@25a515603147/12"), word("client-state"), word(state), word("client-addr"),
			word("10.0.0.9:1"),
			word("client-name"), word("billing"), word("client-idle"), protocol.Integer(7))))
		l, _, err := api.LockOf(v, "k", 0, 0)
		require.NoError(t, err)
		require.Equal(t, want, l.Holders[0].Client, state)
	}
}

// TestLosses shows that a document has the fields of LOCK.HISTORY.
func TestLosses(t *testing.T) {
	word, number := protocol.Bulk, protocol.Integer
	broken := protocol.Map(
		word("id"), number(8), word("ended"), number(5000), word("key"), word(odd), word("db"), number(3), word("kind"),
		word("native"), word("reason"), word("broken"),
		word("owner"), word("vm"), word("fence"), number(41), word("since"), number(2000), word("note"), word("n"),
		word("session"), number(0),
		word("client"), word("n1@a/12"), word("more"), number(2), word("command"), word("lock.break"), word("text"),
		word("why"),
		word("by-client"), word("n2@b/7"), word("by-addr"), word("10.0.0.9:1"), word("by-name"), word("ops"))
	expired := protocol.Map(word("id"), number(7), word("kind"), word("stock"), word("reason"), word("expired"),
		word("key"), word("k"), word("client"), word(""), word("command"), word(""))
	doc, err := api.LossesOf(protocol.Array(word("7"), protocol.Array(broken, expired)))
	require.NoError(t, err)
	require.Equal(t, api.Losses{Format: api.Format, NextCursor: "7", Losses: []api.Loss{
		{
			ID: 8, EndedUnixMillis: 5000, Key: odd, KeyBase64: []byte(odd), DB: 3, Kind: "native", Reason: "broken",
			Owner: "vm", Fence: 41,
			SinceUnixMillis: 2000, HeldMillis: 3000, Note: "n", Client: &api.Client{Node: "n1", Number: 12}, More: 2,
			Cause: &api.Cause{Command: "lock.break", Text: "why", By: &api.Client{
				Node: "n2", Number: 7, Address: "10.0.0.9:1",
				Name: "ops",
			}},
		},
		{ID: 7, Kind: "stock", Reason: "expired", Key: "k"},
	}}, doc)
}

// TestText shows that a document is valid JSON whatever bytes the name of a lock has, and that it cannot end a script.
func TestText(t *testing.T) {
	doc, err := json.Marshal(api.Lock{Key: odd, KeyBase64: []byte(odd)})
	require.NoError(t, err)
	require.NotContains(t, string(doc), "<")
	var back api.Lock
	require.NoError(t, json.Unmarshal(doc, &back))
	require.Equal(t, odd, string(back.KeyBase64))
}

// TestLossGroups shows that losses are counted by lock and reason, and that there is advice for a native lock that is
// lost repeatedly.
func TestLossGroups(t *testing.T) {
	const now = 1_000_000
	lost := func(secondsAgo int64, key, kind, reason string, held, more int64) api.Loss {
		return api.Loss{
			EndedUnixMillis: now - 1000*secondsAgo, Key: key, Kind: kind, Reason: reason, HeldMillis: held,
			More: more,
		}
	}
	losses := []api.Loss{lost(1, "billing", "native", "broken", 7, 0)}
	for i := range int64(12) {
		losses = append(losses,
			lost(10*i, "billing", "native", "expired", 800+i, 0), lost(10*i, "cache", "stock", "expired", 60_000, 9))
	}
	groups := api.GroupLosses(losses, now)
	require.Len(t, groups, 3)
	require.Equal(t, api.LossGroup{Count: 1, LastMinute: 1, MinHeldMillis: 7, MaxHeldMillis: 7, Last: losses[0]},
		groups[0])
	require.Equal(t,
		api.LossGroup{Count: 12, LastMinute: 6, MinHeldMillis: 800, MaxHeldMillis: 811, Last: losses[1]}, groups[1])
	require.Equal(t,
		api.LossGroup{Count: 120, LastMinute: 60, MinHeldMillis: 60_000, MaxHeldMillis: 60_000, Last: losses[2]},
		groups[2], "a stock lock may be left to time")
	for range 4 {
		losses = append(losses, lost(59, "billing", "native", "expired", 800, 0))
	}
	require.Equal(t, "lost 10 times in the last minute: the work outlasts the lease, and no client renews it",
		api.GroupLosses(losses, now)[1].Advice)
	broken := []api.Loss{lost(1, "billing", "native", "broken", 7, 9)}
	require.Equal(t, "lost 10 times in the last minute: by LOCK.BREAK, DEL or UNLINK",
		api.GroupLosses(broken, now)[0].Advice, "the cause is forgotten")
	broken[0].Cause = &api.Cause{Command: "unlink"}
	require.Equal(t, "lost 10 times in the last minute: the last by UNLINK", api.GroupLosses(broken, now)[0].Advice)
	require.Empty(t, api.GroupLosses(nil, now))
}

// TestPolls shows that the rate of polls for a stock lock is estimated from the listed clients, and that there is
// advice if clients poll often.
func TestPolls(t *testing.T) {
	lock := func(waiters, polls, waitedMillis int64) api.Lock {
		const now = 1_000_000
		row := protocol.Fields("owner", protocol.Bulk("x"), "since", protocol.Integer(now-waitedMillis),
			"polls", protocol.Integer(polls))
		l, err := api.RowOf(protocol.Fields("mode", protocol.Bulk("stock"), "waiters-count", protocol.Integer(waiters),
			"waiters", protocol.Array(row, row)), 0, now, 5)
		require.NoError(t, err)
		return l
	}
	many := lock(12, 117, 60_000)
	require.InDelta(t, 23.4, many.PollsPerSecond, 1e-9)
	require.Equal(t, "12 clients poll for it, about 23 times a second: clients of native locks wait in a queue "+
		"instead", many.Advice)
	require.Empty(t, lock(4, 117, 60_000).Advice, "few clients")
	require.Empty(t, lock(12, 24, 60_000).Advice, "seldom")
	require.InDelta(t, 12, lock(12, 1, 20).PollsPerSecond, 1e-9, "who began just now is no storm")
	none := lock(12, 0, 60_000)
	require.Zero(t, none.PollsPerSecond)
	require.Empty(t, none.Advice)
}

// TestVerdict shows that the verdict on a cluster is the worst one that applies.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		want, sentence string
		more           []any
	}{
		{api.VerdictOK, "n2 leads in term 7: 3 of 3 voters answer, 1 may fail.", nil},
		{
			api.VerdictOK, "n2 leads alone, in term 7.",
			[]any{"voters", protocol.Integer(1), "live-voters", protocol.Integer(1), "margin", protocol.Integer(0)},
		},
		{
			api.VerdictNotWell, "n2 leads in term 7: 3 of 3 voters answer, 2 could lead, 1 may fail.",
			[]any{"troubles", protocol.Strings("n1 is in quarantine"), "able-to-lead", protocol.Integer(2)},
		},
		{
			api.VerdictAtRisk, "n2 leads in term 7: 3 of 3 voters answer, the cluster stops when one more fails.",
			[]any{"margin", protocol.Integer(0), "troubles", protocol.Strings("n1 is in quarantine")},
		},
		{
			api.VerdictNoQuorum,
			"n2 leads in term 7: 1 of 3 voters answer, no lock can be granted: 1 more voter must answer.",
			[]any{"live-voters", protocol.Integer(1), "margin", protocol.Integer(-1)},
		},
		{
			api.VerdictNoQuorum,
			"n2 leads in term 7: 1 of 5 voters answer, no lock can be granted: 2 more voters must answer.",
			[]any{
				"voters", protocol.Integer(5), "quorum", protocol.Integer(3), "live-voters", protocol.Integer(1),
				"margin", protocol.Integer(0), "troubles", protocol.Strings("n1 is in quarantine"),
			},
		},
		{
			api.VerdictNoLeader, "No leader is known to n1, in term 7: 3 voters, of which 2 must answer.",
			[]any{"leader", protocol.Bulk("")},
		},
		{
			api.VerdictNotReady, "n1 does not take part yet: a state is missing.",
			[]any{"cluster-id", protocol.Bulk("c"), "waiting", protocol.Bulk("a state is missing")},
		},
		{
			api.VerdictNoCluster, "n1 belongs to no cluster yet: for n2.",
			[]any{"waiting", protocol.Bulk("for n2")},
		},
	} {
		said := []any{
			"node", protocol.Bulk("n1"), "leader", protocol.Bulk("n2"), "term", protocol.Integer(7),
			"voters", protocol.Integer(3), "live-voters", protocol.Integer(3), "quorum", protocol.Integer(2),
			"margin", protocol.Integer(1),
		}
		cluster, err := api.ClusterOf(protocol.Fields(append(said, c.more...)...)) // the last of a name counts
		require.NoError(t, err)
		require.Equal(t, []string{c.want, c.sentence}, []string{cluster.Verdict, cluster.Sentence})
	}
}

// TestStrangeReplies shows that a reply of another shape is an error, and does not panic.
func TestStrangeReplies(t *testing.T) {
	for _, v := range []protocol.Value{
		protocol.Integer(1), protocol.Bulk("x"), protocol.Array(protocol.Bulk("odd")),
		protocol.Err("no"),
	} {
		_, _, err := api.PageOfLocks(v, 0, 0)
		require.Error(t, err)
		_, _, err = api.PageOfLocks(protocol.Array(protocol.Bulk("0"), protocol.Array(v)), 0, 0)
		require.Error(t, err)
		_, _, err = api.LockOf(v, "k", 0, 0)
		require.Error(t, err)
		_, err = api.ClusterOf(v)
		require.Error(t, err)
		require.Nil(t, api.SessionOf(v))
		_, err = api.LossesOf(v)
		require.Error(t, err)
		_, err = api.LossesOf(protocol.Array(protocol.Bulk("0"), protocol.Array(v)))
		require.Error(t, err)
	}
}
