package frontend

import (
	"net"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/holdfast/holdfast/server/push"
)

// The memory of all clients together is bounded. If a buffer grows, the connection adds up its buffers, and updates the
// server's total with the sum rounded down. Most commands change no shared counter, since small amounts are rounded to
// 0.
//
// A large command needs memory twice: in the input buffer, and in the batch. Its connection takes both out of the total
// before it reads on, and waits if there is not enough: see [conn.reserve].

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
	// total is the memory of all connections, until it is free. pinned is the part of connections whose batch is being
	// executed, which an eviction does not free.
	total, pinned atomic.Int64
	// retryFrom is the total at which eviction is tried again after it has found no victim.
	retryFrom atomic.Int64
	// turn has an element while a connection reserves memory; others wait in the order of arrival. freed signals the
	// first that the total has fallen.
	turn, freed chan struct{}
}

func newClientMemory(limit int) clientMemory {
	return clientMemory{limit: int64(limit), turn: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
}

// room returns the limit of the total for a large command that needs the given bytes. An eighth of the limit of all
// clients is left to small commands, unless the large command would never fit.
func (m *clientMemory) room(bytes int64) int64 {
	if room := m.limit - m.limit/8; bytes <= room {
		return room
	}
	return m.limit
}

// footprint returns the connection's memory beyond that of an idle one.
func (c *conn) footprint() int {
	n := c.watches.bytes + c.subs.bytes + c.track.bytes
	if c.tx != nil {
		n += c.tx.bytes
	}
	n += int(c.locks.bytes.Load())
	if w := c.w; w != nil {
		in, body := max(cap(w.in), w.reserved), cap(w.batch.Body)
		if in > keepBytes {
			body = max(body, in) // into which the command will be copied
		}
		n += in + body + cap(w.out) + cap(w.local) + cap(w.slots)*slotBytes + w.reader.Memory() + w.replyBytes
	}
	return n
}

// account updates the total. If the total exceeds the limit, the largest connections are evicted, perhaps this one.
func (c *conn) account() {
	if c.memory.evicted.Load() {
		c.closing, c.disconnected = true, true
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

// reserve takes the memory of a large command whose beginning has arrived out of the total, before the rest is read.
// While there is too little, it waits for its turn. A parked connection takes nothing: its reply may come at any time.
func (c *conn) reserve() error {
	if c.w == nil || c.parked != nil {
		return nil
	}
	bytes := c.unreserved()
	if bytes == 0 {
		return nil
	}
	m, cut := &c.srv.memory, c.evictionSignal()
	select {
	case m.turn <- struct{}{}:
	case <-cut:
		return net.ErrClosed
	}
	c.awaitMemory(2*int64(bytes), cut)
	c.w.reserved = bytes
	c.account()
	<-m.turn
	if c.disconnected {
		return net.ErrClosed
	}
	return nil
}

// awaitMemory waits until the connection may hold so many bytes, or is evicted. Batches that are being executed free
// their memory by themselves. If they do not hold enough of it after GraceTimeout, clients are evicted, since a client
// that stops amid a large command would hold up all others.
func (c *conn) awaitMemory(bytes int64, cut <-chan struct{}) {
	m := &c.srv.memory
	room := m.room(bytes) - bytes + c.memory.counted.Load() // the counted memory is part of bytes
	if room < c.memory.counted.Load() || m.total.Load() <= room {
		return // the command never fits, or does so now
	}
	grace := time.NewTimer(c.srv.cfg.GraceTimeout)
	defer grace.Stop()
	for m.total.Load() > room {
		select {
		case <-m.freed:
		case <-cut:
			return
		case <-grace.C:
			if m.total.Load()-m.pinned.Load() > room && !c.srv.evict(room) {
				return // nobody can make room
			}
			grace.Reset(c.srv.cfg.GraceTimeout)
		}
	}
}

// unreserved returns the bytes of the command that is arriving, if it is large and they are not reserved, or else 0.
func (st *stream) unreserved() int {
	w := st.w
	bytes := w.buffered() + w.reader.Missing()
	if !w.hasRoom() {
		bytes = max(bytes, st.largerInput())
	}
	// The last buffer of a command may be a little larger than the rest of it.
	if bytes <= keepBytes || bytes <= w.reserved+w.reserved/4+pooledIn {
		return 0
	}
	return bytes
}

// evictionSignal returns a channel that is closed when the connection is evicted.
func (c *conn) evictionSignal() <-chan struct{} {
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	c.memory.cut = make(chan struct{})
	if c.memory.evicted.Load() {
		close(c.memory.cut)
	}
	return c.memory.cut
}

// pin records that the connection's memory is held by a batch that is being executed, until unpin.
func (c *conn) pin() {
	n := c.memory.counted.Load()
	c.memory.pinned.Store(n)
	c.srv.memory.pinned.Add(n)
}

func (c *conn) unpin() { c.srv.memory.pinned.Add(-c.memory.pinned.Swap(0)) }

// addMemory changes the total, and starts an eviction if it exceeds the limit.
func (s *Server) addMemory(bytes int64) {
	m := &s.memory
	total := m.total.Add(bytes)
	if bytes < 0 {
		m.noteFreed()
	}
	switch {
	case total <= m.limit:
		if bytes < 0 && m.retryFrom.Load() > 0 {
			m.retryFrom.Store(0)
		}
	case bytes > 0 && total >= m.retryFrom.Load():
		s.evict(m.limit)
	}
}

// noteFreed wakes the connection that waits for memory.
func (m *clientMemory) noteFreed() {
	select {
	case m.freed <- struct{}{}:
	default:
	}
}

// evict closes the clients with the most memory until the others are within the limit. It reports whether any client
// that was evicted, now or before, has not ended yet.
func (s *Server) evict(limit int64) (ending bool) {
	victims, bytes := s.chooseVictims(limit)
	for _, c := range victims {
		s.metrics.Evicted.Add(1)
		s.cfg.Logger.Warn("cut off the client that held most memory", "client", c.nc.RemoteAddr(), "id", c.id,
			"held", c.held, "limit_of_all", s.memory.limit)
		// Closing TLS would wait for a write that has not ended.
		c.plainConn().Close()
	}
	return bytes > 0
}

// victim is an evicted connection, with the memory that it held.
type victim struct {
	*conn
	held int64
}

// chooseVictims marks the connections that evict closes, and returns the memory that evicted ones will free.
func (s *Server) chooseVictims(limit int64) (victims []victim, ending int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.memory
	for _, c := range s.conns {
		if c.memory.evicted.Load() && c.memory.pinned.Load() == 0 {
			ending += c.memory.counted.Load() + connBytes
		}
	}
	for {
		total := m.total.Load() - ending
		if total <= limit {
			return victims, ending
		}
		// Clients with NO-EVICT are spared up to twice the limit.
		c := s.largest(total > 2*m.limit)
		if c == nil {
			m.retryFrom.Store(m.total.Load() + m.limit/16)
			return victims, ending
		}
		c.memory.evicted.Store(true)
		if c.memory.cut != nil {
			close(c.memory.cut)
		}
		victims = append(victims, victim{c, c.holds() + connBytes})
		c.closeOutbox()
		ending += c.memory.counted.Load() + connBytes
	}
}

// largest returns the connection with the most memory that an eviction frees, or nil if none has a unit. It returns a
// connection with NO-EVICT only if all is set and there is no other. The caller holds s.mu.
func (s *Server) largest(all bool) *conn {
	var found, spared *conn
	for _, c := range s.conns {
		into := &found
		if c.memory.noEvict.Load() {
			into = &spared
		}
		if c.holds() > 0 && !c.memory.evicted.Load() && c.memory.pinned.Load() == 0 && (*into == nil || c.holds() > (*into).holds()) {
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
	s.addMemory(-c.memory.counted.Swap(0) - connBytes)
}

// letGo releases a client's share of a message.
func (s *Server) letGo(m *push.Message) {
	if m.Release() {
		s.addMemory(-int64(m.Size()))
	}
}
