package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/peertest"
)

// logBuffer has what a node has logged, without times.
type logBuffer struct{ protocoltest.Buffer }

func (b *logBuffer) lines() []string {
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func (b *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// node is a Mux that runs.
type node struct {
	*Mux
	log  *logBuffer
	stop func()
}

func cluster(id string) func() string { return func() string { return id } }

// addresses returns addresses in which each node is at port 1 of the host of its name.
func addresses(ids ...string) *members.Addresses {
	b := &members.Addresses{}
	for _, id := range ids {
		b.Hint(id, id+":1")
	}
	return b
}

// knows returns the secrets of a node, its own first.
func knows(secrets ...string) func() [][]byte {
	var all [][]byte
	for _, s := range secrets {
		all = append(all, []byte(s))
	}
	return func() [][]byte { return all }
}

// inBubble runs a test with a network in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, net *peertest.Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, peertest.New()) })
}

// start runs a node with this name as its ID and its host. The node stops at the end of the test at the latest.
func start(t *testing.T, n *peertest.Network, name string, change ...func(*Config)) *node {
	t.Helper()
	l, err := n.Listen(name + ":1")
	require.NoError(t, err)
	log := &logBuffer{}
	c := Config{
		Listener: l, Dial: n.Dial(name + ":1"), ClusterID: cluster("c1"), ID: name, Addresses: addresses("n1", "n2", "n3"),
		Secrets: knows("s3cret"), HandshakeTimeout: 2 * time.Second, Logger: log.logger(),
		Incarnations: proved(firstLife, disk{}).Registry,
	}
	for _, f := range change {
		f(&c)
	}
	m, err := New(c)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-done)
		})
	}
	t.Cleanup(stop)
	return &node{Mux: m, log: log, stop: stop}
}

func dial(t *testing.T, from *node, k Kind, addr string) *Conn {
	t.Helper()
	c, err := from.Layer(k).DialContext(t.Context(), addr)
	require.NoError(t, err)
	return c.(*Conn)
}

func accept(t *testing.T, at *node, k Kind) *Conn {
	t.Helper()
	c, err := at.Layer(k).Accept()
	require.NoError(t, err)
	return c.(*Conn)
}

// talk sends text, and requires that it arrives at the other end.
func talk(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(from, text)
	require.NoError(t, err)
	got := make([]byte, len(text))
	_, err = io.ReadFull(to, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

func TestConnectionsReachTheLayerOfTheirKind(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one, two := start(t, net, "n1"), start(t, net, "n2", func(c *Config) { c.Advertise = "two.example:1" })
		forward := dial(t, one, KindForward, "n2")
		raft := dial(t, one, KindRaft, "n2")
		forwarded, rafted := accept(t, two, KindForward), accept(t, two, KindRaft)
		require.Equal(t, "n2", forward.PeerName())
		require.Equal(t, "n1", forwarded.PeerName())
		time.Sleep(time.Hour) // no deadline of the handshake is left
		talk(t, forward, forwarded, "a request")
		talk(t, forwarded, forward, "its reply")
		talk(t, raft, rafted, "an append")
		require.Equal(t, "two.example:1", two.Layer(KindRaft).Addr().String())
		require.Equal(t, "n1:1", one.Layer(KindRaft).Addr().String())
		require.Equal(t, []string{""}, two.log.lines())
		require.NoError(t, forward.Close())
		_, err := forwarded.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
	})
}

