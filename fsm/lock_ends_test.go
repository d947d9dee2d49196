package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// manyHolds returns a machine with a budget of steps lock changes per entry, and n locks lock:0, lock:1… of session 1,
// or with leases of 60 s.
func manyHolds(t *testing.T, n, steps int, leases bool) *driver {
	d := newDriver(t)
	d.native(1, 0, "session.open", "px", "600000")
	how := "session 1"
	if leases {
		how = "px 60000"
	}
	var body []byte
	for i := range n {
		words := strings.Fields(fmt.Sprintf("lock-command 1 0 0 lock.acquire lock:%d me %s", i, how))
		if body = request(body, 0, words...); i%500 == 499 || i == n-1 {
			d.apply(body)
			body = nil
		}
	}
	d.m.budgets.lockChanges = int64(steps) * locks.ChangeUnits * grantWork
	return d
}

// TestEndsLeaveRoom: however many leases have ended, half of an entry's lock changes are left for its batches.
func TestEndsLeaveRoom(t *testing.T) {
	const each = locks.ChangeUnits * grantWork
	steps := int(defaultBudgets().lockChanges / each)
	d := manyHolds(t, 2*steps, steps, true)
	d.advance(60_001)
	ended := 2*steps - d.m.LockStats().Holds
	require.InDelta(t, sweepWork/each, ended, 5)
	require.InDelta(t, steps/2, d.m.call.lockWorkLeft/each, 5)
}

// TestManyEndInSteps: many simultaneous ends run in steps, between which entries run their batches. A command that
// names a key sees it as ended, and a waiter for a lock does not wait for the other locks. A session ends as a whole.
func TestManyEndInSteps(t *testing.T) {
	const many, steps = 3000, 100
	ends := map[string]func(d *driver){
		"a session is closed": func(d *driver) { require.Equal(t, "3000", line(d.do("session.close", "1"))) },
		"a session is over":   func(d *driver) { d.advance(600_001) },
		"leases are over":     func(d *driver) { d.advance(60_001) },
		"a flush":             func(d *driver) { require.Equal(t, protocol.OK, d.do("flushall")) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			d := manyHolds(t, many, steps, name == "leases are over")
			d.native(2, 7, "lock.acquire", "lock:77", "you", "px", "2000000", "wait", "0")
			end(d)
			d.advance(0)
			require.NotZero(t, d.m.st.Locks.FenceOf(0, "lock:77", "you", d.nowMillis), "who waits does not wait for all")
			if strings.HasPrefix(name, "a session") {
				require.Equal(t, 1, d.m.LockStats().Holds)
			} else {
				require.Greater(t, d.m.LockStats().Holds, many-3*steps, "no entry does it all")
			}
			d.seesNone(many)
			entries := 0
			for ; ; entries++ {
				due, ok := d.m.NextDue()
				if !ok || due > d.nowMillis {
					break
				}
				require.Less(t, entries, 2*many/steps, "nothing keeps the ends out")
				if entries%8 == 3 {
					m := restored(t, d.m)
					m.budgets = d.m.budgets
					require.Equal(t, d.m.Hash(), m.Hash())
					d.m = m
				}
				before := d.m.LockStats().Holds
				require.Equal(t, protocol.OK, d.do("set", "string", fmt.Sprint(entries)), "nothing keeps the batches out")
				require.LessOrEqual(t, before-d.m.LockStats().Holds, steps+minChanges)
				d.seesNone(many)
			}
			require.Equal(t, 1, d.m.LockStats().Holds)
		})
	}
}

