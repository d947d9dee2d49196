package frontend

import (
	"time"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/server/audit"
	"github.com/holdfast/holdfast/server/loglimit"
)

// LOCK.BREAK, DEL, UNLINK, FLUSHDB and FLUSHALL end holds of others by force. The event of the state machine has the
// number of the batch, by which the node of the client finds the client.

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

// numbered is called with the number of each batch of writes before it is sent.
func (c *conn) numbered(number uint64) {
	c.numbers.add(number)
	if c.w.numbered {
		c.track.client.Numbered(number)
	}
}

// newForced limits the commands that are logged.
func newForced() *loglimit.Limit { return &loglimit.Limit{Burst: 20, Every: 50 * time.Millisecond} }

// LocksForced logs a command that ended holds of others, with its client, and a line for each of the first ten holds
// that ended at once. The listener of the backend's events calls it.
func (s *Server) LocksForced(e *event.Event) {
	silent, ok := s.forced.Admit(time.Now())
	if !ok {
		return
	}
	attrs := []any{"command", e.Name, "db", e.DB}
	if e.Other > 1 {
		attrs = append(attrs, "locks", e.Other)
	}
	if e.Forced.Holds > 0 {
		attrs = append(attrs, "holds", e.Forced.Holds)
	}
	if e.Forced.Text != "" {
		attrs = append(attrs, "reason", e.Forced.Text)
	}
	if silent > 0 {
		attrs = append(attrs, "not_logged", silent)
	}
	broken := e.Forced.Broken
	if len(broken) == 0 && e.Key != "" { // the holds of a lock with many holders end later
		broken = []event.BrokenHold{{Key: e.Key}}
	}
	seq := e.Seq
	line := audit.Line{
		Event: audit.LocksForced, DB: e.DB, Key: e.Key, Command: e.Name, Text: e.Forced.Text, Count: uint64(silent),
	}
	go func() { // the state machine must not wait for the list of clients
		for _, c := range s.clients() {
			if c.numbers.has(seq) {
				attrs = append(attrs, c.who()...)
				is := c.view()
				line.Addr, line.Name, line.User = c.addr.String(), is.name, is.user.Name
				break
			}
		}
		s.cfg.Audit.Note(line)
		for i := range broken {
			s.cfg.Logger.Warn(lockBroken, append(ofBroken(&broken[i]), attrs...)...)
		}
		if len(broken) == 0 {
			s.cfg.Logger.Warn(lockBroken, attrs...)
		}
	}()
}

// ofBroken returns the log attributes of a hold that was ended by force.
func ofBroken(h *event.BrokenHold) []any {
	attrs := []any{"key", shortened(h.Key)}
	if h.Fence != 0 {
		attrs = append(attrs, "owner", shortened(h.Owner), "fence", h.Fence, "since",
			time.UnixMilli(h.SinceMillis).UTC().Format(time.RFC3339), "holder", h.Client)
	}
	if h.Note != "" {
		attrs = append(attrs, "note", shortened(h.Note))
	}
	return attrs
}

func shortened(text string) string { return text[:min(len(text), maxLoggedBytes)] }

const (
	lockBroken = "lock broken by force"
	// maxLoggedBytes bounds a logged key, owner or note.
	maxLoggedBytes = 128
)
