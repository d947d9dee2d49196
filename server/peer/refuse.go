package peer

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/server/loglimit"
)

// versionError is the error of a peer with another version of this protocol.
type versionError struct{ theirs byte }

func (e *versionError) Error() string {
	return fmt.Sprintf("it speaks version %d of the peer protocol, this node speaks %d: run the same release everywhere",
		e.theirs, version)
}

// strangerError is the error of a peer with another protocol.
type strangerError struct{ said []byte }

func (e *strangerError) Error() string { return "it is not a node: it " + guess(e.said) }

func guess(said []byte) string {
	for _, row := range []struct{ prefix, who string }{
		{"\x16", "speaks TLS, and this node was given no certificate for the peer port"},
		{"*", "speaks the Redis protocol; clients have a port of their own"},
		{"PING", "speaks the Redis protocol; clients have a port of their own"},
		{"GET ", "speaks HTTP"},
		{"POST", "speaks HTTP"},
		{"HEAD", "speaks HTTP"},
		{"SSH-", "speaks SSH"},
	} {
		if bytes.HasPrefix(said, []byte(row.prefix)) {
			return row.who
		}
	}
	return fmt.Sprintf("said %q", said)
}

// peerError is the error of a peer that is refused although it sent its ID.
type peerError struct {
	peer introduction
	err  error
}

func (e *peerError) Error() string { return e.err.Error() }
func (e *peerError) Unwrap() error { return e.err }

// silence describes an incomplete introduction, of which got bytes were read.
func silence(err error, got int) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("it fell silent after %d bytes: %w", got, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("it hung up after %d bytes: %w", got, io.ErrUnexpectedEOF)
	default:
		return err
	}
}

// errYouRemoved is ErrRemoved on the dialer's side.
var errYouRemoved = errors.New("this node was removed from the cluster")

// refusedBy returns the dialer's error for a refusal.
func refusedBy(id string, s status, theirs byte) error {
	var why error
	switch s {
	case statusVersion:
		why = &versionError{theirs: theirs}
	case statusCluster:
		why = errCluster
	case statusSelf:
		why = ErrSelf
	case statusRemoved:
		why = errYouRemoved
	case statusFresh:
		why = errFresh
	case statusSecret:
		why = ErrSecret
	case statusKind:
		why = errors.New("it does not know this kind of connection: run the same release everywhere")
	default:
		why = fmt.Errorf("for an unknown reason (%d)", s)
	}
	if id != "" {
		return fmt.Errorf("node %q refused: %w", id, why)
	}
	return fmt.Errorf("refused: %w", why)
}

// errCutOff is the error of a dialer whose connection was reset after the TLS handshake. With TLS 1.3 a dialer has a
// session before the acceptor has verified the dialer's certificate. The acceptor closes with the dialer's hello
// unread, which resets the connection and may lose its alert, though Linux keeps received data.
var errCutOff = errors.New(
	"it cut the connection off behind the TLS handshake: it refuses this node's certificate, or is ending")

// cutOff adds errCutOff to an error of the first write or read after the TLS handshake, if the connection was reset.
func (t currentTLS) cutOff(err error) error {
	cut := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrUnexpectedEOF)
	if t != nil && cut {
		return fmt.Errorf("%w (%w)", errCutOff, err)
	}
	return err
}

// explainWrite returns the reason why a hello could not be written: the acceptor's alert if one can be read, else err.
func (t currentTLS) explainWrite(conn net.Conn, err error) error {
	if t != nil {
		if _, alert := conn.Read(make([]byte, 1)); isAlert(alert) { // bounded by the connection's deadline
			return alert
		}
	}
	return t.cutOff(fmt.Errorf("write hello: %w", err))
}

// isAlert reports whether err is a TLS alert of the peer.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" // as package tls calls it
}

// Misfit reports whether err, of a dial, names a reason that time does not remove: a secret, certificate, cluster or
// release that does not match. A node that is stopping may look like that once.
func Misfit(err error) bool {
	var (
		chain    *tls.CertificateVerificationError
		signer   x509.UnknownAuthorityError
		invalid  x509.CertificateInvalidError
		name     x509.HostnameError
		release  *versionError
		stranger *strangerError
	)
	for _, why := range []error{ErrSecret, errImpostor, errCluster, errCutOff} {
		if errors.Is(err, why) {
			return true
		}
	}
	return isAlert(err) || errors.As(err, &chain) || errors.As(err, &signer) || errors.As(err, &invalid) ||
		errors.As(err, &name) || errors.As(err, &release) || errors.As(err, &stranger)
}

// truncate bounds the part of a stranger's message in the log.
func truncate(s string) string {
	const limit = 100
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}

// refusals logs refused connections, at a rate that a port scanner cannot fill a disk with.
type refusals struct {
	logger *slog.Logger
	limit  loglimit.Limit
}

const (
	refusalBurst = 10 // lines at once
	refusalEvery = 10 * time.Second
)

func newRefusals(logger *slog.Logger) *refusals {
	return &refusals{logger: logger, limit: loglimit.Limit{Burst: refusalBurst, Every: refusalEvery}}
}

func (r *refusals) log(remote net.Addr, err error) {
	suppressed, ok := r.limit.Admit(time.Now())
	if !ok {
		return
	}
	attrs := []any{"remote", remote.String(), "reason", err.Error()}
	var known *peerError
	if errors.As(err, &known) {
		attrs = append(attrs, "from", truncate(known.peer.id), "kind", known.peer.kind.String())
	}
	if suppressed > 0 {
		attrs = append(attrs, "notLogged", suppressed)
	}
	r.logger.Warn("refused a connection on the peer port", attrs...)
}
