package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// member is a client of a user with a quota.
type member struct {
	*driver
	quota protocol.Quota
}

// member returns another client of the driver's node.
func (d *driver) member(user string, keys, bytes, waiters uint64) *member {
	return &member{d, protocol.Quota{User: user, Keys: keys, Bytes: bytes, Waiters: waiters}}
}

// sends applies a request with the user's quota.
func (m *member) sends(request []byte) string {
	m.t.Helper()
	replies := m.apply(append(protocol.AppendQuota(nil, &m.quota), request...))
	require.Len(m.t, replies, 1)
	require.NoError(m.t, m.m.st.verify())
	return line(replies[0])
}

// do applies a command line.
func (m *member) do(text string) string {
	m.t.Helper()
	return m.sends(request(nil, m.db, strings.Fields(text)...))
}

// requireAccounts compares the numbers of keys and waiters of each user.
func requireAccounts(t *testing.T, d *driver, want string) {
	t.Helper()
	var got []string
	for _, a := range d.m.Stats().Accounts {
		require.Equal(t, a.Keys > 0, a.Bytes > 0)
		got = append(got, fmt.Sprintf("%s %d+%d", a.User, a.Keys, a.Waiters))
	}
	require.Equal(t, want, strings.Join(got, ", "))
	require.Equal(t, d.m.Stats().Accounts, restored(t, d.m).Stats().Accounts)
}

const (
	allKeys    = "QUOTA command not allowed: user 'alice' has all of its 3 keys"
	allBytes   = "QUOTA command not allowed: user 'alice' has all of its 400 bytes"
	allWaiters = "QUOTA command not allowed: user 'alice' has all of its 1 waiters"
)

// TestQuotaOfKeys: a command that may create more keys than the user's quota allows is refused and changes nothing;
// other commands run.
func TestQuotaOfKeys(t *testing.T) {
	for _, refused := range []string{
		"set d 1", "mset d 1 e 1", "mset a 1 d 1", "incr d", "lpush d x", "hset d f v", "sadd d x", "zadd d 1 x",
		"smove s d x", "copy a d", "copy a a db 1",
		"sort s store d", "lock.acquire d me px 1000", "fence.pass d 7", "set d 1 px 1000 nx", "setrange d 10 x",
		"eval redis.call('set','d',1) 0", "lmove l d left left", "session.open px 1000", "session.open px 1000 name d",
	} {
		d := newDriver(t)
		alice := d.member("alice", 3, 0, 0)
		alice.do("rpush l x y")
		alice.do("sadd s x y")
		alice.do("set a 1")
		versions := d.m.st.Versions
		require.Contains(t, alice.do(refused), allKeys, refused)
		require.Equal(t, versions, d.m.st.Versions, refused)
		requireAccounts(t, d, "alice 3+0")
		for _, allowed := range []string{
			"set a 2", "incr a", "rpush l z", "mset a 1 a 2", "del a", "set d 1 px 10",
			"rename d e", "get e",
		} {
			require.NotContains(t, alice.do(allowed), "QUOTA", allowed)
		}
		require.Contains(t, alice.do("set f 1"), allKeys)
		bob := d.member("bob", 3, 0, 0)
		require.Equal(t, "OK", bob.do("set f 1"))
		require.Equal(t, "OK", line(d.do("set", "g", "1")), "a user without a quota")
		requireAccounts(t, d, "alice 3+0, bob 1+0")
	}
}

// TestQuotaOfBytes: a user without bytes left may not make the state grow. The last command may exceed the quota.
func TestQuotaOfBytes(t *testing.T) {
	d := newDriver(t)
	alice := d.member("alice", 0, 400, 0)
	require.Equal(t, "OK", alice.do("set a "+strings.Repeat("x", 150)))
	require.Equal(t, "OK", alice.do("set b "+strings.Repeat("x", 150)))
	for _, refused := range []string{"set a 1", "append a x", "sadd c x", "session.open px 1000"} {
		require.Equal(t, "("+allBytes+")", alice.do(refused))
	}
	require.Equal(t, "1", alice.do("expire a 100"))
	require.Equal(t, "1", alice.do("del a"))
	require.Equal(t, "OK", alice.do("set c 1"))
}

