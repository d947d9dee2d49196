package fsm

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// renewed returns the driver's machine in a new cluster, with a client of another node.
func renewed(t *testing.T, d *driver, r Renewal) (*driver, Renewed) {
	t.Helper()
	m := restored(t, d.m)
	r.AtMillis = cmp.Or(r.AtMillis, d.nowMillis+d.wallOffset)
	done, err := m.Renew(r)
	require.NoError(t, err)
	m = restored(t, m) // as the new cluster reads it
	for _, db := range m.st.Databases {
		require.NoError(t, db.Verify())
	}
	return &driver{t: t, m: m, nowMillis: d.nowMillis, wallOffset: d.wallOffset, version: d.version}, done
}

func TestRenewalForgetsNodesAndClientsThatWait(t *testing.T) {
	d := furnished(t)
	d.apply(protocol.AppendRequest(nil, protocol.Head{Ticket: 7}, "blpop", [][]byte{[]byte("nothing"), []byte("0")}))
	require.Equal(t, 1, d.m.Survey(0).Waiters)
	before := d.m.Survey(0)
	after, done := renewed(t, d, Renewal{})
	s := after.m.Survey(0)
	require.Empty(t, s.Nodes)
	require.Zero(t, s.Waiters)
	require.Equal(t, 1, done.Waiters)
	require.Equal(t, len(before.Nodes), done.Nodes)
	require.Equal(t, before.Keys()-before.Locks.Locks, s.Keys(), "what is stored stays")
	require.Equal(t, before.Scripts, s.Scripts)
	after.do("set", "first", "1")
	require.Equal(t, "1", after.do("get", "first").Str, "a node that begins with the first batch is heard")
}

func TestRenewalLeasesOnlyGetLonger(t *testing.T) {
	d := newDriver(t)
	for i := range 300 {
		d.do("set", "lease"+strconv.Itoa(i), "x", "px", strconv.Itoa(1+i*1000))
	}
	d.do("hset", "hash", "f", "v")
	d.do("pexpire", "hash", "5")
	d.do("set", "ended", "x", "px", "1")
	d.do("set", "for good", "x")
	d.advance(2)
	after, done := renewed(t, d, Renewal{MinLeaseMillis: 60_000})
	require.Positive(t, done.Extended)
	require.Equal(t, int64(0), after.do("exists", "ended").Num)
	require.Equal(t, int64(-1), after.do("pttl", "for good").Num)
	require.Equal(t, int64(60_000), after.do("pttl", "hash").Num)
	for i := 1; i < 300; i++ {
		key := "lease" + strconv.Itoa(i)
		was, is := d.do("pttl", key).Num, after.do("pttl", key).Num
		require.Equal(t, max(was, 60_000), is, key)
	}
	after, done = renewed(t, d, Renewal{MinLeaseMillis: 60_000, DropLeases: true})
	require.Equal(t, 300, done.Dropped)
	require.Equal(t, 1, after.m.Survey(0).Keys(), "for good")
}

// TestRenewalOfManyKeys has more keys than a renewal keeps in memory at a time.
func TestRenewalOfManyKeys(t *testing.T) {
	ended := newDriver(t)
	ended.fill("k", sweepLimit+5, 1)
	ended.advance(2)
	none, done := renewed(t, ended, Renewal{MinLeaseMillis: 1000})
	require.Equal(t, 5, done.Ended, "no lease begins anew that has ended")
	require.Zero(t, none.m.Survey(0).Keys())

	d := newDriver(t)
	d.fill("k", 3*renewStep+7, 5)
	after, done := renewed(t, d, Renewal{MinLeaseMillis: 1000})
	require.Equal(t, 3*renewStep+7, done.Extended)
	require.Equal(t, 3*renewStep+7, after.m.Survey(0).Leases)
	after, done = renewed(t, d, Renewal{DropLeases: true})
	require.Equal(t, 3*renewStep+7, done.Dropped)
	require.Zero(t, after.m.Survey(0).Keys())
}

