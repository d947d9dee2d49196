package fsm

import (
	"bytes"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// batches is a sink that keeps the replies of each batch.
type batches map[uint64][]protocol.Value

func (batches) Wanted(protocol.Incarnation, uint64) bool { return true }

func (b batches) Done(_ protocol.Incarnation, seq uint64, replies []protocol.Value, _ bool) {
	b[seq] = replies
}

func (batches) Events([]event.Event) {}

// together applies bodies as the batches of one entry, and returns each one's replies.
func (d *driver) together(bodies ...[]byte) (replies [][]protocol.Value) {
	d.t.Helper()
	w := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits)
	first := d.seq + 1
	for _, body := range bodies {
		d.seq++
		w.Add(protocol.Incarnation{Node: "n1", Epoch: 1}, d.seq, d.seq, body)
	}
	got := batches{}
	require.NoError(d.t, d.m.Apply(w.Bytes(), got))
	for seq := first; seq <= d.seq; seq++ {
		replies = append(replies, got[seq])
	}
	return replies
}

// pipeline returns a body of requests, whose words are separated by blanks.
func pipeline(lines ...string) (body []byte) {
	for _, line := range lines {
		words := strings.Split(line, " ")
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "~", " ")
		}
		body = request(body, 0, words...)
	}
	return body
}

func lines(vs []protocol.Value) string { return line(protocol.Array(vs...)) }

// spin is a script that sets a key, and then runs about n steps.
func spin(key string, n int) string {
	return fmt.Sprintf("eval redis.call('set','%s','1')~for~i=1,%d~do~end~return~1 0", key, n)
}

// smallBudgets are small enough for tests to exceed them quickly.
func smallBudgets() budgets {
	return budgets{
		batch: 20_000, entry: 100_000, reads: 50_000, serving: 1 << 24, lockChanges: 1 << 24,
		waiting: maxWaitingBytes, transaction: 200_000, readShort: 20_000, readLong: 20_000,
	}
}

// A batch is applied up to the first request that exceeds its budget. Batches within their own share are applied
// whatever the others do.
func TestBatchesShareAnEntry(t *testing.T) {
	d := newDriver(t)
	d.m.budgets = smallBudgets()
	hostile := pipeline("set h 1", spin("h1", 4500), spin("h2", 4500), "set h 2")
	other := pipeline(spin("o1", 4500), "set o 2")
	ordinary := pipeline("set lock token nx px 30000", "get lock",
		"eval if~redis.call('get',KEYS[1])==ARGV[1]~then~return~redis.call('del',KEYS[1])~end 1 lock token", "set after 1")
	d.m.budgets.batch *= 2
	// This compiles the script.
	d.apply(pipeline("eval if~redis.call('get',KEYS[1])==ARGV[1]~then~return~redis.call('del',KEYS[1])~end 1 lock token"))
	d.m.budgets.batch /= 2
	replies := d.together(hostile, other, ordinary)
	require.Equal(t, "[OK 1]", lines(replies[0]), "the rest of the budget is not enough for the second script")
	require.Empty(t, replies[1], "nor for anybody else's")
	require.Equal(t, `[OK "token" 1 OK]`, lines(replies[2]))
	require.Equal(t, `["1" "1" nil nil nil "1"]`, line(d.do("mget", "h", "h1", "h2", "o1", "o", "after")))
	for range 2 { // the rest of the batch is proposed again, and runs in turn
		replies = d.together(pipeline(spin("h2", 4500), "set h 2"), other)
	}
	require.Equal(t, "[1 OK]", lines(replies[0]))
}

// The largest request is applied when it is the first to exceed its batch's share.
func TestLargestRequestRunsAlone(t *testing.T) {
	for _, largest := range []string{
		spin("k", 1_000_000), "append big x", "setrange big 0 x", "copy big copy", "rename big other", "incrbyfloat n 1",
		"delex big IFDEQ 0123456789abcdef",
		"script load return~1--" + strings.Repeat("x", 10_000), "eval return~2--" + strings.Repeat("x", 10_000) + " 0",
	} {
		d := newDriver(t)
		d.do("set", "big", strings.Repeat("x", 1<<20))
		d.do("set", "n", strings.Repeat("1", 4000))
		d.m.budgets = smallBudgets()
		replies := d.together(pipeline(spin("other", 4000)), pipeline(largest, "set after 1"))
		require.Len(t, replies[0], 1)
		require.Empty(t, replies[1], largest[:9])
		d.do("del", "other")
		require.Equal(t, "[0]", lines(d.apply(pipeline("exists other copy after"))), largest[:9])
		replies = d.together(pipeline("get x", largest), pipeline("set y 1"))
		require.Len(t, replies[0], 2, largest[:9])
		require.Len(t, replies[1], 1)
	}
}

