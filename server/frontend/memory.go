package frontend

import (
	"sync/atomic"
	"unsafe"
)

// What clients hold together is bounded, so that many of them cannot take the
// memory that none of them may take alone. Each connection sums up what it holds
// where a buffer has grown, and puts the sum, rounded, into the server's; what is
// below the step is not worth that, and so most commands touch nothing shared.

const (
	// memoryUnit is to what a connection's memory is rounded down, and the least for
	// which a client is cut off.
	memoryUnit = 32 << 10
	// connBytes is what an idle connection costs, roughly: its goroutine's stack and its own fields.
	connBytes = 6 << 10
	// slotBytes is what the place of a reply costs.
	slotBytes = int(unsafe.Sizeof(slot{}))
)

// clientMemory is what clients hold together.
type clientMemory struct {
	limit int64
	// total is the sum over all connections, evicting what those hold of it that were cut
	// off and are not gone yet.
	total, evicting atomic.Int64
	// retryFrom is the sum from which it is looked again for a client to cut off, after
	// none was found.
	retryFrom atomic.Int64
}

// memoryShare is what one connection has in the sum.
type memoryShare struct {
	counted atomic.Int64
	// evicted is set when the connection is cut off to make room. evicting is what it held then.
	evicted  atomic.Bool
	evicting int64 // guarded by Server.mu
	// noEvict: CLIENT NO-EVICT.
	noEvict atomic.Bool
}

// footprint is what the connection holds beside what an idle one does.
func (c *conn) footprint() int {
	n := c.watches.bytes
	if c.tx != nil {
		n += c.tx.bytes
	}
	if w := c.w; w != nil {
		n += cap(w.in) + cap(w.out) + cap(w.local) + cap(w.batch.Body) + cap(w.slots)*slotBytes + w.reader.Memory() + w.replyBytes
	}
	return n
}

// account puts what the connection holds into the sum. If that is too much now,
// some client is cut off, which may be this one.
func (c *conn) account() {
	if c.memory.evicted.Load() {
		c.closing, c.gone = true, true
		return
	}
	n := int64(c.footprint()) &^ (memoryUnit - 1)
	old := c.memory.counted.Load()
	if n != old {
		c.memory.counted.Store(n)
		c.srv.addMemory(n - old)
	}
}

// accountQueue does so for a queue that has grown to these bytes, now and then.
func (c *conn) accountQueue(from, to int) {
	if from/memoryUnit != to/memoryUnit {
		c.account()
	}
}

// addMemory changes the sum.
func (s *Server) addMemory(bytes int64) {
	m := &s.memory
	total := m.total.Add(bytes) - m.evicting.Load()
	switch {
	case total <= m.limit:
		if bytes < 0 && m.retryFrom.Load() > 0 {
			m.retryFrom.Store(0)
		}
	case bytes > 0 && total >= m.retryFrom.Load():
		s.evict()
	}
}

// evict cuts off the clients that hold most until the rest is within the limit.
func (s *Server) evict() {
	for _, c := range s.chooseVictims() {
		s.stats.evicted.Add(1)
		s.cfg.Logger.Warn("cut off the client that held most memory", "client", c.nc.RemoteAddr(), "id", c.id,
			"held", c.memory.counted.Load()+connBytes, "limit_of_all", s.memory.limit)
		// Closing TLS would wait for a write that is under way.
		c.plainConn().Close()
	}
}

// chooseVictims marks the clients that evict is to cut off.
func (s *Server) chooseVictims() (victims []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.memory
	for {
		total := m.total.Load() - m.evicting.Load()
		if total <= m.limit {
			return victims
		}
		// Those that asked to be spared are, as long as that does not cost the node.
		c := s.largest(total > 2*m.limit)
		if c == nil {
			m.retryFrom.Store(total + m.limit/16)
			return victims
		}
		c.memory.evicted.Store(true)
		c.memory.evicting = c.memory.counted.Load() + connBytes
		m.evicting.Add(c.memory.evicting)
		victims = append(victims, c)
	}
}

// largest is the connection that holds most, at least a step; nil: there is none.
// One with CLIENT NO-EVICT is that only if there is no other, and only with all. The caller holds s.mu.
func (s *Server) largest(all bool) *conn {
	var found, spared *conn
	for _, c := range s.conns {
		into := &found
		if c.memory.noEvict.Load() {
			into = &spared
		}
		if c.memory.counted.Load() > 0 && !c.memory.evicted.Load() && (*into == nil || c.memory.counted.Load() > (*into).memory.counted.Load()) {
			*into = c
		}
	}
	if found == nil && all {
		return spared
	}
	return found
}

// releaseMemory takes a connection that ends out of the sum. The caller holds s.mu.
func (s *Server) releaseMemory(c *conn) {
	m := &s.memory
	m.total.Add(-c.memory.counted.Swap(0) - connBytes)
	m.evicting.Add(-c.memory.evicting)
}
