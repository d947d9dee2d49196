package fsm

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/rights"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// ofUser appends a command line of a user with rules.
func ofUser(body []byte, db int, rules string, words ...string) []byte {
	head := protocol.Head{DB: db, Conn: 7, User: "user", Rights: rules}
	return protocol.AppendRequest(body, head, words[0], protocoltest.Args(words[1:]))
}

// TestScriptsOfUsers: a script does only what its user's rules allow, whatever it declares, and the reply names what
// was refused.
func TestScriptsOfUsers(t *testing.T) {
	const (
		command = "The user executing the script can't run this command or subcommand"
		key     = "The user executing the script can't access at least one of the keys mentioned in the command arguments"
		channel = "The user executing the script can't publish to the channel mentioned in the command"
	)
	for _, tc := range []struct{ rules, script, reply, refused string }{
		{"~a +get", "return redis.call('get','a')", "here", ""},
		{"~a +get", "return redis.call('get','b')", key, "key b"},
		{"~a +get", "return redis.pcall('get','b').err", key, "key b"},
		{
			"~a +get", "redis.pcall('get','b') redis.pcall('set','a','b') return redis.call('get','a')", "here",
			"key b, command set",
		},
		{"%R~a +@all", "return redis.call('set','a','b')", key, "key a"},
		{"%R~a %W~* +@all", "redis.call('copy','a','c') return redis.call('get','c')", key, "key c"},
		{"~a +@all", "return redis.call('flushall')", "OK", ""},
		{"~a +@all -@dangerous", "return redis.call('flushall')", command, "command flushall"},
		{"~a +@all", "return redis.call('publish','x','y')", channel, "channel x"},
		{"&x +@all", "return redis.call('publish','x','y')", "0", ""},
		{"+select|1", "return redis.call('select','1')", "OK", ""},
		{"+select|1", "return redis.call('select','2')", command, "command select"},
		{"-@all (~a +get)", "return redis.call('get','a')", "here", ""},
		{"nonsense", "return redis.call('get','a')", command, "command get"},
		{"+later ~a +get", "return redis.call('get','a')", "here", ""}, // of a node with a later release
		{
			"~a +sort", "return redis.call('sort','a','by','*')",
			"BY option of SORT denied due to insufficient ACL permissions.", "",
		},
		{"~a +get", "return {redis.acl_check_cmd('get','a'), redis.acl_check_cmd('get','b')}", "[1 nil]", ""},
		{"~a +get", "return redis.call('nope')", "Unknown Redis command called from script", ""},
		{
			"~a +get", "for i=1,99 do redis.pcall('get','x'..i) end return 1", "1",
			"key x1, key x2, key x3, key x4, key x5, key x6, key x7, key x8, key x9, key x10",
		},
		{"~a +get", "return redis.pcall('get',string.rep('x',5000)).err", key, "key " + strings.Repeat("x", maxRefusalBytes)},
	} {
		d := newDriver(t)
		d.do("set", "a", "here")
		d.do("set", "b", "there")
		for _, words := range [][]string{{"eval", tc.script, "0"}, {"eval_ro", tc.script, "0"}} {
			if words[0] == "eval_ro" && (strings.Contains(tc.script, "flushall") || strings.Contains(tc.script, "copy")) {
				continue // the script itself is refused
			}
			body := ofUser(nil, 0, tc.rules, words...)
			replies := d.apply(body)
			reply, refusals := protocol.Unwrap(replies[0])
			require.Contains(t, line(reply), tc.reply, "%s: %s", tc.rules, tc.script)
			var told []string
			for _, r := range refusals {
				told = append(told, r.Reason+" "+r.Object)
			}
			require.Equal(t, tc.refused, strings.Join(told, ", "), tc.script)
			if words[0] == "eval_ro" {
				read, _, _, err := d.m.Read(string(body), 1, d.nowMillis, d.wallOffset, ReadLong)
				require.NoError(t, err)
				require.Equal(t, replies, read)
			}
		}
		d.do("set", "b", "there")
		require.Equal(t, `"there"`, line(d.eval("return redis.call('get','b')")))
	}
}

