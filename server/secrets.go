package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// secrets are a Config's credentials, read from their files.
type secrets struct {
	password  string
	cluster   []byte
	clientTLS *tls.Config // nil: no TLS
	peerTLS   *tls.Config // nil: no TLS
}

func loadSecrets(c SecretsConfig) (*secrets, error) {
	var s secrets
	var err error
	if s.password, err = c.ClientPassword(); err != nil {
		return nil, err
	}
	cluster, err := readSecret(c.ClusterSecret, c.ClusterSecretFile)
	if err != nil {
		return nil, err
	}
	s.cluster = []byte(cluster)
	if s.clientTLS, err = clientTLS(c); err != nil {
		return nil, err
	}
	if s.peerTLS, err = peerTLS(c); err != nil {
		return nil, err
	}
	return &s, nil
}

// ClientPassword is the password that clients must give by AUTH, from its file if there is one.
// Empty: clients need none.
func (c SecretsConfig) ClientPassword() (string, error) {
	return readSecret(c.Password, c.PasswordFile)
}

// clientTLS demands client certificates when there is a CA to check them with.
func clientTLS(c SecretsConfig) (*tls.Config, error) {
	if c.TLSCert == "" && c.TLSKey == "" {
		if c.TLSClientCA != "" {
			return nil, errors.New("tls-client-ca needs tls-cert and tls-key")
		}
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("load tls-cert and tls-key: %w", err)
	}
	t := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if c.TLSClientCA != "" {
		if t.ClientCAs, err = LoadCA(c.TLSClientCA); err != nil {
			return nil, err
		}
		t.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return t, nil
}

// peerTLS is mutual: the same certificate serves both directions. Package peer verifies the chain
// on both sides. Host names are not compared, since nodes move.
func peerTLS(c SecretsConfig) (*tls.Config, error) {
	given := c.PeerTLSCert != "" || c.PeerTLSKey != "" || c.PeerTLSCA != ""
	if !given {
		return nil, nil
	}
	if c.PeerTLSCert == "" || c.PeerTLSKey == "" || c.PeerTLSCA == "" {
		return nil, errors.New("peer-tls-cert, peer-tls-key and peer-tls-ca go together")
	}
	cert, err := tls.LoadX509KeyPair(c.PeerTLSCert, c.PeerTLSKey)
	if err != nil {
		return nil, fmt.Errorf("load peer-tls-cert and peer-tls-key: %w", err)
	}
	ca, err := LoadCA(c.PeerTLSCA)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		RootCAs:      ca,
		ClientCAs:    ca,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS13,
	}, nil
}

// LoadCA reads the PEM certificates of a file.
func LoadCA(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read CA: %s holds no PEM certificate", file)
	}
	return pool, nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimRight(line, "\r")
}

// readSecret returns value, or the first line of file.
func readSecret(value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	if value != "" {
		return "", fmt.Errorf("%s: give the secret or the file, not both", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	line := firstLine(string(text))
	if line == "" {
		return "", fmt.Errorf("read secret: %s is empty", file)
	}
	return line, nil
}

// webPassword reports whether clients of HTTP gave the password; nil: none is asked for.
func (s *secrets) webPassword() func(given string) bool {
	if s.password == "" {
		return nil
	}
	want := sha256.Sum256([]byte(s.password))
	return func(given string) bool {
		got := sha256.Sum256([]byte(given))
		return subtle.ConstantTimeCompare(want[:], got[:]) == 1
	}
}
