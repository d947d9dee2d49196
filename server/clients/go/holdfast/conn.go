package holdfast

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// conn is a RESP3 connection to one node, shared by the goroutines of a client. Replies arrive in the order of the
// commands; pushes arrive between them.
type conn struct {
	addr     string
	nc       net.Conn
	patience time.Duration
	onPush   func(*conn, value)
	down     chan struct{} // closed by the reader when the connection has ended
	left     chan struct{} // closed when the client turns to another node
	leave    func()        // closes left

	mu      sync.Mutex // also orders writes, so that pending has their order
	pending []request
	err     error // why the connection ended
}

// request is a command whose reply has not come.
type request struct {
	words      []string
	subscribes bool // the reply comes as a push
	// reply is called by the reader with the outcome, before it reads what follows: so a grant is noted before the push
	// that says that it is lost.
	reply func(value, error)
}

// isAnsweredBy reports whether v is the reply, and not a push between replies.
func (r request) isAnsweredBy(v value) bool {
	return !v.isPush() || r.subscribes && len(v.elems) > 0 && strings.HasSuffix(v.elems[0].text, "subscribe")
}

// errConnection: the connection ended, or the node did not answer in time. The command may have been executed.
var errConnection = errors.New("connection lost")

// mayWantTLS is the hint where a node closes a connection without TLS before it answers.
const mayWantTLS = "closed before an answer: does the port want TLS?"

// dial connects to a node and logs in. No exchange takes longer than patience.
func (c *Client) dial(ctx context.Context, addr string, onPush func(*conn, value)) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	nc, err := c.config.dialNet(ctx, addr)
	if err != nil {
		return nil, refusedTLS(addr, fmt.Errorf("%s: %w", addr, err))
	}
	cn := &conn{
		addr: addr, nc: nc, patience: c.patience(), onPush: onPush,
		down: make(chan struct{}), left: make(chan struct{}),
	}
	cn.leave = sync.OnceFunc(func() { close(cn.left) })
	go cn.read()
	if err := cn.login(ctx, &c.config); err != nil {
		cn.close()
		if c.config.TLS == nil && errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: %s", err, mayWantTLS)
		}
		return nil, refusedTLS(addr, err)
	}
	return cn, nil
}

// refusedTLS makes errors of TLS that another try would meet again a [RefusedError]. What a node thinks of the client's
// certificate comes when the first reply is read.
func refusedTLS(addr string, err error) error {
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case errors.As(err, &certificate):
		return &RefusedError{Addr: addr, Text: certificate.Error()}
	case errors.As(err, &header):
		return &RefusedError{Addr: addr, Text: header.Error()}
	case errors.As(err, &alert) && alert.Op == "remote error":
		return &RefusedError{Addr: addr, Text: alert.Error()}
	}
	return err
}

func (config *Config) dialNet(ctx context.Context, addr string) (net.Conn, error) {
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	nc, err := dial(ctx, "tcp", addr)
	if err != nil || config.TLS == nil {
		return nc, err
	}
	settings := config.TLS.Clone()
	if settings.ServerName == "" {
		settings.ServerName, _, _ = net.SplitHostPort(addr)
	}
	encrypted := tls.Client(nc, settings)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return encrypted, nil
}

func (cn *conn) login(ctx context.Context, config *Config) error {
	user, password := config.User, config.Password
	if config.Credentials != nil {
		var err error
		if user, password, err = config.Credentials(ctx); err != nil {
			return fmt.Errorf("%s: credentials: %w", cn.addr, err)
		}
	}
	hello := []string{"HELLO", "3"}
	if user != "" || password != "" {
		hello = append(hello, "AUTH", cmp.Or(user, "default"), password)
	}
	if _, err := cn.do(ctx, append(hello, "SETNAME", config.Name)...); err != nil {
		return err
	}
	if config.DB == 0 {
		return nil
	}
	_, err := cn.do(ctx, "SELECT", strconv.Itoa(config.DB))
	return err
}

