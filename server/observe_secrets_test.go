package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/store"
)

// certificate writes one that signs itself, and its key.
func certificate(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	return write("crt", "CERTIFICATE", der), write("key", "EC PRIVATE KEY", keyDER)
}

// TestCredentialsAreObserved: a scrape says when certificates run out, and whether files were taken.
func TestCredentialsAreObserved(t *testing.T) {
	until := time.Now().Add(10 * 24 * time.Hour)
	cert, key := certificate(t, until)
	s := runNode(t, func(c *Config) { c.PeerTLSCert, c.PeerTLSKey, c.PeerTLSCA = cert, key, cert })
	status, text := s.get(t, "/metrics", "")
	require.Equal(t, http.StatusOK, status)
	for _, flag := range []string{"peer-tls-ca", "peer-tls-cert"} {
		require.Contains(t, text, fmt.Sprintf("\nholdfast_tls_certificate_expiry_timestamp_seconds{flag=%q} %v\n", flag,
			float64(until.Unix())))
	}
	require.Contains(t, text, "\nholdfast_credentials_last_reload_successful 1\n")
	require.NoError(t, os.WriteFile(cert, []byte("half"), 0o600))
	s.Reload("test")
	_, text = s.get(t, "/metrics", "")
	require.Contains(t, text, "\nholdfast_credentials_last_reload_successful 0\n")
}

// TestTroubles: what `holdfast cluster status` shows beside silent members.
func TestTroubles(t *testing.T) {
	require.Empty(t, troubles("n1", nil, nil))
	require.Equal(t, []string{
		"n1 is not ready: at log index 5 of 90 since the start",
		"n2 and n3 do not admit each other: why",
	},
		troubles("n1", errors.New("at log index 5 of 90 since the start"),
			[]memberrpc.Refusal{{A: "n2", B: "n3", Text: "why"}}))

	s := runNode(t, func(c *Config) { c.Debug, c.DiskStallLimit = true, time.Minute })
	client := s.client(t, "")
	require.Empty(t, s.troubles())
	s.faults.store.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
	go client.Set(t.Context(), "k", "v", 0)
	require.Eventually(t, func() bool { return len(s.troubles()) > 0 }, 30*time.Second, 100*time.Millisecond)
	require.Contains(t, s.troubles()[0], "is not ready: nothing was committed for")
	s.faults.store.Clear()
}
