package frontend

import (
	"container/list"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/frontend/discovery"
	"github.com/holdfast/holdfast/server/frontend/metrics"
	"github.com/holdfast/holdfast/server/frontend/observe"
	"github.com/holdfast/holdfast/server/loglimit"
	"github.com/holdfast/holdfast/server/pubsub"
	"github.com/holdfast/holdfast/server/replica"
)

// Server serves clients. Create it with [New].
type Server struct {
	cfg     Config
	backend Backend
	// rows and execRow, one of the rows, are immutable.
	rows       map[*protocol.Command]*row
	execRow    *row
	compiled   *compileCache
	metrics    *metrics.Registry
	ids        ids
	pool       sync.Pool // of *work
	memory     clientMemory
	refusals   atomic.Int32
	fresh      freshness
	directory  *discovery.Directory
	slow       *observe.Slowlog
	failedAuth *loglimit.Limit
	aclLog     acl.Log
	limits     limits
	forced     *loglimit.Limit
	silent     silence
	asking     chan struct{} // has room for each command that this node has others run

	mu    sync.Mutex
	conns map[int64]*conn
	// dismissed counts the connections of conns that were closed to make room. strangers has the connections that have not
	// authenticated, oldest first.
	dismissed int
	// hidden counts the connections of conns that are in no answer any more: see [Server.hide].
	hidden    int
	strangers list.List
	draining  bool
	addr      string // of the first listener
	// sentinelAddr is the address of the listener for Sentinel's clients.
	sentinelAddr string
	sentinelHub  *pubsub.Hub    // never changes
	interest     event.Interest // of the backend's events
}

// Metrics returns the statistics of the node's clients and of its copy of the state.
func (s *Server) Metrics() *metrics.Registry { return s.metrics }

// Directory returns the directory, which knows the leader and all nodes.
func (s *Server) Directory() *discovery.Directory { return s.directory }

// New returns a server that runs commands on backend.
func New(cfg Config, backend Backend) *Server {
	cfg = cfg.withDefaults()
	if cfg.Node.RunID == "" {
		var id [20]byte
		rand.Read(id[:])
		cfg.Node.RunID = hex.EncodeToString(id[:])
	}
	s := &Server{
		cfg: cfg, backend: backend, rows: newRows(),
		compiled: newCompileCache(backend), conns: make(map[int64]*conn),
		sentinelHub: pubsub.New(cfg.Logger), memory: newClientMemory(cfg.MaxMemoryClientsBytes),
		slow: observe.NewSlowlog(), failedAuth: newFailedAuth(), forced: newForced(),
	}
	s.asking = make(chan struct{}, maxRemoteCommands)
	s.ids.begin(backend.Origin())
	s.pool.New = func() any {
		return &work{in: make([]byte, 0, pooledIn), reader: protocol.NewReader(protocol.DefaultLimits())}
	}
	s.fresh.catching = make(chan struct{}, 1)
	s.directory = discovery.New(cfg.discovery(), backend.Status)
	s.metrics = s.newMetrics()
	backend.WatchLeadership(s.led)
	cfg.Users.Watch(s.UsersChanged)
	cfg.Hub.OnLease(func() (time.Time, error) {
		begun := time.Now()
		return begun.Add(replica.PresenceLease), backend.Execute(&replica.Batch{Count: 1, Census: true})
	})
	cfg.Hub.OnInterest(func(on bool) { s.listenTo(event.InMessages, on) })
	cfg.Tracking.OnInterest(func(on bool) { s.listenTo(event.InChanges, on) })
	cfg.Monitors.OnInterest(func(on bool) { s.listenTo(event.InCalls, on) })
	for _, row := range s.rows {
		if row.Name == "exec" {
			s.execRow = row
		}
	}
	return s
}

func (s *Server) newMetrics() *metrics.Registry {
	cfg := &s.cfg
	commands := make([]*metrics.Command, 0, len(s.rows))
	for _, row := range s.rows {
		commands = append(commands, &row.stats)
	}
	slices.SortFunc(commands, func(a, b *metrics.Command) int { return strings.Compare(a.Name, b.Name) })
	return metrics.New(metrics.Config{
		Backend: s.backend, Directory: s.directory, Hub: cfg.Hub, Tracking: cfg.Tracking, Commands: commands,
		RunID: cfg.Node.RunID, ClusterMode: cfg.Options.ClusterMode, MaxClients: cfg.MaxClients,
		MaxMemoryBytes: cfg.MaxMemoryBytes, MachineBytes: cfg.MachineBytes,
		Clients: s.clientCount, ClientBytes: s.memory.total.Load, Address: s.address,
		Users: func() []metrics.UserLimits { return s.limits.usage(cfg.Users.Held()) },
	})
}

// led handles a change of the leadership. It updates what clients can ask for before it notifies them.
func (s *Server) led(l replica.Leadership, members []replica.Member) {
	if !s.directory.Knows(l) {
		s.fresh.changed()
	}
	messages := s.directory.SetLeadership(l, members)
	if !l.Present {
		s.cfg.Tracking.InvalidateAll() // the node may not hear of other nodes' writes
	}
	for _, m := range messages {
		s.sentinelHub.Publish(m.Channel, m.Payload)
	}
}
