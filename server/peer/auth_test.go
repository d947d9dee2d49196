package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/peer/peertest"
)

// tape records the bytes that pass through a connection.
type tape struct {
	net.Conn
	mu         sync.Mutex
	sent, read bytes.Buffer
}

func (p *tape) Write(b []byte) (int, error) {
	p.mu.Lock()
	p.sent.Write(b)
	p.mu.Unlock()
	return p.Conn.Write(b)
}

func (p *tape) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	p.mu.Lock()
	p.read.Write(b[:n])
	p.mu.Unlock()
	return n, err
}

// recording has p record the connection that a node dials.
func recording(p *tape) func(*Config) {
	return func(c *Config) {
		dial := c.Dial
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := dial(ctx, addr)
			p.Conn = conn
			return p, err
		}
	}
}

func TestRecordedDialerIsNotBelievedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		var p tape
		one, two := start(t, net, "n1", recording(&p)), start(t, net, "n2")
		_ = dial(t, one, KindRaft, "n2")
		c, err := net.Dial("stranger")(t.Context(), "n2:1")
		require.NoError(t, err)
		_, err = c.Write(p.sent.Bytes())
		require.NoError(t, err)
		reply, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Equal(t, byte(statusSecret), reply[len(reply)-1])
		synctest.Wait()
		require.Contains(t, two.log.lines()[0], "could not prove")
		_ = c.Close()
	})
}

// TestWhatAStrangerLearns shows that a process that knows the protocol, but not the secret, learns the ID and the
// lineage of a node, and nothing else.
func TestWhatAStrangerLearns(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		_ = start(t, net, "n1")
		ask := func(who introduction) []byte {
			who.lineage = firstLife
			c, err := net.Dial("stranger")(t.Context(), "n1:1")
			require.NoError(t, err)
			defer c.Close()
			_, err = c.Write(append(appendHello(nil, who), make([]byte, 32)...)) // without a proof
			require.NoError(t, err)
			said, err := io.ReadAll(c)
			require.NoError(t, err)
			return said
		}
		said := ask(introduction{kind: KindMember, cluster: anyCluster, id: "x"})
		own := "\x02n1" + string(firstLife.Append(nil))
		require.Len(t, said, 2+nonceSize+len(own)+1)
		require.Equal(t, []byte{byte(statusOK), version}, said[:2])
		require.Equal(t, own+string(rune(statusSecret)), string(said[2+nonceSize:]))
		require.Len(t, ask(introduction{kind: KindRaft, cluster: "c1", id: "x"}), len(said))
		for _, refused := range []struct {
			who introduction
			status
		}{
			{introduction{kind: KindRaft, cluster: "c2", id: "x"}, statusCluster},
			{introduction{kind: KindRaft, cluster: anyCluster, id: "x"}, statusCluster},
			{introduction{kind: KindRaft, cluster: "c1", id: "n1"}, statusSelf},
		} {
			require.Equal(t, []byte{byte(refused.status), version}, ask(refused.who))
		}
	})
}

func TestRecordedAcceptorIsNotBelievedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		var p tape
		one, two := start(t, net, "n1", recording(&p)), start(t, net, "n2")
		_ = dial(t, one, KindRaft, "n2")
		two.stop()
		l, err := net.Listen("n2:1")
		require.NoError(t, err)
		go func() {
			c, err := l.Accept()
			if err == nil {
				_, _ = c.Write(p.read.Bytes())
			}
		}()
		replayed := append([]byte(nil), p.read.Bytes()...)
		require.NotEmpty(t, replayed)
		_, err = one.Layer(KindRaft).DialContext(t.Context(), "n2")
		require.ErrorContains(t, err, "could not prove")
		_ = l.Close()
	})
}

