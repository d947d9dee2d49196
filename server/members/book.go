package members

import "sync"

// maxHints bounds the nodes in a [Book] that are not members.
const maxHints = 64

// Book knows where to dial a node. Many goroutines may use a Book. The zero value is an empty book.
//
// A member's address is the configuration's, or a hint's: a node that comes back with another address tells the
// other nodes, before the cluster has agreed on the address, so that there is a majority to agree at all. A hint
// is good until a configuration gives the member another address than the configuration before. A member that
// was removed stays until the next configuration: the leader tells it.
type Book struct {
	mu        sync.Mutex
	newest    Configuration
	addresses map[string]string // by ID, of the configuration
	left      map[string]string // by ID, of members that the newest configuration has no more
	hints     map[string]string // by ID
}

// SetConfiguration takes the addresses of the members. Calls must come in the order of the configurations.
func (b *Book) SetConfiguration(c Configuration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.addresses != nil && c.Index == b.newest.Index && c.Same(b.newest) {
		return
	}
	before := b.addresses
	b.newest, b.addresses, b.left = c, make(map[string]string, len(c.Members)), nil
	for _, m := range c.Members {
		b.addresses[m.ID] = m.Addr
		if was, known := before[m.ID]; known && was != m.Addr {
			delete(b.hints, m.ID)
		}
	}
	for id := range before {
		if _, stays := b.addresses[id]; !stays {
			if b.left == nil {
				b.left = make(map[string]string)
			}
			b.left[id] = b.addr(id, before)
			delete(b.hints, id)
		}
	}
}

// Hint takes the address that a node says it has. The hint is left out when too many nodes that are not members
// have given hints.
func (b *Book) Hint(id, addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hints == nil {
		b.hints = make(map[string]string)
	}
	_, known := b.hints[id]
	if _, member := b.addresses[id]; !member && !known && b.strangers() >= maxHints {
		return
	}
	b.hints[id] = addr
}

// strangers counts the hints of nodes that are not members. Requires b.mu.
func (b *Book) strangers() int {
	n := 0
	for id := range b.hints {
		if _, member := b.addresses[id]; !member {
			n++
		}
	}
	return n
}

// Addr returns where to dial a node, or "" if that is not known.
func (b *Book) Addr(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if addr, ok := b.left[id]; ok {
		return addr
	}
	return b.addr(id, b.addresses)
}

func (b *Book) addr(id string, addresses map[string]string) string {
	if addr, ok := b.hints[id]; ok {
		return addr
	}
	return addresses[id]
}

// Addrs returns all addresses, in no order.
func (b *Book) Addrs() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	addrs := make([]string, 0, len(b.addresses)+len(b.hints))
	for _, addr := range b.addresses { // unordered
		addrs = append(addrs, addr)
	}
	for _, addr := range b.hints { // unordered
		addrs = append(addrs, addr)
	}
	return addrs
}
