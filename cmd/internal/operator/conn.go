// Package operator is an operator's connection to a node: addresses that are tried in turn, one command after another,
// and errors that say which flag is missing or wrong. Locks are taken by the client library in server/clients/go.
package operator

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Servers are the nodes of a cluster, and what each of them wants to see.
type Servers struct {
	Addrs    []string
	User     string      // "": Redis's default user
	Password string      // "": none
	TLS      *tls.Config // nil: none
	DB       int
	Name     string // by which nodes know the client; "": holdfast-lock
	From     string // where the addresses come from, for errors; "": the user named them
	RESP2    bool   // as servers before Redis 6 speak
}

// Refusal is an error that a node replied, and that another try would meet again.
type Refusal struct{ Text string }

// Error is the reply's text.
func (r *Refusal) Error() string { return r.Text }

// passing are the beginnings of errors that another node or another moment may spare.
var passing = []string{
	"CLUSTERDOWN", "TRYAGAIN", "UNCERTAIN", "LOADING", "MASTERDOWN",
	"ERR max number of clients reached",
}

// Text is an integer or a string as a word.
func Text(v protocol.Value) string {
	if v.Kind == protocol.KindInteger {
		return strconv.FormatInt(v.Num, 10)
	}
	return v.Str
}

// notHoldfast matches the reply of a server that does not know a command with a dot in its name. A Holdfast that is to
// know it after an upgrade says so behind a colon.
var notHoldfast = regexp.MustCompile("^ERR unknown command ['`]\\w+\\.\\w+['`](,|$)")

// ErrorOf is the error of an error reply.
func ErrorOf(reply string) error {
	if slices.ContainsFunc(passing, func(p string) bool { return strings.HasPrefix(reply, p) }) {
		return errors.New(reply)
	}
	if unknown := notHoldfast.FindString(reply); unknown != "" {
		reply = strings.TrimSuffix(unknown, ",") + ": this server is no Holdfast: see --server"
	}
	return &Refusal{reply}
}

func isRefusal(err error) bool { return errors.As(err, new(*Refusal)) }

// MaxPipeline is how many commands one [Conn.Pipeline] may have.
const MaxPipeline = 512

// Conn is a connection to one node, for one goroutine.
type Conn struct {
	nc       net.Conn
	resp     *protocol.Conn
	patience time.Duration
	replies  chan protocol.Value // closed behind the last reply when the connection has ended
	err      error               // why the connection has ended; valid once replies is closed
	late     bool                // a reply is missing: the next ones would be taken for it
}

// reachWithin is how long it may take to reach one of several nodes.
const reachWithin = 2 * time.Second

// Dial connects to one node. No exchange takes longer than patience.
func (s *Servers) Dial(ctx context.Context, addr string, patience time.Duration) (*Conn, error) {
	c, err := s.dial(ctx, addr, patience)
	if err != nil && s.From != "" {
		err = fmt.Errorf("%w (%s)", err, s.From)
	}
	return c, err
}

func (s *Servers) dial(ctx context.Context, addr string, patience time.Duration) (*Conn, error) {
	within := patience
	if len(s.Addrs) > 1 {
		within = min(patience, reachWithin)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if s.TLS != nil {
		if nc, err = encrypt(ctx, nc, s.TLS, addr); err != nil {
			return nil, err
		}
	}
	c := &Conn{
		nc: nc, resp: protocol.NewConn(nc), patience: patience, replies: make(chan protocol.Value, MaxPipeline),
	}
	go c.read()
	if err := c.greet(ctx, s); err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", addr, s.explain(ctx, addr, err))
	}
	return c, nil
}

func encrypt(ctx context.Context, nc net.Conn, config *tls.Config, addr string) (net.Conn, error) {
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	encrypted := tls.Client(nc, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("%s: %w", addr, withHint(fmt.Errorf("TLS: %w", err)))
	}
	return encrypted, nil
}

