package secrets

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// ring is a keyring over files in a folder, with its log.
type ring struct {
	*Keyring
	dir string
	log *protocoltest.Buffer
}

func newRing(t *testing.T, files map[string]string, c func(dir string) Config) *ring {
	t.Helper()
	r := &ring{dir: t.TempDir(), log: &protocoltest.Buffer{}}
	for name, text := range files {
		r.write(t, name, text)
		r.age(t, name)
	}
	var err error
	r.Keyring, err = Open(c(r.dir), slog.New(slog.NewTextHandler(r.log, nil)))
	require.NoError(t, err)
	return r
}

func (r *ring) file(name string) string { return filepath.Join(r.dir, name) }

// write replaces a file in place, as editors do.
func (r *ring) write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(r.file(name), []byte(text), 0o600))
}

// age sets the time of a file to an hour ago.
func (r *ring) age(t *testing.T, name string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(r.file(name), old, old))
}

// wait makes the next check of the files due at once.
func (r *ring) wait() { r.due.Store(0) }

func (r *ring) failed() bool {
	_, status := r.Expiries()
	return status.Failed
}

// lines returns the lines of the log since the last call.
func (r *ring) lines() []string {
	text := strings.TrimSpace(r.log.Take())
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func passwordIn(dir string) Config { return Config{PasswordFile: filepath.Join(dir, "password")} }

// TestPasswordIsReadAgain shows that a changed file is read when it is used a second after the last check, or at once
// by Reload.
func TestPasswordIsReadAgain(t *testing.T) {
	r := newRing(t, map[string]string{"password": "one\n"}, passwordIn)
	right := r.Password()
	require.True(t, right("one"))
	r.write(t, "password", "two\n")
	require.True(t, right("one"), "looked at the files again at once")
	r.wait()
	require.True(t, right("two"))
	require.False(t, right("one"))
	require.Len(t, r.lines(), 1)

	r.write(t, "password", "three\n")
	r.Reload("SIGHUP")
	require.True(t, right("three"))
	lines := r.lines()
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], `msg="credentials read again" changed=password by=SIGHUP`)
	require.NotContains(t, lines[0], "three")
	r.Reload("SIGHUP")
	require.Len(t, r.lines(), 1, "a reload is logged although nothing changed")
}

// TestLooksAreRare shows that files are checked once a second at most, and that unchanged files are not read.
func TestLooksAreRare(t *testing.T) {
	r := newRing(t, map[string]string{"password": "one\n"}, passwordIn)
	r.wait()
	r.current()
	require.Greater(t, r.due.Load(), int64(time.Since(r.began)), "every connection would look")
	require.Less(t, r.due.Load(), int64(time.Since(r.began)+2*interval))
	require.False(t, r.parts[0].changed())
	r.write(t, "password", "two\n")
	require.True(t, r.parts[0].changed())
}

// TestChangesThatLeaveNoTrace shows that a change that keeps the size and the modification time of a new file is
// noticed.
func TestChangesThatLeaveNoTrace(t *testing.T) {
	r := newRing(t, map[string]string{"password": "one\n"}, passwordIn)
	r.write(t, "password", "two\n")
	now := time.Now()
	require.NoError(t, os.Chtimes(r.file("password"), now, now))
	r.wait()
	require.True(t, r.Password()("two"))
	r.write(t, "password", "owt\n")
	require.NoError(t, os.Chtimes(r.file("password"), now, now))
	r.wait()
	require.True(t, r.Password()("owt"))
	r.age(t, "password")
	r.wait()
	r.current()
	require.False(t, r.parts[0].changed(), "an old file is read again and again")
	require.Len(t, r.lines(), 2, "a file that says the same is no news")
}

