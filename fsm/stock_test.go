package fsm

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// requestFrom is [request] of a connection.
func requestFrom(body []byte, db int, conn uint64, words ...string) []byte {
	var r protocol.Request
	if _, err := protocol.NextRequest(string(request(nil, db, words...)), &r); err != nil {
		panic(err)
	}
	args := protocoltest.Args(r.Args[1:])
	return protocol.AppendRequest(body, protocol.Head{DB: db, Conn: int64(conn)}, r.Args[0], args)
}

// mark returns the mark of a key in database 0.
func (d *driver) mark(key string) (keyspace.Mark, bool) {
	return d.m.st.Databases[0].Find(keyspace.Hash(key), key).Mark()
}

// TestMarksCostLittle: a mark adds at most 24 bytes to a held stock lock, and no allocation to acquiring and releasing
// it.
func TestMarksCostLittle(t *testing.T) {
	cost := func(marked bool, key, token string) (bytes int64, allocations float64) {
		d := newDriver(t)
		d.nowMillis = 365 * 24 * 3600 * 1000 // a cluster of one year
		take := request(nil, 0, "set", key, token, "PX", "30000")
		if marked {
			take = requestFrom(nil, 0, 123_456, "set", key, token, "NX", "PX", "30000")
		}
		release := request(nil, 0, "delifeq", key, token)
		d.apply(take)
		bytes = d.m.st.ItemBytes
		require.Equal(t, bytes, d.do("memory", "usage", key).Num)
		d.apply(release)
		entries := [2][]byte{}
		return bytes, testing.AllocsPerRun(200, func() {
			for i, body := range [][]byte{take, release} {
				d.seq++
				w := protocol.NewEntry(entries[i], protocol.EntryVersion, d.nowMillis, d.wallOffset, d.limits)
				w.Add(protocol.Incarnation{Node: "n1", Epoch: 1}, d.seq, d.seq, body)
				entries[i] = w.Bytes()
				if err := d.m.Apply(entries[i], clientless{}); err != nil {
					panic(err)
				}
			}
		})
	}
	for _, keyLen := range []int{1, 8, 20, 31, 32, 60} {
		for _, tokenLen := range []int{16, 20, 32, 36, 64} {
			key, token := strings.Repeat("k", keyLen), strings.Repeat("t", tokenLen)
			before, fewest := cost(false, key, token)
			after, allocations := cost(true, key, token)
			require.LessOrEqual(t, after-before, int64(24), "%d %d", keyLen, tokenLen)
			require.LessOrEqual(t, allocations, fewest, "%d %d", keyLen, tokenLen)
		}
	}
}

// TestScriptTakesSeveralHashes: each of a few hashes that a script created with a TTL is a stock lock.
func TestScriptTakesSeveralHashes(t *testing.T) {
	d := newDriver(t)
	d.do("eval", "for i=1,4 do redis.call('hset','h'..i,'f',1) end for i=1,4 do redis.call('pexpire','h'..i,30000) end", "0")
	require.Equal(t, 4, d.m.st.Databases[0].Marks())
}

// TestScriptThatOnlyClaims: a SET without NX acquires a lock, too, unless the script has written before.
func TestScriptThatOnlyClaims(t *testing.T) {
	for write, locks := range map[string]int{"": 2, "redis.call('del','x')": 1, "redis.call('set','x','2')": 1} {
		d := newDriver(t)
		d.do("set", "x", "1")
		d.do("eval", write+" redis.call('set','a','t','nx','px',30000) redis.call('set','b','t','px',30000)", "0")
		require.Equal(t, locks, d.m.st.Databases[0].Marks(), write)
	}
}

