package holder

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// Each error says which flag is missing or wrong, where that can be known.
const (
	speaksTLS    = "the port speaks TLS: say --tls-ca FILE, or --tls for a certificate of a public CA"
	speaksNoTLS  = "the port does not speak TLS: leave the flags of TLS out"
	unknownCA    = "say --tls-ca FILE for the CA of the nodes' certificates"
	wantsProof   = "the node wants a client's certificate: say --tls-cert FILE and --tls-key FILE"
	wantsWord    = "the node wants a password: say --password-file FILE"
	wrongWord    = "the password is not the node's: see --password-file"
	noAuth       = "NOAUTH"
	wrongPass    = "WRONGPASS"
	needsRequest = "certificate required" // what the alert is called
)

// explain is why a greeting failed.
func (s *Servers) explain(ctx context.Context, addr string, err error) error {
	switch {
	case s.TLS == nil && closedAtOnce(err) && acceptsTLS(ctx, addr):
		return &Refusal{speaksTLS}
	case isRefusal(err) && strings.HasPrefix(err.Error(), noAuth):
		return &Refusal{noAuth + " " + wantsWord}
	case isRefusal(err) && strings.HasPrefix(err.Error(), wrongPass):
		return &Refusal{wrongPass + " " + wrongWord}
	}
	return withHint(err)
}

// withHint makes errors of TLS that another try would meet again refusals, which name the flag.
func withHint(err error) error {
	alert := new(net.OpError)
	switch {
	case errors.As(err, new(tls.RecordHeaderError)):
		return &Refusal{err.Error() + ": " + speaksNoTLS}
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return &Refusal{err.Error() + ": " + unknownCA}
	case errors.As(err, &alert) && alert.Op == "remote error" && strings.Contains(err.Error(), needsRequest):
		return &Refusal{err.Error() + ": " + wantsProof}
	case errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, &alert) && alert.Op == "remote error":
		return &Refusal{err.Error()}
	}
	return err
}

// closedAtOnce reports whether a connection ended without a word, as a port does that expects TLS.
func closedAtOnce(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// acceptsTLS reports whether a port answers a handshake, whatever certificate it shows.
func acceptsTLS(ctx context.Context, addr string) bool {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer nc.Close()
	showed := false
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, // nothing is said over the connection
		VerifyConnection: func(tls.ConnectionState) error { showed = true; return nil },
	}
	err = tls.Client(nc, config).HandshakeContext(ctx)
	return err == nil || showed
}
