package web

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/api"
	"github.com/holdfast/holdfast/server/console"
)

// oddKey is not valid UTF-8, and has markup.
const oddKey = "\xff</script><script>alert(1)</script>"

// machine returns a state with holders of locks.
func machine(t *testing.T) fsm.Machine {
	t.Helper()
	m := fsm.New()
	var body []byte
	for _, words := range [][]string{
		{"job", "vm-1", "PX", "60000"},
		{"job", "vm-2", "PX", "60000", "WAIT", "60000"},
		{oddKey, "<b>", "PX", "60000"},
		{"", "empty", "PX", "60000"},
		{"jobs/../a?b#c", "path", "PX", "60000"},
	} {
		head := protocol.Head{Lock: true, Conn: 1, Ticket: 9}
		body = protocol.AppendRequest(body, head, "lock.acquire", protocoltest.Args(words))
	}
	entry := protocol.NewEntry(nil, protocol.EntryVersion, 1000, 1_700_000_000_000, protocol.EntryLimits{})
	entry.Add(protocol.Incarnation{Node: "n1@abc", Epoch: 1}, 1, 1, body)
	require.NoError(t, m.Apply(entry.Bytes(), fsm.Discard{}))
	return m
}

func withConsole(m func() fsm.Machine) func(*Config) {
	return func(c *Config) {
		c.Console = console.New(console.Config{Node: "n1", Machine: m, Status: func() protocol.Value {
			return protocol.Map(protocol.Bulk("node"), protocol.Bulk("n1"))
		}})
	}
}

func consoleServer(t *testing.T, change func(*Config)) *Server {
	m := machine(t)
	return newServer(func(c *Config) {
		withConsole(func() fsm.Machine { return m })(c)
		if change != nil {
			change(c)
		}
	})
}

var consolePaths = []string{
	"/", "/page.css", "/page.js", "/icon.svg", "/api/locks", "/api/lock?key=job",
	"/api/members", "/api/history",
}

// TestConsoleAccess shows that the page and each document need the same authentication as the metrics, and do not exist
// on a node without a console.
func TestConsoleAccess(t *testing.T) {
	secured := consoleServer(t, func(c *Config) { c.Access.Users = openSesame })
	for _, path := range consolePaths {
		for _, password := range []string{"", "guess"} {
			status, body := get(secured, path, password)
			require.Equal(t, 401, status, path)
			require.NotContains(t, body, "job")
			require.NotContains(t, body, "<")
		}
		status, _ := get(secured, path, "open sesame")
		require.Equal(t, 200, status, path)
		status, _ = get(newServer(nil), path, "")
		require.Equal(t, 404, status, path)
		w := httptest.NewRecorder()
		secured.http.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		require.Equal(t, 405, w.Code, path)
	}
}

