package frontend

import (
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server/loglimit"
)

// LOCK.BREAK says in its reply that holds ended by force. DEL, UNLINK, FLUSHDB and FLUSHALL do not, alone, in a
// transaction or in a script: the state machine tells the node of the client by the number of the batch.

// batchNumbers are the numbers of a client's last writes. The event of a batch comes a moment after the reply where
// another node leads.
type batchNumbers struct {
	last [16]atomic.Uint64
	next int // guarded by the backend: a client has one batch at a time
}

func (n *batchNumbers) add(number uint64) {
	n.last[n.next%len(n.last)].Store(number)
	n.next++
}

func (n *batchNumbers) has(number uint64) bool {
	for i := range n.last {
		if n.last[i].Load() == number {
			return true
		}
	}
	return false
}

// numbered is told under which number a batch of writes goes out.
func (c *conn) numbered(number uint64) {
	c.numbers.add(number)
	if c.w.numbered {
		c.track.client.Numbered(number)
	}
}

// newForced limits the lines about locks that were broken by other words than LOCK.BREAK.
func newForced() *loglimit.Limit { return &loglimit.Limit{Burst: 20, Every: 50 * time.Millisecond} }

// LocksForced logs who took locks away, and from where. The backend's events are told here.
func (s *Server) LocksForced(e *fsm.Event) {
	silent, ok := s.forced.Admit(time.Now())
	if !ok {
		return
	}
	attrs := []any{"command", e.Name, "db", e.DB}
	if e.Other > 0 {
		attrs = append(attrs, "key", e.Key[:min(len(e.Key), mostOfKey)], "locks", e.Other)
	}
	if silent > 0 {
		attrs = append(attrs, "not_logged", silent)
	}
	seq := e.Seq
	go func() { // the state machine must not wait for the list of clients
		for _, c := range s.clients() {
			if c.numbers.has(seq) {
				attrs = append(attrs, c.who()...)
				break
			}
		}
		s.cfg.Logger.Warn(lockBroken, attrs...)
	}()
}

const (
	lockBroken = "lock broken by force"
	// mostOfKey is how much of a key is logged.
	mostOfKey = 128
)

// who are the attributes of a log line that say which client it is about.
func (c *conn) who() []any {
	c.mu.Lock()
	name := c.shown.name
	c.mu.Unlock()
	return []any{"client", c.nc.RemoteAddr(), "id", c.id, "name", name}
}
