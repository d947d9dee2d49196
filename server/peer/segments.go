package peer

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// smallFor is how long new connections with a node have small segments, after one was stuck. They cost a little more,
// and a path that is not mended by then is found out about again.
const smallFor = 10 * time.Minute

// stuck knows the nodes with which a connection was stuck, by ID, and until when that counts.
type stuck struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// Stuck says that nothing passed any more through the connection, as far as its user could tell.
func (c *Conn) Stuck() {
	if c.layer == nil {
		return
	}
	s := &c.layer.mux.stuck
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, until := range s.until { // unordered: each is looked at
		if now.After(until) {
			delete(s.until, id)
		}
	}
	s.until[c.id] = now.Add(smallFor)
}

// context is ctx for a dial of a node.
func (s *stuck) context(ctx context.Context, id string) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().After(s.until[id]) {
		return ctx
	}
	return wire.SmallSegments(ctx)
}
