package web

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/acl"
)

func fails(reason string) func(context.Context) error {
	return func(context.Context) error { return errors.New(reason) }
}

func works(context.Context) error { return nil }

func newServer(change func(c *Config)) *Server {
	c := Config{
		Gatherer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		Live:  []Check{{Name: "process", Run: works}},
		Ready: []Check{{Name: "disk", Run: works}, {Name: "linearizable_read", Run: works}},
	}
	if change != nil {
		change(&c)
	}
	return New(c)
}

// get sends a request to the handler, without a connection.
func get(s *Server, path, password string) (status int, body string) {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if password != "" {
		r.SetBasicAuth("default", password)
	}
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func openSesame() *acl.Users { return acl.Only(acl.PasswordOf("open sesame")) }

// TestHealth shows that replies have etcd's format, and that a client that has not authenticated does not get the
// reason of a failed check.
func TestHealth(t *testing.T) {
	broken := newServer(func(c *Config) {
		c.Ready[1].Run = fails("no leader is known")
		c.Access.Users = openSesame
	})
	fine := newServer(nil)
	slow := newServer(func(c *Config) {
		c.Ready[0].Detail = func() string { return "slow" }
		c.Ready[1].Detail = func() string { return "" }
		c.Access.Users = openSesame
	})
	for _, tc := range []struct {
		s              *Server
		path, password string
		status         int
		body           string
	}{
		{fine, "/livez", "", 200, "ok\n"},
		{fine, "/readyz", "", 200, "ok\n"},
		{fine, "/readyz?verbose", "", 200, "[+]disk ok\n[+]linearizable_read ok\nok\n"},
		{fine, "/readyz/disk?verbose", "", 200, "[+]disk ok\nok\n"},
		{fine, "/readyz/tape", "", 404, "no such check\n"},
		{slow, "/readyz", "open sesame", 200, "ok\n"},
		{slow, "/readyz?verbose", "open sesame", 200, "[+]disk ok, slow\n[+]linearizable_read ok\nok\n"},
		{slow, "/readyz?verbose", "", 200, "[+]disk ok\n[+]linearizable_read ok\nok\n"},
		{broken, "/livez?verbose", "", 200, "[+]process ok\nok\n"},
		{broken, "/readyz", "", 503, "[+]disk ok\n[-]linearizable_read failed: reason withheld\n"},
		{broken, "/readyz", "guess", 503, "[+]disk ok\n[-]linearizable_read failed: reason withheld\n"},
		{broken, "/readyz", "open sesame", 503, "[+]disk ok\n[-]linearizable_read failed: no leader is known\n"},
		{broken, "/readyz?exclude=linearizable_read&verbose", "", 200, "[+]disk ok\nok\n"},
		{broken, "/readyz/disk", "", 200, "ok\n"},
		{broken, "/readyz/linearizable_read", "open sesame", 503, "[-]linearizable_read failed: no leader is known\n"},
	} {
		status, body := get(tc.s, tc.path, tc.password)
		require.Equal(t, tc.status, status, tc.path)
		require.Equal(t, tc.body, body, tc.path)
	}
}

// TestCheckRunsOnce shows that if many clients ask for a check that hangs, it runs once, and each client gets a reply.
func TestCheckRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		hang := make(chan struct{})
		s := newServer(func(c *Config) {
			c.Ready = []Check{{Name: "disk", Run: func(context.Context) error { runs.Add(1); <-hang; return nil }}}
		})
		began := time.Now()
		answers := make(chan string)
		const askers = 20
		for range askers {
			go func() {
				_, body := get(s, "/readyz", "")
				answers <- body
			}()
		}
		for range askers {
			require.Equal(t, "[-]disk failed: no answer within 3s\n", <-answers)
		}
		require.Equal(t, checkTimeout, time.Since(began))
		require.EqualValues(t, 1, runs.Load())
		close(hang)
		synctest.Wait()
		_, body := get(s, "/readyz", "")
		require.Equal(t, "ok\n", body)
		require.EqualValues(t, 2, runs.Load())
	})
}