// A transaction that exceeds its budget leaves nothing, neither keys nor WATCH marks or cached scripts. One that can
// never fit is refused for good.
func TestTransactionsFitOrLeaveNothing(t *testing.T) {
	body := func(lines ...string) []byte { return protocol.AppendTransaction(nil, 0, nil, pipeline(lines...)) }
	queued := []string{
		"set a 1", "flushdb", "swapdb 0 1", "set b 1", "script load return~1", "eval redis.call('set','c','1') 0", "get a",
		"script flush", "set missing 1", "del missing",
	}
	d := newDriver(t)
	d.do("set", "a", "0")
	d.do("script", "load", "return 0")
	d.m.budgets = smallBudgets()
	watches := d.watch("missing")
	twin := restored(t, d.m)
	twin.budgets = d.m.budgets
	blocked := pipeline(spin("other", 4000))
	leaves := func(why string, big ...string) {
		replies := d.together(blocked, body(slices.Concat(queued, big)...))
		require.Empty(t, replies[1], why)
		// The twin sees the same entry without the requests that had no effect.
		w := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits)
		w.Add(origin, d.seq-1, d.seq-1, blocked)
		w.Add(origin, d.seq, d.seq, nil)
		require.NoError(t, twin.Apply(w.Bytes(), clientless{}))
		require.Equal(t, dump(t, twin), dump(t, d.m), why)
		require.Equal(t, twin.st.Versions, d.m.st.Versions)
	}
	leaves("a script", spin("x", 5000))
	leaves("many requests", slices.Repeat([]string{"incr n"}, 200)...)
	leaves("reads", slices.Repeat([]string{"get n"}, 200)...)

	over := body(slices.Concat(queued, []string{spin("x", 9000), spin("x", 9000)})...)
	require.Equal(t, "[(EXECABORT Transaction discarded because of: transaction is over its budget of work)]",
		lines(d.apply(over)))
	require.Equal(t, protocol.OutcomeNone, protocol.OutcomeOf(errOverTransaction.Str))
	require.Equal(t, `["0" nil nil]`, line(d.do("mget", "a", "b", "c")))
	replies := d.apply(protocol.AppendTransaction(nil, 0, watches, pipeline("get a")))
	require.Equal(t, `[["0"]]`, lines(replies), "nothing came or went")

	alone := d.together(body(append(queued, spin("x", 5000))...), blocked)
	require.Len(t, alone[0], 1)
	require.Len(t, alone[0][0].Elems, len(queued)+1, "alone it fits")
	require.Empty(t, alone[1])
}

// A script in a transaction that exceeds its own budget is undone alone.
func TestScriptInTransactionIsUndoneAlone(t *testing.T) {
	d := newDriver(t)
	d.do("set", "a", "0")
	reply := d.exec(nil, []string{"set", "a", "1"}, []string{"flushdb"}, []string{"set", "b", "1"},
		[]string{"eval", "redis.call('flushall') redis.call('set','c','1') " + endless, "0"}, []string{"incr", "b"})
	require.Contains(t, reply.Elems[3].Str, "budget")
	require.Equal(t, `[nil "2" nil]`, line(d.do("mget", "a", "b", "c")))
	require.Nil(t, d.m.call.Undo)
}

// A script in a transaction has a full budget, whatever ran before it.
func TestScriptInTransactionHasItsBudget(t *testing.T) {
	d := newDriver(t)
	d.limits = protocol.EntryLimits{}
	d.do("set", "big", strings.Repeat("x", 4<<20))
	copies := func(n int) []string {
		return []string{"eval", fmt.Sprintf("for i=1,%d do redis.call('copy','big','copy','replace') end return 1", n), "0"}
	}
	reply := d.exec(nil, copies(30), copies(30))
	require.Equal(t, "[1 1]", line(reply))
}