// TestMarkOfEveryDatabase: a list covers all databases, whatever COUNT is, and names each lock once.
func TestMarkOfEveryDatabase(t *testing.T) {
	d := newDriver(t)
	for db := range protocol.MaxDatabases {
		d.db = db
		for i := range 5 {
			d.do("set", fmt.Sprintf("stock:%d", i), "t", "nx", "px", "30000")
			d.do("set", fmt.Sprintf("string:%d", i), "t", "px", "30000")
			d.do("lock.acquire", fmt.Sprintf("native:%d", i), "t", "px", "30000")
		}
	}
	list := func(words ...string) map[string]int {
		seen := map[string]int{}
		for cursor := "0"; ; {
			reply, due := d.read(append([]string{"lock.list", "cursor", cursor}, words...)...)
			require.False(t, due)
			for _, row := range reply.Elems[1].Elems {
				seen[fmt.Sprint(row.Elems[1].Str, row.Elems[3].Num)]++
			}
			if cursor = reply.Elems[0].Str; cursor == "0" {
				return seen
			}
		}
	}
	for _, count := range []string{"1", "3", "10", "1000"} {
		all := list("count", count)
		require.Len(t, all, 10*protocol.MaxDatabases, count)
		for key, n := range all {
			require.Equal(t, 1, n, key)
		}
		require.Len(t, list("count", count, "db", "15"), 10)
		require.Len(t, list("count", count, "db", "0", "match", "stock*"), 5)
	}
	for _, cursor := range []string{"18446744073709551615", "288230376151711744", "9007199254740991"} {
		reply, _ := d.read("lock.list", "cursor", cursor)
		require.False(t, reply.IsError(), cursor)
	}
	d.db = 0
	d.do("eval", "redis.call('lock.list', 'count', 1000) redis.call('set', 'here', 1)", "0")
	require.Equal(t, command.One, d.do("exists", "here"), "a listing leaves the database of its script")
}

// TestListPassesKeys: a call visits a limited number of keys, and the next call continues there.
func TestListPassesKeys(t *testing.T) {
	d := newDriver(t)
	d.fill("k", 3*maxPassedKeys, 1<<40)
	d.do("set", "lock", "t", "nx", "px", "30000")
	calls := 0
	for cursor := "0"; calls == 0 || cursor != "0"; calls++ {
		reply, _ := d.read("lock.list", "cursor", cursor, "count", "1")
		cursor = reply.Elems[0].Str
		if rows := reply.Elems[1].Elems; len(rows) > 0 {
			require.Equal(t, "lock", rows[0].Elems[1].Str)
			cursor = "0"
		}
	}
	require.LessOrEqual(t, calls, 5)
}

// TestReadMeetsDueStockLock: a read of a lock that is due by the read's clock, but not by the log's, asks for a stamp.
func TestReadMeetsDueStockLock(t *testing.T) {
	d := newDriver(t)
	d.do("set", "k", "t", "nx", "px", "100")
	d.nowMillis += 101
	for _, words := range [][]string{{"lock.list"}, {"lock.info", "k"}} {
		_, due := d.read(words...)
		require.True(t, due, words)
	}
}

// TestIncarnations: clients of previous incarnations of nodes are named for a while, and a running node keeps its
// number.
func TestIncarnations(t *testing.T) {
	d := newDriver(t)
	take := func(node string, epoch uint64, key string) {
		d.seq++
		w := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits)
		w.Add(protocol.Incarnation{Node: node, Epoch: epoch}, 0, d.seq, requestFrom(nil, 0, 7, "set", key, "t", "nx", "px",
			"30000"))
		require.NoError(t, d.m.Apply(w.Bytes(), clientless{}))
	}
	client := func(key string) string {
		info := d.do("lock.info", key)
		return info.Elems[11].Elems[0].Elems[19].Str
	}
	take("stays", 1, "first")
	for epoch := range uint64(2 * maxIncarnations) {
		take("restarts", epoch+1, fmt.Sprint("k", epoch+1))
	}
	take("stays", 1, "last")
	require.Equal(t, "stays/7", client("first"))
	require.Equal(t, "stays/7", client("last"))
	require.Equal(t, "restarts/7", client(fmt.Sprint("k", 2*maxIncarnations)))
	require.Empty(t, client("k1"))
	require.Len(t, d.m.st.incarnations.known, maxIncarnations)
	first, _ := d.mark("first")
	last, _ := d.mark("last")
	require.Equal(t, first.Incarnation, last.Incarnation)
	require.Equal(t, d.m.Hash(), restored(t, d.m).Hash())
}

// release is the script with which most libraries release a lock.
const release = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"

