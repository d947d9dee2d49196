package reconfig

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/members"
)

// TestPolicy plays testdata/policy.txt. A line is one of
//
//	members n1* n2 n3? n4- n5-~   n1 leads, n3 does not answer, n4 has no vote, n5 lags
//	members n1* n2! n3!!          the states of n2 and n3 differ from the others, and n3 is in quarantine
//	members n1*= n2=              the IDs are the names
//	remove n3 force               a request; the steps that it takes follow, one a line
//
// An address is the name with a port unless the line has "at". Each request begins with the cluster that the last one
// left.
func TestPolicy(t *testing.T) {
	protocoltest.Transcripts(t, "testdata/policy.txt", func(t *testing.T, script []byte) []byte {
		var out bytes.Buffer
		var w world
		for line := range strings.Lines(string(script)) {
			if strings.HasPrefix(line, "    ") {
				continue
			}
			out.WriteString(line)
			line = strings.TrimSpace(line)
			switch verb, rest, _ := strings.Cut(line, " "); {
			case line == "" || verb == "#":
			case verb == "members":
				w = newWorld(t, rest)
			default:
				for _, step := range w.play(requestOf(t, line)) {
					out.WriteString("    " + step + "\n")
				}
			}
		}
		return out.Bytes()
	})
}

// world is a cluster in which each step takes effect at once.
type world struct {
	View
	lags map[string]bool
}

func idOf(name string) string { return name + "@0000000000aa" }

func newWorld(t *testing.T, line string) world {
	w := world{View: View{Cluster: "c1", Leads: true, Last: 100, Nodes: map[string]Node{}}, lags: map[string]bool{}}
	var all []members.Member
	for i, word := range strings.Fields(line) {
		name := strings.TrimRight(word, "*?-~=!")
		marks := word[len(name):]
		id := idOf(name)
		if strings.Contains(marks, "=") {
			id = name
		}
		all = append(all, members.Member{ID: id, Addr: name + ":7379", Voter: !strings.Contains(marks, "-")})
		w.Nodes[id] = Node{
			Silent: strings.Contains(marks, "?"), Match: uint64(90 - i),
			Differs: strings.Contains(marks, "!"), Quarantined: strings.Contains(marks, "!!"),
		}
		w.lags[id] = strings.Contains(marks, "~")
		if strings.Contains(marks, "*") {
			w.Self, w.Leader = id, id
		}
	}
	w.Configuration = members.NewConfiguration(1, all...)
	require.NotEmpty(t, w.Self, "nobody leads: %s", line)
	return w
}

// requestOf parses a request: an operation, names, and options.
func requestOf(t *testing.T, line string) Request {
	words := strings.Fields(line)
	q := Request{Op: Op(words[0])}
	for i := 1; i < len(words); i++ {
		switch word := words[i]; {
		case word == "force":
			q.Force = true
		case word == "at" || word == "to":
			i++
			q.Addr = words[i]
		case word == "from":
			i++
			q.Cluster = words[i]
		case q.Member == "":
			q.Member = word
		case q.By == "":
			q.By = word
		default:
			require.Fail(t, "what does this word mean?", "%s in %s", word, line)
		}
	}
	if q.Op == Join && !isID(q.Member) {
		q.Member = idOf(q.Member)
	}
	return q
}

// play runs a request as an executor does, and returns a line for each step.
func (w *world) play(q Request) (lines []string) {
	q = w.Pin(q)
	for range maxSteps {
		step, refusal := Next(w.View, q)
		switch {
		case refusal != nil:
			return append(lines, "refused: "+refusal.Text)
		case step.Do == Nothing:
			return append(lines, "done: "+step.Outcome, w.String())
		case step.Do == Watch:
			lines = append(lines, "does "+step.Member.Name()+" keep up?")
		case step.Do == HandOver && q.Op == Transfer:
			w.take(step)
			return append(lines, "hand over: "+step.Outcome)
		case step.Do == TakeState:
			return append(lines, step.Do.String()+": "+step.Member.Name())
		default:
			line := step.Do.String() + ": " + step.Outcome
			if step.Risky {
				line += " (a warning)"
			}
			lines = append(lines, line)
		}
		w.take(step)
	}
	return append(lines, "there is no end")
}

// take applies a step.
func (w *world) take(s Step) {
	n, all := w.Nodes[s.Member.ID], w.Members
	switch s.Do {
	case Watch:
		n.Pace = KeepsUp
		if w.lags[s.Member.ID] {
			n.Pace = Lags
		}
		w.Nodes[s.Member.ID] = n
		return
	case HandOver:
		w.Self, w.Leader = s.Member.ID, s.Member.ID
		for id, n := range w.Nodes {
			n.Pace = PaceUnknown // another leader has not measured it
			w.Nodes[id] = n
		}
		return
	}
	var changed []members.Member
	for _, m := range all {
		if m.ID != s.Member.ID {
			changed = append(changed, m)
		}
	}
	if s.Do != TakeOut {
		m := s.Member
		m.Voter = s.Do == GiveVote || s.Do == SetAddress && w.IsVoter(m.ID)
		changed = append(changed, m)
	}
	w.Configuration = members.NewConfiguration(w.Index+1, changed...)
	if _, known := w.Nodes[s.Member.ID]; !known {
		w.Nodes[s.Member.ID] = Node{}
	}
}