// TestRightsInTransactions: each command of a transaction is checked separately.
func TestRightsInTransactions(t *testing.T) {
	d := newDriver(t)
	queued := ofUser(nil, 0, "~a +get", "eval", "return redis.call('set','b','1')", "0")
	queued = request(queued, 0, "eval", "return redis.call('set','b','2')", "0")
	queued = ofUser(queued, 0, "~b +get", "eval", "return redis.call('get','b')", "0")
	reply := d.apply(protocol.AppendTransaction(nil, 0, nil, queued))[0]
	require.Len(t, reply.Elems, 3)
	first, refusals := protocol.Unwrap(reply.Elems[0])
	require.True(t, first.IsError())
	require.Equal(t, []protocol.Refusal{{Reason: "command", Object: "set"}}, refusals)
	require.Equal(t, "OK", line(reply.Elems[1]))
	require.Equal(t, `["2"]`, line(reply.Elems[2]))
}

// TestListsOfUsers: lists omit keys that the user may not read. Each page visits as many locks as without rules, and is
// charged for that.
func TestListsOfUsers(t *testing.T) {
	d := newDriver(t)
	var slot string
	for _, key := range []string{"{s}:a", "{s}:b"} {
		slot = strconv.Itoa(protocol.KeySlot(key))
		for i := range 5 {
			d.do("set", key+strconv.Itoa(i), "v", "NX", "PX", "60000")
			d.do("lock.acquire", key+"n"+strconv.Itoa(i), "o", "PX", "60000")
		}
		d.do("lock.acquire", key+"lost", "o", "PX", "60000")
		d.do("lock.break", key+"lost")
	}
	for rules, want := range map[string]string{
		"": "{s}:a {s}:b", "%R~*a* %R~*b*": "{s}:a {s}:b", "~{s}:a*": "{s}:a", "%R~{s}:b*": "{s}:b", "%W~*": "",
		"-@all (~{s}:a* +get)": "{s}:a", "&*": "", "nonsense": "",
	} {
		told := func(words ...string) (keys string, reply protocol.Value) {
			replies, _, _, err := d.m.Read(string(ofUser(nil, 0, rules, words...)), 1, d.nowMillis, d.wallOffset, ReadLong)
			require.NoError(t, err)
			text := line(replies[0])
			var has []string
			for _, key := range []string{"{s}:a", "{s}:b"} {
				if strings.Contains(text, key) {
					has = append(has, key)
				}
			}
			return strings.Join(has, " "), replies[0]
		}
		for _, words := range [][]string{
			{"lock.list", "COUNT", "1000"},
			{"lock.history"},
			{"cluster|getkeysinslot", slot, "1000"},
			{"lockranks", "COUNT", "1000"},
		} {
			got, _ := told(words...)
			require.Equal(t, want, got, "%s: %s", rules, words)
		}
		script := "local r = redis.call('lock.list', 'count', '1000') local s = '' " +
			"for _, row in ipairs(r[2]) do s = s .. row[2] end return s"
		reply := d.apply(ofUser(nil, 0, rules+" +@all", "eval", script, "0"))[0]
		if rules != "" && rules != "nonsense" {
			text := line(reply)
			require.Equal(t, strings.Contains(want, "{s}:a"), strings.Contains(text, "{s}:a"), "%s: %s", rules, text)
			require.Equal(t, strings.Contains(want, "{s}:b"), strings.Contains(text, "{s}:b"), "%s: %s", rules, text)
		}
		pages := 0
		for cursor := "0"; pages == 0 || cursor != "0"; pages++ {
			_, reply := told("lock.list", "CURSOR", cursor, "COUNT", "2")
			cursor = reply.Elems[0].Str
			require.LessOrEqual(t, len(reply.Elems[1].Elems), 2)
		}
		require.InDelta(t, 10, pages, 1, rules)
	}
	slow := "~" + strings.Repeat("*a", 30) + "b"
	d.do("lock.acquire", strings.Repeat("a", 1<<20), "o", "PX", "60000")
	reply, _ := protocol.Unwrap(d.apply(ofUser(nil, 0, slow+" +@all", "eval",
		"for i=1,1000 do redis.pcall('lock.list', 'match', 'aa*') end return 1", "0"))[0])
	require.Contains(t, line(reply), "budget")
	c := &d.m.call
	c.Work, c.Ceiling, c.OverBudget = 0, 1000, false
	require.False(t, c.check(func(b *rights.Budget) { b.Steps = -1 }), "what had no steps left shows nothing")
}

