package frontend

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/frontend/discovery"
	"github.com/holdfast/holdfast/server/frontend/metrics"
	"github.com/holdfast/holdfast/server/frontend/observe"
	"github.com/holdfast/holdfast/server/loglimit"
	"github.com/holdfast/holdfast/server/pubsub"
)

// Server serves clients. Create it with [New].
type Server struct {
	cfg     Config
	backend Backend
	// rows never change. execRow is one of the rows.
	rows       map[*protocol.Command]*row
	execRow    *row
	compiled   *compileCache
	metrics    *metrics.Registry
	nextID     atomic.Int64
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
	// saysClients is what logSaysClients has found.
	saysClients atomic.Bool

	mu    sync.Mutex
	conns map[int64]*conn
	// dismissed counts the connections of conns that were closed to make room. strangers are the
	// connections that have not authenticated, oldest first.
	dismissed int
	strangers list.List
	draining  bool
	addr      string // of the first listener
	// sentinelAddr is the address of the listener for Sentinel's clients.
	sentinelAddr string
	sentinelHub  *pubsub.Hub    // never changes
	interest     event.Interest // of the backend's events
}

// Metrics has the figures of the node's clients and of its copy of the state.
func (s *Server) Metrics() *metrics.Registry { return s.metrics }

// Directory answers who leads the cluster and which nodes there are.
func (s *Server) Directory() *discovery.Directory { return s.directory }
