package fsm

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// answersStep is the number of entries in a line.
const answersStep = 50

// TestGoldenAnswers: replies, events, counts and costs of a log of all commands, of users, polling clients and
// concurrent reads are as in the golden file, for each entry version. Costs decide which requests are applied, so they
// never change for a released version. -rewrite accepts other replies, and other costs of the newest version; without
// answers.log.gz it generates a new log.
func TestGoldenAnswers(t *testing.T) {
	const name = "testdata/answers.log.gz"
	if _, err := os.Stat(name); protocoltest.Rewriting() && errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, os.WriteFile(name, drawnAnswers(t, 11, 2000), 0o644))
	}
	log := readGoldenLog(t, name)
	for version := byte(protocol.OldestEntryVersion); version <= protocol.EntryVersion; version++ {
		for i := 0; i < len(log); i += 2 {
			log[i][0] = version
		}
		for file, got := range answersTo(t, log, player{}) {
			golden := fmt.Sprintf("testdata/%s-v%d.txt", file, version)
			if protocoltest.Rewriting() && (file == "answers" || version == protocol.EntryVersion) {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got, "%s of version %d", file, version)
		}
	}
}

// TestRestoredAnswers: a machine that is sometimes replaced by its snapshot gives the same replies, costs and state,
// and no events of skipped entries.
func TestRestoredAnswers(t *testing.T) {
	logs := [][][]byte{readGoldenLog(t, "testdata/answers.log.gz")}
	for seed := range int64(3) {
		logs = append(logs, unpacked(t, bytes.NewReader(drawnAnswers(t, 1+seed, 700))))
	}
	for i, log := range logs {
		want, every := answersTo(t, log, player{skipsSeen: true}), []int{7, 2}[i%2]
		got := answersTo(t, log, player{skipsSeen: true, restores: every})
		require.Equal(t, want, got, "log %d, through a snapshot after each %d entries", i, every)
	}
}

// answersTo returns the replies and costs of a log of entries, run by p.
func answersTo(t testing.TB, log [][]byte, p player) map[string]string {
	p.begin(t)
	for i := 0; i < len(log); i += 2 {
		p.apply(log[i])
		p.read(string(log[i+1]))
		if p.restores > 0 && p.n%p.restores == 0 {
			require.NoError(t, p.m.Restore(bytes.NewReader(dump(t, p.m))))
			require.Empty(t, p.m.Skipped())
		}
	}
	return map[string]string{"answers": p.answers.lines, "charges": p.charges.lines}
}

// chain hashes a number of entries per line.
type chain struct {
	hash.Hash
	lines string
}

// end completes an entry.
func (c *chain) end(n int) {
	if n%answersStep == 0 {
		c.lines += fmt.Sprintf("%d %x\n", n, c.Sum(nil)[:8])
		c.Reset()
	}
}

// player is a machine that runs a log, and the sink of all events.
type player struct {
	t                testing.TB
	m                *machine
	n                int
	answers, charges chain
	cursors          []string // in replies to reads
	// restores is the number of entries after which the machine is replaced by its snapshot; 0 means never.
	restores int
	// skipsSeen leaves out the counts of lock classes and the events of slow locks. Both depend on the entries that the
	// node has applied since its start.
	skipsSeen bool
}

func (p *player) begin(t testing.TB) {
	p.t, p.m, p.answers, p.charges = t, newMachine(), chain{Hash: sha256.New()}, chain{Hash: sha256.New()}
	p.m.ClassifyLocks([]string{"s*", "[ab]"})
}

func (p *player) Wanted(_ protocol.Incarnation, seq uint64) bool { return seq%8 > 0 }

func (p *player) Done(_ protocol.Incarnation, _ uint64, replies []protocol.Value, applied bool) {
	c := &p.m.call
	fmt.Fprintln(&p.charges, c.writeBudget.left, c.readBudget.left, c.wakeBudget.left, c.lockWorkLeft)
	fmt.Fprintln(&p.answers, applied, len(replies))
	for _, reply := range replies {
		p.answers.Write(reply.AppendTo(nil, protocol.RESP3))
	}
}

func (p *player) Events(events []event.Event) {
	for _, e := range events {
		if p.skipsSeen && e.Kind == event.LockSlow {
			continue
		}
		if e.Reply != nil {
			p.answers.Write(e.Reply.AppendTo(nil, protocol.RESP3))
		}
		if e.Lock != nil {
			fmt.Fprintln(&p.answers, *e.Lock)
		}
		if e.Forced != nil {
			fmt.Fprintln(&p.answers, *e.Forced)
		}
		for _, ch := range e.Changes {
			fmt.Fprintln(&p.answers, ch)
		}
		e.Reply, e.Lock, e.Forced, e.Changes = nil, nil, nil, nil
		fmt.Fprintln(&p.answers, e)
	}
}