// TestSessionsOfUsers: every command treats another user's session as missing, also in transactions and scripts. Only
// the user that opened the session and users with all rights can use it.
func TestSessionsOfUsers(t *testing.T) {
	for _, tc := range []struct{ words, own, absent string }{
		{"session.keepalive ID", "2000", "nil"},
		{"session.attach ID", "1", "nil"},
		{"session.close ID", "1", "nil"},
		{"session.info ID", `"user" "billing"`, "nil"},
		{"lock.acquire l owner SESSION ID", "2", "(NOSESSION no such session)"},
		{"lock.acquire k owner SESSION ID WAIT 1", "nil", "(NOSESSION no such session)"},
		{"lock.acquireall 2 l m owner SESSION ID", "2", "(NOSESSION no such session)"},
		{"lock.list SESSION ID", `"holder"`, `["0" []]`},
		{"session.list", `"user" "billing"`, `["0" []]`},
	} {
		for _, by := range []string{"command", "exec", "eval"} {
			ask := func(user, id string) string {
				d := newDriver(t)
				as := func(user string, words ...string) string {
					head := protocol.Head{User: user, Conn: 1, Lock: words[0] == "eval" || d.m.call.writes(words[0])}
					if words[0] == "eval" {
						head.Lock = false
					}
					body := protocol.AppendRequest(nil, head, words[0], protocoltest.Args(words[1:]))
					if by == "exec" {
						return line(d.apply(protocol.AppendTransaction(nil, 0, nil, body))[0].Elems[0])
					}
					return line(d.apply(body)[0])
				}
				opened := as("billing", "session.open", "PX", "2000")
				require.Equal(t, "1", opened)
				require.Equal(t, "1", as("billing", "lock.acquire", "k", "holder", "SESSION", opened))
				words := strings.Fields(strings.ReplaceAll(tc.words, "ID", id))
				if by == "eval" {
					words = append([]string{"eval", "return redis.pcall(unpack(ARGV))", "0"}, words...)
				}
				return as(user, words...)
			}
			absent := ask("orders", "77")
			if by != "eval" || !strings.Contains(tc.words, "attach") {
				require.Contains(t, absent, tc.absent, "%s by %s", tc.words, by)
				for _, user := range []string{"billing", ""} {
					require.Contains(t, ask(user, "1"), tc.own, "%s of %q by %s", tc.words, user, by)
				}
			}
			require.Equal(t, absent, ask("orders", "1"), "%s by %s", tc.words, by)
		}
	}
}

// TestSessionsOfNobody: no other user can use the session of a user with all rights, and a user's list has only the
// user's sessions, however many others there are.
func TestSessionsOfNobody(t *testing.T) {
	d := newDriver(t)
	as := func(user string, words ...string) string {
		head := protocol.Head{User: user, Conn: 1, Lock: d.m.call.writes(words[0])}
		return line(d.apply(protocol.AppendRequest(nil, head, words[0], protocoltest.Args(words[1:])))[0])
	}
	require.Equal(t, "1", as("", "session.open", "PX", "2000"))
	require.Equal(t, "nil", as("orders", "session.info", "1"))
	require.Equal(t, "nil", as("orders", "session.close", "1"))
	for range 20 {
		as("billing", "session.open", "PX", "2000")
	}
	require.Equal(t, "22", as("orders", "session.open", "PX", "2000"))
	as("billing", "session.open", "PX", "2000")
	require.Equal(t, "24", as("orders", "session.open", "PX", "2000"))
	require.Contains(t, as("orders", "session.list", "COUNT", "1"), `["24" [{"id" 22 `)
	require.Contains(t, as("orders", "session.list", "CURSOR", "24", "COUNT", "1"), `["0" [{"id" 24 `)
	require.Equal(t, 24, strings.Count(as("", "session.list", "COUNT", "100"), `"id"`))
}

