package frontend

import (
	"sync/atomic"
	"unsafe"

	"github.com/holdfast/holdfast/server/push"
)

// The memory of all clients together is bounded. When a buffer has grown, a connection sums up its
// buffers and adds the sum, rounded down, to the server's total. Amounts below the rounding unit
// are ignored, so most commands touch nothing shared.

const (
	// memoryUnit is the unit to which a connection's memory is rounded down. A client that holds
	// less is never cut off.
	memoryUnit = 32 << 10
	// connBytes is roughly the cost of an idle connection: the goroutine's stack and the fields of
	// conn.
	connBytes = 6 << 10
	// slotBytes is the cost of a reply's place.
	slotBytes = int(unsafe.Sizeof(slot{}))
)

// clientMemory is the memory of all clients.
type clientMemory struct {
	limit int64
	// total is the sum over all connections. evicting is the part of total held by connections that
	// were cut off and have not ended yet.
	total, evicting atomic.Int64
	// retryFrom is the total from which eviction is tried again, after no connection to cut off was
	// found.
	retryFrom atomic.Int64
}

// footprint is the memory that the connection holds beyond the cost of an idle connection.
func (c *conn) footprint() int {
	n := c.watches.bytes + c.subs.bytes + c.track.bytes
	if c.tx != nil {
		n += c.tx.bytes
	}
	n += int(c.locks.bytes.Load())
	if w := c.w; w != nil {
		n += cap(w.in) + cap(w.out) + cap(w.local) + cap(w.batch.Body) + cap(w.slots)*slotBytes + w.reader.Memory() +
			w.replyBytes
	}
	return n
}

// account updates the total. If the total is now too large, the largest connection is cut off,
// which may be this connection.
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

// accountQueue calls account when a queue that grew has crossed a unit.
func (st *stream) accountQueue(from, to int) {
	if from/memoryUnit != to/memoryUnit {
		st.onGrowth()
	}
}

// addMemory changes the total, and starts an eviction beyond the limit.
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
		s.metrics.Evicted.Add(1)
		s.cfg.Logger.Warn("cut off the client that held most memory", "client", c.nc.RemoteAddr(), "id", c.id,
			"held", c.memory.found, "limit_of_all", s.memory.limit)
		// Closing TLS would wait for a write that is under way.
		c.plainConn().Close()
	}
}

// chooseVictims marks the connections that evict closes.
func (s *Server) chooseVictims() (victims []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.memory
	for {
		total := m.total.Load() - m.evicting.Load()
		if total <= m.limit {
			return victims
		}
		// Clients with NO-EVICT are spared, but not at the expense of the node.
		c := s.largest(total > 2*m.limit)
		if c == nil {
			m.retryFrom.Store(total + m.limit/16)
			return victims
		}
		c.memory.evicted.Store(true)
		c.memory.found = c.holds() + connBytes
		c.closeOutbox()
		c.memory.evicting = c.memory.counted.Load() + connBytes
		m.evicting.Add(c.memory.evicting)
		victims = append(victims, c)
	}
}

// largest is the connection that holds most; nil if none holds a unit. A connection with NO-EVICT
// is returned only when there is no other, and only with all. The caller holds s.mu.
func (s *Server) largest(all bool) *conn {
	var found, spared *conn
	for _, c := range s.conns {
		into := &found
		if c.memory.noEvict.Load() {
			into = &spared
		}
		if c.holds() > 0 && !c.memory.evicted.Load() && (*into == nil || c.holds() > (*into).holds()) {
			*into = c
		}
	}
	if found == nil && all {
		return spared
	}
	return found
}

// holds is what cutting off the client may free: its buffers, and the messages that wait for the client.
// Other clients may hold the same messages.
func (c *conn) holds() int64 { return c.memory.counted.Load() + c.outbox.held.Load() }

// releaseMemory subtracts a connection that has ended from the total. The caller holds s.mu.
func (s *Server) releaseMemory(c *conn) {
	m := &s.memory
	m.total.Add(-c.memory.counted.Swap(0) - connBytes)
	m.evicting.Add(-c.memory.evicting)
}

// letGo notes that a client no longer holds m.
func (s *Server) letGo(m *push.Message) {
	if m.Release() {
		s.addMemory(-int64(m.Size()))
	}
}