func TestRenewalRaises(t *testing.T) {
	d := newDriver(t)
	d.do("incr", "fence:a")
	d.do("set", "fence:b", "41", "px", "50000")
	d.do("set", "fence:text", "x")
	d.do("hset", "fence:hash", "f", "1")
	d.do("incr", "other")
	d.db = 3
	d.do("incr", "fence:third")
	d.db = 0
	after, done := renewed(t, d, Renewal{Raises: []Raise{{"fence:*", 1000}, {"*:b", 5000}, {"none", 1}}})
	require.Equal(t, []int{3, 1, 0}, done.Raised)
	require.Equal(t, []int{2, 0, 0}, done.Passed)
	require.Equal(t, "1001", after.do("get", "fence:a").Str)
	require.Equal(t, "5041", after.do("get", "fence:b").Str, "the largest counts, and once")
	require.Equal(t, int64(50_000), after.do("pttl", "fence:b").Num, "the deadline stays")
	require.Equal(t, "1", after.do("get", "other").Str)
	require.Equal(t, int64(1002), after.do("incr", "fence:a").Num)
	after.db = 3
	require.Equal(t, "1001", after.do("get", "fence:third").Str)

	d.do("set", "fence:a", strconv.FormatInt(math.MaxInt64-5, 10))
	_, err := restored(t, d.m).Renew(Renewal{AtMillis: d.nowMillis + d.wallOffset, Raises: []Raise{{"fence:*", 6}}})
	require.ErrorIs(t, err, errRaised)
	_, done = renewed(t, d, Renewal{Raises: []Raise{{"fence:*", 5}}})
	require.Equal(t, 3, done.Raised[0])
}

func TestRenewalOfLocks(t *testing.T) {
	d := newDriver(t)
	fence := d.do("lock.acquire", "held", "me", "PX", "30000").Num
	session := d.do("session.open", "PX", "9000").Num
	d.do("lock.acquire", "of session", "me", "SESSION", fmt.Sprint(session))
	d.native(1, 7, "lock.acquire", "held", "other", "PX", "1000", "WAIT", "0")
	d.advance(20_000)
	before := d.m.LockStats()
	require.Equal(t, 1, before.Waiting)

	after, done := renewed(t, d, Renewal{})
	require.Equal(t, before.Holds, done.Locks.Holds)
	require.Zero(t, done.Kept.Locks)
	require.Equal(t, protocol.KindNull, after.do("lock.check", "held", "me").Kind)
	require.Zero(t, after.do("dbsize").Num, "no key stands for a lock")
	next := after.do("lock.acquire", "held", "another", "PX", "1000").Num
	require.Greater(t, next, fence+FenceJump)

	after, done = renewed(t, d, Renewal{KeepLocks: true})
	require.Zero(t, done.Kept.Waiting)
	require.Equal(t, fence, after.do("lock.check", "held", "me").Num)
	require.Equal(t, int64(30_000), after.do("pttl", "held").Num, "the whole lease")
	require.Greater(t, after.do("session.open", "PX", "9000").Num, session+FenceJump)
	require.Greater(t, after.do("lock.acquire", "free", "me", "PX", "1000").Num, fence+FenceJump)
}

