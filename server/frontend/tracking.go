package frontend

import (
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

// caches reports whether the keys of the next command are to be noted.
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

// begin is called before data commands go out: messages are held back from here on.
func (t *track) begin() {
	if !t.busy {
		t.busy = true
		t.client.Begin()
	}
}

// written is called when all replies have been written.
func (t *track) written() {
	if t.busy {
		t.busy = false
		t.client.Settle()
	}
}

// looks are the keys that commands read and that must be noted before the commands go out.
type looks struct {
	keys []string
	// scripted: scripts are among the commands, whose keys only the state machine knows. read: some of
	// them run beside the log, where this node does not see the keys, unless the batch is written.
	scripted, read bool
}

// add adds the keys of a command. The result is the size of the keys.
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

// note notes what commands read, and reports whether their batch must go through the log.
func (t *track) note(w *work, l *looks) (write bool) {
	t.begin()
	w.numbered = w.numbered || t.noloop || l.scripted
	if len(l.keys) > 0 {
		t.client.Read(l.keys...)
	}
	return l.read
}

// command notes what a command outside MULTI reads, and reports whether the batch must go through the log.
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

// Invalidate implements tracking.Target: it takes a message to the client, or to the client that CLIENT
// TRACKING REDIRECT names.
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

// redirectTarget returns the client of this node with a number, if it is the same user's: messages that it does not
// read cut a client off, and its sessions end. nil: there is none. Any goroutine may ask.
func (c *conn) redirectTarget(id int64) *conn {
	to := c.srv.client(id)
	if to == nil || to.view().user.Name != c.view().user.Name {
		return nil
	}
	return to
}

// redirect takes a message to another client of this node. A client of RESP2 must be a subscriber.
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

// takesMessages reports whether the client can get messages. Any goroutine may ask.
func (c *conn) takesMessages() bool {
	if c.view().resp >= protocol.RESP3 {
		return true
	}
	c.outbox.mu.Lock()
	defer c.outbox.mu.Unlock()
	return c.outbox.subscriber
}

// client is the connection with this number, nil if there is none.
func (s *Server) client(id int64) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.conns[id]; c != nil && !c.admission.hidden {
		return c
	}
	return nil
}

// setTrackMode changes the mode, for other goroutines too.
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

// setProtocol sets the version of RESP, for other goroutines too.
func (c *conn) setProtocol(resp int) {
	c.resp = resp
	c.update(func(s *shown) { s.resp = resp })
}