// TestDocuments shows that each valid request gets its document, an invalid one an error, and that hostile names are
// returned unchanged.
func TestDocuments(t *testing.T) {
	s := consoleServer(t, nil)
	for path, want := range map[string]int{
		"/api/locks": 200, "/api/locks?sort=queue&limit=1": 200, "/api/locks?prefix=&mode=&db=0": 200,
		"/api/locks?match=jo*": 200,
		"/api/locks?limit=0":   400, "/api/locks?limit=201": 400, "/api/locks?limit=many": 400, "/api/locks?db=16": 400,
		"/api/locks?db=-1":                        400,
		"/api/locks?cursor=0&limit=1&mode=native": 200, "/api/locks?cursor=x": 400, "/api/locks?cursor=": 400,
		"/api/locks?cursor=0&sort=held": 400,
		"/api/locks?sort=name":          400, "/api/locks?mode=odd": 400, "/api/locks?limits=1": 400,
		"/api/locks?db=1&db=2":        400,
		"/api/locks?match=a&prefix=b": 400, "/api/locks?%zz": 400, "/api/members?x=1": 400,
		"/api/lock?key=job": 200, "/api/lock?key=": 200, "/api/lock?key=job&db=3": 404, "/api/lock?key=nope": 404,
		"/api/lock": 400, "/api/lock?key=a&keyBase64=YQ==": 400, "/api/lock?keyBase64=!": 400, "/api/lock?db=0": 400,
		"/api/lock?key=" + url.QueryEscape("jobs/../a?b#c"): 200, "/api/nope": 404, "/api/": 404,
	} {
		status, body := get(s, path, "")
		require.Equal(t, want, status, "%s: %s", path, body)
		if strings.HasPrefix(path, "/api/lock") || strings.HasPrefix(path, "/api/members") {
			var doc struct {
				Format int
				Error  string
			}
			require.NoError(t, json.Unmarshal([]byte(body), &doc), path)
			require.Equal(t, api.Format, doc.Format)
			require.Equal(t, want != 200, doc.Error != "", path)
		}
	}
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/locks", nil))
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.NotContains(t, w.Body.String(), "<")
	var doc api.Locks
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &doc))
	require.Len(t, doc.Locks, 4)
	for _, l := range doc.Locks {
		if l.KeyBase64 == nil {
			continue
		}
		require.Equal(t, oddKey, string(l.KeyBase64))
		status, body := get(s, "/api/lock?"+
			url.Values{"keyBase64": {"/zwvc2NyaXB0PjxzY3JpcHQ+YWxlcnQoMSk8L3NjcmlwdD4="}}.Encode(), "")
		require.Equal(t, 200, status)
		require.Contains(t, body, `"owner":"\u003cb\u003e"`)
	}
}

// TestNoClusterYet shows that a node without a cluster returns an error for documents about locks, and serves the page
// and the members.
func TestNoClusterYet(t *testing.T) {
	s := newServer(withConsole(func() fsm.Machine { return nil }))
	for path, want := range map[string]int{
		"/api/locks": 503, "/api/lock?key=k": 503, "/api/history": 503,
		"/api/members": 200, "/": 200,
	} {
		status, body := get(s, path, "")
		require.Equal(t, want, status, path)
		if want == 503 {
			require.JSONEq(t, `{"format":1,"error":"this node belongs to no cluster yet"}`, body)
		}
	}
}

// TestQuestionsAreBounded shows that requests beyond maxQuestions at a time are refused because the node is busy, and
// that a request that is not answered in time ends.
func TestQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := newServer(withConsole(func() fsm.Machine { <-hang; return nil }))
		began := time.Now()
		answers := make(chan int)
		for range maxQuestions {
			go func() {
				status, _ := get(s, "/api/locks", "")
				answers <- status
			}()
		}
		synctest.Wait()
		status, body := get(s, "/api/members", "")
		require.Equal(t, 503, status)
		require.Contains(t, body, "busy")
		for range maxQuestions {
			require.Equal(t, 503, <-answers)
		}
		require.Less(t, time.Since(began), writeTimeout)
		close(hang)
		status, _ = get(s, "/api/members", "")
		require.Equal(t, 200, status)
	})
}

// TestForeignNames shows that on loopback without a password, requests for host names other than this machine's are
// refused.
func TestForeignNames(t *testing.T) {
	at := func(change func(*Config), local, host string) int {
		r := httptest.NewRequest(http.MethodGet, "/api/locks", nil)
		r.Host = host
		r.SetBasicAuth("default", "open sesame")
		addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(local))
		w := httptest.NewRecorder()
		consoleServer(t, change).http.Handler.ServeHTTP(w,
			r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, addr)))
		return w.Code
	}
	for host, want := range map[string]int{
		"localhost:8379": 200, "127.0.0.1:8379": 200, "[::1]:8379": 200, "localhost": 200, "10.0.0.1": 200,
		"evil.example:8379": 403, "evil.example": 403, "localhost.evil.example:80": 403,
	} {
		require.Equal(t, want, at(nil, "127.0.0.1:8379", host), host)
	}
	require.Equal(t, 200, at(nil, "10.0.0.1:8379", "n1.example:8379"))
	require.Equal(t, 200, at(func(c *Config) { c.Access.Users = openSesame }, "127.0.0.1:8379", "n1.example:8379"))
}