func TestStrangersAreRefused(t *testing.T) {
	hello := strings.Repeat("n", 32) + "\x00\x02c1\x02n9" + string(firstLife.Append(nil)) // after the kind
	for _, row := range []struct{ name, says, reason string }{
		{"http", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "speaks HTTP"},
		{"resp", "*1\r\n$4\r\nPING\r\n", "speaks the Redis protocol"},
		{"inline", "PING\r\n", "speaks the Redis protocol"},
		{"tls", "\x16\x03\x01\x02\x00\x01\x00\x01", "speaks TLS"},
		{"ssh", "SSH-2.0-x\r\n", "speaks SSH"},
		{"random", "\x00\xff\x13\x37", `said \"\\x00\\xff\\x137\"`},
		{"almost", "HOLDFASX", `said \"HOLDFASX\"`},
		{"short cluster", "HOLDFAST\x01R" + strings.Repeat("n", 32) + "\x00\x00", "malformed"},
		{"long cluster", "HOLDFAST\x01R" + strings.Repeat("n", 32) + "\xff\xff", "malformed"},
		{"no name", "HOLDFAST\x01R" + strings.Repeat("n", 32) + "\x00\x02c1\x00", "malformed"},
		{"no lineage", "HOLDFAST\x01R" + strings.Repeat("n", 32) + "\x00\x02c1\x02n9\x00", "malformed"},
		{
			"long lineage", "HOLDFAST\x01R" + strings.Repeat("n", 32) + "\x00\x02c1\x02n9\xff",
			"its introduction is malformed",
		},
		{"unknown kind", "HOLDFAST\x01X" + hello, "unknown kind (kind 0x58)"},
		{
			"no secret", "HOLDFAST\x01R" + hello + strings.Repeat("p", 32),
			"could not prove",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, net *peertest.Network) {
				one := start(t, net, "n1")
				c, err := net.Dial("stranger")(t.Context(), "n1:1")
				require.NoError(t, err)
				_, err = io.WriteString(c, row.says)
				require.NoError(t, err)
				begun := time.Now()
				_, _ = io.Copy(io.Discard, c)
				require.Equal(t, begun, time.Now(), "it is refused at once")
				synctest.Wait()
				lines := one.log.lines()
				require.Len(t, lines, 1)
				require.Contains(t, lines[0], "level=WARN")
				require.Contains(t, lines[0], row.reason)
				require.Contains(t, lines[0], "remote=stranger")
				_ = c.Close()
			})
		})
	}
}

func TestSilentAndSlowStrangersAreCutOff(t *testing.T) {
	for _, drip := range []string{"", "H", strings.Repeat("HOLDFAST\x01R", 1)} {
		inBubble(t, func(t *testing.T, net *peertest.Network) {
			one := start(t, net, "n1", func(c *Config) { c.OnMisfit = func() { t.Error("silence is no misfit") } })
			c, err := net.Dial("stranger")(t.Context(), "n1:1")
			require.NoError(t, err)
			begun := time.Now()
			go func() {
				for i := range drip {
					time.Sleep(300 * time.Millisecond) // further bytes do not extend the deadline
					_, _ = io.WriteString(c, drip[i:i+1])
				}
			}()
			_, _ = io.Copy(io.Discard, c)
			require.Equal(t, 2*time.Second, time.Since(begun))
			synctest.Wait()
			require.Contains(t, one.log.lines()[0], "fell silent after")
			time.Sleep(10 * time.Second)
			_ = c.Close()
		})
	}
}

// refusal dials n2 from n1 and returns the dialer's error and the acceptor's log line.
func refusal(t *testing.T, changeOne, changeTwo func(*Config)) (line string, err error) {
	t.Helper()
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one, two := start(t, net, "n1", changeOne), start(t, net, "n2", changeTwo)
		_, err = one.Layer(KindRaft).DialContext(t.Context(), "n2")
		require.Error(t, err)
		synctest.Wait()
		lines := two.log.lines()
		require.Len(t, lines, 1)
		line = lines[0]
		require.Zero(t, net.Connections(), "both ends are closed")
	})
	return line, err
}

