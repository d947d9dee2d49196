package fsm

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// FuzzApply runs arbitrary words as commands on two machines. The second answers nothing, and is replaced by its
// snapshot in between. No command panics, and both machines end up equal.
//
// Each line is a command line of words separated by blanks. A line of one digit selects a database; a line that begins
// with ! is queued for the next transaction.
func FuzzApply(f *testing.F) {
	f.Add("set a b px 100\nget a\n2\nset c d\n!incr c\n!get c\nexec\neval return(1) 0")
	f.Add("object|encoding a\nscript|load return\nmset a b c\nscan 0 count 1\ncopy a b db 2 replace")
	f.Add("setrange a 4000 x\nincrbyfloat a 1e4000\nexpire a 9223372036854775807 nx gt")
	f.Add("watch a\nexec\nexec a\nexec a b\nswapdb 0 1\nflushall\nrandomkey")
	f.Add("hset h f v\n!hset h g w\n!hdel h f\nexec\ncopy h i\nhset i f x\nrename h j\nhgetall j\nget j\nmove i " +
		"1\npexpire j 10\ndel j")
	f.Add("rpush l a b c\neval redis.call('lpop',KEYS[1])return(redis.call('get',KEYS[1])) 1 l\nlrange l 0 -1\nsadd s " +
		"1 2 x\nsmove s t x\nset s v")
	f.Add("lock-command 1 7 100 lock.acquire a me px 40\nlock-command 2 8 100 lock.acquire a you px 90 wait 0\nset a b\n" +
		"del a\nlock.info a\nlock.list\nflushall\nunblock gone 8")
	f.Add("lock-command 1 0 0 session.open px 1000 connection\nlock-command 1 1 0 lock.acquireall 2 a b me session 1 wait " +
		"100 delay 50\nnode-keepalive\nlock-command 2 0 0 session.attach 1\nend-connections 1\nsession.list\n" +
		"session.close 1\nend-connections 2")
	f.Add("lock.acquire a me px 100 shared\nlock.acquire a x px 10 limit 3 permits 2\n!lock.release a " +
		"me\n!lock.acquire a y px 1 reentrant call q\nexec\nlock.downgrade a y\nlock.break a delay 100\n" +
		"1\nfence.pass f 3\ndrop n1 1")
	for _, script := range generatedScripts {
		f.Add("eval " + strings.ReplaceAll(script, " ", "\t") + " 1 a b")
	}
	f.Fuzz(func(t *testing.T, text string) {
		loud, quiet := newMachine(), newMachine()
		var queued []byte
		db := 0
		for i, text := range strings.SplitN(text, "\n", 40) {
			words := strings.Split(text, " ")
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "\t", " ")
			}
			var body []byte
			switch {
			case len(text) == 1 && text[0] >= '0' && text[0] <= '9':
				db = int(text[0] - '0')
				continue
			case text != "" && text[0] == '!':
				words[0] = words[0][1:]
				queued = protocoltest.AppendRequest(queued, db, words...)
				continue
			case text == "exec":
				body = protocol.AppendTransaction(nil, db, nil, queued)
				queued = nil
			default:
				body = protocoltest.AppendRequest(nil, db, words...)
			}
			w := protocol.NewEntry(nil, protocol.EntryVersion, int64(i*50), 1_700_000_000_000, protocol.EntryLimits{})
			w.Add(origin, uint64(i), uint64(i), body)
			var r recorder
			require.NoError(t, loud.Apply(w.Bytes(), &r))
			require.Len(t, r.replies, 1)
			checkReply(t, r.replies[0])
			require.NoError(t, quiet.Apply(w.Bytes(), clientless{}))
			if i%8 == 3 {
				quiet = restored(t, quiet)
			}
			_, _, _, _ = loud.Read(string(body), 1, int64(i*50+20), 0, ReadLong)
		}
		require.Equal(t, dump(t, loud), dump(t, quiet))
	})
}