// TestDamagedFilesAreNotTaken shows that if a file cannot be used, the old credentials stay, the error is logged once,
// and the next good file is used.
func TestDamagedFilesAreNotTaken(t *testing.T) {
	r := newRing(t, map[string]string{"password": "one\n"}, passwordIn)
	for what, damage := range map[string]func(){
		"empty":               func() { r.write(t, "password", "") },
		"two secrets at most": func() { r.write(t, "password", "a\nb\nc\n") },
		"too large":           func() { r.write(t, "password", strings.Repeat("x", maxFileBytes+1)) },
		"gone":                func() { require.NoError(t, os.Remove(r.file("password"))) },
		"a folder": func() {
			require.NoError(t, os.RemoveAll(r.file("password")))
			require.NoError(t, os.Mkdir(r.file("password"), 0o700))
		},
	} {
		damage()
		for range 3 {
			r.wait()
			require.True(t, r.Password()("one"), what)
			require.False(t, r.Password()(""), what)
		}
		require.True(t, r.failed(), what)
		lines := r.lines()
		require.Len(t, lines, 1, what)
		require.Contains(t, lines[0], "level=WARN", what)
		require.Contains(t, lines[0], "the old ones stay", what)
		r.Reload("SIGHUP")
		require.Contains(t, strings.Join(r.lines(), "\n"), "by=SIGHUP", "who asks for a reload is told each time")

		require.NoError(t, os.RemoveAll(r.file("password")))
		r.write(t, "password", "one\n")
		r.wait()
		require.True(t, r.Password()("one"), what)
		require.False(t, r.failed(), what)
		require.Len(t, r.lines(), 1, what)
	}
}

// TestPartsFailAlone shows that a damaged certificate does not prevent the use of a new password.
func TestPartsFailAlone(t *testing.T) {
	cert, key := newAuthority(t).issue(t, time.Now().Add(time.Hour))
	r := newRing(t, map[string]string{"password": "one\n", "crt": cert, "key": key}, func(dir string) Config {
		return Config{
			PasswordFile: filepath.Join(dir, "password"), TLSCert: filepath.Join(dir, "crt"),
			TLSKey: filepath.Join(dir, "key"),
		}
	})
	r.write(t, "password", "two\n")
	r.write(t, "crt", "not PEM")
	r.Reload("SIGHUP")
	require.True(t, r.Password()("two"))
	require.True(t, r.failed())
	lines := r.lines()
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], "part=tls")
	require.Contains(t, lines[1], "changed=password")
	r.write(t, "crt", cert)
	r.wait()
	require.False(t, r.failed())
}

// TestPipesAreReadOnce shows that a pipe is read only once, as in --password-file <(pass show holdfast).
func TestPipesAreReadOnce(t *testing.T) {
	from, to, err := os.Pipe()
	require.NoError(t, err)
	_, err = to.WriteString("one\n")
	require.NoError(t, err)
	require.NoError(t, to.Close())
	t.Cleanup(func() { from.Close() })
	if _, err := os.Stat("/dev/fd"); err != nil {
		t.Skip("no /dev/fd")
	}
	var log protocoltest.Buffer
	k, err := Open(Config{PasswordFile: fmt.Sprintf("/dev/fd/%d", from.Fd())}, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	k.due.Store(0)
	require.True(t, k.Password()("one"))
	k.Reload("SIGHUP")
	require.True(t, k.Password()("one"))
	require.NotContains(t, log.String(), "WARN")
}

// shake performs a handshake, and returns the client's connection and the error of either side.
func shake(t *testing.T, server, client *tls.Config) (*tls.Conn, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	served := make(chan error, 1)
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			served <- err
			return
		}
		defer nc.Close()
		c := tls.Server(nc, server)
		if err = c.Handshake(); err == nil {
			_, err = c.Write([]byte("x")) // which brings a TLS 1.3 client its session ticket
		}
		served <- err
	}()
	nc, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	c := tls.Client(nc, client)
	t.Cleanup(func() { c.Close() })
	if err := c.Handshake(); err != nil {
		nc.Close()
		<-served
		return nil, err
	}
	_, _ = c.Read(make([]byte, 1))
	return c, <-served
}