func (cn *conn) close() { _ = cn.nc.Close() }

// read hands replies to those who asked and pushes to onPush until the connection ends.
func (cn *conn) read() {
	r := bufio.NewReader(cn.nc)
	v, err := readValue(r, 0)
	for err == nil {
		if q, ok := cn.takeRequest(v); ok {
			q.reply(v, nil)
		} else if v.isPush() {
			cn.onPush(cn, v)
		} else {
			err = errProtocol
			break
		}
		v, err = readValue(r, 0)
	}
	cn.close()
	cn.mu.Lock()
	cn.err = fmt.Errorf("%s: %w: %w", cn.addr, errConnection, err)
	pending := cn.pending
	cn.pending = nil
	cn.mu.Unlock()
	close(cn.down)
	for _, q := range pending {
		q.reply(value{}, cn.err)
	}
}

// takeRequest returns the request that v answers, if it answers one.
func (cn *conn) takeRequest(v value) (q request, ok bool) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if len(cn.pending) == 0 || !cn.pending[0].isAnsweredBy(v) {
		return request{}, false
	}
	q = cn.pending[0]
	cn.pending = cn.pending[1:]
	return q, true
}

// send sends a command. If the connection has ended, it calls reply itself.
func (cn *conn) send(q request) {
	cn.mu.Lock()
	if err := cn.err; err != nil {
		cn.mu.Unlock()
		q.reply(value{}, err)
		return
	}
	defer cn.mu.Unlock()
	cn.pending = append(cn.pending, q)
	_ = cn.nc.SetWriteDeadline(time.Now().Add(cn.patience))
	if _, err := cn.nc.Write(appendCommand(nil, q.words)); err != nil {
		cn.close() // the reader replies
	}
}

// do sends a command and waits for the reply, at most as long as patience. An error reply is returned as an error: see
// errorOf.
func (cn *conn) do(ctx context.Context, words ...string) (value, error) {
	return cn.await(ctx, request{words: words}, nil)
}

// subscribe is do for SUBSCRIBE.
func (cn *conn) subscribe(ctx context.Context, channel string) (value, error) {
	return cn.await(ctx, request{words: []string{"SUBSCRIBE", channel}, subscribes: true}, nil)
}

// await is do that has the reader call then with a reply that is no error.
func (cn *conn) await(ctx context.Context, q request, then func(value)) (value, error) {
	type outcome struct {
		v   value
		err error
	}
	done := make(chan outcome, 1)
	q.reply = func(v value, err error) {
		if err == nil && v.isError() {
			err = errorOf(cn.addr, v.text)
		} else if err == nil && then != nil {
			then(v)
		}
		done <- outcome{v, err}
	}
	cn.send(q)
	timeout := time.NewTimer(cn.patience)
	defer timeout.Stop()
	select {
	case o := <-done:
		return o.v, o.err
	case <-ctx.Done():
		return value{}, context.Cause(ctx)
	case <-timeout.C:
		cn.leave()
		return value{}, fmt.Errorf("%s: %w: no answer in %v", cn.addr, errConnection, cn.patience)
	}
}

// transientError is an error reply that another node or another moment may not give.
type transientError struct{ addr, text string }

func (e *transientError) Error() string { return e.addr + ": " + e.text }

var transientKinds = []string{
	"CLUSTERDOWN", "TRYAGAIN", "UNCERTAIN", "LOADING", "MASTERDOWN", "NOSESSION", "ERR max number of clients",
}

// errorOf returns the error of an error reply.
func errorOf(addr, text string) error {
	if slices.ContainsFunc(transientKinds, func(kind string) bool { return strings.HasPrefix(text, kind) }) {
		return &transientError{addr, text}
	}
	return &RefusedError{Addr: addr, Text: text}
}

// isReply reports whether err is a transient error reply of one of the kinds.
func isReply(err error, kinds ...string) bool {
	e := new(transientError)
	return errors.As(err, &e) &&
		slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(e.text, kind) })
}
