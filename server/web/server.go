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

// Config is what a [Server] is told.
type Config struct {
	// Gatherer has the metrics.
	Gatherer prometheus.Gatherer
	// Live and Ready are the checks of /livez and /readyz, in the order in which they are shown.
	Live, Ready []Check
	Access      Access
	// Console, when set, opens the page and /api.
	Console *console.Console
	// Profiles opens /debug/pprof.
	Profiles bool
	Logger   *slog.Logger
}

// Access says who is told metrics, profiles, and why a check failed.
type Access struct {
	// TLS, when set, is spoken on every connection. A client certificate that it demands is demanded for the
	// same.
	TLS *tls.Config
	// Users, when set, returns the users. A user is told what the user's rights allow to ask of the port for clients.
	Users func() *acl.Users
	// Refused, when set, is called for each wrong name or password, with the client's address and the name.
	Refused func(addr, user string)
}

// MaxConnections is how many connections there are at a time.
const MaxConnections = 64

// What a client may cost.
const (
	maxHeaderBytes = 8 << 10
	readTimeout    = 5 * time.Second
	writeTimeout   = 10 * time.Second
	idleTimeout    = time.Minute
	maxScrapes     = 4 // at a time
	maxProfileTime = 2 * time.Minute
	maxProfiles    = 2 // at a time
)

// Server answers on the port for monitoring. Create it with [New].
type Server struct {
	config      Config
	live, ready *health
	http        *http.Server
	demandsCert bool
}

// New makes a server. Nothing is served before Serve.
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
		// A metric that cannot be had must not hide the others.
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
		// HTTP/2 has many requests on a connection, which nothing here bounds.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     log.New(debugWriter{c.Logger}, "", 0),
	}
	return s
}

// profiles are Go's, without the command line, which may have a password in it.
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
		// A profile is written when its time is over. pprof refuses a time beyond the server's own WriteTimeout,
		// which it finds in the context, so the context has another server.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(maxProfileTime))
		limits := &http.Server{WriteTimeout: maxProfileTime}
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, limits)))
	})
}

// Serve answers on ln until ctx ends, and closes ln. What is under way then is cut off: nobody loses by it.
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

// certificatesIfGiven lets clients without a certificate ask /livez and /readyz.
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

// question returns the arguments of a command that tells what a request asks for.
type question func(r *http.Request) (args []string)

func noArguments(*http.Request) []string { return nil }

// isKnown reports whether the client has proved what a client of Redis must, and whether the client may ask for what a
// command tells. user is nil if there are no users.
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

// rulesOf are the rules by which the state machine judges what the client of a request is told; empty: everything.
func rulesOf(r *http.Request) string {
	if u, _ := r.Context().Value(userKey{}).(*acl.User); u != nil && u.Rights() != nil {
		return u.Rules()
	}
	return ""
}

// userKey is where the context of a request has the user.
type userKey struct{}

// asksPassword reports whether strangers are told nothing.
func (s *Server) asksPassword() bool {
	return s.config.Access.Users != nil && !s.config.Access.Users().Default().Open()
}

// known answers only clients that are known and may send the command, or, on the port for clients, could.
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

// debugWriter logs what net/http says of clients.
type debugWriter struct{ logger *slog.Logger }

func (d debugWriter) Write(line []byte) (int, error) {
	d.logger.Debug("http", "says", string(line))
	return len(line), nil
}

// limited is a listener with at most that many connections. The oldest makes room for the next: an idle client, or
// one that says nothing, must not keep out a scrape.
type limited struct {
	net.Listener
	max int // of open connections

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
	place *list.Element // guarded by of.mu; nil once out of the list
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

// contentPolicy lets the page load its own two files and ask this port, and nothing else. What a client of the cluster
// named itself can never become code: the page makes no markup of text.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// pageParts are the files by their paths.
var pageParts = []struct{ path, file, kind string }{
	{"/{$}", "page.html", "text/html; charset=utf-8"},
	{"/page.css", "page.css", "text/css; charset=utf-8"},
	{"/page.js", "page.js", "text/javascript; charset=utf-8"},
	{"/icon.svg", "icon.svg", "image/svg+xml"},
}

// pageRoutes adds the page, which is drawn from the JSON endpoints.
func (s *Server) pageRoutes(mux *http.ServeMux) {
	for _, p := range pageParts {
		body, err := pageFiles.ReadFile("page/" + p.file)
		if err != nil {
			panic(err) // the file is a part of the program
		}
		sum := sha256.Sum256(body)
		tag := `"` + hex.EncodeToString(sum[:8]) + `"`
		mux.Handle("GET "+p.path, s.known("lock.list", noArguments, s.near(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