// classes returns the counts of a machine, without zeroes.
func (d *driver) classes() string {
	var b strings.Builder
	for _, class := range d.m.LockClasses() {
		for _, kind := range []struct {
			name  string
			n     LockClassCounts
			queue int
		}{{"native", class.Native, class.NativeQueue}, {"stock", class.Stock, class.StockQueue}} {
			if kind.n == (LockClassCounts{}) && kind.queue == 0 {
				continue
			}
			fmt.Fprintf(&b, "%s %s:", kind.name, class.Pattern)
			for _, c := range []struct {
				name string
				n    uint64
			}{
				{"granted", kind.n.Grants},
				{"slow", kind.n.Slow},
				{"refused", kind.n.Refusals},
				{"released", kind.n.Releases},
				{"late", kind.n.Late},
				{"expired", kind.n.Expired},
				{"stale", kind.n.Stale},
				{"queue", uint64(kind.queue)},
			} {
				if c.n > 0 {
					fmt.Fprintf(&b, " %s %d", c.name, c.n)
				}
			}
			b.WriteString("; ")
		}
	}
	return b.String()
}

// TestLockClasses: events of locks are counted by the class of the name.
func TestLockClasses(t *testing.T) {
	for _, c := range []struct{ why, lines, want string }{
		{"taken and given back", "set k t nx px 1000;wait 800;delifeq k t", "stock : granted 1 released 1; "},
		{"given back late", "set k t nx px 1000;wait 801;del k", "stock : granted 1 released 1 late 1; "},
		{"renewed in time", "set k t nx px 1000;wait 801;pexpire k 1000;wait 800;del k", "stock : granted 1 released 1; "},
		{"run out", "set k t nx px 1000;wait 1001", "stock : granted 1 expired 1; "},
		{
			"run out, and taken in the same entry", "set k t nx px 1000;wait 1001;set k u nx px 1000",
			"stock : granted 2 expired 1; ",
		},
		{"no lock any more", "set k t nx px 1000;persist k;del k", "stock : granted 1; "},
		{
			"run out, found before the sweep", "crowd;set k t nx px 1000;late 1001;lock.release k t;delifeq k t",
			"stock : granted 1 stale 1; ",
		},
		{
			"another's, found before the sweep", "crowd;set k t nx px 1000;late 1001;delifeq k u", "stock : granted 1; ",
		},
		{"a string, found before the sweep", "crowd;set k t px 1000;late 1001;delifeq k t", ""},
		{"no time to live, no lock", "setnx k t;setnx k u;del k", ""},
		{"by script", "release k t;set k t nx px 1000;release k t", "stock : granted 1 released 1; "},
		{
			"released by who lost it", "set k t nx px 1000;release k t;set k t nx px 1000;wait 1001;release k t;release k t",
			"stock : granted 2 released 1 expired 1 stale 1; ",
		},
		{
			"while another has it",
			"set k t nx px 1000;release k t;set k t nx px 1000;wait 1001;set k u nx px 1000;release k t",
			"stock : granted 3 released 1 expired 1 stale 1; ",
		},
		{
			"by a word that compares", "set k t nx px 1000;wait 1001;delifeq k t;delifeq k t",
			"stock : granted 1 expired 1 stale 1; ",
		},
		{"by another", "set k t nx px 1000;wait 1001;delex k ifeq u;delex k ifeq t", "stock : granted 1 expired 1 stale 1; "},
		{
			"never had it, as redsync after a refusal",
			"set k t nx px 1000;release k t;set k t nx px 1000;set k u nx px 1000;release k u",
			"stock : granted 2 refused 1 released 1; ",
		},
		{"broken by DEL", "set k t nx px 1000;del k;delifeq k t", "stock : granted 1 released 1 stale 1; "},
		{"overwritten", "set k t nx px 1000;set k u px 1000;delifeq k t", "stock : granted 1 stale 1; "},
		{
			"had it again since", "set k t nx px 1000;wait 1001;set k t nx px 1000;delifeq k t;delifeq k t",
			"stock : granted 2 released 1 expired 1; ",
		},
		{
			"polled for long",
			"set k t nx px 9000;set k u nx px 9000;wait 600;set k u nx px 9000;wait 600;del k;set k u nx px 9000",
			"stock : granted 2 slow 1 refused 2 released 1; ",
		},
		{
			"polled for a moment", "set k t nx px 9000;set k u nx px 9000;wait 600;del k;set k u nx px 9000",
			"stock : granted 2 refused 1 released 1; ",
		},
		{
			"came back later", "set k t nx px 9000;set k u nx px 9000;wait 6000;del k;set k u nx px 9000",
			"stock : granted 2 refused 1 released 1; ",
		},
		{
			"a queue",
			"set k t nx px 9000;set k u nx px 9000;set k v nx px 9000;wait 100;set k u nx px 9000;set k v nx px 9000;set k " +
				"w nx px 9000", "stock : granted 1 refused 5 queue 2; ",
		},
		{
			"a queue that has gone", "set k t nx px 9000;set k u nx px 9000;set k u nx px 9000;wait 5001",
			"stock : granted 1 refused 2; ",
		},
		{
			"classes", "set jobs:1 t nx px 1000;set job t nx px 1000;set x2y t nx px 1000;lock.acquire jobs:2 t px 1000",
			"native jobs:*: granted 1; stock jobs:*: granted 1; stock x?y: granted 1; stock : granted 1; ",
		},
		{
			"a pattern that is a name", "set name t nx px 1000;set named t nx px 1000;lock.acquire nam t px 1000",
			"stock name: granted 1; native : granted 1; stock : granted 1; ",
		},
		{
			"native: late, expired, stale",
			"lock.acquire k me px 1000;wait 801;lock.release k me;lock.acquire k me px 1000;wait 1001;lock.release k " +
				"me;lock.release k me", "native : granted 2 released 1 late 1 expired 1 stale 1; ",
		},
		{
			"native: waited for long",
			"lock.acquire k me px 9000;lock-command 2 1 0 lock.acquire k you px 1 wait 0;wait 1001;lock.release k me",
			"native : granted 2 slow 1 released 1; ",
		},
		{
			"native: waited for a moment",
			"lock.acquire k me px 9000;lock-command 2 1 0 lock.acquire k you px 1 wait 0;wait 1000;lock.release k me",
			"native : granted 2 released 1; ",
		},
		{
			"native: refused", "lock.acquire k me px 9000;lock.acquire k you px 9000;lock.acquire k me px 9000",
			"native : granted 1 refused 1; ",
		},
	} {
		d := newDriver(t)
		d.m.ClassifyLocks([]string{"jobs:*", "x?y", "name", ""})
		for _, text := range strings.Split(c.lines, ";") {
			switch words := strings.Fields(text); words[0] {
			case "wait":
				var millis int64
				fmt.Sscan(words[1], &millis)
				d.advance(millis)
			case "late": // without an entry meanwhile
				var millis int64
				fmt.Sscan(words[1], &millis)
				d.nowMillis += millis
			case "crowd": // to be swept before
				d.fill("dead", 3*sweepLimit, 900)
			case "release":
				d.do("eval", release, "1", words[1], words[2])
			default:
				d.do(words...)
			}
		}
		require.Equal(t, c.want, d.classes(), c.why)
	}
}