// apply applies an entry; every third has small budgets.
func (p *player) apply(entry []byte) {
	m := p.m
	m.Listen(math.MaxUint32)
	m.SeedReads(protocol.Incarnation{Node: "n1", Epoch: uint64(1 + max(0, m.st.ClockMillis)/2_000_000_000)})
	m.budgets = defaultBudgets()
	if p.n%3 == 2 {
		m.budgets = smallBudgets()
		m.budgets.batch, m.budgets.entry = 4000, 5000
		m.budgets.lockChanges, m.budgets.serving, m.budgets.waiting = int64(p.n%7)*8192, int64(p.n%5)*4000, int64(p.n%11)*300
	}
	require.NoError(p.t, m.Apply(entry, p))
	c := &m.call
	fmt.Fprintln(&p.charges, c.readBudget.left, c.wakeBudget.left, c.lockWorkLeft)
}

// read runs a body as reads, and queries everything else that a machine reports.
func (p *player) read(body string) {
	m := p.m
	for class := ReadShort; body != ""; class = ReadLong {
		now := m.st.ClockMillis + int64(p.n%4/3*40)
		replies, rest, due, err := m.Read(body, 10, now, m.st.wallOffsetMillis, class)
		require.NoError(p.t, err)
		fmt.Fprintln(&p.answers, len(rest), due)
		for _, reply := range replies {
			p.answers.Write(reply.AppendTo(nil, protocol.RESP3))
			if reply.Kind == protocol.KindArray && len(reply.Elems) == 2 && reply.Elems[0].Kind == protocol.KindBulk {
				p.cursors = append(p.cursors, reply.Elems[0].Str)
			}
		}
		if due || rest == body && class == ReadLong {
			break
		}
		body = rest
	}
	for _, key := range []string{"s1", "s2", "a", "b"} {
		claim := request(nil, p.n%3, "set", key, "t9", "nx")
		would := []bool{m.IsNoop(string(claim), m.st.ClockMillis), m.Waits(m.call.thisNode, uint64(p.n%50))}
		for _, words := range []string{"blpop list 0", "bzpopmin zset b 0", "brpoplpush list zset 0", "get a"} {
			args := bytes.Fields([]byte(words))
			body := protocol.AppendRequest(nil, protocol.Head{DB: p.n % 3, Ticket: 1}, string(args[0]), args[1:])
			would = append(would, m.IsNoop(string(body), m.st.ClockMillis))
		}
		for _, words := range []string{"t9 px 9 wait 9", "me px 9 shared wait 0", "t9 px 9 limit 2 wait 9 notify", "t9"} {
			args := bytes.Fields([]byte(key + " " + words))
			body := protocol.AppendRequest(nil, protocol.Head{DB: p.n % 3, Lock: true, Conn: 1, Ticket: 2}, "lock.acquire", args)
			would = append(would, m.IsNoop(string(body), m.st.ClockMillis))
		}
		fmt.Fprintln(&p.answers, would)
	}
	due, some := m.NextDue()
	fmt.Fprintf(&p.answers, "%d %t %v %v", due, some, m.Stats(), m.LockStats())
	if !p.skipsSeen {
		classes := m.LockClasses()
		for i := range classes {
			classes[i].Native.Refusals = 0 // newer than the golden file
		}
		fmt.Fprintf(&p.answers, " %v", classes)
	}
	fmt.Fprintln(&p.answers)
	for db := range 3 {
		fmt.Fprintf(&p.answers, "%v %v\n", m.StockWaiters(db, "s1"), m.StockWaiters(db, "s2"))
	}
	m.KeptSessions(func(conn int64, session uint64, leaseMillis int64) {
		fmt.Fprintln(&p.answers, conn, session, leaseMillis)
	})
	if p.n++; p.n%answersStep == 0 {
		fmt.Fprintf(&p.answers, "%v %v %s\n", m.Survey(3), m.WaitingIncarnations(), m.Hash())
	}
	p.answers.end(p.n)
	p.charges.end(p.n)
}

