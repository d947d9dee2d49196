package frontend

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/acl"
)

// limitedUsers returns the users default, a and b, with quotas.
func limitedUsers(t *testing.T, quotas string) *fileUsers {
	users, err := acl.Parse("acl",
		"user default on nopass ~* &* +@all\nuser a on >p ~* &* +@all\nuser b on >p ~* &* +@all\n")
	require.NoError(t, err)
	require.NoError(t, users.Limit("quota", quotas))
	f := new(fileUsers)
	f.held.Store(users)
	return f
}

// pings sends n PINGs in a pipeline, and waits for the replies.
func (c *testClient) pings(n int) {
	c.send([]byte(strings.Repeat("PING\r\n", n)))
	for got := ""; len(got) < n*len("+PONG\r\n"); {
		time.Sleep(time.Millisecond)
		more, closed := c.take()
		require.False(c.t, closed)
		got += more
	}
}

// TestPace shows that the connections of a user share max-commands-per-second: a user who sends more is slowed down,
// and others are not.
func TestPace(t *testing.T) {
	inBubble(t, Config{Users: limitedUsers(t, "user a max-commands-per-second 10")}, func(t *testing.T, s *testServer) {
		defer s.stop()
		one, two, other := s.dial(), s.dial(), s.dial()
		began := time.Now()
		for _, c := range []*testClient{one, two} {
			require.Equal(t, "+OK\r\n", answer(c, "AUTH", "a", "p"))
		}
		require.Equal(t, "+OK\r\n", answer(other, "AUTH", "b", "p"))
		for range 8 { // and two AUTH
			one.pings(1)
		}
		require.Less(t, time.Since(began), 200*time.Millisecond)
		for range 5 {
			one.pings(1)
			two.pings(1)
		}
		require.InDelta(t, 1100*time.Millisecond, time.Since(began), float64(200*time.Millisecond))
		one.send([]byte(strings.Repeat("PING\r\n", 20)))
		for range 100 {
			other.pings(1)
		}
		require.Less(t, time.Since(began), 1500*time.Millisecond)
		two.pings(1)
		require.InDelta(t, 3200*time.Millisecond, time.Since(began), float64(200*time.Millisecond),
			"a pipeline is so many commands")
		var paused time.Duration
		for _, u := range s.limits.usage(s.cfg.Users.Held()) {
			require.Equal(t, "a", u.User)
			require.Equal(t, 2, u.Connections)
			paused = u.Paused
		}
		require.Greater(t, paused, 3*time.Second)
	})
}

func TestPaceIsBounded(t *testing.T) {
	var p pace
	now := time.Now()
	require.Zero(t, p.take(now, 5, 5))
	require.Equal(t, time.Second/5, p.take(now, 1, 5))
	require.Equal(t, maxPause, p.take(now, 1_000_000_000, 1))
	require.Equal(t, maxPause, p.take(now, 1, 1), "debt is bounded")
	require.Zero(t, p.take(now.Add(time.Hour), 5, 5), "credit is bounded")
	require.NotZero(t, p.take(now.Add(time.Hour), 1, 5))
}

// TestLimitsFollowTheFile shows that new quotas apply to open connections, and that nothing is kept for a user who has
// no limit or no connection any more.
func TestLimitsFollowTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := limitedUsers(t, "user a max-commands-per-second 1")
		s := start(t, Config{Users: users}, newCluster())
		defer s.stop()
		c := s.dial()
		require.Equal(t, "+OK\r\n", answer(c, "AUTH", "a", "p"))
		users.held.Store(limitedUsers(t, "user b max-connections 1").held.Load())
		users.changed()
		began := time.Now()
		c.pings(100)
		require.Less(t, time.Since(began), time.Second)
		require.Empty(t, s.limits.paces)
		first, second := s.dial(), s.dial()
		require.Equal(t, "+OK\r\n", answer(first, "AUTH", "b", "p"))
		require.Contains(t, answer(second, "AUTH", "b", "p"), "-QUOTA")
		require.Contains(t, answer(second, "ACL", "WHOAMI"), "default")
		require.Equal(t, "+RESET\r\n", answer(first, "RESET"))
		require.Equal(t, "+OK\r\n", answer(second, "AUTH", "b", "p"))
		require.Contains(t, answer(second, "AUTH", "b", "p"), "+OK", "the connection's own place")
		require.Equal(t, map[string]int{"a": 1, "b": 1, "default": 1}, s.limits.conns)
		for _, client := range []*testClient{c, first, second} {
			client.nc.Close()
		}
		synctest.Wait()
		require.Empty(t, s.limits.conns)
	})
}