// TestRightsOfUsers shows that a user gets the documents that its rights allow by commands on the port for clients, and
// no others.
func TestRightsOfUsers(t *testing.T) {
	var refused []string
	s := consoleServer(t, func(c *Config) {
		c.Access.Refused = func(addr, user string) { refused = append(refused, addr+" "+user) }
		users, err := acl.Parse("f",
			"user metrics on >open +info\nuser locks on >open +lock.list +lock.info ~*\nuser status on >open +raft.status\n"+
				"user team on >open +lock.info ~team:*\n"+
				"user off off >open ~* +@all\nuser all on >open ~* &* +@all\n")
		require.NoError(t, err)
		c.Access.Users = func() *acl.Users { return users }
	})
	for user, want := range map[string]string{
		"metrics": "/metrics", "locks": "/ /api/lock /api/locks", "team": "", "status": "/api/members", "off": "", "default": "",
		"nobody": "", "": "",
		"all": "/ /api/history /api/lock /api/locks /api/members /metrics",
	} {
		var got []string
		for _, path := range []string{"/", "/api/history", "/api/lock?key=a", "/api/locks", "/api/members", "/metrics"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.SetBasicAuth(user, "open")
			w := httptest.NewRecorder()
			s.http.Handler.ServeHTTP(w, r)
			switch w.Code {
			case http.StatusUnauthorized:
				require.Contains(t, []string{"off", "default", "nobody", ""}, user)
			case http.StatusForbidden:
			default:
				path, _, _ = strings.Cut(path, "?")
				got = append(got, path)
			}
		}
		require.Equal(t, want, strings.Join(got, " "), user)
	}
	paths := []string{"/", "/api/history", "/api/lock", "/api/locks", "/api/members", "/metrics"}
	for _, user := range []string{"off", "default", "nobody"} {
		n := 0
		for _, line := range refused {
			if strings.HasSuffix(line, ":1234 "+user) {
				n++
			}
		}
		require.GreaterOrEqual(t, n, len(paths), "each wrong password is told of")
	}
	require.NotContains(t, strings.Join(refused, "\n"), "team")

	for query, want := range map[string]int{
		"key=team:a": 404, "keyBase64=dGVhbTph": 404, "key=team": 403, "keyBase64=YQ==": 403, "key=team:a&key=a": 400, "": 403,
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/lock?"+query, nil)
		r.SetBasicAuth("team", "open")
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, "%s: %s", query, w.Body)
	}
}

// TestPageIsWhole shows that the page loads nothing from elsewhere, has no code in its markup, and that its script does
// not make markup from text.
func TestPageIsWhole(t *testing.T) {
	s := consoleServer(t, nil)
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	policy := w.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "unsafe")
	require.NotContains(t, policy, "http")
	page := w.Body.String()
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"#]*)"`).FindAllStringSubmatch(page, -1) {
		status, _ := get(s, m[1], "")
		require.Equal(t, 200, status, m[1])
	}
	require.NotRegexp(t, `<script(?: [a-z="/.]*)?>[^<]|\son[a-z]+=|style=|javascript:`, page)
	_, script := get(s, "/page.js", "")
	require.NotRegexp(t,
		`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|https?://(?:[^w]|w[^w])`, script)
	_, css := get(s, "/page.css", "")
	require.NotRegexp(t, `url\(|@import`, css)

	tag := w.Header().Get("ETag")
	require.NotEmpty(t, tag)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("If-None-Match", tag)
	w = httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, r)
	require.Equal(t, 304, w.Code)
	require.Empty(t, w.Body.String())
}