// TestAccess shows that metrics and profiles need authentication if clients do, and that profiles exist only if
// Profiles is set.
func TestAccess(t *testing.T) {
	secured := newServer(func(c *Config) { c.Access.Users, c.Profiles = openSesame, true })
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1"} {
		for _, password := range []string{"", "guess"} {
			status, body := get(secured, path, password)
			require.Equal(t, 401, status, path)
			require.NotContains(t, body, "goroutine")
		}
	}
	status, _ := get(secured, "/metrics", "open sesame")
	require.Equal(t, 200, status)
	status, body := get(secured, "/debug/pprof/", "open sesame")
	require.Equal(t, 200, status)
	require.Contains(t, body, "goroutine")
	status, _ = get(secured, "/debug/pprof/cmdline", "open sesame") // its reply would have the password
	require.Equal(t, 404, status)
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.SetBasicAuth("root", "open sesame") // the only user is "default"
	w := httptest.NewRecorder()
	secured.http.Handler.ServeHTTP(w, r)
	require.Equal(t, 401, w.Code)

	open := newServer(nil)
	status, _ = get(open, "/metrics", "")
	require.Equal(t, 200, status)
	status, _ = get(open, "/debug/pprof/", "")
	require.Equal(t, 404, status)
	for _, path := range []string{"/", "/metrics/x", "/debug/vars"} {
		status, _ = get(open, path, "")
		require.Equal(t, 404, status, path)
	}
	w = httptest.NewRecorder()
	open.http.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/livez", strings.NewReader("x")))
	require.Equal(t, 405, w.Code)
}

// serve runs s on a port of its own until the test ends.
func serve(t *testing.T, s *Server) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return ln.Addr().String()
}

// TestIdleClientsMakeRoom shows that connections that send no request do not keep others out, and do not delay the end
// of Serve.
func TestIdleClientsMakeRoom(t *testing.T) {
	addr := serve(t, newServer(nil))
	var idle []net.Conn
	for range MaxConnections + 10 {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("GET /metrics HTTP/1.1\r\n")) // and no more
		require.NoError(t, err)
		idle = append(idle, c)
	}
	answer, err := http.Get("http://" + addr + "/livez")
	require.NoError(t, err)
	body, _ := io.ReadAll(answer.Body)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, "ok\n", string(body))
	require.NoError(t, idle[0].SetReadDeadline(time.Now().Add(readTimeout/2)))
	_, err = bufio.NewReader(idle[0]).ReadByte()
	require.Error(t, err)
	require.False(t, errors.Is(err, context.DeadlineExceeded) || isTimeout(err), "the oldest connection is still open")
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// selfSigned returns a certificate for the loopback address, for clients and servers, and a pool with it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// TestClientCertificate shows that where clients need certificates, a probe without one learns whether the node is
// ready, and nothing else.
func TestClientCertificate(t *testing.T) {
	cert, roots := selfSigned(t)
	fixed := &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: roots,
		ClientAuth: tls.RequireAndVerifyClientCert,
	}
	readAnew := fixed.Clone()
	readAnew.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return fixed, nil }
	for name, config := range map[string]*tls.Config{"fixed": fixed, "read anew": readAnew} {
		t.Run(name, func(t *testing.T) { testClientCertificate(t, config, cert, roots) })
	}
}

func testClientCertificate(t *testing.T, config *tls.Config, cert tls.Certificate, roots *x509.CertPool) {
	addr := serve(t, newServer(func(c *Config) { c.Access.TLS = config }))
	status := func(path string, certs ...tls.Certificate) int {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}}
		defer tr.CloseIdleConnections()
		answer, err := (&http.Client{Transport: tr}).Get("https://" + addr + path)
		require.NoError(t, err)
		defer answer.Body.Close()
		require.Equal(t, 1, answer.ProtoMajor)
		return answer.StatusCode
	}
	require.Equal(t, 200, status("/readyz"))
	require.Equal(t, 401, status("/metrics"))
	require.Equal(t, 200, status("/metrics", cert))
	answer, err := http.Get("http://" + addr + "/livez")
	if err == nil {
		require.Equal(t, 400, answer.StatusCode) // says that TLS is spoken here
		answer.Body.Close()
	}
}
