package audit

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// These are the scripts of lock libraries, shortened: Redlock, and Redisson's locks and read-write locks.
const (
	compareAndDelete = `if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0`
	compareAndExtend = `if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end`
	redissonLock     = `if redis.call('exists',KEYS[1])==0 or redis.call('hexists',KEYS[1],ARGV[2])==1 then
redis.call('hincrby',KEYS[1],ARGV[2],1) redis.call('pexpire',KEYS[1],ARGV[1]) return nil end
return redis.call('pttl',KEYS[1])`
	redissonUnlock = `if redis.call('hexists',KEYS[1],ARGV[2])==0 then return nil end
if redis.call('hincrby',KEYS[1],ARGV[2],-1)>0 then redis.call('pexpire',KEYS[1],ARGV[1]) return 0 end
redis.call('del',KEYS[1]) redis.call('publish','c','0') return 1`
	redissonRead = `local mode=redis.call('hget',KEYS[1],'mode')
if mode==false then redis.call('hset',KEYS[1],'mode','read') redis.call('hset',KEYS[1],ARGV[2],1)
redis.call('set','timeout:'..KEYS[1]..ARGV[2],1) redis.call('pexpire','timeout:'..KEYS[1]..ARGV[2],ARGV[1])
redis.call('pexpire',KEYS[1],ARGV[1]) return nil end
if mode=='read' or mode=='write' and redis.call('hexists',KEYS[1],ARGV[2]..':write')==1 then
redis.call('hincrby',KEYS[1],ARGV[2],1) redis.call('pexpire',KEYS[1],math.max(redis.call('pttl',KEYS[1]),ARGV[1])) end`
	redissonReadUnlock = `if redis.call('hexists',KEYS[1],ARGV[2])==0 then return nil end
if redis.call('hincrby',KEYS[1],ARGV[2],-1)==0 then redis.call('hdel',KEYS[1],ARGV[2]) end
if redis.call('hlen',KEYS[1])>1 then return 0 end
redis.call('del',KEYS[1]) return 1`
	redissonWrite = `local mode=redis.call('hget',KEYS[1],'mode')
if mode==false then redis.call('hset',KEYS[1],'mode','write') redis.call('hset',KEYS[1],ARGV[2]..':write',1)
redis.call('pexpire',KEYS[1],ARGV[1]) return nil end`
	redissonWriteUnlock = `local owner=ARGV[2]..':write'
if redis.call('hexists',KEYS[1],owner)==0 then return nil end
redis.call('hdel',KEYS[1],owner)
if redis.call('hlen',KEYS[1])==1 then redis.call('del',KEYS[1]) else redis.call('hset',KEYS[1],'mode','read') end`
	undone = `redis.call('set',KEYS[1],ARGV[2],'NX','PX',ARGV[1]) redis.call('del',KEYS[1]) redis.call('nosuch')`
)

// stockRun has a node that audits, a second one that is restored from snapshots, and a third that does not audit. The
// reader follows the audit lines.
type stockRun struct {
	*testing.T
	*rand.Rand
	machines  [3]fsm.Machine
	index     uint64
	nowMillis int64
	encoder   encoder
	text      []byte
	reader    holdBuilder
}

const wallOffset = 1_790_000_000_000

func newStockRun(t *testing.T, seed uint64) *stockRun {
	r := &stockRun{
		T: t, Rand: rand.New(rand.NewPCG(seed, seed)), nowMillis: 1000, encoder: encoder{cluster: "c"},
		reader: holdBuilder{open: map[lockID]map[string]int{}},
	}
	for i := range r.machines {
		r.machines[i] = fsm.New()
		if i < 2 {
			r.machines[i].Listen(event.InLocks)
		}
	}
	return r
}

// heard is a sink that keeps the events only.
type heard struct{ events []event.Event }

func (h *heard) Wanted(protocol.Incarnation, uint64) bool                  { return false }
func (h *heard) Done(protocol.Incarnation, uint64, []protocol.Value, bool) {}
func (h *heard) Events(events []event.Event)                               { h.events = events }

func words(conn int64, db int, line ...string) []byte {
	head := protocol.Head{DB: db, Conn: conn}
	if family, _, _ := strings.Cut(line[0], "."); family == "lock" || family == "session" {
		tickets++
		head = protocol.Head{DB: db, Conn: 1 + conn, Lock: true, Ticket: tickets, GraceMillis: 5}
	}
	return protocol.AppendRequest(nil, head, line[0], protocoltest.Args(line[1:]))
}

