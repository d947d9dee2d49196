package web

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"embed"
	"encoding/hex"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/console"
)

// Config configures a [Server].
type Config struct {
	Gatherer prometheus.Gatherer
	// Live and Ready are the checks of /livez and /readyz, in the order of the answer.
	Live, Ready []Check
	Access      Access
	// Console, if not nil, enables the page and /api.
	Console *console.Console
	// Profiles enables /debug/pprof.
	Profiles bool
	Logger   *slog.Logger
}

// Access has the credentials that requests need, except to /livez and /readyz.
type Access struct {
	// TLS, if not nil, is the configuration of every connection. A client certificate that it requires is not required
	// for /livez and /readyz.
	TLS *tls.Config
	// Users, if not nil, returns the users. A request needs the rights to the corresponding command.
	Users func() *acl.Users
	// Refused, if not nil, is called for each wrong name or password, with the client's address and the name.
	Refused func(addr, user string)
}

// MaxConnections bounds the open connections.
const MaxConnections = 64

// Limits of a client.
const (
	maxHeaderBytes = 8 << 10
	readTimeout    = 5 * time.Second
	writeTimeout   = 10 * time.Second
	idleTimeout    = time.Minute
	maxScrapes     = 4 // at a time
	maxProfileTime = 2 * time.Minute
	maxProfiles    = 2 // at a time
)

// Server serves the port for monitoring. Create it with [New].
type Server struct {
	config      Config
	live, ready *health
	http        *http.Server
	demandsCert bool
}

// New returns a server, to be run with [Server.Serve].
func New(c Config) *Server {
	s := &Server{config: c, live: newHealth(c.Live), ready: newHealth(c.Ready)}
	s.demandsCert = c.Access.TLS != nil && c.Access.TLS.ClientAuth == tls.RequireAndVerifyClientCert
	mux := http.NewServeMux()
	mux.Handle("GET /livez", s.health(s.live))
	mux.Handle("GET /livez/{check}", s.health(s.live))
	mux.Handle("GET /readyz", s.health(s.ready))
	mux.Handle("GET /readyz/{check}", s.health(s.ready))
	mux.Handle("GET /metrics", s.known("info", noArguments, promhttp.HandlerFor(c.Gatherer, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: writeTimeout, EnableOpenMetrics: true,
		// A metric that fails must not hide the others.
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelWarn),
	})))
	if c.Console != nil {
		s.apiRoutes(mux)
		s.pageRoutes(mux)
	}
	if c.Profiles {
		mux.Handle("GET /debug/pprof/", s.known("debug", noArguments, profiles()))
	}
	s.http = &http.Server{
		Handler: mux, MaxHeaderBytes: maxHeaderBytes,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		// HTTP/2 is off, as the limits do not bound its concurrent requests on one connection.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     log.New(debugWriter{c.Logger}, "", 0),
	}
	return s
}

// profiles serves Go's profiles, except the command line, which may contain a password.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	room := make(chan struct{}, maxProfiles)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
		default:
			http.Error(w, "other profiles are being taken", http.StatusServiceUnavailable)
			return
		}
		// A profile is written after its duration. pprof refuses a duration beyond the WriteTimeout of the server in
		// the context, so the context gets another server.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(maxProfileTime))
		limits := &http.Server{WriteTimeout: maxProfileTime}
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, limits)))
	})
}

// Serve serves ln until ctx ends, and closes ln. It cuts off requests that are under way.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ln = limit(ln, MaxConnections)
	if t := s.config.Access.TLS; t != nil {
		ln = tls.NewListener(ln, certificatesIfGiven(t))
	}
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	err := s.http.Serve(ln)
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// certificatesIfGiven makes client certificates optional in the handshake, for /livez and /readyz. isKnown checks them
// for all else.
func certificatesIfGiven(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.NextProtos = []string{"http/1.1"}
	if c.ClientAuth == tls.RequireAndVerifyClientCert {
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if current := c.GetConfigForClient; current != nil {
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			now, err := current(hello)
			if now == nil || err != nil {
				return nil, err
			}
			return certificatesIfGiven(now), nil
		}
	}
	return c
}

// question returns the arguments of the command that corresponds to a request.
type question func(r *http.Request) (args []string)

func noArguments(*http.Request) []string { return nil }

