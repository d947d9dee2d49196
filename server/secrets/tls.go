package secrets

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Expiry is when the file of a flag expires: a certificate with the first of its chain, a CA file with the last of its
// authorities.
type Expiry struct {
	Flag string
	At   time.Time
}

// loadClientTLS loads the TLS configuration for clients. Client certificates are required if there is a CA for them.
func loadClientTLS(c Config, read reader, to *credentials) error {
	cert, err := loadPair(pair{c.TLSCert, c.TLSKey, "tls-cert", "tls-key"}, read, to)
	if err != nil {
		return err
	}
	t := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if c.TLSClientCA != "" {
		if t.ClientCAs, err = loadCA("tls-client-ca", c.TLSClientCA, read, to); err != nil {
			return err
		}
		t.ClientAuth = tls.RequireAndVerifyClientCert
	}
	to.clientTLS = t
	return nil
}

// NodeURI is a URI name that an authority gives to nodes' certificates, and not to clients'.
const NodeURI = "holdfast:node"

// verifyNodeURI returns an error if a certificate does not authenticate a node without a cluster secret.
func verifyNodeURI(cert *x509.Certificate) error {
	for _, uri := range cert.URIs {
		if uri.String() == NodeURI {
			return nil
		}
	}
	return fmt.Errorf("the certificate lacks the URI name %s, which tells a node's from a client's", NodeURI)
}

// loadPeerTLS loads the TLS configuration between nodes, with the same certificate for both directions. Package peer
// verifies the chain on both sides. Host names are not compared, since nodes move. Without a cluster secret only the
// certificate authenticates a node, so all nodes' certificates then need NodeURI.
func loadPeerTLS(c Config, read reader, to *credentials) error {
	cert, err := loadPair(pair{c.PeerTLSCert, c.PeerTLSKey, "peer-tls-cert", "peer-tls-key"}, read, to)
	if err != nil {
		return err
	}
	ca, err := loadCA("peer-tls-ca", c.PeerTLSCA, read, to)
	if err != nil {
		return err
	}
	t := &tls.Config{
		Certificates: []tls.Certificate{cert},
		RootCAs:      ca,
		ClientCAs:    ca,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS13,
	}
	if c.ClusterSecret == "" && c.ClusterSecretFile == "" {
		if err := verifyNodeURI(cert.Leaf); err != nil {
			return fmt.Errorf("peer-tls-cert: %w: `holdfast certs` makes such certificates; or set cluster-secret-file", err)
		}
		t.VerifyConnection = func(s tls.ConnectionState) error { return verifyNodeURI(s.PeerCertificates[0]) }
	}
	to.peerTLS = t
	return nil
}

// pair has the files of a certificate and its key, and their flags.
type pair struct{ cert, key, certFlag, keyFlag string }

func loadPair(p pair, read reader, to *credentials) (tls.Certificate, error) {
	fail := func(err error) (tls.Certificate, error) {
		return tls.Certificate{}, fmt.Errorf("load %s and %s: %w", p.certFlag, p.keyFlag, err)
	}
	certText, err := read(p.cert)
	if err != nil {
		return fail(err)
	}
	keyText, err := read(p.key)
	if err != nil {
		return fail(err)
	}
	if _, err := certificates(p.cert, certText); err != nil {
		return fail(err)
	}
	cert, err := tls.X509KeyPair(certText, keyText)
	if err != nil {
		return fail(err)
	}
	var first time.Time
	for _, der := range cert.Certificate {
		one, err := x509.ParseCertificate(der)
		if err != nil {
			return fail(err)
		}
		if first.IsZero() || one.NotAfter.Before(first) {
			first = one.NotAfter
		}
	}
	to.expires(p.certFlag, first)
	return cert, nil
}

func loadCA(flag, file string, read reader, to *credentials) (*x509.CertPool, error) {
	text, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	blocks, err := certificates(file, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	pool, last := x509.NewCertPool(), time.Time{}
	for _, der := range blocks {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			continue // system bundles have some certificates that Go refuses
		}
		pool.AddCert(cert)
		if cert.NotAfter.After(last) {
			last = cert.NotAfter
		}
	}
	if last.IsZero() {
		return nil, fmt.Errorf("%s: %s holds no PEM certificate", flag, file)
	}
	to.expires(flag, last)
	return pool, nil
}

// certificates returns the certificates of a PEM file, or an error if one is truncated or damaged, which Go's packages
// skip.
func certificates(file string, text []byte) (ders [][]byte, err error) {
	begun := bytes.Count(text, []byte("-----BEGIN CERTIFICATE-----"))
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			ders = append(ders, block.Bytes)
		}
	}
	if len(ders) != begun {
		return nil, fmt.Errorf("%s is cut off or damaged", file)
	}
	return ders, nil
}

// LoadCA reads the PEM certificates of a flag's file.
func LoadCA(flag, file string) (*x509.CertPool, error) {
	return loadCA(flag, file, readFile, new(credentials))
}

// clientLeaf returns the certificate for clients, nil without TLS.
func (k *Keyring) clientLeaf() *x509.Certificate {
	c := k.held.Load().clientTLS
	if c == nil {
		return nil
	}
	return c.Certificates[0].Leaf
}

func servesByUsage(cert *x509.Certificate) bool {
	if len(cert.ExtKeyUsage)+len(cert.UnknownExtKeyUsage) == 0 {
		return true
	}
	return slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageServerAuth) || slices.Contains(cert.ExtKeyUsage,
		x509.ExtKeyUsageAny)
}

// ServesAs returns an error if the certificate for clients is not valid for a host.
func (k *Keyring) ServesAs(host string) error {
	if cert := k.clientLeaf(); cert != nil {
		return cert.VerifyHostname(host)
	}
	return nil
}

// Misfits returns the faults of the certificates in force: expired ones, or one of this node that the nodes' CA did not
// sign.
func (k *Keyring) Misfits(now time.Time) (all []error) {
	held := k.held.Load()
	for _, flag := range slices.Sorted(maps.Keys(held.expiries)) {
		if at := held.expiries[flag]; at.Before(now) {
			all = append(all, fmt.Errorf("%s ran out at %s", flag, at.UTC().Format(time.RFC3339)))
		}
	}
	if cert := k.clientLeaf(); cert != nil && !servesByUsage(cert) {
		all = append(all, errors.New("tls-cert is no certificate of a server: its extended key usages lack serverAuth"))
	}
	if held.peerTLS == nil {
		return all
	}
	chain := held.peerTLS.Certificates[0].Certificate
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return append(all, fmt.Errorf("peer-tls-cert: %w", err))
	}
	others := x509.NewCertPool()
	for _, der := range chain[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			others.AddCert(cert)
		}
	}
	// The certificate is used in both directions.
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		o := x509.VerifyOptions{
			Roots: held.peerTLS.RootCAs, Intermediates: others,
			CurrentTime: leaf.NotBefore.Add(time.Second), KeyUsages: []x509.ExtKeyUsage{usage},
		}
		if _, err := leaf.Verify(o); err != nil {
			return append(all, fmt.Errorf("peer-tls-cert does not go with peer-tls-ca: %w", err))
		}
	}
	return all
}