// TestImpostorCannotReflectProofs shows that proofs of n1 itself do not authenticate an impostor: it forwards what n1
// sends as a dialer to n1 as an acceptor, and the other way round.
func TestImpostorCannotReflectProofs(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		one := start(t, net, "n1")
		lineage := len(firstLife.Append(nil))
		l, err := net.Listen("n2:1")
		require.NoError(t, err)
		go func() {
			victim, err := l.Accept()
			if err != nil {
				return
			}
			mirror, err := net.Dial("impostor")(context.Background(), "n1:1")
			if err != nil {
				return
			}
			hello := make([]byte, 8+2+nonceSize+2+2+1+2+lineage)
			_, _ = io.ReadFull(victim, hello)
			copy(hello[len(hello)-2-lineage:], "n2") // n1 refuses its own ID
			_, _ = mirror.Write(hello)
			challenge := make([]byte, 2+nonceSize+1+2+lineage)
			_, _ = io.ReadFull(mirror, challenge)
			copy(challenge[len(challenge)-2-lineage:], "n2")
			_, _ = victim.Write(challenge)
			go func() { _, _ = io.Copy(victim, mirror); _ = victim.Close() }()
			_, _ = io.Copy(mirror, victim)
			_ = mirror.Close()
		}()
		_, err = one.Layer(KindRaft).DialContext(t.Context(), "n2")
		require.ErrorContains(t, err, "another cluster secret")
		synctest.Wait()
		require.Contains(t, one.log.lines()[0], "could not prove")
		_ = l.Close()
	})
}

// authority is a certificate authority.
type authority struct {
	*protocoltest.Certificate
	// above is the authority that signed this one's certificate, or nil if it is self-signed.
	above *authority
}

func newAuthority(t *testing.T) *authority { return authorityBelow(t, nil) }

func authorityBelow(t *testing.T, above *authority) *authority {
	template := x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(24 * time.Hour),
	}
	if above == nil {
		return &authority{Certificate: protocoltest.Sign(t, template, nil)}
	}
	template.Subject.CommonName = "test authority below"
	return &authority{protocoltest.Sign(t, template, above.Certificate), above}
}

// pool returns a pool with the root authority alone.
func (a *authority) pool() *x509.CertPool {
	if a.above != nil {
		return a.above.pool()
	}
	return protocoltest.Pool(a.Certificate)
}

// issue returns a certificate of a node. By default it has both usages of a node.
func (a *authority) issue(t *testing.T, name string, until time.Time, usages ...x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	if usages == nil {
		usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	made := protocoltest.Sign(t, x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotAfter: until, ExtKeyUsage: usages,
	}, a.Certificate)
	if a.above != nil {
		return made.TLS(a.Certificate)
	}
	return made.TLS()
}

// always returns a function that returns c.
func always(c *tls.Config) func() *tls.Config { return func() *tls.Config { return c } }

// with has a node use TLS with a certificate of a.
func (a *authority) with(t *testing.T, name string) func(*Config) {
	return func(c *Config) {
		c.TLS = always(&tls.Config{
			RootCAs:      a.pool(),
			Certificates: []tls.Certificate{a.issue(t, name, time.Now().Add(time.Hour))},
		})
	}
}

func TestMutualTLS(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		ca := authorityBelow(t, newAuthority(t))
		noSecret := func(c *Config) { c.Secrets = nil }
		one := start(t, net, "n1", ca.with(t, "n1"), noSecret)
		two := start(t, net, "n2", ca.with(t, "n2"), noSecret)
		for range 2 { // the second must not resume the session of the first
			c := dial(t, one, KindRaft, "n2")
			other := accept(t, two, KindRaft)
			time.Sleep(10 * time.Minute)
			talk(t, c, other, "over TLS")
			state := other.Conn.(*tls.Conn).ConnectionState()
			require.Equal(t, uint16(tls.VersionTLS13), state.Version)
			require.False(t, state.DidResume)
		}
	})
}