// String returns the cluster as a line of a transcript.
func (w *world) String() string {
	var words []string
	for _, m := range w.Members {
		word := m.Name()
		if m.ID == w.Self {
			word += "*"
		}
		if w.Nodes[m.ID].Silent {
			word += "?"
		}
		if !m.Voter {
			word += "-"
		}
		words = append(words, word)
	}
	return "members " + strings.Join(words, " ")
}

// TestAskingAgainCompletes shows, for small clusters, requests, and each step after which the leader is lost, that the
// request ends with the same configuration if it is sent again to any voter that answers. At no time do fewer voters
// answer than a majority.
func TestAskingAgainCompletes(t *testing.T) {
	requests := []string{
		"remove n1", "remove n2", "remove n3", "remove n4", "demote n1", "demote n2", "promote n4",
		"replace n1 n4", "replace n2 n4", "replace n3 n4", "join n5 at n5:7379", "readdress",
	}
	for _, start := range []string{
		"n1* n2 n3 n4-", "n1* n2 n3? n4-", "n1* n2? n3 n4-", "n1* n2 n4-", "n1* n4-",
		"n1* n2 n3 n4", "n1* n2 n3? n4", "n1* n2 n3 n5- n4-?", "n1*= n2= n3= n4-=", "n1*= n2= n3?= n4-",
	} {
		for _, line := range requests {
			if line == "readdress" {
				line = "address n2 to elsewhere:7379"
			}
			whole := newWorld(t, start)
			end := whole.play(requestOf(t, line))
			refused := strings.HasPrefix(end[len(end)-1], "refused")
			for stop := range maxSteps {
				w := newWorld(t, start)
				q := w.Pin(requestOf(t, line))
				if !w.some(t, q, stop) {
					break
				}
				for _, leader := range w.Members {
					if !leader.Voter || !w.isLive(leader.ID) {
						continue
					}
					again := w
					again.Self, again.Leader = leader.ID, leader.ID
					again.Nodes = map[string]Node{}
					for id, n := range w.Nodes {
						n.Pace = PaceUnknown
						again.Nodes[id] = n
					}
					got := again.play(q)
					name := fmt.Sprintf("%s: %s, after %d steps at %s", start, line, stop, leader.Name())
					if refused {
						require.Contains(t, got[len(got)-1], "refused", name)
						continue
					}
					require.True(t, again.Same(whole.Configuration), "%s: %v", name, got)
				}
			}
		}
	}
}

// some takes the given number of steps, and reports whether there were as many.
func (w *world) some(t *testing.T, q Request, steps int) bool {
	for range steps {
		step, refusal := Next(w.View, q)
		if refusal != nil || step.Do == Nothing {
			return false
		}
		before := w.countVoters("").live >= w.Quorum()
		w.take(step)
		require.GreaterOrEqual(t, w.Voters(), 1)
		if before {
			require.GreaterOrEqual(t, w.countVoters("").live, w.Quorum(), "%v: %s", q, step.Outcome)
		}
	}
	return true
}

// TestTheNextOfANameIsAnother shows that a pinned request whose member had the bare name as its ID does not apply to a
// later member of that name.
func TestTheNextOfANameIsAnother(t *testing.T) {
	w := newWorld(t, "n1* n2 n3= n4-")
	remove, replace := w.Pin(requestOf(t, "remove n3")), w.Pin(requestOf(t, "replace n3 n4"))
	w = newWorld(t, "n1* n2 n3 n4")
	require.Equal(t, "done: n3 is no member", w.play(remove)[0])
	require.Equal(t, "done: n4 has the place of n3", w.play(replace)[0])
}

func TestRequestsAreBounded(t *testing.T) {
	var all []string
	for i := range members.Max {
		all = append(all, fmt.Sprintf("m%d-", i))
	}
	w := newWorld(t, "n1* "+strings.Join(all[1:], " "))
	_, refusal := Next(w.View, requestOf(t, "join n9 at n9:7379"))
	require.ErrorContains(t, refusal, "the cluster has 32 members, which is the most")
}

// TestJoinOfAnOlderRelease shows that a node whose release cannot read the log is not added.
func TestJoinOfAnOlderRelease(t *testing.T) {
	for _, c := range []struct {
		version, can byte
		refused      string
	}{
		{1, 1, ""},
		{2, 2, ""},
		{2, 3, ""},
		{
			2, 1,
			"n4 runs an older release, with log format 1, and this cluster has version 2: install the newer release there",
		},
		{
			3, 2,
			"n4 runs an older release, with log format 2, and this cluster has version 3: install the newer release there",
		},
	} {
		w := newWorld(t, "n1* n2 n3")
		w.Version = c.version
		step, refusal := Next(w.View, Request{Op: Join, Member: idOf("n4"), Addr: "n4:7379", LogFormat: c.can})
		if c.refused == "" {
			require.Nil(t, refusal)
			require.Equal(t, AddMember, step.Do)
			continue
		}
		require.EqualError(t, refusal, c.refused)
	}
}
