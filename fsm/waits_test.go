package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestWaiting runs testdata/waits.txt on the machines of three nodes, which must stay equal. Lines:
//
//	n1#7 BLPOP q 0        a client of n1 sends a command that may wait, under ticket 7
//	n1 RPUSH q a          a client of n1 sends a command
//	n1 SET q a ; GET q    two requests in one batch
//	n1 leave 7 8          clients of n1 have disconnected
//	n1 unblock error 7    CLIENT UNBLOCK … ERROR
//	n1 drop n2 1          the leader has lost contact to n2 in its incarnation 1
//	restart n1            n1 begins a new incarnation
//	advance 500           a stamp without batches, that much later
//	room 4000             the work that an entry may spend on serving waiters
//	seats 1000            the limit of all waiters' bytes
//	snapshot n2           n2's machine is replaced by its own snapshot
//	due                   when an entry is due
//
// Below a line are the reply, and the replies to waiting clients.
func TestWaiting(t *testing.T) {
	protocoltest.Transcripts(t, "testdata/waits.txt", playTrio(false))
}

// playTrio plays a script on a trio. With hears, it writes all events of the machines.
func playTrio(hears bool) func(t *testing.T, script []byte) []byte {
	return func(t *testing.T, script []byte) []byte {
		s := newTrio(t)
		s.hears = hears
		return protocoltest.Lines(t, script, func(words []string) []string {
			s.said = nil
			s.line(words)
			return s.said
		})
	}
}

// trio is the machines of three nodes, with a log written by the test.
type trio struct {
	t         *testing.T
	machines  [3]*machine
	epochs    [3]uint64
	seqs      [3]uint64
	nowMillis int64
	said      []string
	hears     bool
}

func newTrio(t *testing.T) *trio {
	s := &trio{t: t, nowMillis: 1000, epochs: [3]uint64{1, 1, 1}}
	for i := range s.machines {
		s.machines[i] = newWaitMachine(s.origin(i))
	}
	return s
}

// newWaitMachine returns a machine with an additional command, "TAKE key… timeout", which waits for strings.
func newWaitMachine(o protocol.Incarnation) *machine {
	m := newMachine()
	m.ops["take"] = &binding{name: "take", run: takeOp, writes: true, blocks: true}
	m.SeedReads(o)
	return m
}

func takeOp(c *call) protocol.Value {
	if len(c.Args) < 3 {
		return command.ErrArity("take")
	}
	deadline, problem, ok := c.WaitUntil(c.Args[len(c.Args)-1])
	if !ok {
		return problem
	}
	keys := c.Args[1 : len(c.Args)-1]
	for _, key := range keys {
		if it := c.Find(key); it != nil {
			value := it.Value()
			c.Remove(it)
			return protocol.Strings(key, value)
		}
	}
	return c.Wait(keyspace.KindString, 1, len(keys), deadline, protocol.NullArray)
}

func (s *trio) origin(i int) protocol.Incarnation {
	return protocol.Incarnation{Node: fmt.Sprint("n", i+1), Epoch: s.epochs[i]}
}

func (s *trio) line(words []string) {
	number := func(i int) int64 {
		n, err := strconv.ParseInt(words[i], 10, 64)
		require.NoError(s.t, err)
		return n
	}
	node := func(name string) int { return int(name[1] - '1') }
	switch words[0] {
	case "advance":
		s.nowMillis += number(1)
		s.apply(0, nil)
	case "room":
		for _, m := range s.machines {
			m.budgets.serving, m.budgets.lockChanges = number(1), number(1)/grantWork*grantWork*locks.ChangeUnits
		}
	case "seats":
		for _, m := range s.machines {
			m.budgets.waiting = number(1)
		}
	case "restart":
		i := node(words[1])
		s.epochs[i]++
		s.seqs[i] = 0
		s.machines[i].SeedReads(s.origin(i))
	case "snapshot":
		i := node(words[1])
		m := newWaitMachine(s.origin(i))
		m.budgets = s.machines[i].budgets
		require.NoError(s.t, m.Restore(bytes.NewReader(dump(s.t, s.machines[i]))))
		s.machines[i] = m
	case "read":
		s.read(words[1:])
	case "due":
		s.said = append(s.said, "never")
		if due, ok := s.machines[0].NextDue(); ok {
			s.said[0] = fmt.Sprint("in ", due-s.nowMillis)
		}
	default:
		name, ticket, waits := strings.Cut(words[0], "#")
		name, conn, native := strings.Cut(name, "@")
		var body []byte
		rest, queued := words[1:], words[1] == "exec"
		if queued {
			rest = rest[1:]
		}
		for len(rest) > 0 {
			end := slices.Index(rest, ";")
			if end < 0 {
				end = len(rest)
			}
			if native {
				body = s.native(body, conn, ticket, rest[:end])
			} else {
				body = append(body, s.request(rest[:end], ticket, waits)...)
			}
			rest = rest[min(end+1, len(rest)):]
		}
		if queued {
			body = protocol.AppendTransaction(nil, 0, nil, body)
		}
		s.apply(node(name), body)
	}
}

