package fsm

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// fill sets n keys with a TTL of millis, in batches.
func (d *driver) fill(prefix string, n int, millis int) {
	d.t.Helper()
	var body []byte
	for i := range n {
		body = protocoltest.AppendRequest(body, d.db, "set", prefix+strconv.Itoa(i), "v", "px", strconv.Itoa(millis))
		if len(body) > 1<<20 || i == n-1 {
			d.apply(body)
			body = body[:0]
		}
	}
}

// TestStorm: more keys end at once than one entry sweeps. All are absent at once. The ones still stored are the same on
// a node that was restored meanwhile.
func TestStorm(t *testing.T) {
	const n = 3*sweepLimit + 17
	d := newDriver(t)
	d.fill("k", n, 100)
	d.do("set", "stays", "v")
	require.Equal(t, int64(n+1), d.do("dbsize").Num)
	d.nowMillis += 101
	d.advance(0)
	left := d.m.st.Databases[0].Stored()
	require.Equal(t, n+1-sweepLimit, left)

	fresh := restored(t, d.m)
	require.Equal(t, left, fresh.st.Databases[0].Stored())
	require.Equal(t, dump(t, d.m), dump(t, fresh))
	require.Equal(t, 1, d.m.Stats().Keys[0])
	require.Zero(t, d.m.Stats().Expires[0])

	one := &driver{t: t, m: fresh, seq: d.seq, nowMillis: d.nowMillis, wallOffset: d.wallOffset, version: d.version}
	for _, text := range []string{
		"dbsize", "keys *", "scan 0", "randomkey", "exists k1", "get k2", "pttl k3", "rename k4 x", "copy k5 x", "move k6 1",
		"set k7 new nx", "getset k8 new", "incr k9", "append k10 x", "persist k11", "watch k12", "setnx k13 1",
		"msetnx k14 1 k15 2",
		"dbsize", "flushdb", "dbsize",
	} {
		require.Equal(t, line(one.doLine(text)), line(d.doLine(text)), text)
		require.Equal(t, dump(t, one.m), dump(t, d.m), text)
	}
}

// TestEachEndIsToldOnce: an ended key is reported once, by the sweep or by what replaces the key, also on a node
// restored in between. No entry reports more than it sweeps.
func TestEachEndIsToldOnce(t *testing.T) {
	const n = 5*sweepLimit + 500
	d := newDriver(t)
	d.do("set-notifications", "Ex")
	d.fill("k", n, 100)
	d.nowMillis += 101
	other := &driver{
		t: t, m: restored(t, d.m), seq: d.seq, nowMillis: d.nowMillis, wallOffset: d.wallOffset,
		version: d.version,
	}
	late := make([]string, n)
	for i := range late {
		late[i] = "k" + strconv.Itoa(i)
	}
	slices.SortFunc(late, func(a, b string) int { return cmp.Compare(keyspace.Hash(a), keyspace.Hash(b)) })
	ended := map[string]int{}
	for entry := 0; ; entry++ {
		d.m.Listen(event.InMessages | event.InChanges)
		other.m.Listen(event.InMessages | event.InChanges)
		events := d.advance(0)
		require.Equal(t, told(events), told(other.advance(0)))
		for _, key := range late[n-3:] { // the sweep reaches them last
			r := d.record(request(nil, 0, "setnx", key, "v"))
			require.Equal(t, told(r.events), told(other.record(request(nil, 0, "setnx", key, "v")).events))
			events = append(events, r.events...)
		}
		changed := 0
		for i := range events {
			switch e := &events[i]; e.Kind {
			case event.Notified:
				require.Equal(t, "expired", e.Name)
				ended[e.Key]++
			case event.Changed:
				changed++
			}
		}
		require.LessOrEqual(t, changed, 4*sweepLimit+6)
		if len(ended) == n {
			break
		}
		require.Less(t, entry, 1)
		other.m = restored(t, other.m)
	}
	for key, times := range ended {
		require.Equal(t, 1, times, key)
	}
	require.Empty(t, d.advance(0))
	require.Equal(t, uint64(n), d.m.Stats().Expired)
}

