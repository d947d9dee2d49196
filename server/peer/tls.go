package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
)

// tlsConfigs are the configurations for a node's two roles.
type tlsConfigs struct{ asClient, asServer *tls.Config }

// currentTLS returns the present configuration. All methods work on nil, which is no TLS.
type currentTLS func() *tls.Config

// newTLSConfigs returns the configurations of mutual TLS by c. Each side verifies that the peer's certificate is signed
// by c.RootCAs and may be used by a server and by a client, since nodes dial each other; a certificate for clients
// alone is no node's. Each side then calls c.VerifyConnection, if set, which tells nodes from other holders of
// certificates of the same authority. Host names are compared only if c.ServerName is set, as nodes' addresses are
// often IPs that change; the handshake compares node IDs.
func newTLSConfigs(c *tls.Config) (*tlsConfigs, error) {
	switch {
	case c.RootCAs == nil:
		return nil, errors.New("tls: no certificate authority given; the system's would let in anybody who has a certificate")
	case len(c.Certificates) == 0 && c.GetCertificate == nil:
		return nil, errors.New("tls: no certificate given")
	}
	base := c.Clone()
	base.MinVersion = max(base.MinVersion, tls.VersionTLS13)
	base.SessionTicketsDisabled = true // a resumed session would outlive the certificate's check

	server := base.Clone()
	server.ClientAuth = tls.RequireAndVerifyClientCert
	if server.ClientCAs == nil {
		server.ClientCAs = base.RootCAs
	}
	server.VerifyConnection = func(s tls.ConnectionState) error { return verifyNode(s, base, server.ClientCAs) }
	client := base.Clone()
	client.InsecureSkipVerify = client.ServerName == "" // verifyNode verifies the chain
	client.VerifyConnection = func(s tls.ConnectionState) error { return verifyNode(s, base, base.RootCAs) }
	if client.GetClientCertificate == nil && len(client.Certificates) == 0 {
		client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return base.GetCertificate(&tls.ClientHelloInfo{SupportedVersions: []uint16{tls.VersionTLS13}})
		}
	}
	return &tlsConfigs{asClient: client, asServer: server}, nil
}

// verifyNode returns an error unless the peer's certificate is a node's.
func verifyNode(s tls.ConnectionState, c *tls.Config, roots *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("tls: the other side has no certificate")
	}
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range s.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	if c.Time != nil {
		o.CurrentTime = c.Time()
	}
	// Verify accepts a certificate that has any of the usages that it is asked for, so it is asked for each.
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		o.KeyUsages = []x509.ExtKeyUsage{usage}
		if _, err := s.PeerCertificates[0].Verify(o); err != nil {
			return err
		}
	}
	if c.VerifyConnection == nil {
		return nil
	}
	return c.VerifyConnection(s)
}

func (t currentTLS) client(conn net.Conn) (net.Conn, []byte, error) {
	if t == nil {
		return conn, nil, nil
	}
	c, err := newTLSConfigs(t())
	if err != nil {
		return nil, nil, err
	}
	return secure(tls.Client(conn, c.asClient))
}

func (t currentTLS) server(conn net.Conn) (net.Conn, []byte, error) {
	if t == nil {
		return conn, nil, nil
	}
	c, err := newTLSConfigs(t())
	if err != nil {
		return nil, nil, err
	}
	return secure(tls.Server(conn, c.asServer))
}

func secure(c *tls.Conn) (net.Conn, []byte, error) {
	err := c.Handshake() // bounded by the connection's deadline
	var stranger tls.RecordHeaderError
	if errors.As(err, &stranger) {
		if said := stranger.RecordHeader[:]; strings.HasPrefix(magic, string(said)) {
			return nil, nil, errors.New("it is a node without TLS, and this one demands it")
		}
		return nil, nil, &strangerError{said: stranger.RecordHeader[:]}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("start tls: %w", err)
	}
	binding, err := bindingOf(c)
	if err != nil {
		return nil, nil, fmt.Errorf("start tls: %w", err)
	}
	return c, binding, nil
}
