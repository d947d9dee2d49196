package secrets

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/acl"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func open(c Config) (*Keyring, error) { return Open(c, slog.New(slog.DiscardHandler)) }

// authority is a certificate authority.
type authority struct {
	*protocoltest.Certificate
	pem string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{Certificate: protocoltest.Sign(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "CA"}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)}
	a.pem, _ = a.PEM(t)
	return a
}

// issue returns a certificate for localhost, and its key.
func (a *authority) issue(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	return protocoltest.Sign(t, x509.Certificate{
		DNSNames: []string{"localhost"}, NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.Certificate).PEM(t)
}

// certificate writes a certificate and its key to files, and returns their names.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	cert, key = newAuthority(t).issue(t, time.Now().Add(time.Hour))
	return write(t, "crt", cert), write(t, "key", key)
}

// TestSecretOfAFile shows that the secret is the first line of a file without its line ending, and that a file with an
// encoding or characters that are surely a mistake is refused.
func TestSecretOfAFile(t *testing.T) {
	for text, want := range map[string]string{
		"open sesame":         "open sesame",
		"open sesame\n":       "open sesame",
		"open sesame\r\n":     "open sesame",
		" open sesame \n":     " open sesame ",
		"open\nsesame\n":      "open",
		"open\n\t \nnote\n":   "open",
		"open sesame\n\nnote": "open sesame",
	} {
		got, err := Config{PasswordFile: write(t, "secret", text)}.ClientPassword()
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", text)
	}
	for _, text := range []string{"", "\n", "\r\n", " \n", "\nsecond line"} {
		_, err := Config{PasswordFile: write(t, "secret", text)}.ClientPassword()
		require.ErrorContains(t, err, "is empty", "%q", text)
	}
	for text, why := range map[string]string{
		"\xef\xbb\xbfopen sesame\n":      "begins with a byte order mark",
		"\xff\xfeo\x00p\x00e\x00n\x00":   "is UTF-16",
		"o\x00p\x00e\x00n\x00\n\x00":     "is UTF-16",
		"open\tsesame":                   `control character, '\t'`,
		"open\x1b[Asesame\nold sesame\n": `control character, '\x1b'`,
		"new sesame\nold\x7fsesame":      `control character, '\x7f'`,
	} {
		_, err := Config{PasswordFile: write(t, "secret", text)}.ClientPassword()
		require.ErrorContains(t, err, why, "%q", text)
		_, err = open(Config{ClusterSecretFile: write(t, "secret", text)})
		require.ErrorContains(t, err, why, "%q", text)
	}
	_, err := Config{PasswordFile: "x", Password: "y"}.ClientPassword()
	require.ErrorContains(t, err, "not both")
	_, err = open(Config{ClusterSecretFile: "x", ClusterSecret: "y"})
	require.ErrorContains(t, err, "not both")
	s, err := open(Config{Password: "p", ClusterSecret: "c"})
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("c")}, s.Cluster()())
	require.True(t, s.Password()("p"))
	require.False(t, s.Password()("c"))
	s, err = open(Config{})
	require.NoError(t, err)
	require.Nil(t, s.Password())
	require.Empty(t, s.Cluster()())
}

// TestTwoSecretsAtATime shows that a file may have two secrets, one a line, and that a third is refused.
func TestTwoSecretsAtATime(t *testing.T) {
	file := write(t, "secret", "new one\r\nold one\n\na note, and no password\n")
	k, err := open(Config{PasswordFile: file, ClusterSecretFile: file})
	require.NoError(t, err)
	require.True(t, k.Password()("new one"))
	require.True(t, k.Password()("old one"))
	for _, wrong := range []string{"", "new one\nold one", "new one\r", "a note, and no password"} {
		require.False(t, k.Password()(wrong), "%q", wrong)
	}
	require.Equal(t, [][]byte{[]byte("new one"), []byte("old one")}, k.Cluster()())
	_, err = open(Config{PasswordFile: write(t, "secret", "one\ntwo\nthree\n")})
	require.ErrorContains(t, err, "has 3 lines before the first blank one: 2 secrets at a time")
}