// TestAccounts: a key counts for the user who created it, until it is deleted or expires.
func TestAccounts(t *testing.T) {
	for _, tc := range []struct{ name, lines, want string }{
		{"created", "alice set a 1|bob set b 1", "alice 1+0, bob 1+0"},
		{"changed by others", "alice set a 1|bob append a xxx|bob set a 2|. incr a", "alice 1+0"},
		{"created by nobody", ". set a 1|alice set a 2|alice append a x|alice expire a 100", ""},
		{"deleted", "alice set a 1|. del a", ""},
		{"emptied", "alice sadd a x|. srem a x", ""},
		{"ended", "alice set a 1 px 5|wait 10", ""},
		{"ended at once", "alice set a 1|alice set a 1 pxat 1", ""},
		{"taken over when it has ended", "alice set a 1 px 5|wait 10|bob set a 1", "bob 1+0"},
		{"deadline", "alice set a 1|. expire a 100|. persist a", "alice 1+0"},
		{"renamed", "alice set a 1|bob rename a b", "alice 1+0"},
		{"renamed over", "alice set a 1|bob set b 1|alice rename a b", "alice 1+0"},
		{"collection renamed over", "alice sadd a 1|bob set b 1|. rename a b", "alice 1+0"},
		{"copied", "alice set a 1|bob copy a b", "alice 1+0, bob 1+0"},
		{"copied over", "alice set a 1|bob set b 1|alice copy a b replace", "alice 1+0, bob 1+0"},
		{"moved", "alice set a 1|bob move a 1", "alice 1+0"},
		{"swapped", "alice set a 1|. swapdb 0 3", "alice 1+0"},
		{"flushed", "alice set a 1|bob set b 1|. flushdb", ""},
		{"flushed all", "alice set a 1|. swapdb 0 3|. flushall", ""},
		{"lock", "alice lock.acquire a me px 1000|. lock.renew a me px 2000", "alice 1+0"},
		{"lock released", "alice lock.acquire a me px 1000|. lock.release a me", ""},
		{"lock ended", "alice lock.acquire a me px 10|wait 11", ""},
		{"locks", "alice lock.acquireall 2 a b me px 1000", "alice 2+0"},
		{"session", "alice session.open px 1000|bob session.open px 1000|. session.keepalive 1", "alice 1+0, bob 1+0"},
		{"session of nobody", ". session.open px 1000|alice session.keepalive 1", ""},
		{"session closed", "alice session.open px 1000|. session.close 1", ""},
		{"session ended", "alice session.open px 10|wait 11", ""},
		{"lock of a session", "alice session.open px 1000|bob lock.acquire a me session 1", "alice 1+0, bob 1+0"},
		{"undone session", "alice session.open px 1000|alice eval redis.call('session.open','px',1000)for\ti=1,1e9\tdo\tend 0", "alice 1+0"},
		{"refused session", "alice session.open px 0", ""},
		{"fence", "alice fence.pass a 7|bob fence.pass a 8", "alice 1+0"},
		{"script", "alice eval redis.call('set','a',1) 0", "alice 1+0"},
		{"undone script", "alice eval redis.call('set','a',1)for\ti=1,1e9\tdo\tend 0", ""},
		{"script over the quota", "alice eval redis.call('set','a',1)redis.call('mset','b',1,'c',1,'d',1) 0", ""},
		{"a value by another's script", "alice set a 1|bob eval redis.call('del','a')redis.call('set','a',1) 0", "bob 1+0"},
		{"read", "alice get a", ""},
		{"refused", "alice set a 1 xx", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDriver(t)
			users := map[string]*member{"alice": d.member("alice", 3, 0, 0), "bob": d.member("bob", 3, 0, 0)}
			for _, text := range strings.Split(tc.lines, "|") {
				who, what, _ := strings.Cut(text, " ")
				var words []string
				for _, word := range strings.Split(what, " ") {
					words = append(words, strings.ReplaceAll(word, "\t", " "))
				}
				switch {
				case who == "wait":
					d.advance(11)
				case users[who] != nil:
					users[who].sends(request(nil, 0, words...))
				default:
					d.do(words...)
				}
				require.NoError(t, d.m.st.verify())
			}
			requireAccounts(t, d, tc.want)
		})
	}
}

// TestAccountsOfTransactions: the requests of a transaction count for its user.
func TestAccountsOfTransactions(t *testing.T) {
	d := newDriver(t)
	alice := d.member("alice", 3, 0, 0)
	var queued []byte
	for _, key := range []string{"a", "b", "c", "d", "a"} {
		queued = request(queued, 0, "set", key, "1")
	}
	require.Equal(t, "[OK OK OK ("+allKeys+") OK]", alice.sends(protocol.AppendTransaction(nil, 0, nil, queued)))
	requireAccounts(t, d, "alice 3+0")
}

