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

// manyHolds is a machine whose entries take so many steps for what ends, and n locks lock:0, lock:1… of session 1, or
// with a lease of 60 s.
func manyHolds(t *testing.T, n, steps int, leases bool) *driver {
	d := newDriver(t)
	d.native(1, 0, "session.open", "px", "600000")
	how := "session 1"
	if leases {
		how = "px 60000"
	}
	var body []byte
	for i := range n {
		words := strings.Fields(fmt.Sprintf("native 1 0 0 lock.acquire lock:%d me %s", i, how))
		if body = request(body, 0, words...); i%500 == 499 || i == n-1 {
			d.apply(body)
			body = nil
		}
	}
	d.m.budgets.endings = int64(steps) * locks.StepUnits * grantWork
	return d
}

// TestEndingsInSlices: what ends for many at once looks ended to every command, while entries work it off in slices and
// run their batches. A lock that somebody waits for does not wait for all that ended before.
func TestEndingsInSlices(t *testing.T) {
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
			d.do("set", "string", "v")
			d.native(1, 0, "lock.acquire", "watched", "me", "px", "60000")
			d.native(2, 7, "lock.acquire", "lock:77", "you", "px", "2000000", "wait", "0")
			end(d)
			if name == "a flush" {
				d.do("set", "string", "v")
			} else if name == "a session is closed" {
				d.do("lock.release", "watched", "me")
			}
			left := many - steps
			require.Greater(t, d.m.LockStats().Holds, left/2, "no entry does it all")
			d.seesNone(many)
			entries := 0
			for ; ; entries++ {
				due, ok := d.m.NextDue()
				if !ok || due > d.nowMillis {
					break
				}
				require.Less(t, entries, 2*many/steps, "nothing keeps the endings out")
				if entries == 2 {
					require.NotZero(t, d.m.st.Locks.Check(0, "lock:77", "you", d.nowMillis), "who waits does not wait for all")
				}
				if entries%8 == 3 {
					m := restored(t, d.m)
					m.budgets = d.m.budgets
					require.Equal(t, d.m.Hash(), m.Hash())
					d.m = m
				}
				before := d.m.LockStats().Holds
				require.Equal(t, protocol.OK, d.do("set", "string", fmt.Sprint(entries)), "nothing keeps the batches out")
				require.LessOrEqual(t, before-d.m.LockStats().Holds, steps+leastSteps)
				d.seesNone(many)
			}
			require.Greater(t, entries, many/steps/3)
			require.Equal(t, 1, d.m.LockStats().Holds)
		})
	}
}

// seesNone looks with every kind of command for locks of manyHolds. One has a new owner, or gets one, and some are
// taken.
func (d *driver) seesNone(many int) {
	d.t.Helper()
	taken := "lock:" + fmt.Sprint(many-1)
	body := request(nil, 0, "exists", taken, "lock:5")
	for _, line := range []string{
		"type lock:9", "pttl lock:9", "lock.info lock:5", "lock.check lock:5 me", "session.info 1", "randomkey",
		"keys lock:*",
		"scan 0 match lock:* count 10000", "lock.list match lock:8*", "dbsize", "set " + taken + " v", "get " +
			taken, "del " + taken,
		"lock.acquire " + taken + " other px 5", "lock.release " + taken + " other", "exists " + taken,
		"eval return{redis.call('exists','lock:5'),redis.call('dbsize')} 0",
	} {
		body = request(body, 0, strings.Fields(line)...)
	}
	var got []string
	for _, reply := range d.apply(body) {
		got = append(got, line(reply))
	}
	listed, n := `[]`, 1
	if d.m.st.Locks.Has(0, "lock:77") { // its flush may not be worked off
		listed, n = `["lock:77"]`, 2
	}
	require.Len(d.t, got, 18)
	require.Equal(d.t, []string{"0", "none", "-2", "nil", "nil"}, got[:5])
	if !strings.Contains(got[5], `"holds" 0`) {
		require.Equal(d.t, "nil", got[5])
	}
	require.Contains(d.t, []string{`"string"`, `"lock:77"`}, got[6])
	require.Contains(d.t, got[9], " []]")
	require.Equal(d.t, []string{listed, `["0" ` + listed + `]`}, got[7:9])
	require.Equal(d.t, []string{fmt.Sprint(n), "OK", `"v"`, "1"}, got[10:14])
	require.NotEqual(d.t, "nil", got[14], "a lock whose hold has ended is free")
	require.Equal(d.t, []string{"0", "0", fmt.Sprintf("[0 %d]", n)}, got[15:])
}

// TestKeysBehindTheEndings: while more has ended than an entry works off, a command that writes the key of an ended
// lock works that lock off first: the loss is told at once, and takes nothing from who writes.
func TestKeysBehindTheEndings(t *testing.T) {
	const many = 100
	d := newDriver(t)
	for i := range many {
		d.native(1, 0, "lock.acquire", fmt.Sprint("lock:", i), "me", "px", "1000")
	}
	d.m.SeedReads(protocol.Incarnation{Node: "n1", Epoch: 1})
	d.m.budgets.serving, d.m.budgets.endings = 0, 0
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

// TestBrokenCrowd: a lock with many holders that is broken, by whatever word, is no key any more, and its place may be
// taken, while its holds are worked off.
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
		d.m.budgets.endings = 0
		d.do(words...)
		require.Greater(t, d.m.LockStats().Holds, many/2)
		for request, want := range map[string]string{
			"exists k": "0", "dbsize": "0", "lock.info k": "nil", "del k": "0", "lock.break k": "0",
			"lock.acquire k me px 5": "nil",
			"lock.release k o299":    "nil", "lock.check k o299": "nil",
		} {
			require.Equal(t, want, line(d.doLine(request)), "%s: %s", words, request)
		}
		require.Equal(t, "OK", line(d.doLine("set k v")))
		for range 2 * many / leastSteps {
			d.advance(0)
		}
		require.Zero(t, d.m.LockStats().Holds)
		require.Equal(t, `"v"`, line(d.doLine("get k")))
	}
}

// TestDelaysEnd: LOCK.BREAK with DELAY changes a delay that runs, a flush ends delays, and none is longer than a day.
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

// TestLeavingChangesTheKey: each change of what LOCK.INFO shows gives the key another version, and tells caches.
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