// TestNamedBy shows that a certificate names a user only by the given kind of name, and only a user who exists and is
// on. The first URI that names such a user counts.
func TestNamedBy(t *testing.T) {
	users, err := acl.Parse("acl", "user a on >p\nuser b off >p\nuser spiffe://x/a on >p\nuser spiffe://x/b on >p")
	require.NoError(t, err)
	uri := func(text string) *url.URL {
		u, err := url.Parse(text)
		require.NoError(t, err)
		return u
	}
	for _, tc := range []struct {
		cert     x509.Certificate
		by, want string
	}{
		{x509.Certificate{Subject: pkix.Name{CommonName: "a"}}, "CN", "a"},
		{x509.Certificate{Subject: pkix.Name{CommonName: "b"}}, "CN", ""},
		{x509.Certificate{Subject: pkix.Name{CommonName: "c"}}, "CN", ""},
		{x509.Certificate{Subject: pkix.Name{CommonName: ""}}, "CN", ""},
		{x509.Certificate{Subject: pkix.Name{CommonName: "a"}}, "URI", ""},
		{x509.Certificate{URIs: []*url.URL{uri("spiffe://x/a")}}, "CN", ""},
		{
			x509.Certificate{URIs: []*url.URL{uri("spiffe://x/none"), uri("spiffe://x/b"), uri("spiffe://x/a")}},
			"URI",
			"spiffe://x/b",
		},
	} {
		got := ""
		if u := namedBy(&tc.cert, tc.by, users); u != nil {
			got = u.Name
		}
		require.Equal(t, tc.want, got, "%+v", tc)
	}
}

// asks returns users of whom the only one has the password, or nil if the server requires none.
func asks(password string) Users {
	if password == "" {
		return nil
	}
	return onlyUser{acl.Only(acl.PasswordOf(password))}
}

// TestFailedAuthIsLogged shows that failed authentication is logged once a second at most, with the client, the user
// and the number of failures that were not logged, and never with the password. The name of the user is cut to
// maxUserBytes.
func TestFailedAuthIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := start(t, Config{Users: asks("open sesame")}, newCluster())
		s.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c := s.dial()
		for range 100 {
			c.send([]byte("AUTH guessed\r\n"))
		}
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "authentication failed"), "%s", log.String())
		time.Sleep(time.Second)
		c.send([]byte("HELLO 3 AUTH " + strings.Repeat("u", 1000) + " guessed\r\n"))
		c.send([]byte("AUTH \"open sesame\"\r\n"))
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		require.Len(t, lines, 2)
		require.Contains(t, lines[0], "user=default not_logged_before=0")
		require.Contains(t, lines[0], "client=")
		require.Contains(t, lines[1], "user="+strings.Repeat("u", maxUserBytes)+" not_logged_before=99")
		require.NotContains(t, log.String(), "guessed")
		require.Equal(t, uint64(101), s.metrics.Refused.Load())

		time.Sleep(time.Second)
		s.FailedHTTPAuth("10.0.0.9:1", "me")
		require.Contains(t, log.String(), "client=10.0.0.9:1 user=me not_logged_before=0 port=http")
		require.Equal(t, uint64(102), s.metrics.Refused.Load())
		entry := string(s.aclLog.Reply(nil, time.Now()).AppendTo(nil, 2))
		require.Contains(t, entry, "http")
		require.Contains(t, entry, "10.0.0.9:1")
	})
}
