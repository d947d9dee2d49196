package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/api"
	"github.com/holdfast/holdfast/server/console"
)

const (
	maxQuestions = 8 // concurrent requests
	defaultLimit = 50
)

// apiRoutes adds the JSON endpoints of API.md.
func (s *Server) apiRoutes(mux *http.ServeMux) {
	room := make(chan struct{}, maxQuestions)
	c := s.config.Console
	add := func(path, command string, args question, params []string,
		answer func(r *http.Request, q url.Values) (any, error),
	) {
		mux.Handle("GET "+path, s.known(command, args, s.localNamesOnly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q, err := parse(r.URL.RawQuery, params)
			if err != nil {
				writeJSON(w, http.StatusBadRequest, failure(err))
				return
			}
			select {
			case room <- struct{}{}:
				defer func() { <-room }()
			default:
				w.Header().Set("Retry-After", "1")
				writeJSON(w, http.StatusServiceUnavailable, failure(console.ErrBusy))
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), writeTimeout*8/10)
			defer cancel()
			doc, err := answer(r.WithContext(ctx), q)
			if err != nil {
				writeJSON(w, statusOf(err), failure(err))
				return
			}
			writeJSON(w, http.StatusOK, doc)
		}))))
	}
	add("/api/locks", "lock.list", noArguments, []string{"prefix", "match", "db", "mode", "sort", "limit", "cursor"},
		func(r *http.Request, q url.Values) (any, error) {
			query, err := lockQuery(q)
			if err != nil {
				return nil, err
			}
			if query.Rules = rulesOf(r); q.Has("cursor") {
				return c.Page(query, q.Get("cursor"))
			}
			return c.Locks(r.Context(), query)
		})
	lockParams := []string{"key", "keyBase64", "db"}
	lockArgs := func(r *http.Request) []string {
		q, err := parse(r.URL.RawQuery, lockParams)
		if err != nil {
			return nil // the handler refuses the request
		}
		key, _, _ := lockNamed(q)
		return []string{key}
	}
	add("/api/lock", "lock.info", lockArgs, lockParams, func(_ *http.Request, q url.Values) (any, error) {
		key, db, err := lockNamed(q)
		if err != nil {
			return nil, err
		}
		return c.Lock(key, db)
	})
	add("/api/members", "raft.status", noArguments, nil, func(*http.Request, url.Values) (any, error) { return c.Members() })
	add("/api/history", "lock.history", noArguments, nil, func(r *http.Request, _ url.Values) (any, error) {
		return c.History(rulesOf(r))
	})
}

// badRequest is the error of an invalid request.
type badRequest struct{ error }

func bad(format string, args ...any) error { return badRequest{fmt.Errorf(format, args...)} }

func statusOf(err error) int {
	switch {
	case errors.As(err, new(badRequest)):
		return http.StatusBadRequest
	case errors.Is(err, console.ErrNoLock):
		return http.StatusNotFound
	case errors.Is(err, console.ErrNoCluster), errors.Is(err, console.ErrNoState), errors.Is(err, console.ErrBusy):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func failure(err error) api.Failure { return api.Failure{Format: api.Format, Error: err.Error()} }

// writeJSON writes a document, with headers that keep a browser from rendering it as a page: clients chose names in it.
func writeJSON(w http.ResponseWriter, status int, doc any) {
	body, err := json.Marshal(doc)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	harden(h)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// harden sets the headers that keep other sites from reading or embedding an answer.
func harden(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", contentPolicy)
}

// parse reads the parameters of a query. It refuses unknown and repeated ones.
func parse(raw string, known []string) (url.Values, error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, bad("the query cannot be read")
	}
	for name, values := range q {
		switch {
		case !slices.Contains(known, name):
			return nil, bad("no parameter is called %q; known are %v", name, known)
		case len(values) > 1:
			return nil, bad("%s is there twice", name)
		}
	}
	return q, nil
}

var modes = []string{"", "exclusive", "shared", "permits", "free", "native", "stock"}

func lockQuery(q url.Values) (query console.Query, err error) {
	query = console.Query{Match: q.Get("match"), Mode: q.Get("mode"), Sort: q.Get("sort"), DB: -1, Limit: defaultLimit}
	if q.Has("prefix") {
		query.Match = console.EscapePattern(q.Get("prefix")) + "*"
	}
	if query.Match == "*" {
		query.Match = ""
	}
	if q.Has("db") {
		query.DB, err = number(q, "db", 0, protocol.MaxDatabases-1)
	}
	if err == nil && q.Has("limit") {
		query.Limit, err = number(q, "limit", 1, console.MaxLimit)
	}
	switch {
	case err != nil:
	case q.Has("prefix") && q.Has("match"):
		err = bad("prefix and match exclude each other")
	case q.Has("cursor") && q.Has("sort"):
		err = bad("cursor and sort exclude each other")
	case q.Has("cursor") && !isCursor(q.Get("cursor")):
		err = bad("cursor is 0, or nextCursor of an answer")
	case !slices.Contains(modes, query.Mode):
		err = bad("mode is one of %v", modes[1:])
	case query.Sort == "":
		query.Sort = console.Held
	case query.Sort != console.Held && query.Sort != console.Queue:
		err = bad("sort is %s or %s", console.Held, console.Queue)
	}
	return query, err
}

func isCursor(text string) bool {
	_, err := strconv.ParseUint(text, 10, 64)
	return err == nil
}

func lockNamed(q url.Values) (key string, db int, err error) {
	key = q.Get("key")
	if q.Has("key") == q.Has("keyBase64") {
		return "", 0, bad("name the lock by key or by keyBase64")
	}
	if q.Has("keyBase64") {
		raw, err := base64.StdEncoding.DecodeString(q.Get("keyBase64"))
		if err != nil {
			return "", 0, bad("keyBase64 is no base64")
		}
		key = string(raw)
	}
	if q.Has("db") {
		db, err = number(q, "db", 0, protocol.MaxDatabases-1)
	}
	return key, db, err
}

func number(q url.Values, name string, low, high int) (int, error) {
	n, err := strconv.Atoi(q.Get(name))
	if err != nil || n < low || n > high {
		return 0, bad("%s is a number from %d to %d", name, low, high)
	}
	return n, nil
}

// localNamesOnly refuses requests to a loopback port under another host name than localhost, unless clients need
// credentials. Otherwise any web page could resolve a name of its own to loopback, and read the answers (DNS
// rebinding).
func (s *Server) localNamesOnly(next http.Handler) http.Handler {
	if s.asksPassword() || s.demandsCert {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if local != nil && local.IP.IsLoopback() && host != "localhost" && net.ParseIP(host) == nil {
			http.Error(w, "without a password this port answers to localhost and to addresses only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
