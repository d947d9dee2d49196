package frontend

import (
	"strings"
	"sync"
	"sync/atomic"
)

// stats are the counters that INFO shows.
type stats struct {
	connections atomic.Uint64 // accepted
	rejected    atomic.Uint64 // refused, too many clients
	commands    atomic.Uint64 // processed
	failures    atomic.Uint64 // error replies
	cutOff      atomic.Uint64 // clients that did not read
	evicted     atomic.Uint64 // clients that held most when all held too much
	bytesIn     atomic.Uint64
	bytesOut    atomic.Uint64
	// blocked counts the clients that wait now; it is no statistic to reset.
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
	for _, n := range []*atomic.Uint64{
		&st.connections, &st.rejected, &st.commands, &st.failures, &st.cutOff, &st.evicted, &st.bytesIn, &st.bytesOut,
	} {
		n.Store(0)
	}
	st.mu.Lock()
	st.errors = nil
	st.mu.Unlock()
	for _, row := range s.rows {
		row.calls.Store(0)
		row.rejected.Store(0)
		row.failed.Store(0)
	}
}