// checkReply checks that a reply can be encoded.
func checkReply(t *testing.T, v protocol.Value) {
	t.Helper()
	if v.Kind == protocol.KindError || v.Kind == protocol.KindSimple {
		require.False(t, strings.ContainsAny(v.Str, "\r\n"), "%q breaks its line", v.Str)
	}
	for _, e := range v.Elems {
		checkReply(t, e)
	}
}

// FuzzRestore reads arbitrary streams. They never panic, and an accepted stream is written again byte for byte.
func FuzzRestore(f *testing.F) {
	f.Add(dump(f, newMachine()))
	f.Add(dump(f, furnished(f).m)[:2000])
	small := newDriver(f)
	small.do("set", "a", "b", "px", "5")
	small.do("script", "load", "return 1")
	f.Add(dump(f, small.m))
	f.Fuzz(func(t *testing.T, stream []byte) {
		if len(stream) >= 32 {
			stream = resum(stream)
		}
		m := newMachine()
		if err := m.Restore(bytes.NewReader(stream)); err != nil {
			require.Equal(t, newMachine().Hash(), m.Hash())
			return
		}
		require.Equal(t, stream, dump(t, m))
	})
}

// FuzzWaits runs arbitrary requests of clients and nodes in the lines of [TestWaiting]. They never panic. The machines
// of two nodes stay equal, although one is sometimes replaced by its snapshot. A parked client gets at most one reply.
// No client waits for what is available.
func FuzzWaits(f *testing.F) {
	for _, transcript := range protocoltest.ReadTranscripts(f, "testdata/waits.txt") {
		f.Add(string(transcript.Data))
	}
	f.Add("n1#1 BLPOP q r 0\nn2#1 BLMOVE q r left right 2\nn1 RPUSH q a b ; GET q\nn1 leave 1\nsnapshot\nadvance " +
		"return-grant a y 1 3000\nn2 RPUSH r c")
	f.Add("n1#1 BZPOPMIN z 0\nn1 ZADD z 1 a ; DEL z ; LPUSH z b\nn1 SWAPDB 0 1\nn1 RENAME z y\nn2 drop n1 1\n" +
		"n1 wait-for-key 7 blpop q 0\nn1 set-notifications KEA")
	f.Add("n1#1 BLMPOP 0 2 q r left count 9\nrestart n1\nn2#1 BLPOP q 0\nn1 unblock error 1\nroom 400\nn1 eval " +
		"return(redis.call('rpush','q','x','y')) 0\nn1 exec a b")
	f.Fuzz(func(t *testing.T, text string) {
		p := &pair{t: t, epoch: 1, nowMillis: 1000, parked: map[uint64]bool{}}
		p.loud, p.quiet = newWaitMachine(p.origin("n1")), newWaitMachine(p.origin("n2"))
		for n, text := range strings.SplitN(text, "\n", 60) {
			if words := strings.Fields(text); len(words) > 0 && !strings.HasPrefix(text, "  ") && n < 59 {
				p.line(words)
				p.requireNobodyBeside()
			}
		}
	})
}

// pair is the machines of n1 and n2.
type pair struct {
	t           *testing.T
	loud, quiet *machine
	epoch       uint64 // of n1
	seq         uint64
	nowMillis   int64
	parked      map[uint64]bool // tickets of n1's present incarnation whose clients have no reply yet
}

func (p *pair) origin(node string) protocol.Incarnation {
	if node == "n1" {
		return protocol.Incarnation{Node: node, Epoch: p.epoch}
	}
	return protocol.Incarnation{Node: node, Epoch: 1}
}