// TestNativeQueues: the longest queue belongs to the native lock with the most waiters.
func TestNativeQueues(t *testing.T) {
	d := newDriver(t)
	d.m.ClassifyLocks([]string{"jobs:*"})
	ticket := uint64(0)
	for _, key := range []string{"jobs:1", "other"} {
		d.native(1, 0, "lock.acquire", key, "holder", "px", "9000")
		for i := range map[string]int{"jobs:1": 3, "other": 2}[key] {
			ticket++
			d.native(2, ticket, "lock.acquire", key, fmt.Sprint(i), "px", "9000", "wait", "0")
		}
	}
	ticket++
	d.native(2, ticket, "lock.acquireall", "2", "jobs:1", "free", "all", "px", "9000", "wait", "0")
	require.Equal(t, "native jobs:*: granted 1 queue 4; native : granted 1 queue 2; ", d.classes())
}

// TestScriptsThatTakeAndRelease: a run without a change may be a refusal if the script also acquires locks.
func TestScriptsThatTakeAndRelease(t *testing.T) {
	for _, both := range []string{
		"if ARGV[2]=='take' then return redis.call('set',KEYS[1],ARGV[1],'NX','PX',1000) elseif " +
			"redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end",
		"if ARGV[2]=='give' then return redis.call('hdel',KEYS[1],ARGV[1]) elseif redis.call('exists',KEYS[1])==0 then " +
			"redis.call('hset',KEYS[1],ARGV[1],1) return redis.call('pexpire',KEYS[1],1000) end",
	} {
		d := newDriver(t)
		for _, what := range []string{"take", "give", "take"} {
			require.False(t, d.do("eval", both, "1", "k", "t", what).IsError(), what)
		}
		d.advance(1001)
		d.do("set", "k", "u", "nx", "px", "1000")
		d.do("eval", both, "1", "k", "t", "take")
		require.NotContains(t, d.classes(), "stale")
		require.Contains(t, d.classes(), "released 1 expired 1")
	}
}

