package frontend

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// stats are what this package counts for INFO; metrics.go says what each stands for.
type stats struct {
	connections, rejected, commands, failures, cutOff, evicted, refused, bytesIn, bytesOut atomic.Uint64
	// blocked counts the clients that wait now, so CONFIG RESETSTAT leaves it.
	blocked atomic.Int64

	mu     sync.Mutex
	errors map[string]*uint64 // error replies by prefix
}

// A script can make up prefixes, so stats.errors is bounded; what is beyond is not counted there.
const (
	mostPrefixes  = 128
	longestPrefix = 64
)

func (s *stats) countError(line string) {
	s.failures.Add(1)
	prefix, _, _ := strings.Cut(line, " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.errors[prefix]; n != nil {
		*n++
		return
	}
	if len(s.errors) >= mostPrefixes || len(prefix) > longestPrefix {
		return
	}
	if s.errors == nil {
		s.errors = make(map[string]*uint64)
	}
	one := uint64(1)
	s.errors[strings.Clone(prefix)] = &one
}

// errorCounts are the error replies by prefix.
func (s *stats) errorCounts() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[string]uint64, len(s.errors))
	for prefix, n := range s.errors {
		counts[prefix] = *n
	}
	return counts
}

// resetStats sets to zero what CONFIG RESETSTAT promises.
func (s *Server) resetStats() {
	st := &s.stats
	for _, section := range sections() {
		for _, m := range section.metrics {
			if m.counted != nil {
				m.counted(st).Store(0)
			}
		}
	}
	st.mu.Lock()
	st.errors = nil
	st.mu.Unlock()
	s.rates.reset(time.Now())
	state := s.backend.Stats()
	s.forgotten.hits.Store(state.Hits)
	s.forgotten.misses.Store(state.Misses)
	for _, row := range s.rows {
		row.calls.Store(0)
		row.rejected.Store(0)
		row.failed.Store(0)
		row.times.Store(nil)
	}
}