func pool(authorities ...*authority) *x509.CertPool {
	p := x509.NewCertPool()
	for _, a := range authorities {
		p.AddCert(a.Certificate.Certificate)
	}
	return p
}

func (a *authority) keyPair(t *testing.T) tls.Certificate {
	t.Helper()
	cert, key := a.issue(t, time.Now().Add(time.Hour))
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	require.NoError(t, err)
	return pair
}

func tlsIn(dir string) Config {
	return Config{TLSCert: filepath.Join(dir, "crt"), TLSKey: filepath.Join(dir, "key"), TLSClientCA: filepath.Join(dir,
		"ca")}
}

// TestCertificateIsReadAgain shows that the next handshake uses a new certificate, and that a pair that is incomplete,
// does not match or has expired is not used.
func TestCertificateIsReadAgain(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(t, time.Now().Add(time.Hour))
	r := newRing(t, map[string]string{"crt": cert, "key": key, "ca": ca.pem}, tlsIn)
	server := r.ClientTLS() // as the parts of the node have it from the start
	client := &tls.Config{RootCAs: pool(ca), ServerName: "localhost", Certificates: []tls.Certificate{ca.keyPair(t)}}
	serial := func() int64 {
		t.Helper()
		c, err := shake(t, server, client)
		require.NoError(t, err)
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	first := serial()
	newer, newerKey := ca.issue(t, time.Now().Add(2*time.Hour))
	r.write(t, "crt", newer)
	r.wait()
	require.Equal(t, first, serial(), "the key does not fit yet")
	require.Len(t, r.lines(), 1)
	r.write(t, "key", newerKey[:len(newerKey)/2])
	r.wait()
	require.Equal(t, first, serial(), "the key is half-written")
	r.write(t, "key", newerKey)
	r.wait()
	second := serial()
	require.NotEqual(t, first, second)
	expiries, status := r.Expiries()
	require.False(t, status.Failed)
	for _, e := range expiries {
		if e.Flag == "tls-cert" {
			require.Greater(t, time.Until(e.At), 90*time.Minute)
		}
	}
	require.Len(t, expiries, 2)

	expired, expiredKey := ca.issue(t, time.Now().Add(-time.Minute))
	r.write(t, "crt", expired)
	r.write(t, "key", expiredKey)
	r.wait()
	require.Equal(t, second, serial(), "what ran out took the place of what did not")
	require.Contains(t, strings.Join(r.lines(), "\n"), "tls-cert ran out at")
}

// TestAuthorityIsReadAgain shows that clients of a removed authority are refused from the next handshake on, also if
// they resume a session, and that a truncated file removes no authority.
func TestAuthorityIsReadAgain(t *testing.T) {
	older, newer := newAuthority(t), newAuthority(t)
	cert, key := older.issue(t, time.Now().Add(time.Hour))
	r := newRing(t, map[string]string{"crt": cert, "key": key, "ca": older.pem}, tlsIn)
	server := r.ClientTLS()
	sessions := tls.NewLRUClientSessionCache(8)
	client := func(a *authority) *tls.Config {
		return &tls.Config{RootCAs: pool(older), ServerName: "localhost", Certificates: []tls.Certificate{a.keyPair(t)}}
	}
	old, young := client(older), client(newer)
	old.ClientSessionCache = sessions
	_, err := shake(t, server, old)
	require.NoError(t, err)
	again, err := shake(t, server, old)
	require.NoError(t, err)
	require.True(t, again.ConnectionState().DidResume)
	_, err = shake(t, server, young)
	require.Error(t, err)

	r.write(t, "ca", older.pem+newer.pem)
	r.wait()
	for _, c := range []*tls.Config{old, young} {
		_, err = shake(t, server, c)
		require.NoError(t, err)
	}
	r.write(t, "ca", newer.pem+older.pem[:len(older.pem)-40])
	r.wait()
	_, err = shake(t, server, old)
	require.NoError(t, err, "a file that is cut off was taken")
	r.write(t, "ca", newer.pem)
	r.wait()
	_, err = shake(t, server, young)
	require.NoError(t, err)
	_, err = shake(t, server, old)
	require.Error(t, err)
}

// TestKubernetesSwap shows that new files are found if, as in Kubernetes, the files are links into a folder behind a
// link that is replaced by a rename.
func TestKubernetesSwap(t *testing.T) {
	ca := newAuthority(t)
	mount := t.TempDir()
	publish := func(version string) {
		cert, key := ca.issue(t, time.Now().Add(time.Hour))
		dir := filepath.Join(mount, version)
		require.NoError(t, os.Mkdir(dir, 0o700))
		for name, text := range map[string]string{"crt": cert, "key": key, "ca": ca.pem, "password": version + "\n"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			old := time.Now().Add(-time.Hour) // the same in all versions
			require.NoError(t, os.Chtimes(filepath.Join(dir, name), old.Truncate(time.Hour), old.Truncate(time.Hour)))
		}
		next := filepath.Join(mount, "..data_tmp")
		require.NoError(t, os.Symlink(version, next))
		require.NoError(t, os.Rename(next, filepath.Join(mount, "..data")))
	}
	publish("v1")
	for _, name := range []string{"crt", "key", "ca", "password"} {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(mount, name)))
	}
	c := tlsIn(mount)
	c.PasswordFile = filepath.Join(mount, "password")
	var log protocoltest.Buffer
	k, err := Open(c, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	require.True(t, k.Password()("v1"))
	before := k.current().clientTLS
	publish("v2")
	require.NoError(t, os.RemoveAll(filepath.Join(mount, "v1")))
	k.due.Store(0)
	require.True(t, k.Password()("v2"))
	require.NotSame(t, before, k.current().clientTLS)
	require.Contains(t, log.String(), "changed=password,tls")
	require.NotContains(t, log.String(), "WARN")
}

