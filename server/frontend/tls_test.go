package frontend

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// certificate returns a self-signed certificate for "localhost", and a pool with it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	own := protocoltest.Sign(t, x509.Certificate{
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, nil)
	return own.TLS(), protocoltest.Pool(own)
}

func TestTLS(t *testing.T) {
	own, pool := certificate(t)
	addr := startTCP(t, Config{TLS: &tls.Config{
		Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}})
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, TLSConfig: &tls.Config{
		RootCAs: pool, ServerName: "localhost", Certificates: []tls.Certificate{own},
	}})
	defer c.Close()
	require.NoError(t, c.Set(t.Context(), "k", strings.Repeat("v", 100_000), 0).Err())
	require.Len(t, c.Get(t.Context(), "k").Val(), 100_000)
	_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for range 500 {
			p.Incr(t.Context(), "n")
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "500", c.Get(t.Context(), "n").Val())
	require.EqualValues(t, 2, c.Do(t.Context(), "WAIT", 9, 20).Val())

	stranger := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, TLSConfig: &tls.Config{
		RootCAs:    pool,
		ServerName: "localhost",
	}})
	defer stranger.Close()
	require.Error(t, stranger.Ping(t.Context()).Err())
	plain := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer plain.Close()
	require.Error(t, plain.Ping(t.Context()).Err())
}

// TestTLSHandshakeIsBounded shows that a client that connects and sends nothing is disconnected after ten seconds.
func TestTLSHandshakeIsBounded(t *testing.T) {
	own, _ := certificate(t)
	inBubble(t, Config{TLS: &tls.Config{Certificates: []tls.Certificate{own}}}, func(t *testing.T, s *testServer) {
		began := time.Now()
		nc := s.silent()
		_, err := nc.Read(make([]byte, 1))
		require.Error(t, err)
		require.Equal(t, 10*time.Second, time.Since(began))
	})
}

// TestTLSStrangersMakeRoom shows that even if no password is required, clients that do not begin the TLS handshake
// cannot shut out others: new connections replace them.
func TestTLSStrangersMakeRoom(t *testing.T) {
	own, pool := certificate(t)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{TLS: &tls.Config{Certificates: []tls.Certificate{own}}, Limits: Limits{MaxClients: 2}},
			newCluster())
		client := func() *tls.Conn {
			nc := tls.Client(s.silent(), &tls.Config{RootCAs: pool, ServerName: "localhost"})
			require.NoError(t, nc.Handshake())
			synctest.Wait() // the server has completed it, too
			return nc
		}
		first := client()
		for range 3 {
			s.silent()
		}
		for _, nc := range []*tls.Conn{first, client()} {
			_, err := nc.Write(command("PING"))
			require.NoError(t, err)
			pong := make([]byte, len("+PONG\r\n"))
			_, err = io.ReadFull(nc, pong)
			require.NoError(t, err)
		}
	})
}

// TestTLSSlowReader shows that over TLS a client that does not read has at least 30 seconds, even if more than
// MaxOutputBytes are unread. TLS cannot continue after a write has timed out, so there is no shorter first deadline.
func TestTLSSlowReader(t *testing.T) {
	own, pool := certificate(t)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{TLS: &tls.Config{Certificates: []tls.Certificate{own}}, Limits: Limits{MaxOutputBytes: 1000}},
			newCluster())
		nc := tls.Client(s.silent(), &tls.Config{RootCAs: pool, ServerName: "localhost"})
		require.NoError(t, nc.Handshake())
		go nc.Write([]byte(strings.Repeat(string(command("INFO")), 200)))
		began := time.Now()
		for s.metrics.CutOff.Load() == 0 && time.Since(began) < 2*time.Minute {
			time.Sleep(time.Second)
		}
		require.GreaterOrEqual(t, time.Since(began), 30*time.Second)
		require.Less(t, time.Since(began), 62*time.Second)
	})
}
