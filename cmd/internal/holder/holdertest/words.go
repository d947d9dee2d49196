package holdertest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// do is one command.
func (c *Cluster) do(at *conn, words []string) protocol.Value {
	name := strings.ToUpper(words[0])
	c.sent = append(c.sent, name)
	c.expire()
	switch {
	case name == "HELLO":
		return c.hello(at, words)
	case c.Password != "" && !at.known:
		return protocol.ErrNoAuth.Value()
	case c.refusing != "":
		return protocol.ErrValue(c.refusing)
	case name == "PING":
		return protocol.Simple("PONG")
	case name == "SELECT":
		return protocol.OK
	case name == "LOCK.ACQUIRE":
		return c.acquire(at, words)
	case name == "LOCK.CHECK":
		if l := c.lock(words[1]); l.holder == words[2] {
			return protocol.Integer(l.fence)
		}
		return protocol.Null
	case name == "LOCK.RELEASE":
		if l := c.lock(words[1]); l.holder == words[2] {
			l.holder = ""
			c.grant(words[1])
			return protocol.Integer(0)
		}
		return protocol.Null
	case strings.HasPrefix(name, "SESSION."):
		return c.session(at, name, words)
	}
	return protocol.Err("unknown command")
}

func (c *Cluster) hello(at *conn, words []string) protocol.Value {
	i := slices.Index(words, "AUTH")
	switch {
	case i > 0 && words[i+2] == c.Password:
		at.known = true
	case i > 0:
		return protocol.ErrWrongPass.Value()
	case c.Password != "":
		return protocol.ErrHelloNoAuth.Value()
	}
	return protocol.Map(protocol.Bulk("proto"), protocol.Integer(3))
}

func (c *Cluster) session(at *conn, name string, words []string) protocol.Value {
	if name == "SESSION.OPEN" {
		millis, _ := strconv.Atoi(words[2])
		c.last++
		c.sessions[c.last] = &session{
			id: c.last, lease: time.Duration(millis) * time.Millisecond, at: at,
			beats: slices.Contains(words, "HEARTBEAT"),
		}
		return protocol.Integer(c.last)
	}
	id, _ := strconv.ParseInt(words[1], 10, 64)
	s := c.sessions[id]
	if s == nil {
		return protocol.Null
	}
	switch name {
	case "SESSION.ATTACH":
		s.at, s.ends, s.beats = at, time.Time{}, slices.Contains(words, "HEARTBEAT")
		return protocol.Integer(1)
	case "SESSION.KEEPALIVE":
		s.ends = time.Time{}
		return protocol.Integer(s.lease.Milliseconds())
	}
	return protocol.Integer(c.end(id))
}

func (c *Cluster) lock(name string) *lock {
	if c.locks[name] == nil {
		c.locks[name] = &lock{}
	}
	return c.locks[name]
}

func (c *Cluster) acquire(at *conn, words []string) protocol.Value {
	l, owner := c.lock(words[1]), words[2]
	on, _ := strconv.ParseInt(words[4], 10, 64)
	if c.sessions[on] == nil {
		return protocol.ErrValue("NOSESSION no such session")
	}
	if l.holder == owner {
		return protocol.Integer(l.fence)
	}
	i := slices.IndexFunc(l.queue, func(w *waiter) bool { return w.owner == owner })
	if i >= 0 { // asks again
		l.queue[i].at = at
		return protocol.Integer(0)
	}
	if l.holder == "" {
		c.last++
		l.holder, l.fence, l.on = owner, c.last, on
		return protocol.Integer(l.fence)
	}
	wait := slices.Index(words, "WAIT")
	if wait < 0 {
		return protocol.Null
	}
	w := &waiter{owner: owner, on: on, at: at}
	l.queue = append(l.queue, w)
	if millis, _ := strconv.Atoi(words[wait+1]); millis > 0 {
		w.timer = time.AfterFunc(time.Duration(millis)*time.Millisecond, func() { c.giveUp(words[1], w) })
	}
	return protocol.Integer(0)
}

// giveUp ends a wait whose time is over.
func (c *Cluster) giveUp(name string, w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lock(name)
	if i := slices.Index(l.queue, w); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		w.at.send(push("timeout", name, w.owner))
	}
}

func push(words ...string) protocol.Value {
	elems := []protocol.Value{protocol.Bulk("lock")}
	for _, w := range words {
		elems = append(elems, protocol.Bulk(w))
	}
	return protocol.Push(elems...)
}

// grant gives a free lock to the next in line.
func (c *Cluster) grant(name string) {
	l := c.lock(name)
	if l.holder != "" || len(l.queue) == 0 {
		return
	}
	w := l.queue[0]
	l.queue = l.queue[1:]
	c.last++
	l.holder, l.fence, l.on = w.owner, c.last, w.on
	w.at.send(push("granted", name, w.owner, strconv.FormatInt(l.fence, 10)))
}

// lose takes a lock from its holder, who is told.
func (c *Cluster) lose(name, reason string) {
	l := c.lock(name)
	if l.holder == "" {
		return
	}
	if s := c.sessions[l.on]; s != nil {
		s.at.send(push("lost", name, l.holder, strconv.FormatInt(l.fence, 10), reason))
	}
	l.holder = ""
	c.grant(name)
}

// end ends a session with its holds and places in line.
func (c *Cluster) end(id int64) (holds int64) {
	for name, l := range c.locks {
		l.queue = slices.DeleteFunc(l.queue, func(w *waiter) bool { return w.on == id })
		if l.holder != "" && l.on == id {
			holds++
			c.lose(name, "session")
		}
	}
	delete(c.sessions, id)
	return holds
}

// expire ends the sessions whose node has been dead for their lease.
func (c *Cluster) expire() {
	for id, s := range c.sessions {
		if !s.ends.IsZero() && time.Now().After(s.ends) {
			c.end(id)
		}
	}
}