// TestStockWaiters: a polling client is identified by token or by connection, and forgotten in time.
func TestStockWaiters(t *testing.T) {
	d := newDriver(t)
	poll := func(conn uint64, token string) {
		d.apply(requestFrom(nil, 0, conn, "set", "k", token, "nx", "px", "60000"))
	}
	poll(1, "holder")
	for range 2 {
		poll(2, "same")
		poll(3, "same")
		poll(4, fmt.Sprint("other", d.nowMillis))
		poll(5+uint64(d.nowMillis), "once"+fmt.Sprint(d.nowMillis))
		d.advance(100)
	}
	origin := protocol.Incarnation{Node: "n1", Epoch: 1}
	require.Equal(t, []StockWaiter{
		{Owner: "same", Origin: origin, Conn: 2, SinceMillis: 1_700_000_001_000, Refusals: 4},
		{Owner: "other1100", Origin: origin, Conn: 4, SinceMillis: 1_700_000_001_000, Refusals: 2},
	}, d.m.StockWaiters(0, "k"))
	require.Empty(t, d.m.StockWaiters(1, "k"))
	d.advance(pollsWithin)
	require.Empty(t, d.m.StockWaiters(0, "k"))
}

// TestPollsShareNoEntry: a poll's key has its own memory, whatever is polled or granted later.
func TestPollsShareNoEntry(t *testing.T) {
	d := newDriver(t)
	at := func() *byte {
		for key := range d.m.call.watch.polls.byKey {
			return unsafe.StringData(key.key)
		}
		return nil
	}
	d.do("set", "k", "holder", "nx", "px", "60000")
	d.do("set", "k", "a", "nx", "px", "60000")
	own := at()
	d.do("set", "k", "b", "nx", "px", "60000")
	d.do("set", "k", "c", "nx", "px", "60000")
	require.Same(t, own, at(), "refused")
	d.do("del", "k")
	d.do("set", "k", "a", "nx", "px", "60000")
	require.Same(t, own, at(), "granted")
	d.advance(pollsWithin)
	d.do("set", "k", "b", "nx", "px", "60000")
	d.advance(1)
	d.do("set", "k", "b", "nx", "px", "60000")
	require.Len(t, d.m.call.watch.polls.of(0, "k"), 1)
	require.Same(t, own, at(), "dropped")
}

// TestBrokenOwnerSharesNoEntry: the record of a broken lock shares memory with the item, not with the command.
func TestBrokenOwnerSharesNoEntry(t *testing.T) {
	d := newDriver(t)
	d.do("set", "k", "me", "nx", "px", "60000")
	own := d.m.st.Databases[0].Find(keyspace.Hash("k"), "k").Value()
	require.Equal(t, protocol.Integer(1), d.do("lock.break", "k", "owner", "me"))
	kept := 0
	d.m.st.history.descend(math.MaxUint64, func(l *lockLoss, _ uint64) bool {
		require.Same(t, unsafe.StringData(own), unsafe.StringData(l.owner))
		kept++
		return true
	})
	require.Equal(t, 1, kept)
}

// TestPollsAreBounded: polls are limited in number, in all and per key, and in bytes; forgotten ones make room.
func TestPollsAreBounded(t *testing.T) {
	d := newDriver(t)
	long := strings.Repeat("k", maxPolledKey+1)
	keys := []string{"k", long}
	for i := range maxPolls {
		keys = append(keys, fmt.Sprint("k", i))
	}
	for _, key := range keys {
		d.do("set", key, "t", "nx", "px", "600000")
		d.do("set", key, "u", "nx", "px", "600000")
	}
	p := &d.m.call.watch.polls
	require.Equal(t, maxPolls, p.count)
	d.do("set", "k", strings.Repeat("t", maxPolledToken+1), "nx", "px", "600000")
	require.Len(t, p.of(0, "k"), 1)
	for looked := p.nextSweep; d.nowMillis < looked; d.advance(sweepPollsEvery / 10) {
		d.do("set", long[1:], "u", "nx", "px", "600000")
		d.do("set", long[1:], "t", "nx", "px", "600000")
		require.Equal(t, looked, p.nextSweep, "a refusal without room looks at all at most once a second")
	}
	d.do("set", long[1:], "t", "nx", "px", "600000")
	require.Equal(t, d.nowMillis+sweepPollsEvery, p.nextSweep)
	d.advance(pollsWithin + 1)
	for i := range 2 * maxPollsOfKey {
		d.do("set", "k", fmt.Sprint(i), "nx", "px", "600000")
	}
	require.Len(t, p.of(0, "k"), maxPollsOfKey)
	require.Less(t, p.count, maxPolls)
	n := 0
	for _, queue := range p.byKey {
		n += len(queue.all)
	}
	require.Equal(t, n, p.count)
}

