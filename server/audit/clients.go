package audit

import "sync"

// clients has the connections of the node by their numbers: the open ones, and the last that were closed, since the
// line of a client's last command may be written after the connection was closed.
type clients struct {
	mu    sync.Mutex
	known map[int64]string       // [Client.encoded]
	gone  [maxEndedClients]int64 // a ring of closed connections
	next  int
}

const (
	// maxEndedClients bounds the closed connections that are known.
	maxEndedClients = 4096
	// maxNameBytes bounds a client's name, and its user's name.
	maxNameBytes = 128
)

// SetClient records the client of a connection. It is called again when the name or the user has changed.
func (l *Log) SetClient(conn int64, c Client) {
	if l == nil {
		return
	}
	c.Name, c.User = c.Name[:min(len(c.Name), maxNameBytes)], c.User[:min(len(c.User), maxNameBytes)]
	cs := &l.clients
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.known == nil {
		cs.known = make(map[int64]string)
	}
	cs.known[conn] = c.encoded()
}

// ClientGone records that a connection was closed.
func (l *Log) ClientGone(conn int64) {
	if l == nil {
		return
	}
	cs := &l.clients
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if _, known := cs.known[conn]; !known {
		return
	}
	at := &cs.gone[cs.next%maxEndedClients]
	delete(cs.known, *at)
	*at = conn
	cs.next++
}
