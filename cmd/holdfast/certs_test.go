package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/secrets"
)

// certOf reads a certificate.
func certOf(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode([]byte(protocoltest.ReadFile(t, file)))
	require.Empty(t, rest)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return cert
}

// TestCerts: a CA, and what it signs in several runs. Nothing is overwritten, and keys are for their owner alone.
func TestCerts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	made := func(args ...string) string {
		status, stdout, stderr := try(t, append([]string{"certs", dir}, args...)...)
		require.Zero(t, status, stderr)
		return stdout
	}
	stdout := made("n1=10.0.0.1,n1.example", "n2=[fd00::2],127.0.0.1,localhost", "--client", "app")
	require.Contains(t, stdout, "n1.crt, valid until ")
	require.Contains(t, stdout, ", for localhost fd00::2 127.0.0.1 ::1\n", "each once")
	made("--client", "cron", "--days", "1")
	made("n3=*.example", "--days", "99999")

	pool, err := secrets.LoadCA("ca", filepath.Join(dir, "ca.crt"))
	require.NoError(t, err)
	ca := certOf(t, filepath.Join(dir, "ca.crt"))
	for name, of := range map[string]struct {
		hosts  []string
		serves bool
		days   int
	}{
		"n1":          {[]string{"10.0.0.1", "n1.example", "localhost", "127.0.0.1", "::1"}, true, 5 * 365},
		"n2":          {[]string{"fd00::2", "localhost"}, true, 5 * 365},
		"n3":          {[]string{"any.example"}, true, 10 * 365},
		"client.app":  {nil, false, 5 * 365},
		"client.cron": {nil, false, 1},
	} {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
		require.NoError(t, err, name)
		require.Len(t, pair.Certificate, 1)
		cert := certOf(t, filepath.Join(dir, name+".crt"))
		for _, host := range of.hosts {
			require.NoError(t, cert.VerifyHostname(host), name)
		}
		require.Error(t, cert.VerifyHostname("10.0.0.9"), name)
		for usage, good := range map[x509.ExtKeyUsage]bool{
			x509.ExtKeyUsageClientAuth: true,
			x509.ExtKeyUsageServerAuth: of.serves,
		} {
			_, err = cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{usage}})
			require.Equal(t, good, err == nil, "%s: %v", name, err)
		}
		marked := slices.ContainsFunc(cert.URIs, func(u *url.URL) bool { return u.String() == secrets.NodeURI })
		require.Equal(t, of.serves, marked, "%s: nodes alone", name)
		require.False(t, cert.IsCA)
		require.WithinDuration(t, time.Now().AddDate(0, 0, of.days), cert.NotAfter, time.Hour, name)
		require.True(t, cert.NotBefore.Before(time.Now()))
		require.False(t, cert.NotAfter.After(ca.NotAfter), "no longer than the CA")
		if runtime.GOOS != "windows" {
			info, err := os.Stat(filepath.Join(dir, name+".key"))
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		}
	}
	require.Equal(t, "app", certOf(t, filepath.Join(dir, "client.app.crt")).Subject.CommonName)

	before := make(map[string]string)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 12)
	for _, file := range files {
		before[file] = protocoltest.ReadFile(t, file)
	}
	other := t.TempDir()
	require.Zero(t, func() int { status, _, _ := try(t, "certs", other); return status }())
	foreign := []byte(protocoltest.ReadFile(t, filepath.Join(other, "ca.key")))
	require.NoError(t, os.WriteFile(filepath.Join(other, "n7.key"), foreign, 0o600))
	for want, args := range map[string][]string{
		"n1.crt is there: nothing is overwritten":         {"n4=h", "n1=h"},
		"client.app.crt is there: nothing is overwritten": {"--client", "app", "n4=h"},
		"the CA is there: say which certificates":         nil,
		`"n4" is there twice`:                             {"n4=h", "n4=h"},
		`"n4": use NAME=HOST`:                             {"n4"},
		`"n4=": use NAME=HOST`:                            {"n4="},
		`"h:6379" is no name of a host`:                   {"n4=h:6379"},
		`node "../n4"`:                                    {"../n4=h"},
		`node "ca"`:                                       {"ca=h"},
		`node "client.app"`:                               {"client.app=h"},
		`client "a/b"`:                                    {"--client", "a/b"},
		"days and ca-days: at least 1":                    {"n4=h", "--days", "0"},
	} {
		status, stdout, stderr := try(t, append([]string{"certs", dir}, args...)...)
		require.Equal(t, 2, status, args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, want)
	}
	for want, dir := range map[string]string{"n7.key is there: nothing is overwritten": other, "say which folder": ""} {
		args := []string{"certs", dir, "n7=h"}
		if dir == "" {
			args = args[:1]
		}
		status, _, stderr := try(t, args...)
		require.Equal(t, 2, status)
		require.Contains(t, stderr, want)
	}
	now, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, files, now)
	for file, text := range before {
		require.True(t, text == protocoltest.ReadFile(t, file), file)
	}

	for want, key := range map[string][]byte{
		"is not the key of ca.crt": foreign, "holds no PEM": []byte("x"),
		"ca.key: ": pem.EncodeToMemory(&pem.Block{Type: "X"}),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.key"), key, 0o600))
		status, _, stderr := try(t, "certs", dir, "n4=h")
		require.Equal(t, 2, status)
		require.Contains(t, stderr, want)
	}
}