// TestRenewedTwice: of two clusters that begin with one state, the later issues larger fences than the earlier can have
// issued, however soon it begins.
func TestRenewedTwice(t *testing.T) {
	d := newDriver(t)
	d.do("lock.acquire", "held", "me", "PX", "30000")
	d.do("set", "fence", "7")
	d.do("set", "other", "7")
	newest := d.nowMillis + d.wallOffset
	const year = 365 * 24 * 3600 * 1000
	var fence, session, raised int64
	for _, after := range []int64{0, 1, 1000, 24 * 3600 * 1000, year, 50 * year} {
		c, done := renewed(t, d, Renewal{AtMillis: newest + after, Raises: []Raise{{"fence", 0}, {"other", 5}}})
		first := c.do("lock.acquire", "k", "me", "PX", "1").Num
		require.GreaterOrEqual(t, first, fence+fencesPerMilli, "after %d ms", after)
		opened := c.do("session.open", "PX", "1000").Num
		require.Greater(t, opened, session)
		number, _ := protocol.ParseInt(c.do("get", "fence").Str)
		require.Equal(t, 7+done.Jump, number)
		require.GreaterOrEqual(t, number, raised+fencesPerMilli)
		require.Equal(t, "12", c.do("get", "other").Str)
		require.Less(t, first, int64(locks.MaxFence)/2)
		fence, session, raised = first, opened, number
	}
	_, err := restored(t, d.m).Renew(Renewal{AtMillis: newest - 1})
	require.ErrorIs(t, err, ErrEarlier)
	above := fence + 1<<40
	c, done := renewed(t, d, Renewal{AtMillis: newest - 1, FencesAbove: uint64(above)})
	require.Equal(t, int64(FenceJump), done.Jump)
	require.Equal(t, above+1, c.do("lock.acquire", "k", "me", "PX", "1").Num)
	require.Equal(t, above+1, c.do("session.open", "PX", "1000").Num)
	c, _ = renewed(t, d, Renewal{AtMillis: newest + year, FencesAbove: 1})
	require.Greater(t, c.do("lock.acquire", "k", "me", "PX", "1").Num, int64(year), "the larger counts")
}

func TestSurvey(t *testing.T) {
	d := newDriver(t)
	d.do("set", "lock", "token", "px", "30000")
	d.do("hset", "hash", "f", "v")
	d.do("incr", "my:Fence")
	d.do("set", "stock", "17")
	d.do("set", "negative", "-4")
	d.do("set", "zero", "0")
	d.do("set", "padded", "017")
	d.do("set", "leased number", "17", "px", "1000")
	d.do("set", "ended number", "17", "px", "1")
	d.do("lock.acquire", "native", "me", "PX", "7000")
	d.db = 2
	d.do("set", "token:x", "5")
	d.advance(2)
	s := d.m.Survey(10)
	require.Equal(t, map[string]int{"string": 7, "hash": 1, "lock": 1}, s.Kinds[0])
	require.Equal(t, map[string]int{"string": 1}, s.Kinds[2])
	require.Equal(t, 10, s.Keys())
	require.Equal(t, 2, s.Leases)
	require.Equal(t, int64(29_998), s.LongestMillis)
	require.Equal(t, int64(7000), s.LongestHoldMillis)
	require.Equal(t, 1, s.Locks.Holds)
	require.Equal(t, uint64(1), s.Fences)
	require.Equal(t, []string{"n1"}, s.Nodes)
	require.Equal(t, 3, s.FenceCount)
	require.Equal(t, []FenceKey{
		{0, "my:Fence", 1, true}, {2, "token:x", 5, true}, {0, "stock", 17, false},
	}, s.FenceKeys)
	require.Len(t, d.m.Survey(1).FenceKeys, 1)
	require.Equal(t, "my:Fence", d.m.Survey(1).FenceKeys[0].Key)
}

// TestRenewalKeepsAccounts: a key counts for the user who created it, also if its number is raised.
func TestRenewalKeepsAccounts(t *testing.T) {
	d := newDriver(t)
	alice := d.member("alice", 9, 0, 0)
	alice.do("set fence 7")
	alice.do("set lease x px 1000")
	alice.do("set name x")
	after, done := renewed(t, d, Renewal{MinLeaseMillis: 60_000, Raises: []Raise{{"fence", 5}}})
	require.Equal(t, []int{1, 1}, []int{done.Raised[0], done.Extended})
	requireAccounts(t, after, "alice 3+0")
	require.Equal(t, "12", after.do("get", "fence").Str)
}
