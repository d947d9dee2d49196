package locks

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestScripts runs the scripts testdata/*.txt, each of which shows some rules of the table. Each line is a call. The
// indented lines below it are the answer and the events.
//
//	acquire door ann 5s          ann wants the lock door for 5 s; door+gate are two locks as a whole. Options: shared,
//	                             limit 3, permits 2, delay 2s, reentrant [c1], note x, session 1 (in place of 5s)
//	wait door bob 5s             the same, and bob waits. More options: for 10s, notify, grace 2s
//	renew door ann 5s            ann's lease begins anew
//	release door ann [all]       ann releases door
//	releaseall door+gate ann     ann releases several locks
//	giveback door ann 1 bob      bob had disconnected when the grant with fence 1 arrived
//	cancel door bob              bob leaves the queue
//	check door ann               does ann hold it?
//	downgrade door ann           ann's exclusive hold becomes a shared one
//	break door [ann] [fence 3] [delay 5s]
//	flush                        a flush of the database
//	open 10s [with ann]          a session, attached to ann's connection
//	keepalive 1 | attach 1 ann | close 1
//	alive n1                     the node renews the sessions of its connections
//	hangup ann                   ann's connection is closed: the sessions attached to it end, ann's wait ends
//	unblock bob                  CLIENT UNBLOCK
//	drop n1                      n1 is silent: its waits end
//	advance 5s                   time passes, and each event runs when it is due
//	jump 5s                      time passes, without a sweep meanwhile
//	steps 2                      from now on a line has a budget of so many changes, and no sweep follows
//	sweep                        due events run
//	copy | original              the next lines change a copy | the table that was copied
//	save                         the table goes through a snapshot
//	info door | sessions | empty holders and waiters | the sessions | is the table empty?
//	left door 5s                 the time left of the longest lease in 5 s
//	due door 5s                  would the lock change within 5 s?
//	blocked door+gate ann        would ann be blocked?
//
// Each name is an owner with a connection of its own to node n1; ann@n2 is connected to n2.
func TestScripts(t *testing.T) { protocoltest.Transcripts(t, "testdata/*.txt", play) }

// stage has the state of a running script.
type stage struct {
	t               *testing.T
	table, original *Table
	now             int64
	steps           int
	nodes           map[string]string // by owner
	conns           map[string]int64
	tickets         map[string]uint64
	ticket          uint64
	names           map[waits.Name]string
}

const enough = 1 << 20

func play(t *testing.T, script []byte) []byte {
	s := &stage{
		t: t, table: New(), now: 1000, steps: enough, nodes: map[string]string{}, conns: map[string]int64{},
		tickets: map[string]uint64{}, names: map[waits.Name]string{},
	}
	var out bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(script))
	for lines.Scan() {
		text := lines.Text()
		if strings.HasPrefix(text, "  ") {
			continue // the line is part of an answer
		}
		out.WriteString(text + "\n")
		if words := strings.Fields(text); len(words) > 0 && words[0] != "#" {
			for _, line := range s.line(words) {
				out.WriteString("  " + line + "\n")
			}
		}
	}
	return out.Bytes()
}

// line runs a line of a script, and returns the answer and the events.
func (s *stage) line(words []string) []string {
	s.table.Begin(s.now, s.steps)
	do, known := verbs[words[0]]
	require.True(s.t, known, "unknown line %q", words)
	answer := do(s, words[1:])
	if s.steps == enough {
		s.table.Sweep()
	}
	var told []string
	for _, e := range s.table.TakeEvents() {
		told = append(told, s.show(e)...)
	}
	return append(answer, told...)
}

var verbs map[string]func(s *stage, words []string) []string

func init() {
	verbs = map[string]func(s *stage, words []string) []string{
		"acquire": func(s *stage, w []string) []string { return s.acquire(w, false) },
		"wait":    func(s *stage, w []string) []string { return s.acquire(w, true) },
		"renew": func(s *stage, w []string) []string {
			return fenceOrNot(s.table.Renew(0, w[0], s.owner(w[1]), s.millis(w[2])))
		},
		"release": (*stage).release,
		"releaseall": func(s *stage, w []string) []string {
			return count(s.table.ReleaseAll(0, keysOf(w[0]), s.owner(w[1])))
		},
		"return-grant": func(s *stage, w []string) []string {
			return yesNo(s.table.ReturnGrant(0, w[0], s.owner(w[1]), uint64(s.number(w[2])), s.client(w[3])))
		},
		"cancel": func(s *stage, w []string) []string { return yesNo(s.table.Cancel(0, w[0], s.owner(w[1]))) },
		"check":  func(s *stage, w []string) []string { return fenceOrNot(s.table.FenceOf(0, w[0], s.owner(w[1]), s.now)) },
		"downgrade": func(s *stage, w []string) []string {
			fence, err := s.table.Downgrade(0, w[0], s.owner(w[1]))
			return append(fenceOrNot(fence), failure(err)...)
		},
		"break": (*stage).breaks,
		"flush": func(s *stage, _ []string) []string {
			s.table.Flush(0, 0)
			return nil
		},
		"open": (*stage).open,
		"keepalive": func(s *stage, w []string) []string {
			left, ok := s.table.KeepAlive(uint64(s.number(w[0])))
			return append(yesNo(ok), time.Duration(left*1e6).String())
		},
		"attach": func(s *stage, w []string) []string {
			ok, err := s.table.Attach(uint64(s.number(w[0])), s.client(w[1]))
			return append(yesNo(ok), failure(err)...)
		},
		"close": func(s *stage, w []string) []string {
			n, ok := s.table.CloseSession(uint64(s.number(w[0])))
			return append(yesNo(ok), count(n)...)
		},
		"node-keepalive": func(s *stage, w []string) []string {
			s.table.KeepNodeAlive(protocol.Incarnation{Node: w[0], Epoch: 1})
			return nil
		},
		"hangup": (*stage).hangUp,
		"unblock": func(s *stage, w []string) []string {
			return yesNo(s.table.RemoveWaiter(s.waitName(w[0]), protocol.LeaveTimeout))
		},
		"drop": func(s *stage, w []string) []string {
			s.table.EndNodeWaits(w[0], 1)
			return nil
		},
		"advance": (*stage).advance,
		"jump": func(s *stage, w []string) []string {
			s.now += s.millis(w[0])
			s.table.Begin(s.now, s.steps)
			return nil
		},
		"steps": func(s *stage, w []string) []string {
			s.steps = int(s.number(w[0])) * ChangeUnits
			return nil
		},
		"sweep": func(s *stage, _ []string) []string {
			s.table.Sweep()
			return nil
		},
		"copy": func(s *stage, _ []string) []string {
			s.original = s.table
			s.table = s.original.Copy()
			return nil
		},
		"original": func(s *stage, _ []string) []string {
			s.table = s.original
			return nil
		},
		"save": func(s *stage, _ []string) []string {
			s.table = reloaded(s.t, s.table)
			return nil
		},
		"left": func(s *stage, w []string) []string {
			left, ok := s.table.LeaseLeftMillis(0, w[0], s.now+s.millis(w[1]))
			return append(yesNo(ok), millis(left))
		},
		"due": func(s *stage, w []string) []string { return yesNo(s.table.HasDue(0, w[0], s.now+s.millis(w[1]))) },
		"blocked": func(s *stage, w []string) []string {
			return yesNo(s.table.IsBlocked(&Request{Keys: keysOf(w[0]), Owner: s.owner(w[1])}, s.now))
		},
		"info":     func(s *stage, w []string) []string { return s.info(w[0]) },
		"sessions": (*stage).sessions,
		"empty": func(s *stage, _ []string) []string {
			stats := s.table.Stats()
			return yesNo(stats.Locks == 0 && stats.Holds == 0 && stats.Waiters == 0 && stats.Sessions == 0)
		},
	}
}

func keysOf(word string) []string { return strings.Split(word, "+") }

func (s *stage) number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	require.NoError(s.t, err)
	return n
}

func (s *stage) millis(word string) int64 {
	d, err := time.ParseDuration(word)
	require.NoError(s.t, err)
	return d.Milliseconds()
}

// owner returns the owner in a word such as ann@n2: the word without the node.
func (s *stage) owner(word string) string {
	name, node, found := strings.Cut(word, "@")
	if found || s.nodes[name] == "" {
		s.nodes[name] = "n1"
		s.conns[name] = int64(len(s.conns)) + 1
		if found {
			s.nodes[name] = node
		}
	}
	return name
}

func (s *stage) client(word string) Client {
	name := s.owner(word)
	return Client{protocol.Incarnation{Node: s.nodes[name], Epoch: 1}, s.conns[name]}
}

func (s *stage) waitName(word string) waits.Name {
	return waits.Name{Origin: s.client(word).Origin, Ticket: s.tickets[s.owner(word)]}
}

// acquire runs the line of a request: the words are keys, owner, lease and options.
func (s *stage) acquire(w []string, waiting bool) []string {
	r := &Request{Keys: keysOf(w[0]), Owner: s.owner(w[1]), Client: s.client(w[1]), Waits: waiting, GraceMillis: 0}
	w = w[2:]
	if w[0] != "session" {
		r.LeaseMillis = s.millis(w[0])
		w = w[1:]
	}
	if waiting {
		s.ticket++
		r.Ticket = s.ticket
		s.tickets[r.Owner] = s.ticket
		s.names[waits.Name{Origin: r.Client.Origin, Ticket: s.ticket}] = r.Owner
	}
	for len(w) > 0 {
		w = s.option(r, w)
	}
	a, err := s.table.Acquire(r)
	switch {
	case err != nil:
		return failure(err)
	case a.Waiting:
		return []string{"waits"}
	}
	return fenceOrNot(a.Fence)
}

// option parses the first option in the words of a request, and returns the words after it.
func (s *stage) option(r *Request, w []string) []string {
	switch w[0] {
	case "shared":
		r.Mode = Shared
		return w[1:]
	case "notify":
		r.Notify = true
		return w[1:]
	case "reentrant":
		r.Reentrant = true
		if len(w) == 1 {
			return nil
		}
		r.Call = w[1]
	case "session":
		r.Session = uint64(s.number(w[1]))
	case "limit":
		r.Mode, r.Limit, r.Permits = Permits, int32(s.number(w[1])), 1
	case "permits":
		r.Permits = int32(s.number(w[1]))
	case "delay":
		r.DelayMillis = s.millis(w[1])
	case "for":
		r.WaitMillis = s.millis(w[1])
	case "grace":
		r.GraceMillis = s.millis(w[1])
	case "note":
		r.Note = w[1]
	default:
		s.t.Fatalf("unknown option %q", w)
	}
	return w[2:]
}

func (s *stage) release(w []string) []string {
	left, ok := s.table.Release(0, w[0], s.owner(w[1]), len(w) > 2)
	if !ok {
		return []string{"not the owner's"}
	}
	if left > 0 {
		return []string{fmt.Sprintf("held %d times yet", left)}
	}
	return []string{"given back"}
}

func (s *stage) breaks(w []string) []string {
	b := &Break{Key: w[0], Reason: Broken}
	for w = w[1:]; len(w) > 0; {
		switch w[0] {
		case "fence":
			b.Fence = uint64(s.number(w[1]))
			w = w[2:]
		case "delay":
			b.OverridesDelay, b.DelayMillis = true, s.millis(w[1])
			w = w[2:]
		default:
			b.ByOwner, b.Owner = true, s.owner(w[0])
			w = w[1:]
		}
	}
	return count(s.table.Break(b))
}

func (s *stage) open(w []string) []string {
	var client Client
	if len(w) > 1 {
		client = s.client(w[2])
	}
	id, err := s.table.OpenSession(s.millis(w[0]), client, len(w) > 1, "", "", 0)
	if err != nil {
		return failure(err)
	}
	return []string{fmt.Sprint("session ", id)}
}

// hangUp makes the calls of a node for a connection that was closed.
func (s *stage) hangUp(w []string) []string {
	s.table.RemoveWaiter(s.waitName(w[0]), protocol.LeaveGone)
	return []string{fmt.Sprintf("%d sessions end", s.table.EndSessionsOf(s.client(w[0])))}
}

// advance advances the time, and stops at each time at which an event is due, as a leader does.
func (s *stage) advance(w []string) []string {
	until := s.now + s.millis(w[0])
	var told []string
	for {
		due, ok := s.table.NextDue()
		if !ok || due > until {
			break
		}
		s.now = max(s.now, due)
		s.table.Begin(s.now, enough)
		s.table.Sweep()
		for _, e := range s.table.TakeEvents() {
			told = append(told, s.show(e)...)
		}
	}
	s.now = until
	s.table.Begin(s.now, enough)
	return told
}

// The functions below return the output of a script.

func fenceOrNot(fence uint64) []string {
	if fence == 0 {
		return []string{"no"}
	}
	return []string{fmt.Sprint("fence ", fence)}
}

func yesNo(ok bool) []string {
	if ok {
		return []string{"yes"}
	}
	return []string{"no"}
}

func count(n int) []string { return []string{fmt.Sprint(n, " holds end")} }

func failure(err error) []string {
	if err == nil {
		return nil
	}
	return []string{"error: " + err.Error()}
}

func millis(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

// clientName returns the owner of a connection.
func (s *stage) clientName(c Client) string {
	if c == (Client{}) {
		return "nobody"
	}
	for name, conn := range s.conns {
		if conn == c.Conn && s.nodes[name] == c.Origin.Node {
			return name
		}
	}
	return fmt.Sprint(c)
}

// show returns the text of an event, with its time.
func (s *stage) show(e Event) []string {
	at := fmt.Sprintf("%s: ", millis(s.now-1000))
	told := s.clientName(e.Client)
	if e.Attached != (Client{}) && e.Attached != e.Client {
		told += " and " + s.clientName(e.Attached)
	}
	switch e.Kind {
	case Created, Removed:
		return nil // the line "empty" shows whether locks are left
	case Granted:
		return []string{fmt.Sprintf("%s%s gets %s, fence %d", at, e.Owner, e.Key, e.Fence)}
	case Renewed:
		return []string{fmt.Sprintf("%s%s holds %s in another way, fence %d", at, e.Owner, e.Key, e.Fence)}
	case Released:
		return []string{fmt.Sprintf("%s%s gives back %s", at, e.Owner, e.Key)}
	case Lost:
		return []string{fmt.Sprintf("%s%s loses %s, fence %d: %s; told %s", at, e.Owner, e.Key, e.Fence, e.Reason, told)}
	case TimedOut:
		return []string{fmt.Sprintf("%s%s waits for %s no more", at, e.Owner, e.Key)}
	case JoinedQueue:
		return []string{fmt.Sprintf("%s%d in line for %s", at, e.Waiters, e.Key)}
	case LeftQueue:
		return []string{fmt.Sprintf("%s%s leaves the line for %s (%s), %d in line", at, e.Owner, e.Key, e.How, e.Waiters)}
	case Late:
		return []string{fmt.Sprintf("%s%s is late with %s: %s of %s", at, e.Owner, e.Key, millis(e.SinceRenewedMillis),
			millis(e.LeaseMillis))}
	case SessionEnded:
		return []string{fmt.Sprintf("%ssession %d ends", at, e.Session)}
	}
	outcome := fmt.Sprint("fence ", e.Fence)
	switch {
	case e.Err != nil:
		outcome = e.Err.Error()
	case e.Fence == 0:
		outcome = "not in time"
	}
	return []string{fmt.Sprintf("%s%s is told: %s", at, s.names[e.Name], outcome)}
}

func (s *stage) info(key string) (lines []string) {
	i := s.table.Info(0, key, s.now, enough)
	if i == nil {
		return []string{"nothing"}
	}
	for _, h := range i.Holds {
		line := fmt.Sprintf("%s holds it %s, fence %d", h.Owner, modeNames[h.Mode], h.Fence)
		if h.Count > 1 {
			line += fmt.Sprintf(", %d times", h.Count)
		}
		if h.Permits > 0 {
			line += fmt.Sprintf(", %d permits", h.Permits)
		}
		if h.Session > 0 {
			line += fmt.Sprint(", session ", h.Session)
		} else {
			line += ", " + millis(h.LeftMillis) + " left"
		}
		if h.Note != "" {
			line += ", note " + h.Note
		}
		lines = append(lines, line)
	}
	for _, w := range i.Waits {
		line := fmt.Sprintf("%s waits %s", w.Owner, modeNames[w.Mode])
		if w.LeftMillis >= 0 {
			line += ", " + millis(w.LeftMillis) + " left"
		}
		if w.Absent {
			line += ", absent"
		}
		lines = append(lines, line)
	}
	if i.DelayLeftMillis > 0 {
		lines = append(lines, "nobody gets it for "+millis(i.DelayLeftMillis))
	}
	return lines
}

var modeNames = [...]string{Exclusive: "alone", Shared: "shared", Permits: "in part"}

func (s *stage) sessions([]string) (lines []string) {
	rows, _, _ := s.table.Sessions("", 0, enough, s.now)
	for _, r := range rows {
		line := fmt.Sprintf("session %d: %s left, %d holds, %d waits", r.ID, millis(r.LeftMillis), r.Holds, r.Waiters)
		if r.Connection {
			line += ", lives with " + s.clientName(r.Client)
		}
		lines = append(lines, line)
	}
	return lines
}

// reloaded returns a table that was loaded from a snapshot of table.
func reloaded(t *testing.T, table *Table) *Table {
	t.Helper()
	var out, again tape
	table.Save(&out)
	p := &player{words: out}
	loaded, err := Load(p)
	require.NoError(t, err)
	require.Empty(t, p.words, "what was written is read")
	loaded.Save(&again)
	require.Equal(t, out, again, "a table and its like write the same")
	return loaded
}