// The work of reads in an entry is counted separately: whether a write is applied does not depend on it.
func TestReadsInAnEntry(t *testing.T) {
	d := newDriver(t)
	d.fill("k", 1000, 1<<40)
	d.m.budgets = smallBudgets()
	replies := d.together(pipeline("keys *", "set a 1", "keys *", "keys k5", "set b 1", "get b"),
		pipeline("keys *", "set c 1"))
	require.Len(t, replies[0][0].Elems, 1000, "the first of an entry is answered")
	require.Equal(t, []protocol.Value{
		protocol.OK, protocol.ErrNoRoom.Value(), protocol.ErrNoRoom.Value(), protocol.OK,
		protocol.Bulk("1"),
	}, replies[0][1:])
	require.Equal(t, []protocol.Value{protocol.ErrNoRoom.Value(), protocol.OK}, replies[1])
}

// A script is charged only for its own work, whatever ran before it in the batch.
func TestScriptsDoNotPayForOthers(t *testing.T) {
	d := newDriver(t)
	d.do("set", "big", strings.Repeat("x", 8<<20))
	body := pipeline(append(slices.Repeat([]string{"copy big copy replace"}, 40),
		"eval return~redis.call('set','a','1') 0")...)
	require.Less(t, len(d.apply(body)), 20, "the batch has a budget of its own")
	d.m.budgets.batch = boundless
	require.Equal(t, "OK", d.apply(body)[40].Str)
}

// Outside of the log a batch is read by one short read, and then by long reads, each of at least one request.
func TestReadsTakeTurns(t *testing.T) {
	d := newDriver(t)
	d.fill("k", 1000, 1<<40)
	d.m.budgets = smallBudgets()
	for _, c := range []struct {
		lines []string
		// replies are the numbers of requests that each call answers; the first call is a short read, the others are
		// long ones.
		replies []int
	}{
		{[]string{"get k1", "get k2"}, []int{2}},
		{slices.Repeat([]string{"get k1"}, 60), []int{38, 22}},
		{[]string{"get k1", "keys *", "get k2", "keys *"}, []int{1, 2, 1}},
		{[]string{"eval_ro while~true~do~end 0", "eval_ro for~i=1,1500~do~end 0", "get k1"}, []int{0, 1, 2}},
		{[]string{"scan 0 count 1000", "digest k1"}, []int{0, 1, 1}},
		{[]string{"mget " + strings.Repeat("k1 ", 1000), "get k1"}, []int{0, 1, 1}},
	} {
		rest, a := string(pipeline(c.lines...)), ReadShort
		for _, want := range c.replies {
			replies, left, due, err := d.m.Read(rest, 100, d.nowMillis, d.wallOffset, a)
			require.NoError(t, err)
			require.False(t, due)
			require.Equal(t, want, len(replies), "%s: %d", c.lines[0], len(rest))
			rest, a = left, ReadLong
		}
		require.Empty(t, rest, c.lines[0])
	}
}

// Leaving many queues is charged for each, before the first is left.
func TestLeavingIsCharged(t *testing.T) {
	keys := make([]string, 50)
	for i := range keys {
		keys[i] = fmt.Sprint("key:", i)
	}
	all := strings.Join(keys, " ")
	d := newDriver(t)
	require.Equal(t, "[1 PARKED PARKED PARKED PARKED]", lines(d.apply(pipeline(
		"lock.acquire key:0 other px 100000000",
		"lock-command 7 1 1000 lock.acquireall 50 "+all+" a px 1000 wait 0", "lock-command 8 2 1000 lock.acquireall 50 "+all+
			" b px 1000 wait 0",
		"wait-for-key 3 blpop absent:"+strings.Join(keys, " absent:")+" 0", "wait-for-key 4 bzpopmin absent:"+
			strings.Join(keys, " absent:")+" 0"))))
	d.m.budgets = smallBudgets()
	for i, leave := range []string{"unblock gone 1 2", "unblock gone 3 4"} {
		replies := d.together(pipeline(spin("other", 4000)), pipeline(leave))
		require.Empty(t, replies[1], "nobody leaves if not all may")
		require.Equal(t, [2]int{2, 2}, [2]int{d.m.st.Locks.Stats().Waiters + 2*i, d.m.st.Waits.Len()})
		require.Equal(t, "[2]", lines(d.together(pipeline(leave))[0]), "alone it fits")
	}
	require.Zero(t, d.m.st.Locks.Stats().Waiters+d.m.st.Waits.Len())
}