// TestCertificatesAreReplaced shows that each handshake uses the current certificates, so that they can be replaced
// node by node, and that existing connections stay open.
func TestCertificatesAreReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		older, newer := newAuthority(t), newAuthority(t)
		until := time.Now().Add(time.Hour)
		configs := map[string]*tls.Config{}
		node := func(name string) *node {
			return start(t, net, name, func(c *Config) { c.TLS = func() *tls.Config { return configs[name] } })
		}
		use := func(name string, own *authority, trusted ...*authority) {
			roots := x509.NewCertPool()
			for _, a := range trusted {
				roots.AddCert(a.Certificate.Certificate)
			}
			configs[name] = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own.issue(t, name, until)}}
		}
		use("n1", older, older)
		use("n2", older, older)
		one, two := node("n1"), node("n2")
		first, other := dial(t, one, KindRaft, "n2"), accept(t, two, KindRaft)
		both := func() {
			talk(t, dial(t, one, KindRaft, "n2"), accept(t, two, KindRaft), "x")
			talk(t, dial(t, two, KindRaft, "n1"), accept(t, one, KindRaft), "x")
		}
		use("n1", older, older, newer)
		both()
		use("n2", older, older, newer)
		both()
		use("n1", newer, older, newer)
		both()
		use("n2", newer, newer)
		both()
		use("n1", older, older)
		_, err := one.Layer(KindRaft).DialContext(t.Context(), "n2")
		require.Error(t, err)
		configs["n1"] = &tls.Config{} // it has no certificate and no authority
		_, err = one.Layer(KindRaft).DialContext(t.Context(), "n2")
		require.ErrorContains(t, err, "no certificate authority given")
		_, err = two.Layer(KindRaft).DialContext(t.Context(), "n1")
		require.Error(t, err)
		synctest.Wait()
		require.Contains(t, strings.Join(one.log.lines(), "\n"), "no certificate authority given")
		talk(t, first, other, "still connected")
	})
}

// TestPeerWithoutCertificateIsRefused shows that the acceptor requires a certificate, even of a dialer that is no node.
func TestPeerWithoutCertificateIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, ca := peertest.New(), newAuthority(t)
		one := start(t, net, "n1", ca.with(t, "n1"))
		for _, own := range []bool{true, false} {
			conn, err := net.Dial("n2:1")(t.Context(), "n1:1")
			require.NoError(t, err)
			c := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
			if own {
				c.Certificates = []tls.Certificate{ca.issue(t, "n2", time.Now().Add(time.Hour))}
			}
			// With TLS 1.3 the dialer finds the refusal at its first read, whether the acceptor closes before or after the
			// write.
			secured := tls.Client(conn, c)
			require.NoError(t, secured.Handshake())
			_, _ = secured.Write([]byte("x"))
			_, err = secured.Read(make([]byte, 1))
			require.Error(t, err)
			require.Equal(t, !own, strings.Contains(err.Error(), "certificate required"), "%v", err)
			secured.Close()
		}
		conn, err := net.Dial("browser:1")(t.Context(), "n1:1")
		require.NoError(t, err)
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
		synctest.Wait()
		require.Contains(t, strings.Join(one.log.lines(), "\n"), "it is not a node: it speaks HTTP")
	})
}

// hesitant delays each write until all other goroutines are blocked.
type hesitant struct{ net.Conn }

func (c hesitant) Write(b []byte) (int, error) {
	synctest.Wait()
	return c.Conn.Write(b)
}

type hesitantListener struct{ net.Listener }

func (l hesitantListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return hesitant{c}, err
}

func hesitantDialer(c *Config) {
	dial := c.Dial
	c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		return hesitant{conn}, err
	}
}

func hesitantAcceptor(c *Config) { c.Listener = hesitantListener{c.Listener} }

// TestTLSRefuses shows which certificates are refused, and that the dialer finds the acceptor's alert whether or not it
// has written its hello by then.
func TestTLSRefuses(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	certificate := func(a *authority, until time.Time, usages ...x509.ExtKeyUsage) func(*Config) {
		return func(c *Config) {
			c.TLS = always(&tls.Config{
				RootCAs: ca.pool(), Certificates: []tls.Certificate{a.issue(t, "x", until, usages...)},
			})
		}
	}
	good := certificate(ca, time.Now().Add(24*time.Hour))
	demanding := func(c *Config) {
		good(c)
		c.TLS().VerifyConnection = func(s tls.ConnectionState) error {
			return fmt.Errorf("%s is no node", s.PeerCertificates[0].Subject.CommonName)
		}
	}
	// Inside a bubble it is the year 2000, when none of the certificates is valid yet.
	clock := func(f func(*Config)) func(*Config) {
		now := time.Now()
		return func(c *Config) {
			f(c)
			if c.TLS != nil {
				c.TLS().Time = func() time.Time { return now }
			}
		}
	}
	for _, row := range []struct {
		name         string
		one, two     func(*Config)
		err, refused string
		misfit       bool
	}{
		{
			"a certificate of another authority", certificate(other, time.Now().Add(time.Hour)), good, "remote error: tls",
			"unknown authority", true,
		},
		{
			"a certificate of another authority at the acceptor", good, certificate(other, time.Now().Add(time.Hour)),
			"unknown authority", "", true,
		},
		{
			"a certificate that ran out", certificate(ca, time.Now().Add(-time.Minute)), good, "remote error: tls: expired",
			"expired", true,
		},
		{ // package tls then exports no keying material
			"sessions that bind nothing", func(c *Config) { good(c); c.TLS().Renegotiation = tls.RenegotiateOnceAsClient },
			func(c *Config) { good(c); c.TLS().Renegotiation = tls.RenegotiateOnceAsClient }, "start tls", "start tls", false,
		},
		{
			"a certificate for clients alone", certificate(ca, time.Now().Add(time.Hour), x509.ExtKeyUsageClientAuth), good,
			"remote error: tls", "incompatible key usage", true,
		},
		{
			"a certificate for clients alone at the acceptor", good,
			certificate(ca, time.Now().Add(time.Hour), x509.ExtKeyUsageClientAuth), "incompatible key usage", "", true,
		},
		{
			"a certificate for servers alone", certificate(ca, time.Now().Add(time.Hour), x509.ExtKeyUsageServerAuth), good,
			"remote error: tls", "incompatible key usage", true,
		},
		{
			"a certificate for servers alone at the acceptor", good,
			certificate(ca, time.Now().Add(time.Hour), x509.ExtKeyUsageServerAuth), "incompatible key usage", "", true,
		},
		{"an acceptor that demands more", good, demanding, "remote error: tls", "x is no node", true},
		{"a dialer that demands more", demanding, good, "x is no node", "", false},
		{"a node without TLS", func(*Config) {}, good, "", "a node without TLS", false},
		{"TLS where there is none", good, func(*Config) {}, "", "speaks TLS", false},
		{
			"another name than the one demanded", func(c *Config) { good(c); c.TLS().ServerName = "n2.example" }, good,
			"not n2.example", "", true,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			one, two := clock(row.one), clock(row.two)
			late := func(node, hesitant func(*Config)) func(*Config) { return func(c *Config) { node(c); hesitant(c) } }
			for _, pair := range [][2]func(*Config){{late(one, hesitantDialer), two}, {one, late(two, hesitantAcceptor)}} {
				line, err := refusal(t, pair[0], pair[1])
				require.ErrorContains(t, err, row.err)
				require.Contains(t, line, row.refused)
				require.Equal(t, row.misfit, Misfit(err), "%v", err)
			}
		})
	}
}

func TestTLSConfigurationIsChecked(t *testing.T) {
	ca := newAuthority(t)
	n := peertest.New()
	l, err := n.Listen("n1:1")
	require.NoError(t, err)
	c := Config{
		Listener: l, Dial: n.Dial("n1"), ClusterID: cluster("c"), ID: "n", Addresses: addresses(),
		TLS: always(&tls.Config{}),
	}
	_, err = New(c)
	require.ErrorContains(t, err, "no certificate authority")
	c.TLS = always(&tls.Config{RootCAs: ca.pool()})
	_, err = New(c)
	require.ErrorContains(t, err, "no certificate given")
}