func TestNodesOfOtherClustersAreRefused(t *testing.T) {
	same := func(*Config) {}
	secret := func(s string) func(*Config) { return func(c *Config) { c.Secrets = knows(s) } }
	t.Run("cluster", func(t *testing.T) {
		line, err := refusal(t, func(c *Config) { c.ClusterID = cluster(strings.Repeat("other", 100)) }, same)
		require.ErrorContains(t, err, "dial peer n2:1: refused: it belongs to another cluster")
		require.True(t, Misfit(err))
		require.Contains(t, line, `reason="it belongs to another cluster: \"otherother`)
		require.Contains(t, line, `from=n1 kind=raft`)
		require.Less(t, len(line), 400)
	})
	t.Run("secret", func(t *testing.T) {
		told := 0
		line, err := refusal(t, func(c *Config) {
			secret("guess")(c)
			c.OnRemoved = func() { t.Error("a secret says nothing of it") }
		}, func(c *Config) { c.OnMisfit = func() { told++ } })
		require.Equal(t, 1, told)
		require.ErrorContains(t, err, `node "n2" refused: it has another cluster secret, or none`)
		require.True(t, Misfit(err))
		require.Contains(t, line, "could not prove that it knows the cluster secret")
	})
	t.Run("no secret here", func(t *testing.T) {
		_, err := refusal(t, secret(""), same)
		require.ErrorContains(t, err, "another cluster secret")
	})
	t.Run("no secret there", func(t *testing.T) {
		_, err := refusal(t, same, secret(""))
		require.ErrorContains(t, err, "another cluster secret")
	})
	t.Run("itself", func(t *testing.T) {
		line, err := refusal(t, func(c *Config) { c.ID = "n2" }, same)
		require.ErrorContains(t, err, "same ID")
		require.False(t, Misfit(err))
		require.Contains(t, line, "same ID")
	})
	t.Run("wrong node", func(t *testing.T) {
		line, err := refusal(t, same, func(c *Config) { c.ID = "n2@new" })
		require.ErrorContains(t, err, `node "n2@new" answers where node "n2" was expected`)
		require.False(t, Misfit(err))
		require.Contains(t, line, "hung up")
	})
	t.Run("no cluster there", func(t *testing.T) {
		line, err := refusal(t, same, func(c *Config) { c.ClusterID = cluster("") })
		require.ErrorContains(t, err, "refused: it belongs to no cluster yet")
		require.False(t, Misfit(err))
		require.Contains(t, line, "this node belongs to no cluster yet")
	})
	t.Run("removed", func(t *testing.T) {
		told := 0
		line, err := refusal(t, func(c *Config) { c.OnRemoved = func() { told++ } },
			func(c *Config) { c.Removed = func(id string) bool { return id == "n1" } })
		require.ErrorContains(t, err, "refused: this node was removed from the cluster")
		require.Contains(t, line, "it was removed from the cluster")
		require.Equal(t, 1, told)
	})
}

// TestNodeWithoutClusterDialsNobody shows that a node that belongs to no cluster yet dials for KindMember only.
func TestNodeWithoutClusterDialsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one := start(t, net, "n1", func(c *Config) { c.ClusterID = cluster("") })
		_ = start(t, net, "n2")
		_, err := one.Layer(KindRaft).DialContext(t.Context(), "n2")
		require.ErrorContains(t, err, "this node belongs to no cluster yet")
		require.Zero(t, net.Connections())
	})
}

// TestConnectionsAboutMembers shows that connections of KindMember are accepted from nodes that belong to no cluster
// yet and from removed nodes, but not from nodes of another cluster or without the secret. A node may dial them by
// address alone, without knowing which node answers.
func TestConnectionsAboutMembers(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		fresh := func(c *Config) { c.ClusterID, c.Addresses = cluster(""), addresses() }
		one := start(t, net, "n1", fresh)
		two := start(t, net, "n2", func(c *Config) { c.Removed = func(string) bool { return true } })
		three := start(t, net, "n3", fresh)
		other := start(t, net, "n4", func(c *Config) { c.ClusterID = cluster("c2") })
		stranger := start(t, net, "n5", fresh, func(c *Config) { c.Secrets = knows("guess") })
		for at, n := range map[string]*node{"n2:1": two, "n3:1": three} {
			c, err := one.Layer(KindMember).DialAddr(t.Context(), at)
			require.NoError(t, err)
			talk(t, c, accept(t, n, KindMember), "x")
		}
		_, err := one.Layer(KindMember).DialAddr(t.Context(), "n1:1")
		require.ErrorIs(t, err, ErrSelf)
		_, err = other.Layer(KindMember).DialAddr(t.Context(), "n2:1")
		require.ErrorContains(t, err, "another cluster")
		_, err = other.Layer(KindMember).DialAddr(t.Context(), "n3:1")
		require.ErrorContains(t, err, "belongs to no cluster yet")
		_, err = stranger.Layer(KindMember).DialAddr(t.Context(), "n2:1")
		require.ErrorContains(t, err, "another cluster secret")
		for _, k := range []Kind{KindRaft, KindAppend, KindForward} {
			_, err = two.Layer(k).DialAddr(t.Context(), "n3:1")
			require.ErrorContains(t, err, "with a certain node")
		}
	})
}

// TestNodeThatMovedIsFound shows that the address of a node is looked up at each dial.
func TestNodeThatMovedIsFound(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		b := addresses("n2")
		one := start(t, net, "n1", func(c *Config) { c.Addresses = b })
		_, err := one.Layer(KindRaft).DialContext(t.Context(), "n4")
		require.ErrorContains(t, err, "dial peer n4: its address is not known")
		four := start(t, net, "n4")
		b.Hint("n4", "n4:1")
		talk(t, dial(t, one, KindRaft, "n4"), accept(t, four, KindRaft), "x")
		b.Hint("n2", "n4:1")
		_, err = one.Layer(KindRaft).DialContext(t.Context(), "n2")
		require.ErrorContains(t, err, `node "n4" answers where node "n2" was expected`)
	})
}

