package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Check is a check of /livez or /readyz. Run returns nil, or the failure in one line. It may return after its context
// has ended; calls of Run never overlap.
type Check struct {
	Name string
	Run  func(ctx context.Context) error
	// Detail, if not nil, returns text for the line of a successful check, "" for none.
	Detail func() string
}

// checkTimeout bounds the wait of a request for a check. A kubelet's own timeout must be longer.
const checkTimeout = 3 * time.Second

var errNoAnswer = errors.New("no answer within " + checkTimeout.String())

// health runs checks, each of them at most once at a time.
type health struct {
	checks []Check

	mu      sync.Mutex
	running map[string]*outcome
}

// outcome is a run of a check.
type outcome struct {
	done chan struct{}
	err  error // set before done is closed
}

func newHealth(checks []Check) *health {
	return &health{checks: checks, running: make(map[string]*outcome)}
}

// start starts a check, or returns the run that is under way.
func (h *health) start(c Check) *outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.running[c.Name]; o != nil {
		return o
	}
	o := &outcome{done: make(chan struct{})}
	h.running[c.Name] = o
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		o.err = c.Run(ctx)
		h.mu.Lock()
		delete(h.running, c.Name)
		h.mu.Unlock()
		close(o.done)
	}()
	return o
}

// await returns the check's result, or errNoAnswer if ctx ends first.
func (o *outcome) await(ctx context.Context) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return errNoAnswer
	}
}

// detail returns the check's additional text for an authenticated client.
func (c *Check) detail(known bool) string {
	if !known || c.Detail == nil {
		return ""
	}
	if text := c.Detail(); text != "" {
		return ", " + text
	}
	return ""
}

// health answers like etcd: "ok", or a line for each check if one has failed or with ?verbose. ?exclude=NAME leaves a
// check out.
func (s *Server) health(h *health) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		left := query["exclude"]
		checks := slices.DeleteFunc(slices.Clone(h.checks), func(c Check) bool {
			only := r.PathValue("check")
			return slices.Contains(left, c.Name) || only != "" && only != c.Name
		})
		if only := r.PathValue("check"); only != "" && len(checks) == 0 {
			http.Error(w, "no such check", http.StatusNotFound)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		var outcomes []*outcome
		for _, c := range checks {
			outcomes = append(outcomes, h.start(c))
		}
		_, _, known := s.isKnown(r, "info", noArguments)
		var lines bytes.Buffer
		failed := false
		for i, c := range checks {
			switch err := outcomes[i].await(ctx); {
			case err == nil:
				fmt.Fprintf(&lines, "[+]%s ok%s\n", c.Name, c.detail(known))
			case known:
				failed = true
				fmt.Fprintf(&lines, "[-]%s failed: %v\n", c.Name, err)
			default:
				failed = true
				fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.Name)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case failed:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write(lines.Bytes())
		case query.Has("verbose"):
			_, _ = w.Write(append(lines.Bytes(), "ok\n"...))
		default:
			_, _ = w.Write([]byte("ok\n"))
		}
	})
}