// TestFilesAreBounded shows that a file that is too large is refused, so that a wrong name does not fill the memory.
func TestFilesAreBounded(t *testing.T) {
	_, err := open(Config{PasswordFile: write(t, "secret", strings.Repeat("x", maxFileBytes+1))})
	require.ErrorContains(t, err, "is larger than")
}

// TestTLSNeedsAllItsParts shows that an incomplete TLS configuration is refused, and does not mean a port without TLS.
func TestTLSNeedsAllItsParts(t *testing.T) {
	cert, key := certificate(t)
	none := write(t, "empty", "no PEM\n")
	for _, tc := range []struct {
		c    Config
		want string
	}{
		{Config{TLSClientCA: cert}, "tls-client-ca needs tls-cert and tls-key"},
		{Config{QuotaFile: cert}, "quota-file needs acl-file"},
		{
			Config{TLSCert: cert, TLSKey: key, TLSClientCA: cert, TLSAuthClientsUser: "CN"},
			"tls-auth-clients-user needs tls-client-ca",
		},
		{
			Config{TLSCert: cert, TLSKey: key, ACLFile: cert, TLSAuthClientsUser: "URI"},
			"tls-auth-clients-user needs tls-client-ca",
		},
		{Config{TLSAuthClientsUser: "cn"}, "use CN, URI or off"},
		{Config{TLSCert: cert}, "load tls-cert and tls-key"},
		{Config{TLSKey: key}, "load tls-cert and tls-key"},
		{Config{TLSCert: cert, TLSKey: key, TLSClientCA: none}, "holds no PEM certificate"},
		{Config{PeerTLSCert: cert, PeerTLSKey: key}, "go together"},
		{Config{PeerTLSCert: cert, PeerTLSCA: cert}, "go together"},
		{Config{PeerTLSKey: key, PeerTLSCA: cert}, "go together"},
		{Config{PeerTLSCA: cert}, "go together"},
		{Config{PeerTLSCert: key, PeerTLSKey: cert, PeerTLSCA: cert}, "load peer-tls-cert and peer-tls-key"},
		{Config{PeerTLSCert: cert, PeerTLSKey: key, PeerTLSCA: none}, "holds no PEM certificate"},
	} {
		_, err := open(tc.c)
		require.ErrorContains(t, err, tc.want)
	}
}

// TestTLSDemandsCertificates shows that clients need certificates if there is a CA for them, and nodes always.
func TestTLSDemandsCertificates(t *testing.T) {
	cert, key := certificate(t)
	k, err := open(Config{TLSCert: cert, TLSKey: key})
	require.NoError(t, err)
	require.Nil(t, k.PeerTLS())
	require.Equal(t, tls.NoClientCert, k.ClientTLS().ClientAuth)
	require.Equal(t, uint16(tls.VersionTLS12), k.ClientTLS().MinVersion)

	k, err = open(Config{
		TLSCert: cert, TLSKey: key, TLSClientCA: cert, PeerTLSCert: cert, PeerTLSKey: key,
		PeerTLSCA: cert, ClusterSecret: "s",
	})
	require.NoError(t, err)
	require.Equal(t, tls.RequireAndVerifyClientCert, k.ClientTLS().ClientAuth)
	require.NotNil(t, k.ClientTLS().ClientCAs)
	peers := k.PeerTLS()()
	require.Equal(t, tls.RequireAndVerifyClientCert, peers.ClientAuth)
	require.Equal(t, uint16(tls.VersionTLS13), peers.MinVersion)
	require.NotNil(t, peers.RootCAs)
	require.NotNil(t, peers.ClientCAs)
}

// Password returns a function that reports whether the default user has a password, or nil if none is required.
func (k *Keyring) Password() func(given string) bool {
	if k.Held().Default().TakesAny() {
		return nil
	}
	return func(given string) bool { return k.Current().Authenticate(acl.DefaultUser, given) != nil }
}