// TestSecretsAreReplaced shows that nodes can connect if they share any secret, in whatever order each has them, and
// that the secrets of a node may change between two connections.
func TestSecretsAreReplaced(t *testing.T) {
	for _, tc := range []struct {
		one, two []string
		refusals int // a dialer tries its secrets in order
		err      string
	}{
		{one: []string{"old"}, two: []string{"old", "new"}},
		{one: []string{"new"}, two: []string{"old", "new"}},
		{one: []string{"old", "new"}, two: []string{"new", "old"}},
		{one: []string{"old", "new"}, two: []string{"new"}, refusals: 1},
		{one: []string{"new", "old"}, two: []string{"old"}, refusals: 1},
		{one: []string{"new", "newer"}, two: []string{"old", "older"}, refusals: 2, err: "another cluster secret"},
		{one: []string{"old"}, two: []string{"new"}, refusals: 1, err: "another cluster secret"},
		{one: []string{"old", ""}, two: []string{"new"}, refusals: 2, err: "another cluster secret"},
	} {
		inBubble(t, func(t *testing.T, net *peertest.Network) {
			known := tc.one
			one := start(t, net, "n1", func(c *Config) { c.Secrets = func() [][]byte { return knows(known...)() } })
			two := start(t, net, "n2", func(c *Config) { c.Secrets = knows(tc.two...) })
			if tc.err == "" {
				talk(t, dial(t, one, KindRaft, "n2"), accept(t, two, KindRaft), "x")
			} else {
				_, err := one.Layer(KindRaft).DialContext(t.Context(), "n2")
				require.ErrorContains(t, err, tc.err)
				known = append([]string{"other"}, tc.two...)
				talk(t, dial(t, one, KindRaft, "n2"), accept(t, two, KindRaft), "x")
				tc.refusals++
			}
			synctest.Wait()
			require.Equal(t, tc.refusals, strings.Count(strings.Join(two.log.lines(), "\n"), "refused a connection"))
		})
	}
}

func TestNodesWithoutSecretTrustEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		none := func(c *Config) { c.Secrets = nil }
		one, two := start(t, net, "n1", none), start(t, net, "n2", func(c *Config) { c.Secrets = knows() })
		c := dial(t, one, KindRaft, "n2")
		talk(t, c, accept(t, two, KindRaft), "x")
	})
}

func TestOlderAcceptorIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one := start(t, net, "n1")
		for _, reply := range []string{"\x01\x09", "\x00\x09"} {
			l, err := net.Listen("n2:1")
			require.NoError(t, err)
			go func() {
				c, err := l.Accept()
				if err == nil {
					_, _ = io.WriteString(c, reply)
				}
			}()
			_, err = one.Layer(KindRaft).DialContext(t.Context(), "n2")
			require.ErrorContains(t, err, "it speaks version 9 of the peer protocol, this node speaks 1")
			_ = l.Close()
		}
	})
}

// TestAcceptorWithTheSameID shows that a dialer refuses an acceptor with its own ID, even if the acceptor does not
// refuse it.
func TestAcceptorWithTheSameID(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one := start(t, net, "n1")
		l, err := net.Listen("n2:1")
		require.NoError(t, err)
		go func() {
			c, _ := l.Accept()
			_, _, _ = readHello(c)
			_, _ = c.Write(appendChallenge(nil, introduction{id: "n1", lineage: firstLife}))
			_ = c.Close()
		}()
		_, err = one.Layer(KindMember).DialAddr(t.Context(), "n2:1")
		require.ErrorIs(t, err, ErrSelf)
		_ = l.Close()
	})
}

func TestNewerDialerIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, network *peertest.Network) {
		var p tape
		one := start(t, network, "n1", func(c *Config) {
			c.Listener = breakingListener{c.Listener, func(conn net.Conn) net.Conn { p.Conn = conn; return &p }}
		})
		const hello = "HOLDFAST\x07R and whatever comes then"
		c, err := network.Dial("n2")(t.Context(), "n1:1")
		require.NoError(t, err)
		_, err = io.WriteString(c, hello)
		require.NoError(t, err)
		reply := make([]byte, 2)
		_, err = io.ReadFull(c, reply)
		require.NoError(t, err)
		require.Equal(t, []byte{byte(statusVersion), version}, reply)
		require.NoError(t, c.Close())
		synctest.Wait()
		require.Equal(t, hello, p.read.String(), "what is not read resets the connection, and the reason is lost")
		require.Contains(t, one.log.lines()[0], "it speaks version 7 of the peer protocol")
	})
}

func TestDialGivesUpInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one := start(t, net, "n1")
		l, err := net.Listen("n2:1") // nothing answers there
		require.NoError(t, err)
		begun := time.Now()
		_, err = one.Layer(KindRaft).Dial("n2", time.Second)
		require.Error(t, err)
		require.Equal(t, time.Second, time.Since(begun))
		_, err = one.Layer(KindRaft).Dial("n2", 0)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(begun), "the handshake's own limit")

		_, err = one.Layer(KindRaft).Dial("n2", time.Hour)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(begun), "the handshake's own limit")

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = one.Layer(KindRaft).DialContext(ctx, "n2")
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 6*time.Second, time.Since(begun))
		_ = l.Close()
		_, err = one.Layer(KindRaft).Dial("n2", time.Second)
		require.ErrorContains(t, err, "connection refused")
		require.Zero(t, net.Connections())
	})
}

func TestCloseEndsEverything(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one, two := start(t, net, "n1"), start(t, net, "n2")
		c := dial(t, one, KindRaft, "n2")
		other := accept(t, two, KindRaft)
		idle := dial(t, one, KindForward, "n2")
		failures := make(chan error, 4)
		go func() { _, err := two.Layer(KindRaft).Accept(); failures <- err }()
		go func() { _, err := other.Read(make([]byte, 1)); failures <- err }()
		net.Cut("n2", "n1")
		go func() { _, err := two.Layer(KindForward).DialContext(context.Background(), "n1"); failures <- err }()
		synctest.Wait()
		require.Empty(t, failures)

		require.NoError(t, two.Layer(KindRaft).Close())
		require.Error(t, <-failures)
		require.Error(t, <-failures)
		_, err := two.Layer(KindRaft).Dial("n1", time.Second)
		require.ErrorIs(t, err, ErrClosed)
		two.stop()
		require.ErrorIs(t, <-failures, ErrClosed)
		_, err = two.Layer(KindForward).Accept()
		require.ErrorIs(t, err, ErrClosed)
		net.Heal()
		for _, c := range []*Conn{c, idle} {
			_, err = c.Read(make([]byte, 1))
			require.Error(t, err)
			_ = c.Close()
		}
		one.stop()
		require.Zero(t, net.Connections())
	})
}

func TestRunSaysWhenTheListenerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peertest.New()
		l, err := n.Listen("n1:1")
		require.NoError(t, err)
		m, err := New(Config{Listener: l, Dial: n.Dial("n1"), ClusterID: cluster("c"), ID: "n", Addresses: addresses()})
		require.NoError(t, err)
		go func() { _ = l.Close() }()
		require.ErrorIs(t, m.Run(t.Context()), net.ErrClosed)
		_, err = m.Layer(KindRaft).Accept()
		require.ErrorIs(t, err, ErrClosed)
	})
}

// ending is a listener that fails as a closed one does, and counts calls of Close.
type ending struct {
	net.Listener
	closed int
}

func (l *ending) Accept() (net.Conn, error) { return nil, net.ErrClosed }

func (l *ending) Close() error {
	l.closed++
	return l.Listener.Close()
}

func TestFailedListenerIsClosed(t *testing.T) {
	n := peertest.New()
	inner, err := n.Listen("n1:1")
	require.NoError(t, err)
	l := &ending{Listener: inner}
	m, err := New(Config{Listener: l, Dial: n.Dial("n1"), ClusterID: cluster("c"), ID: "n", Addresses: addresses()})
	require.NoError(t, err)
	require.ErrorIs(t, m.Run(t.Context()), net.ErrClosed)
	require.Equal(t, 1, l.closed)
}