// TestHangingDiskHoldsUpOne shows that while one goroutine waits for a slow disk, the others use the old credentials.
func TestHangingDiskHoldsUpOne(t *testing.T) {
	r := newRing(t, map[string]string{"password": "one\n"}, passwordIn)
	release, entered := make(chan struct{}), make(chan struct{})
	r.parts[0].load = func(c Config, read reader, to *credentials) error {
		close(entered)
		<-release
		return loadPasswords(c, read, to)
	}
	r.write(t, "password", "two\n")
	r.wait()
	done := make(chan bool)
	go func() { done <- r.Password()("two") }()
	<-entered
	require.True(t, r.Password()("one"))
	close(release)
	require.True(t, <-done)
}

// TestManyAtOnce checks, reloads and uses the files concurrently, for the race detector.
func TestManyAtOnce(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(t, time.Now().Add(time.Hour))
	r := newRing(t, map[string]string{"password": "both\none\n", "crt": cert, "key": key, "ca": ca.pem},
		func(dir string) Config {
			c := tlsIn(dir)
			c.PasswordFile, c.ClusterSecretFile = filepath.Join(dir, "password"), filepath.Join(dir, "password")
			c.PeerTLSCert, c.PeerTLSKey, c.PeerTLSCA = c.TLSCert, c.TLSKey, c.TLSClientCA
			return c
		})
	var all sync.WaitGroup
	right, peers, clients := r.Password(), r.PeerTLS(), r.ClientTLS()
	for range 8 {
		all.Go(func() {
			for range 200 {
				r.wait()
				require.True(t, right("both"))
				require.Len(t, r.Cluster()(), 2)
				require.NotNil(t, peers())
				_, err := clients.GetConfigForClient(nil)
				require.NoError(t, err)
				r.Expiries()
			}
		})
	}
	for i := range 50 {
		next := filepath.Join(r.dir, "next")
		require.NoError(t, os.WriteFile(next, []byte([]string{"both\none\n", "both\ntwo\n"}[i%2]), 0o600))
		require.NoError(t, os.Rename(next, r.file("password")))
		r.Reload("test")
	}
	all.Wait()
	require.NotContains(t, r.log.String(), "WARN")
}