// TestNeeds runs testdata/needs.txt: the work that an entry must have left so that a request runs after a write and a
// read. All nodes must agree on it. A request that does not fit changes nothing and has no events. Below a request are
// its need, its need if no lock may end or be granted at the entry's cost, and the cost of the request alone.
//
//	do LINE           a request that runs before; # in it is each number from 0 to 99
//	advance 5         time passes, and due events run
//	jump 5            time passes, and no event runs
//	LINE              the request to measure
//	as RULES LINE     the same by a user with these ACL rules, separated by commas
//	exec LINE         the same in a transaction that watches nine keys
//	stale LINE        the same if a watched key has changed
func TestNeeds(t *testing.T) { protocoltest.Transcripts(t, "testdata/needs.txt", playNeeds) }

func playNeeds(t *testing.T, script []byte) []byte {
	d := newDriver(t)
	return protocoltest.Lines(t, script, func(words []string) []string {
		number := func() int64 {
			n, err := strconv.ParseInt(words[1], 10, 64)
			require.NoError(t, err)
			return n
		}
		switch rest := strings.Join(words[1:], " "); words[0] {
		case "do":
			for i := range map[bool]int{false: 1, true: 100}[strings.Contains(rest, "#")] {
				replies := d.apply(pipeline(strings.ReplaceAll(rest, "#", strconv.Itoa(i))))
				require.False(t, replies[0].IsError(), "%s: %v", rest, replies[0])
			}
		case "advance", "jump":
			if d.nowMillis += number(); words[0] == "advance" {
				d.advance(0)
			}
		default:
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], " ", "~") // as in a pipeline
			}
			need, without, charged := d.needs(strings.Join(words, " "))
			return []string{fmt.Sprintf("%d, %d, %d", need, without, charged)}
		}
		return nil
	})
}

// needs returns the smallest budget of an entry in which a request runs, and the smallest if no lock may end or be
// granted. charged is the cost of an entry with the request alone.
func (d *driver) needs(text string) (need, without int, charged int64) {
	before := dump(d.t, d.m)
	twin := *d
	twin.m = newMachine()
	require.NoError(d.t, twin.m.Restore(bytes.NewReader(before)))
	twin.m.SeedReads(origin)
	twin.m.Listen(event.InMessages | event.InChanges)
	var body []byte
	switch word, rest, _ := strings.Cut(text, " "); word {
	case "as":
		rules, line, _ := strings.Cut(rest, " ")
		body = ofUser(nil, 0, strings.ReplaceAll(rules, ",", " "), strings.Split(line, " ")...)
	case "exec", "stale":
		watches := make([]protocol.Watch, 9)
		for i := range watches {
			watches[i] = protocol.Watch{Key: "absent", Mark: uint64(newMark(twin.m.st.Versions, word == "exec"))}
		}
		body = protocol.AppendTransaction(nil, 0, watches, pipeline(rest))
	default:
		body = pipeline(text)
	}
	require.Len(d.t, twin.apply(body), 1)
	charged = twin.charged()
	fits := func(entry int, endings int64) bool {
		require.NoError(d.t, twin.m.Restore(bytes.NewReader(before)))
		b := &twin.m.budgets
		b.batch, b.entry, b.reads, b.lockChanges = 0, int64(entry), int64(entry), endings
		b.serving = min(defaultBudgets().serving, endings)
		twin.seq = d.seq
		got := twin.record(append(pipeline("set other 1", "keys *"), body...))
		if n := len(got.replies); n != 2 {
			return n == 3 && got.replies[2].Str != protocol.ErrNoRoom.Value().Str
		}
		over := dump(d.t, twin.m)
		require.NoError(d.t, twin.m.Restore(bytes.NewReader(before)))
		twin.seq = d.seq
		want := twin.record(pipeline("set other 1", "keys *"))
		require.Equal(d.t, dump(d.t, twin.m), over, "%s: it did not fit, and left something", text)
		require.Equal(d.t, want.events, got.events, "%s: it did not fit, and told of something", text)
		return false
	}
	least := func(endings int64) int {
		const most = 1 << 22
		n := sort.Search(most, func(entry int) bool { return fits(entry, endings) })
		require.Less(d.t, n, most, text)
		return n
	}
	if need = least(defaultBudgets().lockChanges); fits(need, 0) {
		return need, need, charged
	}
	return need, least(0), charged
}