// TestEndIsQuick shows that a node stops without waiting for its peers, and does not report the connections that it
// closes as refused. No connection stays open, not even one that arrives while the node stops.
func TestEndIsQuick(t *testing.T) {
	inBubble(t, func(t *testing.T, network *peertest.Network) {
		one := start(t, network, "n1", func(c *Config) { c.OnMisfit = func() { t.Error("an end is no misfit") } })
		strangers := knock(t, network, "stranger", "n1:1", 3)
		_, err := io.WriteString(strangers[0], magic)
		require.NoError(t, err)
		two := start(t, network, "n2", living(firstLife, disk{}).in)
		three := start(t, network, "n3")
		go func() { _, _ = three.Layer(KindRaft).DialContext(t.Context(), "n2") }() // two has not proved its incarnation
		go func() { _, _ = two.Layer(KindMember).DialContext(t.Context(), "n1") }() // no Accept of n1 takes it
		four := start(t, network, "n4", func(c *Config) { c.Listener = &flaky{Listener: c.Listener, left: 1000} })
		synctest.Wait()
		begun := time.Now()
		for _, n := range []*node{one, two, four} {
			n.stop()
		}
		require.Equal(t, begun, time.Now())
		require.Equal(t, []string{""}, one.log.lines())
		require.Equal(t, []string{""}, two.log.lines())
		require.Len(t, four.log.lines(), 1)
		three.stop()
		for _, c := range strangers {
			_ = c.Close()
		}
		synctest.Wait() // the dialers close their ends
		require.Zero(t, network.Connections())
	})
}

// late is a listener that accepts a connection when its node has stopped.
type late struct {
	net.Listener
	accept func() net.Conn
}

func (l late) Accept() (net.Conn, error) { return l.accept(), nil }

func TestConnectionAtTheEndIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peertest.New()
		l, err := n.Listen("n1:1")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		m, err := New(Config{
			Incarnations: proved(firstLife, disk{}).Registry,
			Listener: late{l, func() net.Conn {
				conn, err := n.Dial("n2:1")(ctx, "n1:1")
				require.NoError(t, err)
				cancel()
				return conn
			}},
			Dial: n.Dial("n1"), ClusterID: cluster("c"), ID: "n", Addresses: addresses(),
		})
		require.NoError(t, err)
		require.NoError(t, m.Run(ctx))
		synctest.Wait()
		require.Zero(t, n.Connections())
	})
}

// stubborn is a connection whose reads end only when the test closes ends, even if the connection is closed.
type stubborn struct {
	net.Conn
	ends <-chan struct{}
}

func (c stubborn) Read([]byte) (int, error) {
	<-c.ends
	return 0, io.EOF
}

// TestEndWaitsForHandshakes shows that Run returns only after the running handshakes, so that nothing of Config is used
// afterwards.
func TestEndWaitsForHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peertest.New()
		l, err := n.Listen("n1:1")
		require.NoError(t, err)
		ends := make(chan struct{})
		m, err := New(Config{
			Incarnations: proved(firstLife, disk{}).Registry,
			Listener:     breakingListener{l, func(c net.Conn) net.Conn { return stubborn{c, ends} }},
			Dial:         n.Dial("n1"), ClusterID: cluster("c"), ID: "n", Addresses: addresses(),
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		_ = knock(t, n, "stranger", "n1:1", 1)
		cancel()
		synctest.Wait()
		require.Empty(t, ended)
		close(ends)
		require.NoError(t, <-ended)
	})
}

// watched is a context that counts the functions that wait for its end.
type watched struct {
	context.Context
	waiting atomic.Int64
}

func (w *watched) Value(any) any { return nil } // hides the inner context from package context

func (w *watched) AfterFunc(f func()) (stop func() bool) {
	w.waiting.Add(1)
	inner := context.AfterFunc(w.Context, f)
	return func() bool {
		stopped := inner()
		if stopped {
			w.waiting.Add(-1)
		}
		return stopped
	}
}

// TestContextsAreNotFilled shows that a connection leaves nothing in the contexts that outlive its handshake.
func TestContextsAreNotFilled(t *testing.T) {
	inBubble(t, func(t *testing.T, network *peertest.Network) {
		one := start(t, network, "n1")
		l, err := network.Listen("n2:1")
		require.NoError(t, err)
		two, err := New(Config{
			Incarnations: proved(firstLife, disk{}).Registry,
			Listener:     l, Dial: network.Dial("n2:1"), ClusterID: cluster("c1"), ID: "n2", Addresses: addresses("n1"),
			Secrets: knows("s3cret"),
		})
		require.NoError(t, err)
		inner, cancel := context.WithCancel(t.Context())
		running, dialing := &watched{Context: inner}, &watched{Context: inner}
		closing := &watched{Context: one.Layer(KindRaft).closed}
		one.Layer(KindRaft).closed = closing
		ended := make(chan error, 1)
		go func() { ended <- two.Run(running) }()
		synctest.Wait()
		require.EqualValues(t, 1, running.waiting.Load(), "the end of the listener")
		for range 3 {
			c, err := one.Layer(KindRaft).DialContext(dialing, "n2")
			require.NoError(t, err)
			other, err := two.Layer(KindRaft).Accept()
			require.NoError(t, err)
			synctest.Wait()
			require.EqualValues(t, 1, running.waiting.Load())
			require.Zero(t, dialing.waiting.Load())
			require.Zero(t, closing.waiting.Load())
			_, _ = c.Close(), other.Close()
		}
		cancel()
		require.NoError(t, <-ended)
	})
}