func (s *trio) request(words []string, ticket string, waits bool) []byte {
	name := strings.ToLower(words[0])
	args := protocoltest.Args(words[1:])
	numbers := func(from int) (ns []uint64) {
		for _, w := range words[from:] {
			n, err := strconv.ParseUint(w, 10, 64)
			require.NoError(s.t, err)
			ns = append(ns, n)
		}
		return ns
	}
	switch {
	case waits:
		n, err := strconv.ParseUint(ticket, 10, 64)
		require.NoError(s.t, err)
		return protocol.AppendRequest(nil, protocol.Head{Ticket: n}, name, args)
	case name == "leave":
		return protocol.AppendUnblock(nil, protocol.LeaveGone, numbers(1)...)
	case name == "unblock":
		return protocol.AppendUnblock(nil, protocol.Leave(words[1]), numbers(2)...)
	case name == "node-keepalive":
		return protocol.AppendNodeKeepalive(nil)
	case name == "end-connections":
		return protocol.AppendEndConnections(nil, int64(numbers(1)[0]))
	case name == "return-grant":
		ns := numbers(3)
		return protocol.AppendReturnGrant(nil, protocol.Hold{
			Key: words[1], Owner: words[2], Fence: int64(ns[0]),
			Conn: int64(ns[1]),
		})
	case name == "drop":
		return protocol.AppendDrop(nil, protocol.Incarnation{Node: words[1], Epoch: numbers(2)[0]})
	}
	return request(nil, 0, words...)
}

// hearing is a sink that keeps replies, including those to waiting clients.
type hearing struct {
	recorder
	told []event.Event
}

func (h *hearing) Events(events []event.Event) { h.told = append(h.told, events...) }

// apply applies a batch of a node to all machines, or a stamp without a body.
func (s *trio) apply(node int, body []byte) {
	entry := binary.AppendVarint(binary.AppendVarint([]byte{protocol.EntryVersion}, s.nowMillis), 1_700_000_000_000)
	entry = binary.AppendUvarint(binary.AppendUvarint(entry, 0), testSteps)
	if body != nil {
		s.seqs[node]++
		entry = protocol.AppendBatch(entry, s.origin(node), s.seqs[node], s.seqs[node], body)
	}
	for i, m := range s.machines {
		if s.hears {
			m.Listen(event.InMessages)
		}
		var h hearing
		require.NoError(s.t, m.Apply(entry, &h))
		if i == node && body != nil {
			var said []string
			for _, reply := range h.replies {
				said = append(said, line(reply))
			}
			if len(h.replies) == 0 {
				said = []string{"(no room)"}
			}
			s.said = append(said, s.said...)
		}
		for _, e := range h.told {
			if e.Kind == event.Woken {
				s.said = append(s.said, fmt.Sprintf("%s#%d: %s", s.origin(i).Node, e.Seq, line(*e.Reply)))
			}
			if s.hears {
				s.hear(i, &e)
			}
		}
		require.Equal(s.t, s.machines[0].Hash(), m.Hash())
	}
}

