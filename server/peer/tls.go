package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// tlsConfigs are the two roles of a node.
type tlsConfigs struct{ asClient, asServer *tls.Config }

// currentTLS returns what is in force. All methods work on nil: no TLS.
type currentTLS func() *tls.Config

// newTLSConfigs makes mutual TLS of c. Both sides check that the other's
// certificate comes from c.RootCAs, and nothing else unless c.ServerName is set: the certificate
// authority of a cluster signs for its nodes alone, and their addresses are often bare IPs
// that change. What a node may be called is the handshake's business.
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
	client := base.Clone()
	if client.ServerName == "" {
		client.InsecureSkipVerify = true // verifyChain replaces the check of chain and host name
		client.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, base) }
	}
	if client.GetClientCertificate == nil && len(client.Certificates) == 0 {
		client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return base.GetCertificate(&tls.ClientHelloInfo{SupportedVersions: []uint16{tls.VersionTLS13}})
		}
	}
	return &tlsConfigs{asClient: client, asServer: server}, nil
}

func verifyChain(s tls.ConnectionState, c *tls.Config) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("tls: the other side has no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	now := time.Now
	if c.Time != nil {
		now = c.Time
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
		CurrentTime:   now(),
		Roots:         c.RootCAs,
		Intermediates: between,
		// Nodes dial each other: a certificate serves both roles.
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return err
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