// An entry sweeps no more keys of several databases together than of one.
func TestStormInSeveralDatabases(t *testing.T) {
	d := newDriver(t)
	for d.db = range 3 {
		d.fill("k", sweepLimit/2, 100)
	}
	d.advance(101)
	require.Equal(t, uint64(sweepLimit), d.m.Stats().Expired)
	d.advance(0)
	require.Equal(t, uint64(sweepLimit/2*3), d.m.Stats().Expired)
}

// While ended keys are left NextDue is not in the future, so a node that waits for it commits the entries that sweep
// them.
func TestSweepDrivesItself(t *testing.T) {
	d := newDriver(t)
	d.fill("k", 2*sweepLimit+1, 100)
	d.nowMillis += 101
	entries := 0
	for {
		deadline, ok := d.m.NextDue()
		if !ok {
			break
		}
		require.LessOrEqual(t, deadline, d.nowMillis)
		d.advance(0)
		entries++
	}
	require.Equal(t, 3, entries)
	require.Zero(t, d.m.st.Databases[0].Stored())
	require.Zero(t, d.m.st.Databases[0].Expires(math.MinInt64))
}

// A key with the largest possible deadline is never due.
func TestNextDueDoesNotOverflow(t *testing.T) {
	d := newDriver(t)
	d.wallOffset = 0
	d.do("set", "a", "v", "pxat", "9223372036854775807")
	due, ok := d.m.NextDue()
	require.True(t, ok)
	require.Equal(t, int64(math.MaxInt64), due)
	d.do("set", "b", "v", "px", "100")
	due, _ = d.m.NextDue()
	require.Equal(t, d.nowMillis+101, due)
}

// An ended key may be set again before it is swept, and must then be kept.
func TestSetAgainBeforeSwept(t *testing.T) {
	const n = 2 * sweepLimit
	d := newDriver(t)
	d.fill("k", n, 100)
	d.advance(101)
	d.fill("k", n, 100)
	for range 5 {
		d.advance(1)
	}
	require.Equal(t, int64(n), d.do("dbsize").Num)
	require.Equal(t, n, d.m.st.Databases[0].Stored())
}

func TestSweepAll(t *testing.T) {
	for _, dead := range []int{0, 1, 50, 5000} {
		d := newDriver(t)
		d.fill("dead", dead, 100)
		d.fill("live", 1000, 5000)
		d.do("set", "eternal", "v")
		db := d.m.st.Databases[0]
		db.Advance(d.nowMillis + 101)
		require.Equal(t, dead, db.SweepAll(d.nowMillis+101))
		require.Equal(t, 1001, db.Stored())
		require.Equal(t, 1000, db.Expires(math.MinInt64))
		require.NoError(t, db.Verify())
		require.Equal(t, int64(1001), d.do("dbsize").Num)
		d.advance(5001)
		require.Equal(t, int64(1), d.do("dbsize").Num)
	}
}

// TestPassedKeysAreWork: a script that passes many ended keys exceeds its budget, on all nodes alike.
func TestPassedKeysAreWork(t *testing.T) {
	d := newDriver(t)
	d.fill("k", sweepLimit+30_000, 100)
	d.nowMillis += 101
	require.Contains(t, line(d.eval("for i=1,1000 do redis.call('randomkey') end")), "over its budget")
	require.Equal(t, "nil", line(d.eval("return redis.call('randomkey')")))
	d.m.budgets.reads, d.m.budgets.batch = 1<<16, 1<<16
	require.Equal(t, protocol.ErrNoRoom.Error(), d.apply(pipeline("randomkey", "randomkey"))[1].Str)
}

// TestReadAtTheDeadline: if the reader's time has passed a deadline that the log has only reached, the reader must ask
// for a stamp, since its answer would contradict the log.
func TestReadAtTheDeadline(t *testing.T) {
	d := newDriver(t)
	d.do("set", "k", "v", "px", "100")
	d.advance(100)
	reply, due := d.read("get", "k")
	require.False(t, due)
	require.Equal(t, "v", reply.Str)
	d.nowMillis++
	for _, words := range [][]string{{"get", "k"}, {"exists", "k"}, {"dbsize"}, {"keys", "*"}} {
		_, due = d.read(words...)
		require.True(t, due, words)
	}
}
