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

// Backend is the source of statistics about the state and the cluster.
type Backend interface {
	Status() replica.Status
	Stats() fsm.Stats
	LockStats() fsm.LockStats
	LockClasses() []fsm.LockClass
	Clients() *sessions.Clients
}

// Config has the sources of what a [Registry] does not count itself.
type Config struct {
	Backend   Backend
	Directory *discovery.Directory
	Hub       *pubsub.Hub
	Tracking  *tracking.Table
	// Commands has the commands of clients, by name.
	Commands []*Command
	RunID    string
	// ClusterMode enables the replies for clients of Redis Cluster.
	ClusterMode bool
	// MaxClients bounds the connected clients.
	MaxClients int
	// MaxMemoryBytes is the limit of keys and scripts, 0 for none. MachineBytes is the limit of the process, 0 if unknown.
	MaxMemoryBytes, MachineBytes uint64
	// Clients counts the connected clients, and ClientBytes returns their memory.
	Clients     func() int
	ClientBytes func() int64
	// Users returns the users with quotas.
	Users func() []UserLimits
	// Address returns the address for clients, or for Sentinel's clients.
	Address func(sentinel bool) string
}

// Registry has the statistics of a node, for INFO, MEMORY, LATENCY HISTOGRAM and Prometheus. Create it with [New].
type Registry struct {
	Counters
	cfg     Config
	started time.Time
	rates   rates
	// forgotten has the lookups of keys before CONFIG RESETSTAT.
	forgotten struct{ hits, misses atomic.Uint64 }
}

// New returns a registry.
func New(cfg Config) *Registry {
	r := &Registry{cfg: cfg, started: time.Now()}
	r.rates.since = r.started
	return r
}

// Reply returns the reply to a command that shows statistics.
type Reply func(r *Registry, args [][]byte) protocol.Value

// Replies returns the commands, by the names of their rows in the command table. The earlier commands of the pipeline
// run before each, so that it counts them.
func Replies() map[string]Reply {
	return map[string]Reply{
		"latency|histogram":   (*Registry).latencyHistogram,
		"memory|doctor":       (*Registry).memoryDoctor,
		"memory|malloc-stats": (*Registry).memoryMallocStats,
		"memory|stats":        (*Registry).memoryStats,
	}
}

// Counters has the counts of a node's connections; metrics.go explains them.
type Counters struct {
	Connections, Rejected, Commands, Failures, CutOff, Evicted, Refused, BytesIn, BytesOut atomic.Uint64
	// Blocked counts the clients that wait now. CONFIG RESETSTAT does not reset it.
	Blocked atomic.Int64

	mu     sync.Mutex
	errors map[string]*uint64 // error replies by prefix
}

// Counters.errors is bounded, since a script can make up prefixes. It does not count further ones.
const (
	maxPrefixes    = 128
	maxPrefixBytes = 64
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
	if len(s.errors) >= maxPrefixes || len(prefix) > maxPrefixBytes {
		return
	}
	if s.errors == nil {
		s.errors = make(map[string]*uint64)
	}
	one := uint64(1)
	s.errors[strings.Clone(prefix)] = &one
}

// errorCounts returns the numbers of error replies, by prefix.
func (s *Counters) errorCounts() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[string]uint64, len(s.errors))
	for prefix, n := range s.errors {
		counts[prefix] = *n
	}
	return counts
}

// Reset resets what CONFIG RESETSTAT promises.
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
