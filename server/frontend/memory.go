package frontend

import (
	"sync/atomic"
	"unsafe"

	"github.com/holdfast/holdfast/server/push"
)

// The memory of all clients together is bounded. If a buffer grows, the connection adds up its buffers, and updates the
// server's total with the sum rounded down. Most commands change no shared counter, since small amounts are rounded to
// 0.

const (
	// memoryUnit is the unit to which a connection's memory is rounded down. A client with less is never evicted.
	memoryUnit = 32 << 10
	// connBytes estimates the memory of an idle connection: the goroutine's stack and the fields of conn.
	connBytes = 6 << 10
	// slotBytes is the memory of a slot.
	slotBytes = int(unsafe.Sizeof(slot{}))
)

// clientMemory is the memory of all clients.
type clientMemory struct {
	limit int64
	// total is the memory of all connections. evicting is the part of connections that were evicted and have not ended
	// yet.
	total, evicting atomic.Int64
	// retryFrom is the total at which eviction is tried again after it has found no victim.
	retryFrom atomic.Int64
}

// footprint returns the connection's memory beyond that of an idle one.
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

// account updates the total. If the total exceeds the limit, the largest connections are evicted, perhaps this one.
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

// accountQueue calls account if the size of a queue has crossed a multiple of memoryUnit.
func (st *stream) accountQueue(from, to int) {
	if from/memoryUnit != to/memoryUnit {
		st.onGrowth()
	}
}

// addMemory changes the total, and starts an eviction if it exceeds the limit.
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

// evict closes the clients with the most memory until the others are within the limit.
func (s *Server) evict() {
	for _, c := range s.chooseVictims() {
		s.metrics.Evicted.Add(1)
		s.cfg.Logger.Warn("cut off the client that held most memory", "client", c.nc.RemoteAddr(), "id", c.id,
			"held", c.memory.found, "limit_of_all", s.memory.limit)
		// Closing TLS would wait for a write that has not ended.
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
		// Clients with NO-EVICT are spared up to twice the limit.
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

// largest returns the connection with the most memory, or nil if none has a unit. It returns a connection with NO-EVICT
// only if all is set and there is no other. The caller holds s.mu.
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

// holds returns the memory that an eviction of the client may free: its buffers and messages. Other clients may share
// the messages.
func (c *conn) holds() int64 { return c.memory.counted.Load() + c.outbox.held.Load() }

// releaseMemory subtracts an ended connection from the total. The caller holds s.mu.
func (s *Server) releaseMemory(c *conn) {
	m := &s.memory
	m.total.Add(-c.memory.counted.Swap(0) - connBytes)
	m.evicting.Add(-c.memory.evicting)
}

// letGo releases a client's share of a message.
func (s *Server) letGo(m *push.Message) {
	if m.Release() {
		s.addMemory(-int64(m.Size()))
	}
}