// TestLostHoldsAreBounded: the latest losses are remembered, each once; older ones are not.
func TestLostHoldsAreBounded(t *testing.T) {
	var lost lostHolds
	require.False(t, lost.forget(0, "k", "0"))
	const all, some = 4 * lostPerPlace << lostPlaceBits, 1000
	for i := range all {
		lost.note(0, "k", fmt.Sprint(i))
		for range 2 * lostPerPlace * (i % 10 / 9) { // lost repeatedly
			lost.note(0, "k", fmt.Sprint(i))
		}
	}
	for i := range some {
		require.False(t, lost.forget(0, "k", fmt.Sprint(i)))
	}
	for i := all - some; i < all; i++ {
		require.False(t, lost.forget(1, "k", fmt.Sprint(i)))
		require.True(t, lost.forget(0, "k", fmt.Sprint(i)))
		require.False(t, lost.forget(0, "k", fmt.Sprint(i)))
	}
}

// TestPolledLocksAreListed: LOCK.LIST WAITING lists polled locks in pages, in the order of SCAN, while clients poll.
func TestPolledLocksAreListed(t *testing.T) {
	d := newDriver(t)
	poll := func(db int, key, token string, times int) {
		for range times {
			d.apply(requestFrom(nil, db, 9, "set", key, token, "nx", "px", "60000"))
		}
	}
	list := func(words ...string) (keys []string, next string) {
		t.Helper()
		v, due := d.read(append([]string{"lock.list", "WAITING"}, words...)...)
		require.False(t, due)
		require.Len(t, v.Elems, 2, v.Str)
		for _, row := range v.Elems[1].Elems {
			keys = append(keys, fmt.Sprintf("%d %s", row.Elems[3].Num, row.Elems[1].Str))
		}
		return keys, v.Elems[0].Str
	}
	const polled = 25
	for i := range polled {
		poll(0, fmt.Sprint("k", i), "holder", 1)
		poll(0, fmt.Sprint("k", i), "poller", 2)
		poll(0, fmt.Sprint("held", i), "holder", 1)
		poll(0, fmt.Sprint("once", i), "holder", 1)
		poll(0, fmt.Sprint("once", i), "poller", 1)
	}
	poll(3, "k0", "holder", 1)
	poll(3, "k0", "poller", 2)
	d.do("lock.acquire", "native", "me", "px", "60000")
	all, next := list("COUNT", "100")
	require.Equal(t, "0", next)
	require.Len(t, all, polled+1)
	var paged []string
	for cursor := "0"; ; {
		page, next := list("COUNT", "4", "CURSOR", cursor)
		require.LessOrEqual(t, len(page), 4)
		paged = append(paged, page...)
		if cursor = next; cursor == "0" {
			break
		}
	}
	require.Equal(t, all, paged)
	for words, n := range map[string]int{
		"DB 3": 1, "DB 1": 0, "MATCH k1?": 10, "OWNER holder": polled + 1, "OWNER poller": 0, "SESSION 1": 0,
	} {
		keys, _ := list(append(strings.Fields(words), "COUNT", "100")...)
		require.Len(t, keys, n, words)
	}
	require.Empty(t, d.do("lock.list", "WAITING").Elems[1].Elems, "in an entry")
	d.do("del", "k0")
	d.do("persist", "k1")
	all, _ = list("COUNT", "100")
	require.Len(t, all, polled+1-2)
	d.advance(pollsWithin + 1)
	all, _ = list("COUNT", "100")
	require.Empty(t, all)
}