// TestUsersAreReadAgain shows that watchers are called once for each change of the users, that a file with errors is
// not used, and that no reload removes the password of a port that required one.
func TestUsersAreReadAgain(t *testing.T) {
	file := write(t, "acl", "user a on >x ~* +@all\n")
	k, err := open(Config{ACLFile: file, Password: "sesame"})
	require.NoError(t, err)
	changes := 0
	k.Watch(func() { changes++ })
	require.NotNil(t, k.Current().Authenticate("a", "x"))
	require.NotNil(t, k.Current().Authenticate("default", "sesame"))
	require.NoError(t, os.WriteFile(file, []byte("user a on >y ~* +@all\n"), 0o600))
	require.NoError(t, k.Load("test"))
	require.NotNil(t, k.Held().Authenticate("a", "y"))
	require.Nil(t, k.Held().Authenticate("a", "x"))
	require.Equal(t, 1, changes)
	require.NoError(t, os.WriteFile(file, []byte("user a on >z nonsense\n"), 0o600))
	require.ErrorContains(t, k.Load("test"), "acl-file: "+file+":1: Syntax error")
	require.NotNil(t, k.Held().Authenticate("a", "y"))
	require.Equal(t, 1, changes)

	require.NoError(t, os.WriteFile(file, []byte("user default on >p ~* +@all\n"), 0o600))
	k, err = open(Config{ACLFile: file})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("user default on nopass ~* +@all\n"), 0o600))
	require.ErrorContains(t, k.Load("test"), "the default user would need no password any more")
	require.Nil(t, k.Held().Authenticate("default", ""))
	k, err = open(Config{ACLFile: file})
	require.NoError(t, err)
	require.True(t, k.Held().Default().Open())

	_, err = open(Config{ACLFile: file, Password: "x"})
	require.ErrorContains(t, err, "leave out that flag, or this line")
	k, err = open(Config{Password: "x"})
	require.NoError(t, err)
	require.ErrorIs(t, k.Load("test"), acl.ErrNoFile)
}

// TestNodesAreToldFromClients shows that without a cluster secret the certificate of a node must have NodeURI, which
// those of clients lack.
func TestNodesAreToldFromClients(t *testing.T) {
	ca := newAuthority(t)
	issue := func(uris ...string) (*x509.Certificate, Config) {
		var template x509.Certificate
		for _, text := range uris {
			uri, err := url.Parse(text)
			require.NoError(t, err)
			template.URIs = append(template.URIs, uri)
		}
		made := protocoltest.Sign(t, template, ca.Certificate)
		cert, key := made.Write(t, t.TempDir(), "node")
		return made.Certificate, Config{PeerTLSCert: cert, PeerTLSKey: key, PeerTLSCA: write(t, "ca", ca.pem)}
	}
	node, ofNode := issue("spiffe://example/n1", NodeURI)
	client, ofClient := issue("holdfast:client", NodeURI+"s")

	k, err := open(ofNode)
	require.NoError(t, err)
	judge := k.PeerTLS()().VerifyConnection
	for cert, want := range map[*x509.Certificate]string{node: "", client: "tells a node's from a client's"} {
		err := judge(tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}})
		require.Equal(t, want == "", err == nil)
		require.ErrorContains(t, cmp.Or(err, errors.New("")), want)
	}

	_, err = open(ofClient)
	require.ErrorContains(t, err, "peer-tls-cert: the certificate lacks the URI name holdfast:node")
	for _, secret := range []Config{{ClusterSecret: "s"}, {ClusterSecretFile: write(t, "secret", "s")}} {
		ofClient.ClusterSecret, ofClient.ClusterSecretFile = secret.ClusterSecret, secret.ClusterSecretFile
		k, err = open(ofClient)
		require.NoError(t, err)
		require.Nil(t, k.PeerTLS()().VerifyConnection)
	}
}