// TestQuotaOfWaiters: a user's waiters for keys and for locks count together.
func TestQuotaOfWaiters(t *testing.T) {
	block := func(ticket uint64, words ...string) []byte {
		return protocol.AppendRequest(nil, protocol.Head{Ticket: ticket}, words[0], protocoltest.Args(words[1:]))
	}
	lock := func(ticket uint64, owner string) []byte {
		return protocol.AppendRequest(nil, protocol.Head{Lock: true, Conn: 1, Ticket: ticket}, "lock.acquire",
			[][]byte{[]byte("lock"), []byte(owner), []byte("px"), []byte("1000"), []byte("wait"), []byte("0")})
	}
	d := newDriver(t)
	alice, bob := d.member("alice", 0, 0, 1), d.member("bob", 0, 0, 2)
	d.do("lock.acquire", "lock", "other", "px", "5000")
	require.Equal(t, "PARKED", alice.sends(block(1, "blpop", "list", "0")))
	requireAccounts(t, d, "alice 0+1")
	require.Equal(t, "("+allWaiters+")", alice.sends(block(2, "blpop", "list", "0")))
	require.Equal(t, "("+allWaiters+")", alice.sends(lock(3, "me")))
	require.Equal(t, "PARKED", bob.sends(block(4, "blmove", "list", "to", "left", "left", "0")))
	require.Equal(t, "PARKED", bob.sends(lock(5, "bob")))
	requireAccounts(t, d, "alice 0+1, bob 0+2")
	d.do("rpush", "list", "x", "y")
	requireAccounts(t, d, "bob 1+1")
	require.Equal(t, "PARKED", alice.sends(lock(6, "me")), "who asks again keeps the place")
	require.Equal(t, "PARKED", alice.sends(lock(7, "me")))
	require.Equal(t, "("+allWaiters+")", alice.sends(lock(8, "you")))
	requireAccounts(t, d, "alice 0+1, bob 1+1")
	d.do("unblock", "gone", "7", "5")
	requireAccounts(t, d, "bob 1+0")
}

// TestServedWaitersCloseTheirAccount: a key that a waiter creates counts for the waiter's user. A key of the next
// request in the batch counts for no user.
func TestServedWaitersCloseTheirAccount(t *testing.T) {
	d := newDriver(t)
	for room, ticket := range map[int64]string{0: "1", defaultBudgets().serving: "2"} {
		require.Equal(t, "PARKED", d.member("alice", 9, 0, 0).do("wait-for-key "+ticket+" blmove list to left left 0"))
		d.m.budgets.serving = room
		d.apply(pipeline("rpush list x", "set other"+ticket+" x"))
		d.m.budgets.serving = defaultBudgets().serving
		d.apply(pipeline("set next" + ticket + " x")) // after the waiter, if there was no room
		requireAccounts(t, d, "alice 1+0")
	}
}

// TestAccountsAreFew: the accounts of users without keys and waiters are reused.
func TestAccountsAreFew(t *testing.T) {
	d := newDriver(t)
	for i := range keyspace.MaxAccount {
		user := d.member(fmt.Sprint("user", i), 1, 0, 0)
		user.apply(append(protocol.AppendQuota(nil, &user.quota), request(nil, 0, "set", fmt.Sprint("k", i), "v")...))
	}
	last := d.member("last", 5, 0, 0)
	require.Equal(t, "("+protocol.ErrQuotaUsers.Error()+")", last.do("set a 1"))
	require.Equal(t, "1", last.do("del k7"))
	require.Equal(t, "OK", last.do("set a 1"))
	require.Equal(t, "1", last.do("incr b"))
	require.Equal(t, 8, d.m.st.accounts.numbers["last"])
	require.NotContains(t, d.m.st.accounts.numbers, "user7")
	require.Len(t, d.m.Stats().Accounts, keyspace.MaxAccount)
	again := d.member("user7", 1, 0, 0)
	require.Equal(t, "("+protocol.ErrQuotaUsers.Error()+")", again.do("set a 1"))
}

// TestNoEmptyAccounts: a request that leaves its user nothing opens no account.
func TestNoEmptyAccounts(t *testing.T) {
	d := newDriver(t)
	d.member("alice", 1, 0, 0).do("set a 1 xx")
	require.Empty(t, d.m.st.accounts.users)
	d.member("bob", 1, 0, 0).do("set a 1")
	require.Equal(t, []string{"bob"}, d.m.st.accounts.users)
	require.Equal(t, map[string]int{"bob": 1}, d.m.st.accounts.numbers)
}
