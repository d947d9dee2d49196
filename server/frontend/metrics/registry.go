package metrics

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend/discovery"
	"github.com/holdfast/holdfast/server/pubsub"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/sessions"
	"github.com/holdfast/holdfast/server/tracking"
)

// Backend is the node's copy of the state, and its view of the cluster.
type Backend interface {
	Status() replica.Status
	Stats() fsm.Stats
	LockStats() fsm.LockStats
	LockClasses() []fsm.LockClass
	Clients() *sessions.Clients
}

// Config is where a [Registry] finds what it does not count itself.
type Config struct {
	Backend   Backend
	Directory *discovery.Directory
	Hub       *pubsub.Hub
	Tracking  *tracking.Table
	// Commands are those that clients may send, by name.
	Commands []*Command
	RunID    string
	// ClusterMode answers clients of Redis Cluster.
	ClusterMode bool
	// MaxClients is how many clients may be connected.
	MaxClients int
	// MaxMemoryBytes is what keys and scripts may take; 0: no limit. MachineBytes is what the process may use at most; 0:
	// not known.
	MaxMemoryBytes, MachineBytes uint64
	// Clients counts the clients that are connected, and ClientBytes what they hold.
	Clients     func() int
	ClientBytes func() int64
	// Users are the users with limits.
	Users func() []UserLimits
	// Address is the address for clients, or for Sentinel's clients.
	Address func(sentinel bool) string
}

// Registry has the figures of a node, and shows them: for INFO, for MEMORY and LATENCY HISTOGRAM, and for Prometheus.
// Create it with [New].
type Registry struct {
	Counters
	cfg     Config
	started time.Time
	rates   rates
	// forgotten are the lookups of keys before CONFIG RESETSTAT.
	forgotten struct{ hits, misses atomic.Uint64 }
}

// New makes a registry.
func New(cfg Config) *Registry {
	r := &Registry{cfg: cfg, started: time.Now()}
	r.rates.since = r.started
	return r
}

// Reply makes the reply to a command that shows figures.
type Reply func(r *Registry, args [][]byte) protocol.Value

// Replies are the commands by the names of their rows in the command table. Each has the commands before it in the
// pipeline executed first, so that their figures are there.
func Replies() map[string]Reply {
	return map[string]Reply{
		"latency|histogram":   (*Registry).latencyHistogram,
		"memory|doctor":       (*Registry).memoryDoctor,
		"memory|malloc-stats": (*Registry).memoryMallocStats,
		"memory|stats":        (*Registry).memoryStats,
	}
}

// Counters are what the connections of a node count; metrics.go says what each stands for.
type Counters struct {
	Connections, Rejected, Commands, Failures, CutOff, Evicted, Refused, BytesIn, BytesOut atomic.Uint64
	// Blocked counts the clients that wait now, so CONFIG RESETSTAT leaves it.
	Blocked atomic.Int64

	mu     sync.Mutex
	errors map[string]*uint64 // error replies by prefix
}

// A script can make up prefixes, so Counters.errors is bounded; what is beyond is not counted there.
const (
	mostPrefixes  = 128
	longestPrefix = 64
)

// CountError counts an error reply.
func (s *Counters) CountError(line string) {
	s.Failures.Add(1)
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
func (s *Counters) errorCounts() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[string]uint64, len(s.errors))
	for prefix, n := range s.errors {
		counts[prefix] = *n
	}
	return counts
}

// Reset sets to zero what CONFIG RESETSTAT promises.
func (r *Registry) Reset() {
	for _, section := range sections() {
		for _, m := range section.metrics {
			if m.counted != nil {
				m.counted(&r.Counters).Store(0)
			}
		}
	}
	r.mu.Lock()
	r.errors = nil
	r.mu.Unlock()
	r.rates.reset(time.Now())
	state := r.cfg.Backend.Stats()
	r.forgotten.hits.Store(state.Hits)
	r.forgotten.misses.Store(state.Misses)
	for _, c := range r.cfg.Commands {
		c.reset()
	}
}