// TestJudgingIsCharged: a slow pattern or long rules exhaust a script's budget, and a script of a user with all rights
// costs no more than before.
func TestJudgingIsCharged(t *testing.T) {
	work := func(rules, script string) (int64, protocol.Value) {
		d := newDriver(t)
		reply, _ := protocol.Unwrap(d.apply(ofUser(nil, 0, rules, "eval", script, "0"))[0])
		return d.m.call.Work, reply
	}
	const once = "return redis.pcall('get','a')"
	free, _ := work("", once)
	short, _ := work("~a +get", once)
	require.Greater(t, short, free+judgeWork+workOfRules("~a +get"))
	refused, _ := work("~a", "for i=1,1000 do redis.pcall('get','a') end return 1")
	require.Greater(t, refused, int64(1000*judgeWork))
	slow, reply := work("~"+strings.Repeat("*a", 20)+"b +get",
		"local k = string.rep('a', 1000000) for i=1,1000 do redis.pcall('get',k) end return 1")
	require.True(t, reply.IsError())
	require.Contains(t, reply.Str, "budget")
	require.Less(t, slow, int64(2*testSteps*luaStepWork))
	asked, reply := work("~"+strings.Repeat("*a", 20)+"b +get",
		"local k = string.rep('a', 1000000) for i=1,1000 do redis.acl_check_cmd('get',k) end return 1")
	require.True(t, reply.IsError())
	require.Less(t, asked, int64(2*testSteps*luaStepWork))
	long, _ := work("~a +get"+strings.Repeat(" ~x", 2000), once)
	require.Greater(t, long, int64(2000*2000))
}

// TestRightsAreForgotten: a node's cache of rights is bounded, and eviction changes no verdict.
func TestRightsAreForgotten(t *testing.T) {
	var rc rightsCache
	most := 0
	for i := range 40_000 {
		r := rc.of(fmt.Sprintf("~k%d +get", i))
		require.Equal(t, fmt.Sprintf("~k%d resetchannels -@all +get", i), r.String())
		require.LessOrEqual(t, rc.bytes, maxCachedRights)
		most = max(most, len(rc.known))
	}
	require.Less(t, most, 20_000)
	require.Greater(t, most, 10_000)
	require.Same(t, rc.of("~again"), rc.of("~again"))
}

// TestSessionIDsAreDrawn: with a leader's secret the ids of sessions are equal on all nodes, also on a restored one,
// and differ for another secret. They are below 2^53, and exact in a script.
func TestSessionIDsAreDrawn(t *testing.T) {
	began := func(secret string) *driver {
		d, e := newDriver(t), protocol.NewEntry(nil, protocol.EntryVersion, 0, 0, protocol.EntryLimits{})
		e.AddSecret(secret)
		require.NoError(t, d.m.Apply(e.Bytes(), clientless{}))
		return d
	}
	a, b, other := began("secret"), began("secret"), began("another")
	open := func(d *driver) int64 { return d.do("session.open", "px", "1000").Num }
	seen := make(map[int64]bool)
	for range 20 {
		id := open(a)
		require.Equal(t, id, open(b))
		require.NotEqual(t, id, open(other))
		require.True(t, id > 1<<30 && id <= locks.MaxFence && !seen[id], "%d", id)
		seen[id] = true
		require.NoError(t, a.m.Restore(bytes.NewReader(dump(t, a.m))))
	}
	require.Equal(t, "1000", line(a.eval("return redis.call('session.keepalive', redis.call('session.open','px','1000'))")))
	require.EqualValues(t, 1, open(newDriver(t)), "without a secret")
}