// greet asks for RESP3, which has pushes, unless the server may not have it, and says who is there.
func (c *Conn) greet(ctx context.Context, s *Servers) error {
	name := cmp.Or(s.Name, "holdfast-lock")
	if s.RESP2 {
		if err := c.login(ctx, s); err != nil {
			return err
		}
		if _, err := c.Do(ctx, "CLIENT", "SETNAME", name); err != nil && !strings.HasPrefix(err.Error(), "NOPERM") {
			return err // a user of few rights goes without a name
		}
	} else {
		hello := []string{"HELLO", "3"}
		if s.Password != "" || s.User != "" {
			hello = append(hello, "AUTH", cmp.Or(s.User, "default"), s.Password)
		}
		if _, err := c.Do(ctx, append(hello, "SETNAME", name)...); err != nil {
			return err
		}
	}
	if s.DB == 0 {
		return nil
	}
	_, err := c.Do(ctx, "SELECT", strconv.Itoa(s.DB))
	return err
}

// login gives user and password as servers before Redis 6 take them, which have no users.
func (c *Conn) login(ctx context.Context, s *Servers) error {
	if s.Password == "" && s.User == "" {
		return nil
	}
	words := []string{"AUTH"}
	if s.User != "" {
		words = append(words, s.User)
	}
	_, err := c.Do(ctx, append(words, s.Password)...)
	return err
}

// read hands on what the node sends until the connection ends.
func (c *Conn) read() {
	defer close(c.replies)
	defer c.nc.Close()
	for {
		v, err := c.resp.Receive()
		if err != nil {
			c.err = err
			return
		}
		if v.Kind == protocol.KindPush {
			continue
		}
		select {
		case c.replies <- v:
		default:
			c.err = errors.New("the node sent more than it was asked for")
			return
		}
	}
}

// Allow sets how long an exchange may take from now on.
func (c *Conn) Allow(patience time.Duration) { c.patience = patience }

// Close ends the connection, and with it the session that lives with it.
func (c *Conn) Close() { _ = c.nc.Close() }

// Do sends a command and waits for the reply.
func (c *Conn) Do(ctx context.Context, words ...string) (protocol.Value, error) {
	vs, err := c.Pipeline(ctx, words)
	if err != nil {
		return protocol.Value{}, err
	}
	if vs[0].IsError() {
		return vs[0], ErrorOf(vs[0].Str)
	}
	return vs[0], nil
}

// Pipeline sends commands at once, and waits for all replies. An error among the replies is not an error
// of the exchange. Requires: they are [MaxPipeline] at most.
func (c *Conn) Pipeline(ctx context.Context, commands ...[]string) ([]protocol.Value, error) {
	if c.late {
		return nil, errLate
	}
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	for _, words := range commands {
		c.resp.Append(words...)
	}
	c.late = true // until all replies are there
	if err := c.flush(ctx); err != nil {
		return nil, c.why(ctx, err)
	}
	vs := make([]protocol.Value, 0, len(commands))
	for range commands {
		v, err := c.reply(ctx)
		if err != nil {
			return nil, err
		}
		vs = append(vs, v)
	}
	c.late = false
	return vs, nil
}

// reply is the next reply. What the node sent before the connection ended is still a reply.
func (c *Conn) reply(ctx context.Context) (protocol.Value, error) {
	select {
	case v, ok := <-c.replies:
		if !ok {
			return v, fmt.Errorf("connection lost: %w", c.err)
		}
		return v, nil
	case <-ctx.Done():
		return protocol.Value{}, errLate
	}
}

func (c *Conn) flush(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	if err := c.nc.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := c.resp.Flush()
	return err
}

// why is why a write failed: what the node said before it closed the connection, if it said anything.
func (c *Conn) why(ctx context.Context, err error) error {
	defer context.AfterFunc(ctx, c.Close)()
	for range c.replies { // until the connection has ended
	}
	if c.err != nil && !errors.Is(c.err, net.ErrClosed) {
		err = c.err
	}
	return fmt.Errorf("connection lost: %w", err)
}

var errLate = errors.New("the node does not answer")

// DialAny connects to the first node that answers. The error says of each why not.
func (s *Servers) DialAny(ctx context.Context, patience time.Duration) (*Conn, error) {
	var failed error
	for _, addr := range s.Addrs {
		c, err := s.Dial(ctx, addr, patience)
		if err == nil || isRefusal(err) {
			return c, err
		}
		failed = Also(failed, err)
	}
	return nil, failed
}

// Also joins err to before, the errors of the nodes that were asked earlier, in one line. before is nil for the first
// node.
func Also(before, err error) error {
	if before == nil {
		return err
	}
	return fmt.Errorf("%w; %w", before, err)
}

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
