package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/incarnation"
)

// Layer is the stream layer of one kind of connections. It implements raft.StreamLayer.
type Layer struct {
	mux    *Mux
	kind   Kind
	queue  chan *Conn
	closed context.Context // ends with Close; dials under way end then
	cancel context.CancelFunc

	mu    sync.Mutex
	conns map[*Conn]struct{} // all that are open; nil after Close
	// from are the open connections that each node made, the oldest first.
	from map[string][]*Conn
}

// maxPerNode is how many connections of a kind another node may have made. A node needs up to four at a time.
// Connections of a node that vanished remain open, so the oldest is closed.
const maxPerNode = 16

var _ raft.StreamLayer = (*Layer)(nil)

func newLayer(m *Mux, k Kind) *Layer {
	l := &Layer{mux: m, kind: k, queue: make(chan *Conn), conns: make(map[*Conn]struct{}), from: make(map[string][]*Conn)}
	l.closed, l.cancel = context.WithCancel(context.Background())
	return l
}

// Accept returns the next authenticated connection, which is a *Conn.
func (l *Layer) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed.Done():
		return nil, ErrClosed
	}
}

// offer passes c to a call of Accept within patience.
func (l *Layer) offer(ctx context.Context, c *Conn, patience time.Duration) bool {
	if !l.adopt(c) || l.mux.isSuperseded(c) {
		return false
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case l.queue <- c:
		return true
	case <-timer.C:
		l.mux.config.Logger.Warn("nobody accepts connections of other nodes", "kind", l.kind, "from", c.id)
	case <-ctx.Done():
	case <-l.closed.Done():
	}
	return false
}

// Close ends Accept and Dial, and closes all connections of this layer: raft's transport would leave accepted
// connections open, with a goroutine each.
func (l *Layer) Close() error {
	l.cancel()
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
	return nil
}

// Addr returns the advertised address.
func (l *Layer) Addr() net.Addr {
	if a := l.mux.config.Advertise; a != "" {
		return address(a)
	}
	return l.mux.config.Listener.Addr()
}

// Dial is DialContext for raft, which uses a node's ID as its address.
func (l *Layer) Dial(id raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx := context.Background()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return l.DialContext(ctx, string(id))
}

// DialContext connects to the node of that ID at its known address, and authenticates both sides. The result is a *Conn
// without deadlines.
func (l *Layer) DialContext(ctx context.Context, id string) (net.Conn, error) {
	addr := l.mux.config.Addresses.Addr(id)
	if addr == "" {
		return nil, fmt.Errorf("dial peer %s: its address is not known", id)
	}
	return l.dialAs(ctx, addr, id)
}

// DialAddr connects to the node at an address, whatever its ID, and authenticates both sides. Only connections
// of [KindMember] can be made so. The result is a *Conn without deadlines.
func (l *Layer) DialAddr(ctx context.Context, addr string) (net.Conn, error) {
	if l.kind != KindMember {
		return nil, fmt.Errorf("dial peer %s: a connection of kind %s is with a certain node", addr, l.kind)
	}
	return l.dialAs(ctx, addr, "")
}

func (l *Layer) dialAs(ctx context.Context, addr, id string) (net.Conn, error) {
	if l.kind != KindMember && l.mux.config.ClusterID() == "" {
		return nil, fmt.Errorf("dial peer %s: %w", addr, errNoCluster)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.closed, cancel)()
	c, err := l.dial(ctx, addr, id)
	switch {
	case err == nil && !l.adopt(c):
		_ = c.Conn.Close()
		return nil, ErrClosed
	case err != nil && l.closed.Err() != nil:
		return nil, ErrClosed
	case err != nil:
		return nil, fmt.Errorf("dial peer %s: %w", addr, err)
	case l.mux.isSuperseded(c):
		_ = c.Close()
		return nil, fmt.Errorf("dial peer %s: a later process of node %q has come", addr, id)
	}
	return c, nil
}

// dial proves this node's own secret, and its other secrets in turn if that is refused: while the cluster's secret is
// being replaced, nodes accept different ones.
func (l *Layer) dial(ctx context.Context, addr, id string) (c *Conn, err error) {
	if err := l.mux.awaitProved(ctx, l.kind); err != nil {
		return nil, err
	}
	for _, secret := range l.mux.secrets() {
		c, err = l.dialWith(ctx, addr, id, secret)
		if !errors.Is(err, ErrSecret) {
			break
		}
	}
	return c, err
}

func (l *Layer) dialWith(ctx context.Context, addr, id string, secret []byte) (*Conn, error) {
	conn, err := l.mux.config.Dial(l.mux.stuck.context(ctx, id), addr)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(l.mux.config.HandshakeTimeout))
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	self := l.mux.self(l.kind)
	secured, other, err := l.mux.introduce(conn, self, id, secret)
	if !stop() {
		err = context.Cause(ctx) // what the closed connection says is only a consequence
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	l.mux.handshakes.rememberHost(conn)
	_ = secured.SetDeadline(time.Time{})
	return &Conn{Conn: secured, id: other.id, lineage: other.lineage, anyCluster: self.cluster == anyCluster}, nil
}

// adopt adds c to the open connections, and returns false if the layer is closed.
func (l *Layer) adopt(c *Conn) bool {
	l.mu.Lock()
	if l.conns == nil {
		l.mu.Unlock()
		return false
	}
	l.conns[c] = struct{}{}
	c.layer = l
	var oldest *Conn
	if c.accepted {
		made := append(l.from[c.id], c)
		if len(made) > maxPerNode {
			oldest = made[0]
		}
		l.from[c.id] = made
	}
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return true
}

func (l *Layer) forget(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c) // of a nil map too
	made := slices.DeleteFunc(l.from[c.id], func(other *Conn) bool { return other == c })
	if l.from[c.id] = made; len(made) == 0 {
		delete(l.from, c.id)
	}
}

// Conn is an authenticated connection to another node.
type Conn struct {
	net.Conn
	id      string
	lineage incarnation.Lineage
	layer   *Layer // nil until adopted
	// accepted is set if the other node made the connection.
	accepted bool
	// anyCluster is set if the other node did not know the cluster.
	anyCluster bool
}

// KnowsCluster reports whether the peer is known to be of this cluster. It is false if either side did not know the
// cluster.
func (c *Conn) KnowsCluster() bool { return !c.anyCluster }

// PeerName returns the peer's ID.
func (c *Conn) PeerName() string { return c.id }

// Close closes the connection.
func (c *Conn) Close() error {
	if c.layer != nil {
		c.layer.forget(c)
	}
	return c.Conn.Close()
}

// address is a net.Addr that has only a name.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }
