package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/peer/peertest"
	"github.com/holdfast/holdfast/server/peer/wire"
)

var errBroken = errors.New("the connection is broken")

// breaking is a connection whose nth read or write fails.
type breaking struct {
	net.Conn
	calls  *atomic.Int64
	n      int64
	closed atomic.Bool
}

func (b *breaking) fails() bool { return b.calls.Add(1) == b.n }

func (b *breaking) Read(p []byte) (int, error) {
	fails := b.fails()
	n, err := b.Conn.Read(p) // the other side has then written, and waits for a reply
	if fails {
		return 0, errBroken
	}
	return n, err
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.fails() {
		return 0, errBroken
	}
	return b.Conn.Write(p)
}

func (b *breaking) Close() error {
	b.closed.Store(true)
	return b.Conn.Close()
}

// breakingListener wraps the connections that it accepts.
type breakingListener struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (l breakingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.wrap(c), nil
}

// TestFailuresInAHandshake shows that if any read or write of either side fails, there is no connection on either side,
// nothing of it is kept, and the reason is returned or logged.
func TestFailuresInAHandshake(t *testing.T) {
	for _, dialer := range []bool{true, false} {
		t.Run(fmt.Sprint("dialer ", dialer), func(t *testing.T) {
			n, reached := int64(1), true
			for ; reached; n++ {
				synctest.Test(t, func(t *testing.T) {
					var calls atomic.Int64
					var made *breaking
					wrap := func(c net.Conn) net.Conn {
						made = &breaking{Conn: c, calls: &calls, n: n}
						return made
					}
					network := peertest.New()
					one := start(t, network, "n1", proved(firstLife, disk{}).in, func(c *Config) {
						if inner := c.Dial; dialer {
							c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
								conn, err := inner(ctx, addr)
								require.NoError(t, err)
								return wrap(conn), nil
							}
						}
					})
					two := start(t, network, "n2", proved(firstLife, disk{}).in, func(c *Config) {
						if !dialer {
							c.Listener = breakingListener{c.Listener, wrap}
						}
					})
					_, err := one.Layer(KindForward).DialContext(t.Context(), "n2")
					synctest.Wait()
					if reached = calls.Load() >= n; !reached {
						require.NoError(t, err)
						return
					}
					require.Error(t, err)
					require.True(t, made.closed.Load())
					require.Empty(t, one.Layer(KindForward).conns)
					if dialer {
						require.ErrorIs(t, err, errBroken)
					} else {
						require.Contains(t, strings.Join(two.log.lines(), "\n"), errBroken.Error())
						require.False(t, Misfit(err), "nothing is wrong with the secret: %v", err)
						require.Empty(t, two.Layer(KindForward).conns)
					}
				})
			}
			require.Greater(t, n, int64(6))
		})
	}
}

// TestCutGreetings shows that a hello or a challenge that ends early is an error, at each length.
func TestCutGreetings(t *testing.T) {
	who := introduction{kind: KindRaft, cluster: "c1", id: "n1", lineage: secondLife}
	hello, challenge := appendHello(nil, who), appendChallenge(nil, who)
	for n := range hello {
		_, _, err := readHello(bytes.NewReader(hello[:n]))
		require.ErrorContains(t, err, fmt.Sprintf("hung up after %d bytes", n))
	}
	for n := range challenge {
		_, _, err := readChallenge(bytes.NewReader(challenge[:n]))
		require.ErrorContains(t, err, fmt.Sprintf("hung up after %d bytes", n))
	}
}

// TestMagicAtTheEnd shows that a reader may return the last bytes together with io.EOF.
func TestMagicAtTheEnd(t *testing.T) {
	raw, err := readMagic(iotest.DataErrReader(strings.NewReader(magic)))
	require.NoError(t, err)
	require.Equal(t, magic, string(raw))
}

// TestStuckConnection shows that after a connection was stuck, new ones to the same node have small segments for
// smallSegmentsFor.
func TestStuckConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, network *peertest.Network) {
		small := map[string]bool{}
		one := start(t, network, "n1", func(c *Config) {
			inner := c.Dial
			c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				small[addr] = wire.HasSmallSegments(ctx)
				return inner(ctx, addr)
			}
		})
		start(t, network, "n2")
		start(t, network, "n3")
		two, three := dial(t, one, KindRaft, "n2"), dial(t, one, KindRaft, "n3")
		require.Equal(t, map[string]bool{"n2:1": false, "n3:1": false}, small)
		requireSmall := func(want map[string]bool) {
			t.Helper()
			for _, id := range []string{"n2", "n3"} {
				_ = dial(t, one, KindRaft, id)
			}
			require.Equal(t, want, small)
		}
		(&Conn{id: "n3"}).Stuck() // a connection without a layer is ignored
		two.Stuck()
		requireSmall(map[string]bool{"n2:1": true, "n3:1": false})
		time.Sleep(smallSegmentsFor)
		requireSmall(map[string]bool{"n2:1": true, "n3:1": false})
		time.Sleep(time.Nanosecond)
		requireSmall(map[string]bool{"n2:1": false, "n3:1": false})
		three.Stuck()
		requireSmall(map[string]bool{"n2:1": false, "n3:1": true})
		require.Len(t, one.stuck.until, 1, "what is over is forgotten")
		two.Stuck()
		requireSmall(map[string]bool{"n2:1": true, "n3:1": true})
		var all sync.WaitGroup
		for range 4 { // for the race detector
			all.Go(func() { two.Stuck(); one.stuck.context(t.Context(), "n3") })
		}
		all.Wait()
	})
}

// TestCutOff shows that with TLS a connection that breaks before the first reply counts as a refusal. Without TLS it
// does not.
func TestCutOff(t *testing.T) {
	with := currentTLS(func() *tls.Config { return nil })
	for _, cut := range []error{syscall.ECONNRESET, syscall.EPIPE, io.ErrUnexpectedEOF} {
		cut = fmt.Errorf("read: %w", cut)
		require.ErrorIs(t, with.cutOff(cut), errCutOff)
		require.ErrorIs(t, with.cutOff(cut), cut)
		require.Equal(t, cut, currentTLS(nil).cutOff(cut))
	}
	require.Equal(t, io.EOF, with.cutOff(io.EOF))
	require.ErrorContains(t, verifyNode(tls.ConnectionState{}, &tls.Config{}, nil), "has no certificate")
}

// TestRemovedNode shows that a removed node is refused, even if it has no OnRemoved, and that other nodes are not.
func TestRemovedNode(t *testing.T) {
	inBubble(t, func(t *testing.T, network *peertest.Network) {
		one, three := start(t, network, "n1"), start(t, network, "n3")
		two := start(t, network, "n2", func(c *Config) { c.Removed = func(id string) bool { return id == "n1" } })
		_, err := one.Layer(KindForward).DialContext(t.Context(), "n2")
		require.ErrorIs(t, err, errYouRemoved)
		c := dial(t, three, KindForward, "n2")
		talk(t, c, accept(t, two, KindForward), "hello")
	})
}

// TestMisfit shows which errors last until a configuration is changed.
func TestMisfit(t *testing.T) {
	for _, err := range []error{
		ErrSecret, errImpostor, errCluster, errCutOff, &versionError{}, &strangerError{},
		&tls.CertificateVerificationError{Err: io.EOF},
		x509.UnknownAuthorityError{},
		x509.CertificateInvalidError{},
		x509.HostnameError{Certificate: &x509.Certificate{}},
		&net.OpError{Op: "remote error", Err: io.EOF},
	} {
		require.True(t, Misfit(fmt.Errorf("dial: %w", err)), "%v", err)
	}
	for _, err := range []error{io.EOF, context.DeadlineExceeded, ErrSelf, &net.OpError{Op: "read", Err: io.EOF}} {
		require.False(t, Misfit(fmt.Errorf("dial: %w", err)), "%v", err)
	}
}

// TestReasonsOfRefusals shows that the dialer reports each status with a reason of its own, and with the ID of the
// other node if it is known.
func TestReasonsOfRefusals(t *testing.T) {
	for s, why := range map[status]string{
		statusVersion:    "it speaks version 7",
		statusCluster:    errCluster.Error(),
		statusKind:       "it does not know this kind",
		statusSelf:       ErrSelf.Error(),
		statusSecret:     ErrSecret.Error(),
		statusRemoved:    errYouRemoved.Error(),
		statusFresh:      errFresh.Error(),
		statusSuperseded: "for an unknown reason (8)", // not a reply to a hello
		statusOK:         "for an unknown reason (0)",
	} {
		require.ErrorContains(t, refusedBy("", s, 7), "refused: "+why)
		require.ErrorContains(t, refusedBy("n2", s, 7), `node "n2" refused: `+why)
	}
}

// TestRefusalsAreCounted shows that the next line has the number of refusals that were not logged.
func TestRefusalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logBuffer{}
		r := newRefusals(log.logger())
		for range refusalBurst + 3 {
			r.log(address("n1:1"), io.EOF)
		}
		require.Len(t, log.lines(), refusalBurst)
		require.NotContains(t, strings.Join(log.lines(), "\n"), "notLogged")
		time.Sleep(refusalEvery)
		r.log(address("n1:1"), io.EOF)
		require.Contains(t, log.lines()[refusalBurst], "notLogged=3")
	})
}

// unreadable is a connection whose Read panics.
type unreadable struct{ net.Conn }

func (unreadable) Read([]byte) (int, error) { panic("read") }

// TestWithoutTLSNoAlertIsAwaited shows that after a failed write an alert is read only with TLS, since otherwise the
// other side may never send anything.
func TestWithoutTLSNoAlertIsAwaited(t *testing.T) {
	require.ErrorIs(t, currentTLS(nil).explainWrite(unreadable{}, errBroken), errBroken)
	with := currentTLS(func() *tls.Config { return nil })
	for _, text := range []string{"", "no alert"} {
		require.ErrorIs(t, with.explainWrite(said{Reader: strings.NewReader(text)}, errBroken), errBroken)
	}
}

// TestDrain shows that drain reads at most 2*maxCluster bytes, which a dialer of another version may have sent.
func TestDrain(t *testing.T) {
	sent := strings.NewReader(strings.Repeat("x", 3*maxCluster))
	drain(said{Reader: sent})
	require.Equal(t, maxCluster, sent.Len())
}

// TestTLSIsNew shows that TLS 1.3 is required, since earlier versions send certificates in the clear, and which
// certificates and authorities each side uses.
func TestTLSIsNew(t *testing.T) {
	both, err := newTLSConfigs(&tls.Config{RootCAs: x509.NewCertPool(), Certificates: make([]tls.Certificate, 1)})
	require.NoError(t, err)
	require.EqualValues(t, tls.VersionTLS13, both.asClient.MinVersion)
	require.EqualValues(t, tls.VersionTLS13, both.asServer.MinVersion)
	require.True(t, both.asServer.SessionTicketsDisabled)
	require.Nil(t, both.asClient.GetClientCertificate)
	require.NotNil(t, both.asServer.ClientCAs)

	own, cert := x509.NewCertPool(), &tls.Certificate{}
	both, err = newTLSConfigs(&tls.Config{
		RootCAs: x509.NewCertPool(), ClientCAs: own, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return cert, nil
		},
	})
	require.NoError(t, err)
	require.Same(t, own, both.asServer.ClientCAs)
	got, err := both.asClient.GetClientCertificate(nil)
	require.NoError(t, err)
	require.Same(t, cert, got)

	other := &tls.Certificate{}
	both, err = newTLSConfigs(&tls.Config{
		RootCAs:              x509.NewCertPool(),
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return other, nil },
	})
	require.NoError(t, err)
	got, err = both.asClient.GetClientCertificate(nil)
	require.NoError(t, err)
	require.Same(t, other, got, "its own stays")
}

// said is a connection that reads from Reader.
type said struct {
	net.Conn
	io.Reader
}

func (s said) Read(p []byte) (int, error) { return s.Reader.Read(p) }

// TestStaleConnection shows that a connection is superseded if a later incarnation of its node is known, unless the
// node may belong to another cluster.
func TestStaleConnection(t *testing.T) {
	m := &Mux{}
	m.config.Incarnations = proved(firstLife, disk{}).Registry
	require.False(t, m.isSuperseded(&Conn{id: "n2", lineage: firstLife}))
	_, err := m.config.Incarnations.Admit("n2", secondLife)
	require.NoError(t, err)
	require.True(t, m.isSuperseded(&Conn{id: "n2", lineage: firstLife}))
	require.False(t, m.isSuperseded(&Conn{id: "n2", lineage: firstLife, anyCluster: true}), "it may be of another cluster")

	require.ErrorIs(t, m.readSuperseded(said{Reader: bytes.NewReader(make([]byte, 7))}, "n2"), io.ErrUnexpectedEOF)
	refuseSuperseded(nil, io.EOF, nil, nil) // for another reason nothing is written
}

// TestLayersTogether adopts, cuts off and closes connections concurrently, for the race detector.
func TestLayersTogether(t *testing.T) {
	l := newLayer(&Mux{}, KindForward)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				one, _ := net.Pipe()
				c := &Conn{Conn: one, id: "n2", lineage: firstLife, accepted: true}
				require.True(t, l.adopt(c))
				l.cutOff("n2", secondLife.Current())
				_ = c.Close()
			}
		})
	}
	all.Go(func() { // only the layer's lock synchronizes it with the others
		for range 50 {
			l.cutOff("n3", 0)
		}
	})
	all.Wait()
	require.Empty(t, l.conns)
	require.Empty(t, l.from)
	require.True(t, l.adopt(&Conn{id: "n2", lineage: secondLife}))
	l.cutOff("n2", secondLife.Current())
	require.Len(t, l.conns, 1, "it is of the present incarnation")
	clear(l.conns)
	all.Go(func() { require.NoError(t, l.Close()) })
	all.Go(func() {
		one, _ := net.Pipe()
		_ = l.adopt(&Conn{Conn: one, id: "n2"})
	})
	all.Wait()
	for range 2 {
		require.False(t, l.adopt(&Conn{id: "n2"}), "it is closed")
	}
}
