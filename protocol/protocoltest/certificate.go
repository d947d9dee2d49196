package protocoltest

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
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Certificate is a certificate with its key.
type Certificate struct {
	*x509.Certificate
	Key *ecdsa.PrivateKey
}

var serial atomic.Int64

// Sign makes a certificate of a template: it is signed by ca, or, if that is nil, by itself. It is valid for an hour
// unless the template says until when.
func Sign(t testing.TB, template x509.Certificate, ca *Certificate) *Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(serial.Add(1))
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	if ca == nil {
		ca = &Certificate{&template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, ca.Certificate, &key.PublicKey, ca.Key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &Certificate{cert, key}
}

// PEM returns the certificate and the key as files have them.
func (c *Certificate) PEM(t testing.TB) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(c.Key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// Write writes name.crt and name.key.
func (c *Certificate) Write(t testing.TB, dir, name string) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	certText, keyText := c.PEM(t)
	require.NoError(t, os.WriteFile(cert, []byte(certText), 0o600))
	require.NoError(t, os.WriteFile(key, []byte(keyText), 0o600))
	return cert, key
}

// TLS is what a handshake shows: the certificate, and those of the authorities between it and the topmost.
func (c *Certificate) TLS(between ...*Certificate) tls.Certificate {
	pair := tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: c.Key}
	for _, b := range between {
		pair.Certificate = append(pair.Certificate, b.Raw)
	}
	return pair
}

// Pool has authorities.
func Pool(authorities ...*Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, a := range authorities {
		p.AddCert(a.Certificate)
	}
	return p
}