// TestLockRanks: the short list agrees with the long one on each lock, page by page, and shows part of a lock.
func TestLockRanks(t *testing.T) {
	d := newDriver(t)
	d.native(1, 1, "lock.acquire", "k", "me", "px", "60000")
	d.native(2, 2, "lock.acquire", "k", "you", "px", "60000", "wait", "0")
	d.advance(10)
	for i := range 7 {
		d.do("lock.acquire", "shared", fmt.Sprint(i), "px", "60000", "shared")
		d.apply(requestFrom(nil, i, 9, "set", fmt.Sprint("s", i), "t", "nx", "px", "60000"))
		d.apply(requestFrom(nil, 0, uint64(20+i), "set", "s0", fmt.Sprint(i), "nx", "px", "60000"))
		d.apply(requestFrom(nil, 0, uint64(20+i), "set", "s0", fmt.Sprint(i), "nx", "px", "60000"))
	}
	d.do("eval", "redis.call('hset', 'rw', 'mode', 'read', 'a', 1, 'b', 1) redis.call('pexpire', 'rw', 60000)", "0")
	d.do("set", "plain", "x")
	read := func(words ...string) protocol.Value {
		t.Helper()
		v, due := d.read(words...)
		require.False(t, due)
		require.False(t, v.IsError(), v.Str)
		return v
	}
	ranks := map[string][]any{}
	for cursor := "0"; ; {
		v := read("lockranks", "COUNT", "3", "CURSOR", cursor)
		require.Zero(t, len(v.Elems[1].Elems)%RankFields)
		for each := v.Elems[1].Elems; len(each) > 0; each = each[RankFields:] {
			ranks[fmt.Sprint(each[1].Num, each[0].Str)] = []any{each[2].Str, each[3].Num, each[4].Num, each[5].Num}
		}
		if cursor = v.Elems[0].Str; cursor == "0" {
			break
		}
	}
	listed := read("lock.list", "COUNT", "1000").Elems[1].Elems
	require.Len(t, ranks, len(listed))
	require.Len(t, ranks, 2+7+1)
	for _, row := range listed {
		field := map[string]protocol.Value{}
		for i := 0; i < len(row.Elems); i += 2 {
			field[row.Elems[i].Str] = row.Elems[i+1]
		}
		key, db := field["key"].Str, int(field["db"].Num)
		waiters := field["waiters-count"].Num + int64(len(d.m.StockWaiters(db, key)))
		since := field["holders"].Elems[0].Elems[15]
		require.Equal(t, "since", field["holders"].Elems[0].Elems[14].Str)
		require.Equal(t, []any{field["mode"].Str, since.Num, field["holders-count"].Num, waiters},
			ranks[fmt.Sprint(db, key)], key)
	}
	require.EqualValues(t, 7, ranks["0s0"][3])
	require.Len(t, read("lockrow", "shared", "5").Elems, len(read("lock.info", "shared").Elems))
	require.Len(t, read("lockrow", "shared", "5").Elems[11].Elems, 5)
	require.True(t, read("lockrow", "none", "5").IsNull())
	for _, words := range [][]string{
		{"lockrow", "k"},
		{"lockrow", "k", "0"},
		{"lockrow", "k", "1001"},
		{"lockrow", "plain", "5"},
		{"lockranks", "COUNT"},
	} {
		v, _ := d.read(words...)
		require.True(t, v.IsError(), words)
	}
}

// TestMarkOfAnotherValue: no command marks a list. A snapshot with a marked list is restored, and the list is shown as
// a lock without holders.
func TestMarkOfAnotherValue(t *testing.T) {
	d := newDriver(t)
	item := "\x01k" + words(keyspace.KindList, "listpack", "me") + "\xff\x7f\x01" + "\x01\x00\x00\x00\x00\x00"
	require.NoError(t, d.m.Restore(bytes.NewReader(streamOf(item))))
	require.Empty(t, d.do("lock.list", "owner", "me").Elems[1].Elems)
	require.Contains(t, line(d.do("lock.list")), `"holders-count" 0 `)
	require.Equal(t, command.Zero, d.do("lock.break", "k", "owner", "me"))
	require.Equal(t, command.Zero, d.do("lock.break", "k"))
	require.Equal(t, command.Zero, d.do("exists", "k"))
}
