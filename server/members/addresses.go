package members

import "sync"

// maxHints bounds the nodes in [Addresses] that are not members.
const maxHints = 64

// Addresses are where this node dials other nodes, by ID. Many goroutines may use one value. The zero value is empty.
//
// A member's address is the configuration's, or a hint's: a node that comes back with another address tells the
// other nodes, before the cluster has agreed on the address, so that there is a majority to agree at all. A hint
// is good until a configuration gives the member another address than the configuration before. A member that
// was removed stays until the next configuration: the leader tells it.
type Addresses struct {
	mu      sync.Mutex
	newest  Configuration
	members map[string]string // by ID, of the configuration
	left    map[string]string // by ID, of members that the newest configuration has no more
	hints   map[string]string // by ID
}

// SetConfiguration takes the addresses of the members. Calls must come in the order of the configurations.
func (a *Addresses) SetConfiguration(c Configuration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.members != nil && c.Index == a.newest.Index && c.Same(a.newest) {
		return
	}
	before := a.members
	a.newest, a.members, a.left = c, make(map[string]string, len(c.Members)), nil
	for _, m := range c.Members {
		a.members[m.ID] = m.Addr
		if was, known := before[m.ID]; known && was != m.Addr {
			delete(a.hints, m.ID)
		}
	}
	for id := range before {
		if _, stays := a.members[id]; !stays {
			if a.left == nil {
				a.left = make(map[string]string)
			}
			a.left[id] = a.addr(id, before)
			delete(a.hints, id)
		}
	}
}

// Hint takes the address that a node says it has. The hint is left out when too many nodes that are not members
// have given hints.
func (a *Addresses) Hint(id, addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hints == nil {
		a.hints = make(map[string]string)
	}
	_, known := a.hints[id]
	if _, member := a.members[id]; !member && !known && a.strangers() >= maxHints {
		return
	}
	a.hints[id] = addr
}

// strangers counts the hints of nodes that are not members. Requires b.mu.
func (a *Addresses) strangers() int {
	n := 0
	for id := range a.hints {
		if _, member := a.members[id]; !member {
			n++
		}
	}
	return n
}

// Addr returns where to dial a node, or "" if that is not known.
func (a *Addresses) Addr(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if addr, ok := a.left[id]; ok {
		return addr
	}
	return a.addr(id, a.members)
}

func (a *Addresses) addr(id string, addresses map[string]string) string {
	if addr, ok := a.hints[id]; ok {
		return addr
	}
	return addresses[id]
}

// Addrs returns all addresses, in no order.
func (a *Addresses) Addrs() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	addrs := make([]string, 0, len(a.members)+len(a.hints))
	for _, addr := range a.members { // unordered
		addrs = append(addrs, addr)
	}
	for _, addr := range a.hints { // unordered
		addrs = append(addrs, addr)
	}
	return addrs
}
