package frontend

import (
	"context"
	"crypto/x509"
	"net"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/audit"
	"github.com/holdfast/holdfast/server/loglimit"
)

func authHandlers() map[string]handler {
	return map[string]handler{
		"auth":  {reply: auth},
		"hello": {reply: hello},
	}
}

func auth(c *conn, args [][]byte) protocol.Value {
	switch {
	case len(args) > 3:
		return protocol.ErrSyntax.Value()
	case len(args) == 2 && c.srv.cfg.Users.Current().Default().TakesAny():
		return protocol.ErrPasswordNotSet.Value()
	case len(args) == 2:
		return c.authenticate(args[0], []byte(acl.DefaultUser), args[1])
	}
	return c.authenticate(args[0], args[1], args[2])
}

// authenticate logs the connection in as a user. If the user needs no password, any password is right, as for a
// "nopass" user of Redis.
func (c *conn) authenticate(command, user, password []byte) protocol.Value {
	switch cause := c.login(string(user), string(password)); cause {
	case nil:
		return protocol.OK
	case protocol.ErrWrongPass:
		c.srv.noteFailedAuth(c.addr.String(), string(user), "id", c.id)
		c.noteRefusal(c.context(), "auth", string(command), string(user))
		return cause.Value()
	default:
		return cause.Value()
	}
}

// hello negotiates the protocol version. HELLO takes effect as a whole or not at all; Redis 7.0.15
// authenticates although a later argument is wrong.
func hello(c *conn, args [][]byte) protocol.Value {
	version := c.resp
	if len(args) > 1 {
		n, ok := protocol.ParseInt(string(args[1]))
		if !ok {
			return protocol.ErrProtoVersion.Value()
		}
		if n != protocol.RESP2 && n != protocol.RESP3 {
			return protocol.ErrNoProto.Value()
		}
		version = int(n)
	}
	var user, password, name []byte
	for i := 2; i < len(args); i++ {
		left := len(args) - 1 - i
		switch {
		case strings.EqualFold(string(args[i]), "auth") && left >= 2:
			user, password = args[i+1], args[i+2]
			i += 2
		case strings.EqualFold(string(args[i]), "setname") && left >= 1:
			name = args[i+1]
			if !validAttribute(name) {
				return protocol.Err(errClientName)
			}
			i++
		default:
			return protocol.Err("Syntax error in HELLO option '" + string(args[i]) + "'")
		}
	}
	if user != nil {
		if v := c.authenticate(args[0], user, password); v.IsError() {
			return v
		}
	}
	if !c.authenticated {
		return protocol.ErrHelloNoAuth.Value()
	}
	if name != nil {
		c.update(func(s *shown) { s.name = string(name) })
		c.identify()
	}
	c.setProtocol(version)
	fields := []protocol.Value{
		protocol.Bulk("server"), protocol.Bulk("redis"),
		protocol.Bulk("version"), protocol.Bulk(protocol.RedisVersion),
		protocol.Bulk("proto"), protocol.Integer(int64(version)),
		protocol.Bulk("id"), protocol.Integer(c.id),
		protocol.Bulk("mode"), protocol.Bulk(c.srv.directory.Mode(c.sentinel())),
	}
	if !c.sentinel() {
		fields = append(fields, protocol.Bulk("role"), protocol.Bulk(c.srv.directory.HelloRole()))
	}
	return protocol.Map(append(fields, protocol.Bulk("modules"), protocol.Array())...)
}

// newFailedAuth limits the log lines about wrong passwords to one a second. Each has the number of attempts that were
// not logged.
func newFailedAuth() *loglimit.Limit { return &loglimit.Limit{Burst: 1, Every: time.Second} }

// maxUserBytes bounds a user's name here and in the audit log. The name may be a misplaced password.
const maxUserBytes = 64

// noteFailedAuth counts an attempt with a wrong user or password, and logs the user and the address.
func (s *Server) noteFailedAuth(addr, user string, attrs ...any) {
	s.metrics.Refused.Add(1)
	silent, ok := s.failedAuth.Admit(time.Now())
	if !ok {
		return
	}
	user = user[:min(len(user), maxUserBytes)]
	s.cfg.Audit.Note(audit.Line{Event: audit.LoginRefused, Addr: addr, User: user, Count: uint64(silent)})
	s.cfg.Logger.Warn("authentication failed", append([]any{
		"client", addr, "user", user, "not_logged_before", silent,
	}, attrs...)...)
}

// FailedHTTPAuth counts and logs an attempt with a wrong user or password over HTTP, as AUTH does.
func (s *Server) FailedHTTPAuth(addr, user string) {
	s.noteFailedAuth(addr, user, "port", "http")
	s.aclLog.Add(acl.Refusal{
		Reason: "auth", Context: "http", Object: "AUTH", User: user, Client: "addr=" + addr,
	}, time.Now())
}

// open sets the options of the socket, and performs the TLS handshake.
func (c *conn) open() error {
	if t, ok := c.plainConn().(*net.TCPConn); ok {
		probe := c.srv.cfg.TCPKeepAlive
		t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: probe, Interval: max(probe/3, time.Second), Count: 3})
	}
	if c.tls == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.srv.cfg.HandshakeTimeout)
	defer cancel()
	if err := c.tls.HandshakeContext(ctx); err != nil {
		return err
	}
	if c.authenticated {
		c.srv.setKnown(c, true)
	}
	return c.loginByCertificate()
}

// loginByCertificate logs the connection in as the user that the client's certificate names, as Redis 8.6 and Valkey 9
// do. If there is no such user, or if it is off, the connection keeps the default user. The error is that the user has
// no room for another connection.
func (c *conn) loginByCertificate() error {
	by := c.srv.cfg.CertificateUser
	if by == "" || len(c.tls.ConnectionState().VerifiedChains) == 0 {
		return nil
	}
	u := namedBy(c.tls.ConnectionState().PeerCertificates[0], by, c.srv.cfg.Users.Held())
	if u == nil {
		return nil
	}
	if cause := c.admit(u); cause != nil {
		return cause
	}
	return nil
}

// namedBy returns the user that a certificate names, or nil if none is on.
func namedBy(cert *x509.Certificate, by string, users *acl.Users) *acl.User {
	names := []string{cert.Subject.CommonName}
	if by == "URI" {
		names = names[:0]
		for _, uri := range cert.URIs {
			names = append(names, uri.String())
		}
	}
	for _, name := range names {
		if u := users.Find(name); u != nil && u.On() {
			return u
		}
	}
	return nil
}