// heavyLog generates requests that exceed small budgets.
type heavyLog struct{ *log }

func newHeavyLog(seed int64) heavyLog {
	l := newLog(seed)
	l.bodies = heavyLog{l}.body
	return heavyLog{l}
}

func (l heavyLog) body() (body []byte) {
	for range 1 + l.rng.Intn(5) {
		switch key := pick(l.rng, generatedKeys); l.rng.Intn(8) {
		case 0:
			body = append(body, l.script(key)...)
		case 1:
			queued := l.requests(0)
			for range l.rng.Intn(4) {
				queued = append(append(queued, l.script(key)...), l.requests(1)...)
			}
			body = protocol.AppendTransaction(body, l.rng.Intn(2), nil, queued)
		case 2:
			body = request(body, 0, "setrange", key, fmt.Sprint(l.rng.Intn(60_000)), "x")
		case 3:
			body = request(body, 0, pick(l.rng, []string{"keys", "keys", "digest"}), pick(l.rng, []string{"*", "a"}))
		default:
			body = append(body, l.requests(l.rng.Intn(3))...)
		}
	}
	return body
}

// script returns a script that writes, and then runs for a while.
func (l heavyLog) script(key string) []byte {
	name, does := "eval", pick(l.rng, []string{
		"redis.call('set',KEYS[1],i)", "redis.call('append',KEYS[1],'xxxxxxxxxx')",
		"redis.call('flushall')", "redis.call('swapdb','0','1')",
	})
	if l.rng.Intn(5) == 0 {
		name, does = "eval_ro", "redis.call('get',KEYS[1])"
	}
	source := fmt.Sprintf("for i=1,%d do %s end for i=1,%d do end return i", l.rng.Intn(20), does, l.rng.Intn(6000))
	return request(nil, l.rng.Intn(2), name, source, "1", key)
}

// noBudgets are unlimited.
var noBudgets = budgets{
	entry: boundless, reads: boundless, serving: boundless, lockChanges: boundless, waiting: maxWaitingBytes,
	transaction: boundless,
}

// TestTwinsOverBudget is TestTwins with batches and transactions that exceed their budgets. The third machine is the
// model: it has no budgets, and gets only the requests that the first machine has applied.
func TestTwinsOverBudget(t *testing.T) {
	cut, refused, noRoom := 0, 0, 0
	for seed := range int64(15) {
		log := newHeavyLog(seed)
		rng := rand.New(rand.NewSource(seed))
		loud, quiet, model := newMachine(), newMachine(), newMachine()
		small := smallBudgets()
		small.entry, small.transaction = 50_000+rng.Int63n(100_000), 50_000+rng.Int63n(100_000)
		model.budgets = noBudgets
		for i := range 80 {
			loud.budgets, quiet.budgets = small, small
			entry := log.next()
			got := answers{}
			require.NoError(t, loud.Apply(entry, got))
			require.NoError(t, quiet.Apply(entry, clientless{}))
			answered, n := got.of(t, entry)
			cut += n
			want := answers{}
			require.NoError(t, model.Apply(answered, want))
			for batch, replies := range got {
				for j, reply := range replies {
					switch text := line(reply); {
					case strings.Contains(text, protocol.ErrNoRoom.Error()): // also for a read in a transaction
						noRoom++
					case reply.Str == errOverTransaction.Str:
						refused++
					default:
						require.Equal(t, line(want[batch][j]), text, "seed %d, entry %d", seed, i)
					}
				}
			}
			if quiet = restoredSometimes(t, quiet, rng); i%5 == 4 {
				require.Equal(t, loud.Hash(), quiet.Hash(), "seed %d, entry %d", seed, i)
				require.Equal(t, model.Hash(), loud.Hash(), "seed %d, entry %d", seed, i)
			}
		}
	}
	t.Logf("%d requests cut, %d transactions refused, %d reads", cut, refused, noRoom)
	require.Greater(t, min(cut, refused, noRoom), 20)
}