var tickets uint64 // of requests that may wait

// apply applies a batch on all nodes, and has the reader follow the lines. A line must begin a hold, or be of one that
// has begun and not ended.
func (r *stockRun) apply(body []byte) {
	r.index++
	w := protocol.NewEntry(nil, protocol.EntryVersion, r.nowMillis, wallOffset, protocol.EntryLimits{})
	w.Add(protocol.Incarnation{Node: "n1", Epoch: 1}, r.index, r.index, body)
	var lines [2][]byte
	for i, m := range r.machines {
		var h heard
		require.NoError(r, m.Apply(w.Bytes(), &h))
		if last := len(h.events) - 1; last >= 0 && h.events[last].Kind == event.LocksChanged {
			for n := range h.events[last].Changes {
				lines[i] = r.encoder.append(lines[i], r.index, n, &h.events[last].Changes[n], "")
			}
		}
	}
	require.Equal(r, string(lines[0]), string(lines[1]), "nodes write the same")
	r.text = append(r.text, lines[0]...)
	trail, err := Read([]io.Reader{bytes.NewReader(lines[0])}, func(*Line) bool { return true })
	require.NoError(r, err)
	require.Len(r, trail.Lines, bytes.Count(lines[0], []byte{'\n'}))
	for i := range trail.Lines {
		l := &trail.Lines[i]
		open := r.reader.open[lockID{l.Cluster, l.DB, l.Key}]
		switch _, holds := open[l.Owner]; {
		case l.Event == event.LockGranted:
			require.False(r, holds || !l.Shared && len(open) > 0, "granted again: %s", lines[0])
		case l.Count > 0:
			require.Len(r, open, int(l.Count), "%s", lines[0])
		case !l.OfDatabase() && l.Event != event.LockWaitEnded:
			require.True(r, holds, "no hold ends: %s", lines[0])
		}
		r.reader.add(l)
	}
}

func (r *stockRun) read(db int, line ...string) protocol.Value {
	body := protocol.AppendRequest(nil, protocol.Head{DB: db}, line[0], protocoltest.Args(line[1:]))
	replies, _, due, err := r.machines[0].Read(string(body), 1, r.nowMillis, wallOffset, fsm.ReadLong)
	require.NoError(r, err)
	require.False(r, due)
	require.Len(r, replies, 1)
	return replies[0]
}

// holders returns the holders of native locks, and those of the stock locks by the present values of their keys.
func (r *stockRun) holders() (all []string) {
	for _, row := range r.read(0, "lock.list", "count", "1000").Elems[1].Elems {
		key, db := row.Elems[1].Str, int(row.Elems[3].Num)
		if row.Elems[5].Str != "stock" {
			for _, h := range row.Elems[15].Elems {
				all = append(all, fmt.Sprintf("%d %q %q", db, key, h.Elems[1].Str))
			}
			continue
		}
		owners := []protocol.Value{r.read(db, "get", key)}
		if owners[0].IsError() {
			owners = r.read(db, "hkeys", key).Elems
			owners = slices.DeleteFunc(owners, func(v protocol.Value) bool { return v.Str == "mode" })
		}
		for _, owner := range owners {
			all = append(all, fmt.Sprintf("%d %q %q", db, cutName(key), cutName(owner.Str)))
		}
	}
	slices.Sort(all)
	return all
}

// open returns the holds of which the reader knows no end.
func (r *stockRun) open() (all []string) {
	for id, owners := range r.reader.open {
		for owner := range owners {
			all = append(all, fmt.Sprintf("%d %q %q", id.db, id.key, owner))
		}
	}
	slices.Sort(all)
	return all
}

func (r *stockRun) pick(words ...string) string { return words[r.IntN(len(words))] }