// TestPatience: which commands would only wait or be refused, and so have no effect on others.
func TestPatience(t *testing.T) {
	d := newDriver(t)
	d.do("rpush", "list", "x")
	d.do("set", "string", "x")
	for _, line := range []string{
		"lock-command 1 0 0 lock.acquire held me px 60000",
		"lock-command 1 0 0 lock.acquire short me px 10",
		"lock-command 1 0 0 lock.acquire shared me px 60000 shared",
		"lock-command 1 0 0 lock.acquire queue me px 60000 shared",
		"lock-command 1 7 0 lock.acquire queue writer px 60000 wait 0",
		"lock-command 1 0 0 lock.acquire permits me px 60000 limit 3 permits 2",
	} {
		d.apply(request(nil, 0, strings.Fields(line)...))
	}
	for line, waits := range map[string]bool{
		"lock-command 1 9 0 lock.acquire held you px 1000 wait 500":                    true,
		"lock-command 1 0 0 lock.acquire held you px 1000":                             true,
		"lock-command 1 9 0 lock.acquire held you session 7 shared wait 0":             true,
		"lock-command 1 9 0 lock.acquire held you px 1000 wait 500 notify":             false,
		"lock-command 1 9 0 lock.acquire held me px 1000 wait 500":                     false,
		"lock-command 1 9 0 lock.acquire free you px 1000 wait 500":                    false,
		"lock-command 1 9 0 lock.acquire string you px 1000 wait 500":                  false,
		"lock-command 1 9 0 lock.acquire short you px 1000 wait 500":                   false,
		"lock-command 1 9 0 lock.acquire held you px 1000 wait 500 delay 20":           true,
		"lock-command 1 9 0 lock.acquire held you px 1000 wait 500 delay 86400001":     false,
		"lock-command 1 9 0 lock.acquire held you px 1000 wait":                        false,
		"lock-command 1 9 0 lock.acquire held":                                         false,
		"lock-command 1 9 0 lock.acquire shared you px 1000 wait 500":                  true,
		"lock-command 1 9 0 lock.acquire shared you px 1000 shared wait 500":           false,
		"lock-command 1 9 0 lock.acquire queue you px 1000 shared wait 500":            true,
		"lock-command 1 9 0 lock.acquire queue writer px 1000 wait 500":                false,
		"lock-command 1 9 0 lock.acquire permits you px 1000 limit 3 wait 0":           false,
		"lock-command 1 9 0 lock.acquire permits you px 1000 limit 3 permits 2 wait 0": true,
		"lock-command 1 9 0 lock.acquireall 2 free held you px 1000 wait 500":          true,
		"lock-command 1 9 0 lock.acquireall 2 free other you px 1000 wait 500":         false,
		"lock-command 1 9 0 lock.release held me":                                      false,
		"lock-command 1 9 0 lock.renew held you px 5":                                  false,
		"lock-command 1 9 0 get held":                                                  false,
		"lock-command 1 9 0":                                                           false,
		"wait-for-key 9 blpop none 0":                                                  true,
		"wait-for-key 9 blpop none list 0":                                             false,
		"wait-for-key 9 blpop held 0":                                                  false,
		"wait-for-key 9 blmove none list left right 0":                                 true,
		"wait-for-key 9 blmove list none left right 0":                                 false,
		"wait-for-key 9 brpoplpush none list 0":                                        true,
		"wait-for-key 9 blmpop 0 2 none neither left":                                  true,
		"wait-for-key 9 bzmpop 0 2 none list min":                                      false,
		"wait-for-key 9 bzpopmin none neither 0":                                       true,
		"wait-for-key 9 blmpop 0 7 none left":                                          false,
		"wait-for-key 9 blpop none":                                                    false,
		"wait-for-key 9 get none":                                                      false,
		"wait-for-key 9":                                                               false,
		"get none":                                                                     false,
		"exec lock-command 1 9 0 lock.acquire held you px 1000 wait 500":               false,
		"setnx string v":             true,
		"set string v NX PX 30000":   true,
		"set string v px 30000 nX":   true,
		"setnx none v":               false,
		"set none v nx":              false,
		"setnx held v":               false,
		"set string v":               false,
		"set string nx":              false,
		"set string v xx":            false,
		"set string":                 false,
		"setnx":                      false,
		"getset string v":            false,
		"evalsha string 1 string nx": false,
	} {
		body := request(nil, 0, strings.Fields(line)...)
		isNoop := func(body []byte) bool { return d.m.IsNoop(string(body), d.nowMillis+20) }
		require.Equal(t, waits, isNoop(body), line)
		require.False(t, isNoop(append(body, body...)), "%s, twice", line)
		for n := range body {
			require.False(t, isNoop(body[:n]), "%s, %d bytes of it", line, n)
		}
	}
	late := "lock-command 1 9 0 lock.acquire held you px 1000 wait 500"
	require.False(t, d.m.IsNoop(string(request(nil, 0, strings.Fields(late)...)), d.nowMillis+60_001),
		"the lease has ended")
	require.False(t, d.m.IsNoop(string(request(nil, 0, "exec", "9", "blpop", "none", "0")), d.nowMillis),
		"another word than block")
}

// endFirst acquires locks with waiters that end soon, so many that an entry without room reaches no other lock.
func (d *driver) endFirst(millis int) {
	for i := range 2 * minChanges {
		key := fmt.Sprint("first", i)
		d.do("lock.acquire", key, "me", "px", strconv.Itoa(millis))
		d.native(5, uint64(100+i), "lock.acquire", key, "you", "px", "10000", "wait", "0")
	}
}

// TestLocksAreLostOnce: serving a waiter runs the due events of its locks. Each loss is reported once, even if there is
// no room for the next key and the waiter is tried again.
func TestLocksAreLostOnce(t *testing.T) {
	const most = minChanges * locks.ChangeUnits * grantWork // for a key
	between := 0
	for room := int64(most) - 500; room < most+3000; room += 250 {
		d := newDriver(t)
		d.m.SeedReads(origin)
		d.apply(pipeline("wait-for-key 1 blpop quick 0", "wait-for-key 2 blpop a b list 0"))
		d.endFirst(5)
		d.native(5, 0, "lock.acquire", "a", "me", "px", "10")
		d.native(5, 0, "lock.acquire", "b", "me", "px", "10")
		d.nowMillis += 11
		d.m.budgets.lockChanges, d.m.budgets.serving = 0, room
		told := map[string]int{}
		for _, line := range []string{"rpush list x", "ping", "ping", "ping"} {
			for _, e := range d.record(pipeline("rpush quick x", line)).events {
				told[fmt.Sprint(e.Kind, e.Key, e.Seq)]++
			}
			if !d.m.st.Locks.HasOrFlushed(0, "a") && d.m.st.Locks.HasOrFlushed(0, "b") {
				between++
			}
		}
		for _, what := range []string{
			fmt.Sprint(event.LockLost, "a", 0), fmt.Sprint(event.LockLost, "b", 0),
			fmt.Sprint(event.Woken, "", 2),
		} {
			require.Equal(t, 1, told[what], "%s, room %d: %v", what, room, told)
		}
	}
	require.Positive(t, between)
}