// seesNone reads locks of manyHolds with every kind of command that names a key. Some locks are acquired and released.
func (d *driver) seesNone(many int) {
	d.t.Helper()
	taken := "lock:" + fmt.Sprint(many-1)
	for _, row := range [][2]string{
		{"exists lock:5 lock:6", "0"},
		{"type lock:9", "none"},
		{"pttl lock:10", "-2"},
		{"lock.info lock:5", "nil"},
		{"lock.check lock:5 me", "nil"},
		{"lock.release lock:11 me", "nil"},
		{"lock.renew lock:12 me px 5", "nil"},
		{"lock.break lock:13", "0"},
		{"del lock:14", "0"},
		{"object encoding lock:15", "nil"},
		{"memory usage lock:16", "nil"},
		{"get lock:17", "nil"},
		{"set " + taken + " v", "OK"},
		{"getdel " + taken, `"v"`},
		{"eval return{redis.call('exists','lock:18'),redis.call('get','lock:19')} 0", "[0 nil]"},
		{"session.info 1", "nil"},
	} {
		if got := line(d.doLine(row[0])); row[0] != "session.info 1" || !strings.Contains(got, `"holds"`) {
			require.Equal(d.t, row[1], got, row[0])
		}
	}
	require.NotEqual(d.t, "nil", line(d.doLine("lock.acquire "+taken+" other px 5")), "the lock is free")
	require.Equal(d.t, "0", line(d.doLine("lock.release "+taken+" other")))
}

// TestKeysBehindTheEndings: a command that writes the key of an ended lock removes that lock first, even if an entry
// cannot remove all ended locks: the loss is reported at once, and does not hit the new value.
func TestKeysBehindTheEndings(t *testing.T) {
	const many = 100
	d := newDriver(t)
	for i := range many {
		d.native(1, 0, "lock.acquire", fmt.Sprint("lock:", i), "me", "px", "1000")
	}
	d.m.SeedReads(protocol.Incarnation{Node: "n1", Epoch: 1})
	d.m.budgets.serving, d.m.budgets.lockChanges = 0, 0
	d.nowMillis += 1001
	last := fmt.Sprint("lock:", many-1)
	told := d.record(pipeline("set " + last + " v"))
	require.Equal(t, []protocol.Value{protocol.OK}, told.replies)
	require.Greater(t, d.m.LockStats().Holds, many/2)
	require.Equal(t, last, told.events[len(told.events)-1].Key, "the loss is told")
	for d.m.LockStats().Locks > 0 {
		d.advance(1)
	}
	require.Equal(t, `"v"`, line(d.do("get", last)))
	require.NoError(t, d.m.st.verify())
}

// TestBrokenCrowd: a lock with the maximum of holders that is broken, by any command, is gone, and its key can be
// reused.
func TestBrokenCrowd(t *testing.T) {
	const many = 300
	for _, words := range [][]string{
		{"del", "k"},
		{"unlink", "k"},
		{"lock.break", "k"},
		{"lock.break", "k", "delay", "0"},
		{"eval", "return redis.call('del','k')", "0"},
		{"exec", "", string(request(nil, 0, "lock.break", "k"))},
	} {
		d := newDriver(t)
		for i := range many {
			d.native(1, 0, "lock.acquire", "k", fmt.Sprint("o", i), "px", "60000", "shared")
		}
		d.m.budgets.lockChanges = 0
		d.do(words...)
		require.Zero(t, d.m.LockStats().Holds)
		for request, want := range map[string]string{
			"exists k": "0", "dbsize": "0", "lock.info k": "nil", "del k": "0", "lock.break k": "0",
			"lock.release k o299": "nil", "lock.check k o299": "nil",
		} {
			require.Equal(t, want, line(d.doLine(request)), "%s: %s", words, request)
		}
		require.Equal(t, "OK", line(d.doLine("set k v")))
		require.Equal(t, `"v"`, line(d.doLine("get k")))
	}
}