// native returns a random command for native locks.
func (r *stockRun) native() []string {
	lock, owner, lease := r.pick("n1", "n2"), r.pick("t1", "t2"), strconv.Itoa(1+r.IntN(3000))
	session := "0"
	if open := r.read(0, "session.list").Elems[1].Elems; len(open) > 0 {
		session = strconv.FormatInt(open[r.IntN(len(open))].Elems[1].Num, 10)
	}
	bound := [][]string{{"px", lease}, {"session", session}}[r.IntN(2)]
	all := [][]string{
		append([]string{"lock.acquire", lock, owner}, bound...),
		append([]string{"lock.acquire", lock, owner, "wait", lease}, bound...),
		append([]string{"lock.acquire", lock, owner, "shared"}, bound...),
		append([]string{"lock.acquire", lock, owner, "shared", "wait", "0"}, bound...),
		append([]string{"lock.acquire", lock, owner, "limit", "2"}, bound...),
		append([]string{"lock.acquireall", "2", "n1", "n2", owner}, bound...),
		append([]string{"lock.acquireall", "2", "n1", "n2", owner, "wait", lease}, bound...),
		{"lock.release", lock, owner},
		{"lock.releaseall", "2", "n1", "n2", owner},
		{"lock.renew", lock, owner, "px", lease},
		{"lock.downgrade", lock, owner},
		{"lock.cancel", lock, owner},
		{"lock.break", lock, "owner", owner},
		{r.pick("lock.break", "del"), lock},
		{"session.open", "px", lease},
		{"session.close", session},
	}
	return all[r.IntN(len(all))]
}

// line returns a random command that acquires, renews, releases or breaks a stock lock, or changes its key otherwise.
func (r *stockRun) line() []string {
	long := strings.Repeat("x", 1100)
	key, other := r.pick("a", "b", "c"), r.pick("a", "b", "c", long+"1", long+"2")
	token := r.pick("t1", "t2", "", "mode", "\xff\x00", long+"1", long+"2")
	lease, db := strconv.Itoa(1+r.IntN(3000)), strconv.Itoa(r.IntN(3))
	hash := r.pick("h1", "h2")
	script := func(source, key string) []string { return []string{"eval", source, "1", key, lease, token} }
	all := [][]string{
		{"set", key, token, "NX", "PX", lease},
		{"set", other, token, "NX", "PX", lease},
		{"set", key, token, "PX", lease, r.pick("XX", "NX", "GET")},
		{"set", key, token, "IFEQ", "t1", "PX", lease},
		{"set", key, token},
		{"set", key, token, "KEEPTTL"},
		{"setnx", key, token},
		{"setnx", key, token},
		{"setex", key, "1", token},
		{"getset", key, token},
		{"mset", key, token, other, token},
		{"msetnx", key, token},
		{"msetex", "2", key, token, other, token, r.pick("NX", "XX"), "PX", lease},
		{"append", key, "1"},
		{"incr", key},
		{"set", key, "5", "NX", "PX", lease},
		{"setrange", key, "0", token},
		{r.pick("del", "unlink", "getdel", "persist"), r.pick(key, hash)},
		{"del", key, other},
		{"pexpire", r.pick(key, key, hash), lease},
		{"pexpire", r.pick(key, hash), "-1"},
		{"getex", key, "PX", lease},
		{"getex", key, "PERSIST"},
		{"delifeq", key, token},
		{"delex", key, "IFEQ", token},
		{"eval", compareAndDelete, "1", key, token},
		{"eval", compareAndExtend, "1", key, token, lease},
		{r.pick("rename", "renamenx"), r.pick(key, hash), r.pick(other, hash)},
		{"move", r.pick(key, hash), db},
		{"copy", r.pick(key, hash), r.pick(other, hash), "DB", db, "REPLACE"},
		{"sort", "list", "STORE", r.pick(key, hash)},
		{"sunionstore", r.pick(key, hash), r.pick("set", "none")},
		{"lock.break", r.pick(key, hash)},
		{"lock.break", r.pick(key, hash), "OWNER", r.pick("t1", "t2"), "REASON", "stuck"},
		script(redissonLock, hash), script(redissonUnlock, hash), script(redissonRead, hash),
		script(redissonReadUnlock, hash), script(redissonWrite, hash), script(redissonWriteUnlock, hash),
		script(undone, r.pick(key, hash)),
		{"hset", hash, token, "1", "t2", "1"},
		{"hsetnx", hash, token, "1"},
		{"hincrby", hash, token, "1"},
		{"hdel", hash, token, "t1", "t1"},
		{"hdel", hash, "mode"},
		{"hmset", hash, token, "1"},
		{"hincrbyfloat", hash, token, "1"},
		{"incrbyfloat", key, "1"},
		{"setbit", key, "3", "1"},
		{"bitop", "not", key, other},
		{"zunionstore", r.pick(key, hash), "1", "none"},
		{"expireat", r.pick(key, hash), "1"},
		{"psetex", key, lease, token},
		{"getex", key, "PXAT", "1"},
	}
	if r.IntN(12) == 0 {
		all = [][]string{
			{"swapdb", strconv.Itoa(r.IntN(3)), db}, {"flushdb"}, {"flushall"}, {"rpush", "list", "1"}, {"sadd", "set", "1"},
		}
	}
	return all[r.IntN(len(all))]
}

