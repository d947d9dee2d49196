package frontend

import (
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

// caches reports whether the keys of the next command are tracked.
func (t *track) caches() bool {
	switch {
	case !t.on || t.bcast:
		return false
	case t.optin:
		return t.caching
	case t.optout:
		return !t.caching
	}
	return true
}

// begin is called before data commands are sent. Messages are held back from then on.
func (t *track) begin() {
	if !t.busy {
		t.busy = true
		t.client.Begin()
	}
}

// written is called after all replies have been written.
func (t *track) written() {
	if t.busy {
		t.busy = false
		t.client.Settle()
	}
}

// looks has the keys that commands read. They are tracked before the commands are sent.
type looks struct {
	keys []string
	// scripted is set if there are scripts, whose keys only the state machine knows. read is set if some of them only
	// read: this node learns their keys only if the batch goes through the log.
	scripted, read bool
}

// add adds the keys of a command, and returns their memory.
func (l *looks) add(req *request) (bytes int) {
	switch {
	case req.Route == protocol.Script:
		l.scripted = true
		l.read = l.read || !req.write
	case req.Has(protocol.FlagReadOnly):
		for _, p := range req.keys() {
			l.keys = append(l.keys, string(req.args[p]))
			bytes += len(req.args[p]) + 16
		}
	}
	return bytes
}

// note tracks what commands read, and reports whether their batch must go through the log.
func (t *track) note(w *work, l *looks) (write bool) {
	t.begin()
	w.numbered = w.numbered || t.noloop || l.scripted
	if len(l.keys) > 0 {
		t.client.Read(l.keys...)
	}
	return l.read
}

// command tracks what a command outside MULTI reads, and reports whether the batch must go through the log.
func (t *track) command(w *work, req *request) (write bool) {
	if !t.on {
		return req.write
	}
	var l looks
	if t.caches() {
		l.add(req)
	}
	return t.note(w, &l) || req.write
}

// Invalidate implements tracking.Target. It posts a message to the client, or to the client that CLIENT TRACKING
// REDIRECT names.
func (c *conn) Invalidate(m *push.Message) {
	s := c.view()
	mode, resp := s.track, s.resp
	switch {
	case !mode.on:
	case mode.redirect == 0:
		if resp >= protocol.RESP3 {
			c.Post(m)
		}
	default:
		c.redirect(m, mode.redirect, resp)
	}
}

// redirectTarget returns the client of this node with a number, or nil. It must have the same user: a client that does
// not read the messages is disconnected, and its sessions end. Any goroutine may call it.
func (c *conn) redirectTarget(id int64) *conn {
	to := c.srv.client(id)
	if to == nil || to.view().user.Name != c.view().user.Name {
		return nil
	}
	return to
}

// redirect posts a message to another client of this node. A client of RESP2 must be a subscriber.
func (c *conn) redirect(m *push.Message, id int64, resp int) {
	to := c.redirectTarget(id)
	if to != nil {
		if to.takesMessages() {
			to.Post(m)
		}
		return
	}
	c.update(func(s *shown) { s.track.broken = true })
	if resp >= protocol.RESP3 {
		c.Post(push.New(protocol.Push(protocol.Bulk("tracking-redir-broken"), protocol.Integer(id))))
	}
}

// takesMessages reports whether the client can get messages. Any goroutine may call it.
func (c *conn) takesMessages() bool {
	if c.view().resp >= protocol.RESP3 {
		return true
	}
	c.outbox.mu.Lock()
	defer c.outbox.mu.Unlock()
	return c.outbox.subscriber
}

// client returns the connection with a number, or nil.
func (s *Server) client(id int64) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.conns[id]; c != nil && !c.admission.hidden {
		return c
	}
	return nil
}

// setTrackMode sets the mode, and shows it to other goroutines.
func (c *conn) setTrackMode(m trackMode) {
	c.track.trackMode = m
	c.update(func(s *shown) { s.track = m })
}

// stopTracking ends tracking, for CLIENT TRACKING OFF, RESET, and the end of the connection.
func (c *conn) stopTracking() {
	if c.track.on {
		c.track.client.Stop()
		c.setTrackMode(trackMode{})
		c.track.caching, c.track.bytes = false, 0
	}
}

// endTracking is stopTracking at the end of the connection.
func (c *conn) endTracking() {
	c.stopTracking()
	if c.track.client != nil {
		c.track.client.End()
	}
}

// setProtocol sets the version of RESP, and shows it to other goroutines.
func (c *conn) setProtocol(resp int) {
	c.resp = resp
	c.update(func(s *shown) { s.resp = resp })
}