// answers are replies by origin and number.
type answers map[string][]protocol.Value

func (answers) Wanted(protocol.Incarnation, uint64) bool { return true }

func (a answers) Done(o protocol.Incarnation, seq uint64, replies []protocol.Value, applied bool) {
	if applied {
		a[fmt.Sprint(o, seq)] = replies
	}
}

func (answers) Events([]event.Event) {}

var nothing = []string{"ping"}

// of returns the entry reduced to requests that were applied, and the number of others.
func (a answers) of(t *testing.T, data []byte) (entry []byte, cut int) {
	e, err := protocol.DecodeEntry(string(data))
	require.NoError(t, err)
	w := protocol.NewEntry(nil, e.Version, e.StampMillis, e.WallOffsetMillis, protocol.EntryLimits{})
	var b protocol.Batch
	for more, err := e.Next(&b); more; more, err = e.Next(&b) {
		require.NoError(t, err)
		replies := a[fmt.Sprint(b.Origin, b.Seq)]
		var body []byte
		var r protocol.Request
		for rest, i := b.Body, 0; rest != ""; i++ {
			rest, err = protocol.NextRequest(rest, &r)
			require.NoError(t, err)
			if r.Quota.User != "" && i < len(replies) {
				body = protocol.AppendQuota(body, &r.Quota)
			}
			switch {
			case i >= len(replies):
				cut++
			case replies[i].Str == errOverTransaction.Str, replies[i].Str == protocol.ErrNoRoom.Error():
				body = request(body, 0, nothing...)
			case r.Rights != "":
				body = ofUser(body, r.DB, r.Rights, r.Args...)
			case r.Conn != 0:
				body = requestFrom(body, r.DB, r.Conn, r.Args...)
			default:
				body = protocoltest.AppendRequest(body, r.DB, r.Args...)
			}
		}
		w.Add(b.Origin, b.Low, b.Seq, body)
	}
	return w.Bytes(), cut
}

// restoredSometimes returns m, or a machine restored from its snapshot.
func restoredSometimes(t *testing.T, m *machine, rng *rand.Rand) *machine {
	if rng.Intn(10) == 0 {
		return restored(t, m)
	}
	return m
}

// No request is free.
func TestPrices(t *testing.T) {
	p := newBudget(1000)
	p.open(100)
	require.Equal(t, int64(math.MaxInt64), p.ceiling())
	p.left -= 100
	require.Equal(t, int64(math.MaxInt64), p.ceiling(), "nothing of what is shared was spent")
	p.left--
	require.Equal(t, int64(999), p.ceiling())
	p.open(100)
	require.Equal(t, int64(1099), p.ceiling())
	p.left -= 5000
	p.open(100)
	require.Equal(t, int64(100), p.ceiling())
	p.open(100)
	require.Equal(t, int64(100), p.ceiling(), "what a batch leaves of its own is nobody's")
	r := protocol.Request{Args: []string{"get", "k"}}
	require.Equal(t, int64(requestWork+2*wordWork+9), price(&r, 9))
}

// DIGEST of a long value is charged as work, also in scripts.
func TestDigestIsWork(t *testing.T) {
	d := newDriver(t)
	d.do("set", "big", strings.Repeat("x", 4<<20))
	require.Equal(t, command.ErrOverWork, d.eval("for i=1,100 do redis.call('digest','big') end"))
	require.Equal(t, command.ErrOverWork,
		d.eval("for i=1,100 do redis.call('set','other','1','IFDEQ','0123456789abcdef') "+
			"redis.call('delex','big','IFDEQ','0123456789abcdef') end"))
}

// A value is limited however it grows.
func TestAppendHasALimit(t *testing.T) {
	d := newDriver(t)
	d.do("set", "k", strings.Repeat("x", command.MaxValueBytes-1))
	require.Equal(t, fmt.Sprint(command.MaxValueBytes), line(d.do("append", "k", "x")))
	require.Equal(t, command.ErrTooLong, d.do("append", "k", "x"))
	require.Equal(t, fmt.Sprint(command.MaxValueBytes), line(d.do("strlen", "k")))
}