// TestLocksAsRead shows that after each entry the audit lines have the same holders as LOCK.LIST and the values of the
// keys, with one line for each beginning and each end. Nodes write the same lines, and a node that audits has the same
// state as one that does not.
func TestLocksAsRead(t *testing.T) {
	seeds, steps := uint64(12), 600
	if testing.Short() {
		seeds = 2
	}
	seen := map[string]int{}
	for seed := range seeds {
		r := newStockRun(t, 1+seed)
		for range steps {
			var body []byte
			queued, db := 1+r.IntN(3), r.IntN(3)
			for range queued {
				line := r.line()
				if db == 2 && r.IntN(2) == 0 { // a database with native locks is not swapped
					line = r.native()
				}
				body = append(body, words(int64(r.IntN(4)), db, line...)...)
			}
			if r.IntN(5) == 0 {
				body = protocol.AppendTransaction(nil, db, nil, body)
			}
			r.nowMillis += int64(r.IntN(2) * r.IntN(900))
			r.apply(body)
			require.Equal(t, r.holders(), r.open(), "seed %d, index %d", 1+seed, r.index)
			if r.IntN(20) == 0 {
				var snapshot bytes.Buffer
				_, err := r.machines[1].Snapshot().WriteTo(&snapshot)
				require.NoError(t, err)
				require.NoError(t, r.machines[1].Restore(&snapshot))
			}
		}
		require.Equal(t, r.machines[2].Hash(), r.machines[0].Hash(), "an auditor changes nothing")
		trail, err := Read([]io.Reader{bytes.NewReader(r.text)}, func(*Line) bool { return true })
		require.NoError(t, err)
		for _, h := range trail.Holds() {
			require.Empty(t, h.Uncertain, "%+v", h)
			seen[h.Ended+" "+h.Reason]++
		}
	}
	require.NotContains(t, seen, EndMissing+" ")
	for _, end := range []string{
		"released ", "lost expired", "lost broken", "lost flushed", "swapped ", "renewed ", "lost session",
	} {
		require.NotZero(t, seen[end], "%s: the test is too easy: %v", end, seen)
	}
}

// TestCrowdsAsRead shows that the holds of a database with more keys than a flush names end, as do those of a hash with
// more owners than are named, also after a swap of databases.
func TestCrowdsAsRead(t *testing.T) {
	r := newStockRun(t, 1)
	var body []byte
	fields := []string{"hset", "h"}
	for i := range 10_100 {
		if i < 1500 {
			fields = append(fields, fmt.Sprint("o", i), "1")
		}
		if body = append(body, words(1, 0, "set", fmt.Sprint("k", i), "t", "NX", "PX", "60000")...); i%100 == 99 {
			r.apply(body)
			body = nil
		}
	}
	r.apply(append(words(1, 1, "eval", redissonLock, "1", "h", "60000", "me"), words(1, 1, fields...)...))
	readers := []string{"hset", "m"} // as many fields as are named, besides the mode
	for i := range 99 {
		readers = append(readers, fmt.Sprint("o", i), "1")
	}
	r.apply(append(words(1, 1, "eval", redissonRead, "1", "m", "60000", "me"), words(1, 1, readers...)...))
	r.nowMillis += 5000
	r.apply(words(1, 0, "swapdb", "1", "0"))
	require.Len(t, r.open(), 10_100+1501+100)
	r.nowMillis += 5000
	r.apply(words(2, 0, "del", "h", "m"))
	require.Len(t, r.open(), 10_100)
	r.apply(words(1, 1, "flushdb"))
	require.Empty(t, r.open())
	require.Empty(t, r.holders())
	require.Less(t, bytes.Count(r.text, []byte{'\n'}), 2*10_100+1501+200+10)
	for i := range r.reader.holds {
		require.Empty(t, r.reader.holds[i].Uncertain)
	}
}