// TestSecretIsBoundToTheTLSSession shows that a man in the middle that has a certificate of the cluster, but not its
// secret, is refused. It ends TLS on both sides and forwards the data, but the proofs depend on the TLS session.
func TestSecretIsBoundToTheTLSSession(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		ca := newAuthority(t)
		misled := addresses()
		misled.Hint("n2", "middle:1")
		one := start(t, net, "n1", ca.with(t, "n1"), func(c *Config) { c.Addresses = misled })
		two := start(t, net, "n2", ca.with(t, "n2"))
		l, err := net.Listen("middle:1")
		require.NoError(t, err)
		configs, err := newTLSConfigs(&tls.Config{
			RootCAs:      ca.pool(),
			Certificates: []tls.Certificate{ca.issue(t, "m", time.Now().Add(time.Hour))},
		})
		require.NoError(t, err)
		go func() {
			left, err := l.Accept()
			if err != nil {
				return
			}
			right, err := net.Dial("middle")(context.Background(), "n2:1")
			if err != nil {
				return
			}
			in, out := tls.Server(left, configs.asServer), tls.Client(right, configs.asClient)
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
			_, _ = io.Copy(out, in)
			_ = out.Close()
		}()
		_, err = one.Layer(KindRaft).DialContext(t.Context(), "n2")
		require.ErrorContains(t, err, "another cluster secret")
		synctest.Wait()
		require.Contains(t, two.log.lines()[0], "could not prove")
		_ = l.Close()
	})
}

func FuzzHello(f *testing.F) {
	f.Add(appendHello(nil, introduction{kind: KindRaft, cluster: "c1", id: "n1"}))
	f.Add(appendHello(nil, introduction{
		kind: KindRaft, cluster: "c1", id: "n1",
		lineage: incarnation.Lineage{1, 1 << 32},
	}))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		raw, peer, err := readHello(r)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.Equal(t, b[:len(b)-r.Len()], raw, "the transcript is what was read")
		require.LessOrEqual(t, len(raw), len(magic)+2+nonceSize+2+maxCluster+1+maxID+1+8*incarnation.MaxLineage)
		again := appendHello(nil, peer)
		copy(again[len(magic)+2:], raw[len(magic)+2:len(magic)+2+nonceSize])
		require.Equal(t, raw, again)
	})
}

func FuzzChallenge(f *testing.F) {
	f.Add(appendChallenge(nil, introduction{id: "n2"}))
	f.Add(appendChallenge(nil, introduction{id: "n2", lineage: incarnation.Lineage{1, 1 << 32}}))
	f.Add([]byte{byte(statusCluster), version})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		raw, other, err := readChallenge(r)
		if err == nil {
			require.Equal(t, b[:len(b)-r.Len()], raw)
			require.LessOrEqual(t, len(other.id), maxID)
			require.LessOrEqual(t, len(other.lineage), incarnation.MaxLineage)
		}
	})
}

// TestGreetingsAreFrozen shows that the bytes of a hello and a challenge do not change, apart from the nonces, since
// nodes of other releases read them.
func TestGreetingsAreFrozen(t *testing.T) {
	who := introduction{kind: KindForward, cluster: "c1", id: "n1@0a", lineage: incarnation.Lineage{1<<32 | 0xab, 2 << 32}}
	hello, challenge := appendHello(nil, who), appendChallenge(nil, who)
	clear(hello[len(magic)+2:][:nonceSize])
	clear(challenge[2:][:nonceSize])
	got := strings.ReplaceAll(fmt.Sprintf("%q %q", hello, challenge), strings.Repeat(`\x00`, nonceSize), "…")
	const lineage = `\x02\x00\x00\x00\x01\x00\x00\x00\xab\x00\x00\x00\x02\x00\x00\x00\x00`
	require.Equal(t, `"HOLDFAST\x01F…\x00\x02c1\x05n1@0a`+lineage+`" "\x00\x01…\x05n1@0a`+lineage+`"`, got)
}