// Flushing an empty database does not replace it, so a script cannot fill its journal that way. Ended keys that remain
// make no difference between nodes.
func TestFlushOfNothingKeepsNothing(t *testing.T) {
	d := newDriver(t)
	before := d.m.st.Databases
	require.Equal(t, "1", line(d.eval("for i=1,1000 do redis.call('flushall') redis.call('flushdb') end return 1")))
	for i := range before {
		require.Same(t, before[i], d.m.st.Databases[i])
	}
	d.do("set", "k", "v")
	require.Equal(t, command.ErrOverWork,
		d.eval("for i=1,100000 do redis.call('swapdb','0','1') redis.call('swapdb','1','0') end"), "each is work")
	require.Equal(t, `"v"`, line(d.do("get", "k")))
	require.Equal(t, "OK", line(d.do("flushall")))
	require.Equal(t, "nil", line(d.do("get", "k")))

	var body []byte
	for i := range 4 * sweepLimit {
		body = request(body, 0, "set", fmt.Sprint("k", i), "v", "px", "1")
	}
	d.m.budgets = noBudgets
	d.apply(body)
	d.m.budgets = defaultBudgets()
	d.nowMillis += 10
	d.apply(nil)
	ended := d.m.st.Databases[0]
	require.Equal(t, "OK", line(d.do("flushdb")))
	require.Positive(t, ended.Stored(), "not all are swept")
	require.Same(t, ended, d.m.st.Databases[0], "the rest is swept in time, and told")
	twin := restored(t, d.m)
	for range 2 {
		w := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, protocol.EntryLimits{MemoryBytes: 1})
		d.seq++
		w.Add(origin, d.seq, d.seq, pipeline("eval redis.call('flushdb')~redis.call('set','x','1') 0"))
		require.NoError(t, d.m.Apply(w.Bytes(), &recorder{}))
		require.NoError(t, twin.Apply(w.Bytes(), &recorder{}))
		require.Equal(t, dump(t, twin), dump(t, d.m))
	}
}

// EXEC's comparisons are charged.
func TestWatchedKeysAreWork(t *testing.T) {
	d := newDriver(t)
	d.m.budgets = smallBudgets()
	watches := make([]protocol.Watch, 500)
	for i := range watches {
		watches[i] = protocol.Watch{Key: fmt.Sprint("k", i), Mark: uint64(newMark(d.m.st.Versions, true))}
	}
	body := protocol.AppendTransaction(nil, 0, watches, pipeline("incr n"))
	require.Empty(t, d.together(pipeline(spin("other", 4000)), body)[1])
	require.Equal(t, "[[1]]", lines(d.apply(body)))
}

// Each key that a request writes or deletes is charged, in requests that write.
func TestWrittenKeysAreWork(t *testing.T) {
	for _, name := range []string{"del", "unlink", "mset", "msetnx", "msetex"} {
		d := newDriver(t)
		d.m.budgets = smallBudgets()
		words := []string{name}
		if name == "msetex" {
			words = append(words, "120")
		}
		for i := range 120 {
			words = append(words, fmt.Sprint("k", i))
			if strings.HasPrefix(name, "m") {
				words = append(words, "v")
			}
		}
		blocked, body := pipeline(spin("other", 4000), "set after 1"), request(nil, 0, words...)
		require.Empty(t, d.together(blocked, body)[1], name)
		require.Len(t, d.together(body, pipeline("set x 1"))[0], 1, name)
	}
	d := newDriver(t)
	require.Equal(t, command.ErrOverWork,
		d.eval("local t={} for i=1,4000 do t[i]='k'..i end for i=1,200 do redis.call('del',unpack(t)) end"))
}

// TestSetrangeHasALimit: the longest possible value is accepted, a longer one is not.
func TestSetrangeHasALimit(t *testing.T) {
	d := newDriver(t)
	require.Equal(t, command.ErrTooLong, d.do("setrange", "k", strconv.Itoa(command.MaxValueBytes), "x"))
	require.Equal(t, protocol.Integer(command.MaxValueBytes), d.do("setrange", "k", strconv.Itoa(command.MaxValueBytes-1), "x"))
}
