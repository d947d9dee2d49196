package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// certificate writes one that signs itself, and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	return write(t, "crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		write(t, "key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})))
}

// TestSecretOfAFile: it is the first line to the letter, whatever system wrote it.
func TestSecretOfAFile(t *testing.T) {
	for text, want := range map[string]string{
		"open sesame":         "open sesame",
		"open sesame\n":       "open sesame",
		"open sesame\r\n":     "open sesame",
		" open sesame \n":     " open sesame ",
		"open\nsesame\n":      "open",
		"open sesame\n\nnote": "open sesame",
	} {
		got, err := SecretsConfig{PasswordFile: write(t, "secret", text)}.ClientPassword()
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", text)
	}
	for _, text := range []string{"", "\n", "\r\n", "\nsecond line"} {
		_, err := SecretsConfig{PasswordFile: write(t, "secret", text)}.ClientPassword()
		require.ErrorContains(t, err, "is empty", "%q", text)
	}
	_, err := SecretsConfig{PasswordFile: "x", Password: "y"}.ClientPassword()
	require.ErrorContains(t, err, "not both")
	_, err = loadSecrets(SecretsConfig{ClusterSecretFile: "x", ClusterSecret: "y"})
	require.ErrorContains(t, err, "not both")
	s, err := loadSecrets(SecretsConfig{Password: "p", ClusterSecret: "c"})
	require.NoError(t, err)
	require.Equal(t, &secrets{password: "p", cluster: []byte("c")}, s)
}

// TestTLSNeedsAllItsParts: half of TLS is refused, where it would mean none.
func TestTLSNeedsAllItsParts(t *testing.T) {
	cert, key := certificate(t)
	none := write(t, "empty", "no PEM\n")
	for _, tc := range []struct {
		c    SecretsConfig
		want string
	}{
		{SecretsConfig{TLSClientCA: cert}, "tls-client-ca needs tls-cert and tls-key"},
		{SecretsConfig{TLSCert: cert}, "load tls-cert and tls-key"},
		{SecretsConfig{TLSKey: key}, "load tls-cert and tls-key"},
		{SecretsConfig{TLSCert: cert, TLSKey: key, TLSClientCA: none}, "holds no PEM certificate"},
		{SecretsConfig{PeerTLSCert: cert, PeerTLSKey: key}, "go together"},
		{SecretsConfig{PeerTLSCert: cert, PeerTLSCA: cert}, "go together"},
		{SecretsConfig{PeerTLSKey: key, PeerTLSCA: cert}, "go together"},
		{SecretsConfig{PeerTLSCA: cert}, "go together"},
		{SecretsConfig{PeerTLSCert: key, PeerTLSKey: cert, PeerTLSCA: cert}, "load peer-tls-cert and peer-tls-key"},
		{SecretsConfig{PeerTLSCert: cert, PeerTLSKey: key, PeerTLSCA: none}, "holds no PEM certificate"},
	} {
		_, err := loadSecrets(tc.c)
		require.ErrorContains(t, err, tc.want)
	}
}

// TestTLSDemandsCertificates: of clients when there is a CA for them, of nodes always.
func TestTLSDemandsCertificates(t *testing.T) {
	cert, key := certificate(t)
	s, err := loadSecrets(SecretsConfig{TLSCert: cert, TLSKey: key})
	require.NoError(t, err)
	require.Nil(t, s.peerTLS)
	require.Equal(t, tls.NoClientCert, s.clientTLS.ClientAuth)
	require.Equal(t, uint16(tls.VersionTLS12), s.clientTLS.MinVersion)

	s, err = loadSecrets(SecretsConfig{TLSCert: cert, TLSKey: key, TLSClientCA: cert, PeerTLSCert: cert, PeerTLSKey: key, PeerTLSCA: cert})
	require.NoError(t, err)
	require.Equal(t, tls.RequireAndVerifyClientCert, s.clientTLS.ClientAuth)
	require.NotNil(t, s.clientTLS.ClientCAs)
	require.Equal(t, tls.RequireAndVerifyClientCert, s.peerTLS.ClientAuth)
	require.Equal(t, uint16(tls.VersionTLS13), s.peerTLS.MinVersion)
	require.NotNil(t, s.peerTLS.RootCAs)
	require.NotNil(t, s.peerTLS.ClientCAs)
}