func (p *pair) line(words []string) {
	number := int64(0)
	if len(words) > 1 {
		number, _ = strconv.ParseInt(words[1], 10, 32)
	}
	switch words[0] {
	case "advance":
		p.nowMillis += max(0, number)
		p.apply("", nil, nil)
		return
	case "room":
		p.loud.budgets.serving, p.quiet.budgets.serving = max(1, number), max(1, number)
		p.loud.budgets.lockChanges, p.quiet.budgets.lockChanges = max(1, number), max(1, number)
		return
	case "restart":
		p.epoch++
		p.seq = 0
		p.parked = map[uint64]bool{}
		p.loud.SeedReads(p.origin("n1"))
		return
	case "snapshot":
		m := newWaitMachine(p.origin("n2"))
		m.budgets = p.quiet.budgets
		require.NoError(p.t, m.Restore(bytes.NewReader(dump(p.t, p.quiet))))
		p.quiet = m
		return
	}
	name, ticket, blocks := strings.Cut(words[0], "#")
	if len(name) != 2 || name[0] != 'n' || len(words) == 1 {
		return
	}
	var body []byte
	var tickets []uint64 // of each request; 0 if none
	for _, one := range strings.Split(strings.Join(words[1:], " "), " ; ") {
		request, own := p.request(strings.Fields(one), ticket, blocks)
		body = append(body, request...)
		tickets = append(tickets, own)
	}
	p.apply(name, body, tickets)
}

// request returns a request, and its ticket if it may wait.
func (p *pair) request(words []string, ticket string, blocks bool) (body []byte, own uint64) {
	if len(words) == 0 {
		return request(nil, 0, "ping"), 0
	}
	words[0] = strings.ToLower(words[0])
	numbers := func(words []string) (ns []uint64) {
		for _, w := range words {
			n, _ := strconv.ParseUint(w, 10, 64)
			ns = append(ns, n)
		}
		return ns
	}
	switch {
	case blocks:
		own = numbers([]string{ticket})[0]
		return protocol.AppendRequest(nil, protocol.Head{Ticket: own}, words[0], protocoltest.Args(words[1:])), own
	case words[0] == "leave":
		return protocol.AppendUnblock(nil, protocol.LeaveGone, numbers(words[1:])...), 0
	case words[0] == "wait-for-key" && len(words) > 1:
		return request(nil, 0, words...), numbers(words[1:2])[0]
	}
	return request(nil, 0, words...), 0
}

// apply applies a batch to both machines, or a stamp if node is empty.
func (p *pair) apply(node string, body []byte, tickets []uint64) {
	entry := binary.AppendVarint(binary.AppendVarint([]byte{protocol.EntryVersion}, p.nowMillis), 1_700_000_000_000)
	entry = binary.AppendUvarint(binary.AppendUvarint(entry, 0), 0)
	if node != "" {
		p.seq++
		entry = protocol.AppendBatch(entry, p.origin(node), p.seq, p.seq, body)
	}
	var h hearing
	require.NoError(p.t, p.loud.Apply(entry, &h))
	require.NoError(p.t, p.quiet.Apply(entry, clientless{}))
	for i, reply := range h.replies {
		checkReply(p.t, reply)
		if node == "n1" && i < len(tickets) && protocol.IsParked(reply) {
			p.parked[tickets[i]] = true
		}
	}
	for _, e := range h.told {
		if e.Kind == event.Woken {
			require.True(p.t, p.parked[e.Seq], "ticket %d is told %v", e.Seq, e.Reply)
			delete(p.parked, e.Seq)
			checkReply(p.t, *e.Reply)
		}
	}
	require.Equal(p.t, p.loud.Hash(), p.quiet.Hash())
}

// requireNobodyBeside requires that no client waits for an available value, once all were served.
func (p *pair) requireNobodyBeside() {
	table := p.loud.st.Waits
	if table.HasReady() {
		return
	}
	table.Scan(func(w *waits.Waiter) bool {
		if table.HasNodeEnded(w) {
			return true
		}
		for _, key := range w.Keys() {
			replies, _, _, err := p.loud.Read(string(request(nil, w.DB, "type", key)), 1, p.nowMillis, 0, ReadLong)
			require.NoError(p.t, err)
			require.NotEqual(p.t, w.Kind.String(), replies[0].Str, "%v waits beside %s", w.Words, key)
		}
		return true
	})
}
