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

// Kind says what a connection between nodes is for.
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
	// acceptPause is how long the mux waits after a failed accept: the process is
	// out of file descriptors, most likely.
	acceptPause = 100 * time.Millisecond
)

// Config says which node this is and how to reach the others.
type Config struct {
	// Listener takes connections of other nodes. The Mux closes the listener.
	Listener net.Listener
	// Dial opens a plain connection to a host and port, with small segments if wire.HasSmallSegments says so.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Advertise is the address that others know this node by; empty: the listener's.
	Advertise string

	// ID is this node's. Another node with the same ID is this node at another address, or a copy of its folder.
	ID string
	// ClusterID is the cluster that this node belongs to; empty: none yet. Until then the node has connections of
	// [KindMember] alone. ClusterID must be quick.
	ClusterID func() string
	// Addresses are where other nodes are. Connections from these addresses do not compete with strangers'; a node
	// may come from another address.
	Addresses *members.Addresses
	// Removed, when not nil, reports whether the node of that ID was a member and is none any more: its
	// connections are refused, but for those of KindMember. Removed must be quick.
	Removed func(id string) bool
	// OnRemoved, when not nil, is told that another node says that this node was removed. That node has not
	// proved yet who it is: the owner asks the cluster. OnRemoved must be quick.
	OnRemoved func()

	// OnMisfit, when not nil, is told that a connection was refused for a reason that [Misfit] names. It must be quick.
	OnMisfit func()

	// Incarnations has this node's lineage and the other members': see package incarnation.
	Incarnations *incarnation.Registry

	// Secrets, when not nil, returns the secrets that this node knows, its own first. Both sides of every connection
	// must know the same one. A handshake takes what Secrets returns then.
	Secrets func() [][]byte
	// TLS, when not nil, is spoken on every connection. A handshake takes the configuration that TLS returns then,
	// which needs a certificate and RootCAs; both sides' certificates must come from there.
	TLS func() *tls.Config

	// HandshakeTimeout bounds everything before a connection is handed over. 0: 5 s.
	HandshakeTimeout time.Duration
	Logger           *slog.Logger
}

// ErrClosed is returned by Accept and Dial after the layer or the mux was closed.
var ErrClosed = fmt.Errorf("peer port: %w", net.ErrClosed)

// Mux shares a port between the kinds of traffic.
type Mux struct {
	config   Config
	tls      currentTLS // nil without TLS
	layers   map[Kind]*Layer
	refusals *refusals

	handshakes *handshakes
	stuck      stuck
}

// New checks c. Nothing is accepted before Run.
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

// Layer is the stream of connections of a kind.
func (m *Mux) Layer(k Kind) *Layer { return m.layers[k] }

// Run accepts connections until ctx ends. Then, or when the listener fails, it
// closes the listener, the layers and all connections, and returns when all goroutines have
// ended. The error is nil if ctx ended.
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
		handshakes.Go(func() { m.welcome(ctx, h) })
	}
}

// welcome authenticates a connection and hands it to the connection's layer.
func (m *Mux) welcome(ctx context.Context, h *handshake) {
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
	m.handshakes.know(conn)
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

// smallFor is how long new connections with a node have small segments, after one was stuck. They cost a little more,
// and a path that is not mended by then is found out about again.
const smallFor = 10 * time.Minute

// stuck knows the nodes with which a connection was stuck, by ID, and until when that counts.
type stuck struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// Stuck says that nothing passed any more through the connection, as far as its user could tell.
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
	s.until[c.id] = now.Add(smallFor)
}

// context is ctx for a dial of a node.
func (s *stuck) context(ctx context.Context, id string) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().After(s.until[id]) {
		return ctx
	}
	return wire.SmallSegments(ctx)
}