// isKnown reports whether the client has sent valid credentials, and whether it is allowed to run the corresponding
// command. user is nil if there are no users.
func (s *Server) isKnown(r *http.Request, command string, args question) (user *acl.User, known, allowed bool) {
	if s.demandsCert && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
		return nil, false, false
	}
	if s.config.Access.Users == nil {
		return nil, true, true
	}
	users := s.config.Access.Users()
	name, password, given := r.BasicAuth()
	u := users.Default()
	if given {
		name = cmp.Or(name, acl.DefaultUser)
		if u = users.Authenticate(name, password); u == nil && s.config.Access.Refused != nil {
			s.config.Access.Refused(r.RemoteAddr, name)
		}
	} else if !u.Open() {
		u = nil
	}
	return u, u != nil, u != nil && u.MayRun(command, args(r)...)
}

// rulesOf returns the ACL rules of a request's user, "" if the user may read everything.
func rulesOf(r *http.Request) string {
	if u, _ := r.Context().Value(userKey{}).(*acl.User); u != nil && u.Rights() != nil {
		return u.Rules()
	}
	return ""
}

// userKey is the key of the user in a request's context.
type userKey struct{}

// asksPassword reports whether clients need a password.
func (s *Server) asksPassword() bool {
	return s.config.Access.Users != nil && !s.config.Access.Users().Default().Open()
}

// known passes a request to next if isKnown reports that the client is known and allowed to run the command.
func (s *Server) known(command string, args question, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch user, known, allowed := s.isKnown(r, command, args); {
		case !known:
			w.Header().Set("WWW-Authenticate", `Basic realm="holdfast"`)
			http.Error(w, "a user's password is needed (without users of your own: \"default\"), or a client certificate",
				http.StatusUnauthorized)
		case !allowed:
			http.Error(w, "this user has no permissions to run the '"+command+"' command, or to access the key, which this is for",
				http.StatusForbidden)
		default:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
		}
	})
}

// debugWriter logs the errors that net/http reports of clients.
type debugWriter struct{ logger *slog.Logger }

func (d debugWriter) Write(line []byte) (int, error) {
	d.logger.Debug("http", "says", string(line))
	return len(line), nil
}

// limited is a listener with at most max open connections. A new connection replaces the oldest one, so that idle
// clients cannot keep out a scrape.
type limited struct {
	net.Listener
	max int

	mu   sync.Mutex
	open list.List // of *connection, the oldest first
}

func limit(ln net.Listener, maxConns int) net.Listener { return &limited{Listener: ln, max: maxConns} }

func (l *limited) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: nc, of: l}
	l.mu.Lock()
	var oldest *connection
	if l.open.Len() >= l.max {
		oldest = l.open.Front().Value.(*connection)
		l.open.Remove(oldest.place)
		oldest.place = nil
	}
	c.place = l.open.PushBack(c)
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Conn.Close()
	}
	return c, nil
}

type connection struct {
	net.Conn
	of    *limited
	place *list.Element // in of.open, nil once removed; guarded by of.mu
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	if c.place != nil {
		c.of.open.Remove(c.place)
		c.place = nil
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}

//go:embed page
var pageFiles embed.FS

// contentPolicy lets the page load and request from this port only, and forbids markup made of text, so that a name
// chosen by a client cannot become code.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// pageParts are the files of the page, by path.
var pageParts = []struct{ path, file, kind string }{
	{"/{$}", "page.html", "text/html; charset=utf-8"},
	{"/page.css", "page.css", "text/css; charset=utf-8"},
	{"/page.js", "page.js", "text/javascript; charset=utf-8"},
	{"/icon.svg", "icon.svg", "image/svg+xml"},
}

// pageRoutes adds the files of the page.
func (s *Server) pageRoutes(mux *http.ServeMux) {
	for _, p := range pageParts {
		body, err := pageFiles.ReadFile("page/" + p.file)
		if err != nil {
			panic(err) // the file is embedded
		}
		sum := sha256.Sum256(body)
		tag := `"` + hex.EncodeToString(sum[:8]) + `"`
		mux.Handle("GET "+p.path, s.known("lock.list", noArguments, s.localNamesOnly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("ETag", tag)
			h.Set("Cache-Control", "no-cache")
			harden(h)
			if r.Header.Get("If-None-Match") == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			h.Set("Content-Type", p.kind)
			_, _ = w.Write(body)
		}))))
	}
}
