package web

import (
	"container/list"
	"net"
	"sync"
)

// limited is a listener with at most that many connections. The oldest makes room for the next: an idle client, or
// one that says nothing, must not keep out a scrape.
type limited struct {
	net.Listener
	most int

	mu   sync.Mutex
	open list.List // of *connection, the oldest first
}

func limit(ln net.Listener, most int) net.Listener { return &limited{Listener: ln, most: most} }

func (l *limited) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: nc, of: l}
	l.mu.Lock()
	var oldest *connection
	if l.open.Len() >= l.most {
		oldest = l.open.Front().Value.(*connection)
		l.open.Remove(oldest.place)
		oldest.place = nil
	}
	c.place = l.open.PushBack(c)
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Conn.Close()
	}
	return c, nil
}

type connection struct {
	net.Conn
	of    *limited
	place *list.Element // guarded by of.mu; nil once out of the list
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	if c.place != nil {
		c.of.open.Remove(c.place)
		c.place = nil
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}
