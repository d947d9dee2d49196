package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/console"
)

// applied returns the state after requests, one a second.
func applied(t *testing.T, requests ...[]string) fsm.Machine {
	t.Helper()
	m := fsm.New()
	for i, words := range requests {
		entry := protocol.NewEntry(nil, protocol.EntryVersion, int64(i+1)*1000, 946_684_800_000, protocol.EntryLimits{})
		head := protocol.Head{Lock: true, Conn: int64(i + 11), Ticket: uint64(i + 1)}
		body := protocol.AppendRequest(nil, head, words[0], protocoltest.Args(words[1:]))
		entry.Add(protocol.Incarnation{Node: "n1@25a515603141", Epoch: 3}, uint64(i+1), uint64(i+1), body)
		require.NoError(t, m.Apply(entry.Bytes(), fsm.Discard{}))
	}
	return m
}

// statusExample returns a reply to RAFT.STATUS such as a cluster gives in the tests of server/api.
func statusExample() protocol.Value {
	word, number := protocol.Bulk, protocol.Integer
	member := func(name, role string, match, lag int64) protocol.Value {
		return protocol.Map(
			word("name"), word(name), word("id"), word(name+"@25a51560314"+name[1:]), word("peer-address"),
			word("10.0.0."+name[1:]+":7379"),
			word("client-address"), word("10.0.0."+name[1:]+":6379"), word("voter"), number(1), word("role"), word(role),
			word("silent"), number(0),
			word("match-index"), number(match), word("lag"), number(lag), word("version"), word(protocol.HoldfastVersion),
			word("log-format"), number(protocol.EntryVersion), word("hold-version"), number(0))
	}
	return protocol.Map(
		word("node"), word("n1"), word("node-id"), word("n1@25a515603141"), word("cluster-id"), word("82abaf1dcbb78997"),
		word("role"), word("follower"),
		word("leader"), word("n2"), word("term"), number(4), word("commit-index"), number(812), word("applied-index"),
		number(811),
		word("last-index"), number(812), word("cluster-version"), number(6), word("voters"), number(2), word("non-voters"),
		number(0), word("live-voters"), number(2),
		word("quorum"), number(2), word("margin"), number(0),
		word("members"), protocol.Array(member("n1", "follower", 812, 2), member("n2", "leader", 814, 0)))
}

// TestExamples shows that the examples in API.md are what a node replies.
func TestExamples(t *testing.T) {
	document := protocoltest.ReadFile(t, "API.md")
	synctest.Test(t, func(t *testing.T) {
		m := applied(t,
			[]string{"session.open", "PX", "10000", "CONNECTION", "NAME", "report"},
			[]string{"lock.acquire", "jobs:nightly", "vm-14:16510", "SESSION", "1", "NOTE", "report --full"},
			[]string{"lock.acquire", "jobs:nightly", "vm-15:2041", "PX", "30000", "WAIT", "600000"},
			[]string{"lock.acquire", "jobs:weekly", "vm-14:16511", "PX", "30000"},
			[]string{"lock.acquire", "jobs:monthly", "vm-09:811", "PX", "30000"},
			[]string{"lock.break", "jobs:monthly", "REASON", "the host is gone"},
			[]string{"lock.check", "jobs:nightly", "nobody"})
		time.Sleep(90 * time.Second)
		c := console.New(console.Config{Node: "n1", Machine: func() fsm.Machine { return m }, Status: statusExample})
		s := newServer(func(conf *Config) { conf.Console = c })
		examples := regexp.MustCompile("(?s)<!-- (/api/[^ ]*) -->\n```json\n(.*?)```\n")
		shown := 0
		made := examples.ReplaceAllStringFunc(document, func(block string) string {
			shown++
			path := examples.FindStringSubmatch(block)[1]
			w := httptest.NewRecorder()
			s.http.Handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			require.Equal(t, 200, w.Code, path)
			return "<!-- " + path + " -->\n```json\n" + example(t, w.Body.Bytes()) + "```\n"
		})
		require.Equal(t, 4, shown)
		require.Equal(t, protocoltest.Golden(t, "API.md", made), made, "run 'make rewrite' and look at the change")
	})
}

// example formats a document for readers: of a long array of steps it keeps the last, and it puts on a line what fits.
func example(t *testing.T, body []byte) string {
	t.Helper()
	steps := regexp.MustCompile(`"steps":\[.*,(\{[^{]*\})\]`)
	d := json.NewDecoder(bytes.NewReader(steps.ReplaceAll(body, []byte(`"steps":[$1]`))))
	d.UseNumber()
	text := lines(t, d, "")
	_, err := d.Token()
	require.ErrorIs(t, err, io.EOF)
	return text + "\n"
}

// lines returns the next value, formatted to follow an indent.
func lines(t *testing.T, d *json.Decoder, indent string) string {
	t.Helper()
	token, err := d.Token()
	require.NoError(t, err)
	open, is := token.(json.Delim)
	if !is {
		scalar, err := json.Marshal(token)
		require.NoError(t, err)
		return string(scalar)
	}
	var items []string
	for d.More() {
		name := ""
		if open == '{' {
			name = lines(t, d, "") + ": "
		}
		items = append(items, name+lines(t, d, indent+"  "))
	}
	end, err := d.Token()
	require.NoError(t, err)
	text := fmt.Sprint(open) + strings.Join(items, ", ") + fmt.Sprint(end)
	if len(indent+text) > 100 || strings.Contains(text, "\n") {
		text = fmt.Sprint(open) + "\n"
		for i, line := 0, ""; i < len(items); i++ {
			short := !strings.Contains(items[i], "\n")
			if line = items[i]; i+1 < len(items) {
				line += ","
			}
			for short && i+1 < len(items) && !strings.Contains(items[i+1], "\n") && len(indent+line+items[i+1]) < 98 {
				i++
				if line += " " + items[i]; i+1 < len(items) {
					line += ","
				}
			}
			text += indent + "  " + line + "\n"
		}
		text += indent + fmt.Sprint(end)
	}
	return text
}
