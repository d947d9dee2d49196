package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// Kind is the purpose of a connection between nodes.
type Kind byte

const (
	KindRaft    Kind = 'R' // raft's other requests
	KindAppend  Kind = 'A' // a leader's log entries and heartbeats
	KindForward Kind = 'F' // clients' requests on their way to the leader
	KindMember  Kind = 'M' // questions and requests about who the members are
)

// kinds are all kinds of connections.
var kinds = []Kind{KindRaft, KindAppend, KindForward, KindMember}

func (k Kind) String() string {
	switch k {
	case KindRaft:
		return "raft"
	case KindAppend:
		return "append"
	case KindForward:
		return "forward"
	case KindMember:
		return "member"
	default:
		return fmt.Sprintf("kind %#02x", byte(k))
	}
}

const (
	defaultHandshakeTimeout = 5 * time.Second
	// acceptPause is how long the mux waits after a failed accept, which most likely means that the process has no file
	// descriptors left.
	acceptPause = 100 * time.Millisecond
)

// Config describes this node and the way to the others.
type Config struct {
	// Listener accepts connections of other nodes. The Mux closes it.
	Listener net.Listener
	// Dial opens a plain connection to host:port, with small segments if wire.HasSmallSegments(ctx).
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Advertise is the address of this node for others, by default the listener's.
	Advertise string

	// ID is this node's ID. A peer with the same ID is this node at another address, or a copy of its folder.
	ID string
	// ClusterID returns this node's cluster, "" before it belongs to one. Until then it has connections of [KindMember]
	// alone. ClusterID must be quick.
	ClusterID func() string
	// Addresses are the known addresses of other nodes. Connections from there do not compete with strangers'. A node may
	// come from another address.
	Addresses *members.Addresses
	// Removed, if not nil, reports whether the node of that ID was a member and is none any more. Its connections are
	// refused, except for KindMember. Removed must be quick.
	Removed func(id string) bool
	// OnRemoved, if not nil, is called when a peer claims that this node was removed. The peer is not authenticated, so
	// the owner asks the cluster. OnRemoved must be quick.
	OnRemoved func()

	// OnMisfit, if not nil, is called when a connection was refused for a reason that [Misfit] names. It must be quick.
	OnMisfit func()

	// Incarnations has the lineages of this node and of the other members: see package incarnation.
	Incarnations *incarnation.Registry

	// Secrets, if not nil, returns the secrets that this node accepts, its own first. It is called for each handshake, in
	// which both sides must accept the same secret.
	Secrets func() [][]byte
	// TLS, if not nil, returns the configuration for a handshake. It needs a certificate and RootCAs, and both sides'
	// certificates must be signed by RootCAs.
	TLS func() *tls.Config

	// HandshakeTimeout bounds the time before a connection is passed to Accept. 0: 5 s.
	HandshakeTimeout time.Duration
	Logger           *slog.Logger
}

// ErrClosed is the error of Accept and Dial after the layer or the mux was closed.
var ErrClosed = fmt.Errorf("peer port: %w", net.ErrClosed)

// Mux distributes the connections of one port to a Layer for each kind.
type Mux struct {
	config   Config
	tls      currentTLS // nil without TLS
	layers   map[Kind]*Layer
	refusals *refusals

	handshakes *handshakes
	stuck      stuck
}

// New returns a mux, or an error if c is invalid. Nothing is accepted before Run.
func New(c Config) (*Mux, error) {
	switch {
	case c.Listener == nil, c.Dial == nil, c.ClusterID == nil, c.Addresses == nil:
		return nil, errors.New("configure peer port: listener, dial function, cluster id and addresses are needed")
	case c.ID == "" || len(c.ID) > maxID:
		return nil, fmt.Errorf("configure peer port: node id %q: use 1 to %d bytes", c.ID, maxID)
	}
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = defaultHandshakeTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Mux{
		config:     c,
		layers:     make(map[Kind]*Layer),
		refusals:   newRefusals(c.Logger),
		handshakes: newHandshakes(c.Addresses.Addrs),
		stuck:      stuck{until: make(map[string]time.Time)},
	}
	if c.TLS != nil {
		if _, err := newTLSConfigs(c.TLS()); err != nil {
			return nil, fmt.Errorf("configure peer port: %w", err)
		}
		m.tls = c.TLS
	}
	for _, k := range kinds {
		m.layers[k] = newLayer(m, k)
	}
	return m, nil
}

// Layer returns the layer of a kind.
func (m *Mux) Layer(k Kind) *Layer { return m.layers[k] }

// Run accepts connections until ctx ends or the listener fails. It then closes the listener, the layers and all
// connections, and returns once all goroutines have ended. The error is nil if ctx ended.
func (m *Mux) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = m.config.Listener.Close() })
	var handshakes sync.WaitGroup
	err := m.accept(ctx, &handshakes)
	if stop() {
		_ = m.config.Listener.Close()
	}
	for _, l := range m.layers {
		_ = l.Close()
	}
	handshakes.Wait()
	return err
}

func (m *Mux) accept(ctx context.Context, handshakes *sync.WaitGroup) error {
	for {
		conn, err := m.config.Listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on peer port: %w", err)
		case err != nil:
			m.config.Logger.Warn("cannot accept a connection on the peer port", "error", err)
			pause(ctx, acceptPause)
			continue
		}
		h := m.handshakes.begin(conn)
		handshakes.Go(func() { m.authenticate(ctx, h) })
	}
}

// authenticate runs the handshake of a connection, and passes it to its layer.
func (m *Mux) authenticate(ctx context.Context, h *handshake) {
	conn := h.conn
	deadline := time.Now().Add(m.config.HandshakeTimeout)
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	secured, peer, err := m.answer(ctx, conn)
	if m.handshakes.end(h) {
		err = errTooMany
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() == nil {
			m.refusals.log(conn.RemoteAddr(), err)
			if m.config.OnMisfit != nil && Misfit(err) {
				m.config.OnMisfit()
			}
		}
		return
	}
	m.handshakes.rememberHost(conn)
	_ = secured.SetDeadline(time.Time{})
	c := &Conn{Conn: secured, id: peer.id, lineage: peer.lineage, accepted: true, anyCluster: peer.cluster == anyCluster}
	if !m.layers[peer.kind].offer(ctx, c, time.Until(deadline)) {
		_ = c.Close()
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// smallSegmentsFor is how long new connections with a node use small segments after one was stuck. They are slightly
// slower, and a path that is not repaired by then is detected again.
const smallSegmentsFor = 10 * time.Minute

// stuck has the nodes with stuck connections, by ID, each until its small segments end.
type stuck struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// Stuck reports that no data passes through the connection any more, as far as its user can tell.
func (c *Conn) Stuck() {
	if c.layer == nil {
		return
	}
	s := &c.layer.mux.stuck
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, until := range s.until { // unordered: each is looked at
		if now.After(until) {
			delete(s.until, id)
		}
	}
	s.until[c.id] = now.Add(smallSegmentsFor)
}

// context returns ctx for a dial of a node, with small segments if it has a stuck connection.
func (s *stuck) context(ctx context.Context, id string) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().After(s.until[id]) {
		return ctx
	}
	return wire.SmallSegments(ctx)
}