// TestDelOfManyHolders: DEL breaks locks with a limited number of holders in all.
func TestDelOfManyHolders(t *testing.T) {
	d := newDriver(t)
	keys := []string{"del"}
	for i := range maxBroken/locks.MaxHolders + 1 {
		key := fmt.Sprint("k", i)
		keys = append(keys, key)
		var batch []byte
		for owner := range locks.MaxHolders {
			acquire := fmt.Sprintf("lock-command 1 0 0 lock.acquire %s o%d px 60000 shared", key, owner)
			batch = request(batch, 0, strings.Fields(acquire)...)
			if owner%64 == 63 { // with invariants the whole state is verified after each entry
				require.Len(t, d.apply(batch), 64)
				batch = batch[:0]
			}
		}
	}
	require.Equal(t, errManyHolders, d.do(keys...))
	require.Equal(t, "1", line(d.do(keys[:2]...)))
	require.Equal(t, locks.MaxHolders*2, d.m.LockStats().Holds)
}

// TestDelaysEnd: LOCK.BREAK with DELAY changes a running delay, a flush ends delays, and no delay exceeds a day.
func TestDelaysEnd(t *testing.T) {
	delayed := func(millis string) *driver {
		d := newDriver(t)
		require.Equal(t, "1", line(d.do("lock.acquire", "k", "me", "px", "10", "delay", millis)))
		d.advance(11)
		require.Equal(t, "nil", line(d.doLine("lock.acquire k you px 10")))
		return d
	}
	free := func(d *driver) bool { return line(d.doLine("lock.acquire k you px 10")) != "nil" }
	const ever = "9007199254740991"
	require.Equal(t, "(ERR DELAY can't be greater than 86400000, which is a day)",
		line(newDriver(t).do("lock.acquire", "k", "me", "px", "10", "delay", "86400001")))
	require.Equal(t, "(ERR DELAY can't be greater than 86400000, which is a day)",
		line(newDriver(t).do("lock.break", "k", "delay", ever)))
	const longest = "86400000"
	for _, end := range []string{
		"lock.break k delay 0", "flushall", "flushdb",
		"eval return{redis.call('lock.break','k','delay','0')} 0",
	} {
		d := delayed(longest)
		d.doLine("lock.break k")
		d.doLine("del k")
		require.False(t, free(d), "a break alone ends no delay")
		require.NotContains(t, line(d.doLine(end)), "ERR")
		require.True(t, free(d), end)
	}
	d := delayed("5000")
	watched := line(d.doLine("lock.info k"))
	version := d.m.st.Versions
	require.Equal(t, "0", line(d.doLine("lock.break k delay 100")))
	require.Greater(t, d.m.st.Versions, version, "for WATCH the key has changed")
	require.NotEqual(t, watched, line(d.doLine("lock.info k")))
	d.advance(100)
	require.False(t, free(d))
	d.advance(1)
	require.True(t, free(d))
}

// TestLeavingChangesTheKey: each change in LOCK.INFO's reply gives the key a new version, and invalidates caches.
func TestLeavingChangesTheKey(t *testing.T) {
	leaves := map[string]func(d *driver){
		"cancel":  func(d *driver) { d.native(1, 0, "lock.cancel", "k", "you") },
		"unblock": func(d *driver) { d.do("unblock", "gone", "1") },
		"session": func(d *driver) { d.do("session.close", "1") },
		"grace":   func(d *driver) { d.advance(501); d.advance(501) },
		"again": func(d *driver) {
			d.native(1, 2, "lock.acquire", "k", "you", "session", "1", "wait", "900", "note", "n")
		},
	}
	for name, leave := range leaves {
		d := newDriver(t)
		d.native(1, 0, "session.open", "px", "600000")
		d.native(1, 0, "lock.acquire", "k", "me", "px", "600000")
		d.native(1, 1, "lock.acquire", "k", "you", "session", "1", "wait", "500")
		if name == "grace" {
			d.advance(501)
		}
		d.m.Listen(event.InChanges)
		before := d.m.st.Databases[0].Find(d.m.call.HashOf("k"), "k").Version()
		leave(d)
		after := d.m.st.Databases[0].Find(d.m.call.HashOf("k"), "k").Version()
		require.Greater(t, after, before, name)
	}
}
