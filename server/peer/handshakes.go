package peer

import (
	"container/list"
	"net"
	"sync"
)

const (
	// maxHandshakes bounds the unauthenticated connections of hosts that are not known to be members', and
	// maxHandshakesPerHost those of one host. Each member's host has maxHandshakesPerHost of its own.
	maxHandshakes        = 128
	maxHandshakesPerHost = 32
	// maxKnown bounds the member hosts that are remembered beside those of addresses.
	maxKnown = 64
)

// handshakes are the unauthenticated connections. If there are too many, the oldest is closed: a node needs two round
// trips, and a silent stranger has had more time than that.
type handshakes struct {
	mu sync.Mutex
	// own are hosts from which a member connected, or at which one answered, beside those in addresses.
	own       map[string]bool
	addresses func() []string
	learned   int
	strangers list.List // of *handshake, the oldest first
	hosts     map[string]*list.List
}

// handshake is a connection that is not authenticated yet.
type handshake struct {
	conn    net.Conn
	host    string
	dropped bool
	// atHost and among are the handshake's elements in the lists.
	atHost, among *list.Element
}

func newHandshakes(addresses func() []string) *handshakes {
	return &handshakes{own: make(map[string]bool), addresses: addresses, hosts: make(map[string]*list.List)}
}

// isMemberHost reports whether host is a member's. Of names in addresses nothing is resolved: such a host is known once
// a member was authenticated there.
func (hs *handshakes) isMemberHost(host string) bool {
	for _, addr := range hs.addresses() {
		at, _, _ := net.SplitHostPort(addr)
		if ip := net.ParseIP(at); ip != nil && ip.String() == host {
			return true
		}
	}
	return false
}

// begin adds conn, and closes the oldest connections if there are too many.
func (hs *handshakes) begin(conn net.Conn) *handshake {
	h := &handshake{conn: conn, host: hostOf(conn.RemoteAddr())}
	member := hs.isMemberHost(h.host)
	hs.mu.Lock()
	own := member || hs.own[h.host]
	var old *handshake
	at := hs.hosts[h.host]
	if at == nil {
		at = list.New()
		hs.hosts[h.host] = at
	}
	switch {
	case at.Len() >= maxHandshakesPerHost:
		old = at.Front().Value.(*handshake)
	case !own && hs.strangers.Len() >= maxHandshakes:
		old = hs.strangers.Front().Value.(*handshake)
	}
	if old != nil {
		old.dropped = true
		hs.remove(old)
		hs.hosts[h.host] = at
	}
	h.atHost = at.PushBack(h)
	if !own {
		h.among = hs.strangers.PushBack(h)
	}
	hs.mu.Unlock()
	if old != nil {
		_ = old.conn.Close()
	}
	return h
}

// end removes h, and reports whether begin has closed it.
func (hs *handshakes) end(h *handshake) (dropped bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if !h.dropped {
		hs.remove(h)
	}
	return h.dropped
}

func (hs *handshakes) remove(h *handshake) {
	at := hs.hosts[h.host]
	at.Remove(h.atHost)
	if at.Len() == 0 {
		delete(hs.hosts, h.host)
	}
	if h.among != nil {
		hs.strangers.Remove(h.among)
	}
}

// rememberHost records that a member was authenticated at the other end of conn.
func (hs *handshakes) rememberHost(conn net.Conn) {
	host := hostOf(conn.RemoteAddr())
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if !hs.own[host] && hs.learned < maxKnown {
		hs.learned++
		hs.own[host] = true
	}
}

func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}