// flaky is a listener whose first accepts fail, as in a process without free file descriptors.
type flaky struct {
	net.Listener
	left int
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.left--; f.left >= 0 {
		return nil, errors.New("too many open files")
	}
	return f.Listener.Accept()
}

func TestRunSurvivesFailedAccepts(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one := start(t, net, "n1")
		two := start(t, net, "n2", func(c *Config) { c.Listener = &flaky{Listener: c.Listener, left: 3} })
		begun := time.Now()
		_ = dial(t, one, KindRaft, "n2")
		require.Equal(t, 3*acceptPause, time.Since(begun))
		synctest.Wait()
		require.Len(t, two.log.lines(), 3)
	})
}

// knock opens connections from a host, each from a port of its own, and sends nothing.
func knock(t *testing.T, n *peertest.Network, host, addr string, times int) (conns []net.Conn) {
	t.Helper()
	for i := range times {
		c, err := n.Dial(fmt.Sprintf("%s:%d", host, 1000+i))(t.Context(), addr)
		require.NoError(t, err)
		conns = append(conns, c)
	}
	synctest.Wait()
	return conns
}

// closed reports whether the other end of c is closed.
func closed(t *testing.T, c net.Conn) bool {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err := c.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

func TestStrangersDoNotKeepNodesOut(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one, two := start(t, net, "n1"), start(t, net, "n2")
		strangers := knock(t, net, "stranger", "n2:1", 500)
		require.Equal(t, maxHandshakesPerHost, two.handshakes.strangers.Len())
		require.True(t, closed(t, strangers[0]), "the oldest are given up")
		require.False(t, closed(t, strangers[499]))
		c := dial(t, one, KindRaft, "n2")
		talk(t, c, accept(t, two, KindRaft), "x")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Zero(t, two.handshakes.strangers.Len())
		require.Empty(t, two.handshakes.hosts)
		lines := two.log.lines()
		require.Less(t, len(lines), refusalBurst+5, "500 refusals do not make 500 lines")
		require.Contains(t, strings.Join(lines, "\n"), "too many connections")
	})
}

// TestStrangersOfManyHostsDoNotKeepNodesOut shows that a node can connect at once from a host that is not known,
// although unauthenticated connections come from many hosts.
func TestStrangersOfManyHostsDoNotKeepNodesOut(t *testing.T) {
	inBubble(t, func(t *testing.T, network *peertest.Network) {
		one, two := start(t, network, "n1"), start(t, network, "n2")
		var strangers []net.Conn
		for i := range 300 {
			strangers = append(strangers, knock(t, network, fmt.Sprint("stranger", i), "n2:1", 1)...)
		}
		for i, c := range strangers {
			require.Equal(t, i < 300-maxHandshakes, closed(t, c), "the oldest are given up")
		}
		require.Equal(t, maxHandshakes, two.handshakes.strangers.Len())
		begun := time.Now()
		talk(t, dial(t, one, KindAppend, "n2"), accept(t, two, KindAppend), "x")
		require.Zero(t, time.Since(begun))
		require.Len(t, two.handshakes.hosts, maxHandshakes-1, "nothing is kept of those that were given up")
	})
}