// drawnAnswers generates a log of entries, each followed by a body of reads.
func drawnAnswers(t testing.TB, seed int64, entries int) []byte {
	l, p := newLog(seed), new(player)
	p.begin(t)
	l.machine = p.m
	l.bodies = func() []byte {
		db := l.rng.Intn(3)
		switch l.rng.Intn(8) {
		case 0:
			return l.body()
		case 4:
			return l.anyWord(l.quota(l.anyWord(nil, db)), db)
		case 5:
			return l.waitingRequest(l.quota(l.waitingRequest(nil, db)), db)
		case 1, 2, 3:
			return l.lookAround(l.stockRequest(l.lockRequest(nil, db), db), db, p.cursors)
		}
		body := l.stockRequest(l.stockRequest(nil, db), db)
		if l.rng.Intn(4) == 0 {
			watches := []protocol.Watch{{DB: db, Key: "s1", Mark: l.mark()}}
			body = protocol.AppendTransaction(nil, db, watches[:l.rng.Intn(2)], body)
		}
		return body
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	for range entries {
		entry := l.next()
		p.apply(entry)
		body := l.lookAround(l.lookAround(nil, l.rng.Intn(3), p.cursors), l.rng.Intn(3), p.cursors)
		p.read(string(body))
		for _, b := range [][]byte{entry, body} {
			_, err := z.Write(append(binary.AppendUvarint(nil, uint64(len(b))), b...))
			require.NoError(t, err)
		}
	}
	require.NoError(t, z.Close())
	return out.Bytes()
}

// stockRequest appends an acquire, poll, renewal, release or forced release of a stock lock.
func (l *log) stockRequest(body []byte, db int) []byte {
	key, token := pick(l.rng, []string{"s1", "s2", "s3"}), pick(l.rng, []string{"t1", "t2", "mode", "t4"})
	conn, lease := uint64(l.rng.Intn(4)), strconv.Itoa(1+l.rng.Intn(3000))
	say := func(words ...string) []byte { return requestFrom(body, db, conn, words...) }
	switch l.rng.Intn(32) {
	case 0, 1, 2, 3, 4, 5:
		return say("set", key, token, "nx", "px", lease)
	case 6:
		return say("set", key, token, "nx")
	case 7:
		return say("setnx", key, token)
	case 8:
		return say("pexpire", key, lease)
	case 9, 10:
		return say("eval", `if redis.call('exists',KEYS[1]) == 0 or redis.call('hexists',KEYS[1],ARGV[2]) == 1 then
redis.call('hincrby',KEYS[1],ARGV[2],1) return redis.call('pexpire',KEYS[1],ARGV[1]) end
return redis.call('pttl',KEYS[1])`,
			"1", key, lease, token)
	case 11:
		words := []string{"eval", `for i=2,#ARGV do redis.call('hset',KEYS[1],ARGV[i],i) end
return redis.call('pexpire',KEYS[1],ARGV[1])`, "1", key, lease, token, "mode"}
		for i := range l.rng.Intn(200) {
			words = append(words, fmt.Sprint("o", i))
		}
		return say(words...)
	case 12:
		return say("eval", "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end", "1", key, token)
	case 13:
		return say("delifeq", key, token)
	case 14:
		return say(pick(l.rng, []string{"del", "unlink", "getdel", "persist", "incr"}), key)
	case 15:
		return say("lock.break", key, "owner", token, "reason", "why")
	case 16:
		return say(append([]string{"lock.break", key}, [][]string{{}, {"fence", "1"}, {"delay", "5"}}[l.rng.Intn(3)]...)...)
	case 17:
		return say("rename", key, "s1")
	case 18:
		return say("set", key, token, pick(l.rng, []string{"xx", "get", "keepttl"}))
	case 19:
		return say("move", key, strconv.Itoa(l.rng.Intn(3)))
	case 20:
		return say([][]string{{"flushdb"}, {"flushall"}, {"swapdb", "0", strconv.Itoa(l.rng.Intn(3))}}[l.rng.Intn(3)]...)
	case 21:
		return say(append([]string{"hdel", key, token}, [][]string{{}, {"t1", "t2", "mode", "t4"}}[l.rng.Intn(2)]...)...)
	case 22, 23, 24, 25, 26, 27:
		return say("set", "s1", token, "nx", "px", "3000")
	case 28, 29:
		return say("set", "s2", fmt.Sprint("poll", conn), "nx", "px", "3000")
	case 30:
		return say("fence.raise", strconv.Itoa(l.rng.Intn(100)))
	}
	return say("hset", key, "mode", "write")
}

// anyWord appends a lock command or any other, as a client or as a script of a user with rules.
func (l *log) anyWord(body []byte, db int) []byte {
	words := l.gen.next()
	for !strings.Contains(words[0], ".") && l.rng.Intn(30) > 0 {
		words = l.gen.next()
	}
	args := protocoltest.Args(words[1:])
	switch l.rng.Intn(4) {
	case 0:
		source := pick(l.rng, []string{
			"return redis.call(unpack(ARGV))", "return redis.pcall(unpack(ARGV))", "return {redis.acl_check_cmd(unpack(ARGV))}",
			"redis.call('set','c','1') return redis.call(unpack(ARGV))", "redis.log(1,'x') for i=1,#ARGV*100 do end return 1",
			"#!lua flags=no-writes\nreturn redis.call(unpack(ARGV))",
		})
		rules := pick(l.rng, []string{
			"~a ~b +@all", "+@all -set ~*", "%R~* +@read", "~* +@all",
			"-@all (~a +incr) ~c +lock.acquire",
		})
		return ofUser(body, db, rules, append([]string{pick(l.rng, []string{"eval", "eval_ro"}), source, "0"}, words...)...)
	case 1:
		return protocol.AppendTransaction(body, db, nil, request(request(nil, db, words...), db, "incr", "counter"))
	case 2:
		return request(body, db, words...)
	}
	head := protocol.Head{DB: db, Lock: true, Conn: int64(1 + l.rng.Intn(3)), Ticket: uint64(l.rng.Intn(50)), GraceMillis: 50}
	head.User = pick(l.rng, []string{"", "user", "other"})
	return protocol.AppendRequest(body, head, strings.ToLower(words[0]), args)
}

// waitingRequest appends a request that waits for a value, pushes one, or ends a wait.
func (l *log) waitingRequest(body []byte, db int) []byte {
	ticket := uint64(l.rng.Intn(50))
	key, other := pick(l.rng, []string{"list", "zset", "b"}), pick(l.rng, []string{"list", "zset", "c"})
	timeout := pick(l.rng, []string{"0", "0.1", "5"})
	say := func(words ...string) []byte {
		return request(body, db, append([]string{"wait-for-key", strconv.FormatUint(ticket, 10)}, words...)...)
	}
	switch l.rng.Intn(10) {
	case 0, 1:
		return say("blpop", key, other, timeout)
	case 2:
		return say("bzpopmin", key, timeout)
	case 3:
		return say("blmove", key, other, "left", "right", timeout)
	case 4:
		return say("bzmpop", timeout, "2", key, other, "max", "count", "2")
	case 5:
		how := pick(l.rng, []protocol.Leave{protocol.LeaveGone, protocol.LeaveError, protocol.LeaveTimeout})
		return protocol.AppendUnblock(body, how, ticket, ticket+1)
	case 6:
		epoch := uint64(1 + l.rng.Intn(5))
		return protocol.AppendDrop(body, protocol.Incarnation{Node: pick(l.rng, []string{"n1", "n2"}), Epoch: epoch})
	case 7:
		return request(body, db, "zadd", key, "1", "x", "2", "y")
	case 8:
		return request(body, db, pick(l.rng, []string{"swapdb", "del"}), "1", "2")
	}
	return request(body, db, "rpush", key, "v", "w")
}

// lookAround appends a read, mostly a list of locks.
func (l *log) lookAround(body []byte, db int, cursors []string) []byte {
	words := []string{pick(l.rng, []string{
		"lock.list", "lockranks", "lock.list", "lockranks", "lock.history", "lock.history", "session.list",
		"lock.info", "lock.info", "lockrow", "session.info", "", "", "", "",
	})}
	switch words[0] {
	case "":
		for words = l.gen.next(); ; words = l.gen.next() {
			row, _ := protocol.Find(words)
			if row != nil && row.Route == protocol.Read {
				break
			}
		}
	case "lock.info", "lockrow", "session.info":
		words = append(words, pick(l.rng, []string{"a", "b", "c", "s1", "s2", "s3", "1", "3"}))
		if words[0] == "lockrow" {
			words = append(words, strconv.Itoa(l.rng.Intn(4)))
		}
	default:
		words = append(words, l.listOptions(words[0], cursors)...)
	}
	return request(body, db, words...)
}

// listOptions draws options of a list.
func (l *log) listOptions(list string, cursors []string) (words []string) {
	option := func(chance int, name string, values ...string) {
		if l.rng.Intn(chance) == 0 {
			if words = append(words, name); len(values) > 0 {
				words = append(words, pick(l.rng, values))
			}
		}
	}
	if list != "session.list" {
		option(4, "match", "*", "s*", "[abs]*", "s1", "nothing")
		option(4, "owner", "me", "you", "t1", "t2", "mode")
		option(4, "db", "0", "1", "2", "3", "16")
	}
	switch list {
	case "lock.list", "lockranks":
		option(8, "session", "1", "2", "3", "0")
		option(4, pick(l.rng, []string{"held", "waiting", "waiting"}))
		option(10, "held")
	case "lock.history":
		option(3, pick(l.rng, []string{"native", "stock"}))
	}
	option(2, "count", "1", "2", "3", "10", "1000", "0")
	if len(cursors) > 0 {
		option(2, "cursor", cursors[max(0, len(cursors)-4):]...)
	}
	part := uint64(l.rng.Intn(40)) << partShift
	option(6, "cursor", fmt.Sprint(part), fmt.Sprint(part+uint64(l.rng.Intn(3))), "5", fmt.Sprint(uint64(1)<<63))
	return words
}
