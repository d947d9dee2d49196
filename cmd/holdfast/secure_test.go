package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// authority is a CA that lives for a test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.sign(t, "ca", template, nil, nil)
	return a
}

// sign writes name.crt and name.key; without a parent the certificate signs itself.
func (a *authority) sign(t *testing.T, name string, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	a.write(t, name+".crt", "CERTIFICATE", der)
	a.write(t, name+".key", "EC PRIVATE KEY", keyDER)
	return cert, key
}

func (a *authority) write(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	require.NoError(t, os.WriteFile(a.file(file), text, 0o600))
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue makes a certificate for loopback that serves as a client's and a server's.
func (a *authority) issue(t *testing.T, name string) {
	t.Helper()
	a.sign(t, name, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
}

func (a *authority) clientConfig(t *testing.T, name string) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	c := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if name != "" {
		cert, err := tls.LoadX509KeyPair(a.file(name+".crt"), a.file(name+".key"))
		require.NoError(t, err)
		c.Certificates = []tls.Certificate{cert}
	}
	return c
}

// TestSecuredCluster: TLS and a password for clients, mutual TLS and a secret between nodes.
func TestSecuredCluster(t *testing.T) {
	ca := newAuthority(t)
	ca.issue(t, "node")
	ca.issue(t, "client")
	secret := ca.file("secret")
	require.NoError(t, os.WriteFile(secret, []byte("a secret of the cluster\n"), 0o600))
	nodes := launch(t, build(t), 3, "--password", "open sesame", "--cluster-secret-file", secret,
		"--tls-cert", ca.file("node.crt"), "--tls-key", ca.file("node.key"), "--tls-client-ca", ca.file("ca.crt"),
		"--peer-tls-cert", ca.file("node.crt"), "--peer-tls-key", ca.file("node.key"), "--peer-tls-ca", ca.file("ca.crt"))
	ctx := context.Background()
	for i, n := range nodes {
		c := redis.NewClient(&redis.Options{Addr: n.addr, Password: "open sesame", TLSConfig: ca.clientConfig(t, "client")})
		defer c.Close()
		require.Eventually(t, func() bool { return c.Incr(ctx, "fence").Err() == nil }, 20*time.Second, 50*time.Millisecond, "%s", n.stderr)
		require.Equal(t, int64(i+1), c.IncrBy(ctx, "fence", 0).Val())
	}
	strangers := ca.clientConfig(t, "") // who believes the server
	strangers.Certificates = newStranger(t).clientConfig(t, "client").Certificates
	for what, o := range map[string]redis.Options{
		"a wrong password":       {Password: "guess", TLSConfig: ca.clientConfig(t, "client")},
		"no certificate":         {Password: "open sesame", TLSConfig: ca.clientConfig(t, "")},
		"no TLS":                 {Password: "open sesame"},
		"a certificate of no CA": {Password: "open sesame", TLSConfig: strangers},
	} {
		o.Addr, o.MaxRetries = nodes[0].addr, -1
		c := redis.NewClient(&o)
		require.Error(t, c.Incr(ctx, "fence").Err(), "a client with %s was let in", what)
		require.NoError(t, c.Close())
	}
}

// newStranger has a certificate that the cluster's CA knows nothing of.
func newStranger(t *testing.T) *authority {
	t.Helper()
	a := newAuthority(t)
	a.issue(t, "client")
	return a
}