// TestClusterHasItsShareOfHandshakes shows that each host of a member has handshakes of its own, which strangers cannot
// take even if the handshakes last long. This share is bounded, too.
func TestClusterHasItsShareOfHandshakes(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		known := addresses("n1", "n2")
		known.Hint("n3", "10.0.0.3:1")
		join := func(c *Config) { c.Addresses = known }
		one, two := start(t, net, "n1", join), start(t, net, "n2", join)
		talk(t, dial(t, one, KindForward, "n2"), accept(t, two, KindForward), "two knows where one comes from")
		configured := knock(t, net, "10.0.0.3", "n2:1", maxHandshakesPerHost)
		met := knock(t, net, "n1", "n2:1", maxHandshakesPerHost-1)
		found := knock(t, net, "n2", "n1:1", maxHandshakesPerHost)
		for i := range 2 * maxHandshakes {
			knock(t, net, fmt.Sprint("stranger", i), "n2:1", 1)
			knock(t, net, fmt.Sprint("stranger", i), "n1:1", 1)
		}
		require.Equal(t, maxHandshakes, two.handshakes.strangers.Len())
		met = append(met, knock(t, net, "n1", "n2:1", 1)...)
		require.Equal(t, maxHandshakes, two.handshakes.strangers.Len(), "it takes no stranger's place")
		for i := range maxHandshakesPerHost {
			require.False(t, closed(t, configured[i]))
			require.False(t, closed(t, met[i]))
			require.False(t, closed(t, found[i]))
		}
		knock(t, net, "10.0.0.3", "n2:1", 1)
		require.True(t, closed(t, configured[0]), "a share is not without bounds")
		require.False(t, closed(t, met[0]))
	})
}

// TestConnectionsOfOneNodeAreBounded shows that the connections of a kind that one node has dialed are bounded, and
// that nothing is kept of closed ones.
func TestConnectionsOfOneNodeAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one, two := start(t, net, "n1"), start(t, net, "n2")
		var dialed, accepted []*Conn
		for range maxPerNode + 3 {
			dialed = append(dialed, dial(t, one, KindRaft, "n2"))
			accepted = append(accepted, accept(t, two, KindRaft))
		}
		for i := range dialed {
			require.Equal(t, i < 3, closed(t, dialed[i]), "the oldest are closed")
		}
		for range maxPerNode {
			made := dial(t, two, KindRaft, "n1")
			_, _ = accept(t, one, KindRaft).Close(), made.Close()
		}
		require.False(t, closed(t, dialed[3]), "those that a node made itself do not count")
		other := dial(t, one, KindForward, "n2")
		talk(t, other, accept(t, two, KindForward), "each kind has its own")
		for i := range dialed {
			_, _ = dialed[i].Close(), accepted[i].Close()
		}
		for range 100 {
			_ = dial(t, one, KindRaft, "n2").Close()
			_ = accept(t, two, KindRaft).Close()
		}
		for _, n := range []*node{one, two} {
			require.Empty(t, n.Layer(KindRaft).conns)
			require.Empty(t, n.Layer(KindRaft).from)
		}
	})
}

func TestConnectionThatNobodyAcceptsIsClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one, two := start(t, net, "n1"), start(t, net, "n2")
		c := dial(t, one, KindForward, "n2")
		_, err := c.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		synctest.Wait()
		require.Contains(t, two.log.lines()[0], "nobody accepts")
	})
}

// TestClosedLayerTakesNothing shows that closing a layer closes the connections that wait for Accept, and that later
// ones are closed at once.
func TestClosedLayerTakesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one, two := start(t, net, "n1"), start(t, net, "n2")
		waits := dial(t, one, KindForward, "n2")
		synctest.Wait()
		begun := time.Now()
		require.NoError(t, two.Layer(KindForward).Close())
		for _, c := range []*Conn{waits, dial(t, one, KindForward, "n2")} {
			_, err := c.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
			require.NoError(t, c.Close())
		}
		require.Equal(t, begun, time.Now())
		time.Sleep(time.Minute)
		require.Equal(t, []string{""}, two.log.lines())
		require.Zero(t, net.Connections())
	})
}

func TestConfigurationIsChecked(t *testing.T) {
	n := peertest.New()
	l, err := n.Listen("n1:1")
	require.NoError(t, err)
	good := Config{Listener: l, Dial: n.Dial("n1"), ClusterID: cluster("c"), ID: "n", Addresses: addresses()}
	for want, spoil := range map[string]func(*Config){
		"listener":      func(c *Config) { c.Listener = nil },
		"dial function": func(c *Config) { c.Dial = nil },
		`node id ""`:    func(c *Config) { c.ID = "" },
		`node id "nn`:   func(c *Config) { c.ID = strings.Repeat("n", 256) },
		"cluster id":    func(c *Config) { c.ClusterID = nil },
		"addresses":     func(c *Config) { c.Addresses = nil },
	} {
		c := good
		spoil(&c)
		_, err := New(c)
		require.ErrorContains(t, err, want)
	}
}
