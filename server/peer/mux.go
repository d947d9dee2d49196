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
)

// Kind says what a connection between nodes is for.
type Kind byte

const (
	KindRaft    Kind = 'R' // raft's other requests
	KindAppend  Kind = 'A' // a leader's log entries and heartbeats
	KindForward Kind = 'F' // clients' requests on their way to the leader
)

func (k Kind) String() string {
	switch k {
	case KindRaft:
		return "raft"
	case KindAppend:
		return "append"
	case KindForward:
		return "forward"
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
	// Dial opens a plain connection to another node's peer address.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Advertise is the address that others know this node by; empty: the listener's.
	Advertise string

	ClusterID string
	Name      string
	// NameOf, when not nil, is the name of the node that should answer at an address,
	// or "" if any may. Raft counts votes by address: two addresses that lead to the
	// same node by mistake would give it two votes.
	NameOf func(addr string) string

	// Members, when not nil, are the peer addresses of the cluster's nodes, by name. Nodes of other
	// names are refused, and connections from these addresses do not compete with strangers'; a
	// node may come from another address.
	Members map[string]string

	// Secret, when not empty, must be known to both sides of every connection.
	Secret []byte
	// TLS, when not nil, is spoken on every connection. A TLS configuration needs a certificate and
	// RootCAs; both sides' certificates must come from there.
	TLS *tls.Config

	// HandshakeTimeout bounds everything before a connection is handed over. 0: 5 s.
	HandshakeTimeout time.Duration
	Logger           *slog.Logger
}

// ErrClosed is returned by Accept and Dial after the layer or the mux was closed.
var ErrClosed = fmt.Errorf("peer port: %w", net.ErrClosed)

// Mux shares a port between the kinds of traffic.
type Mux struct {
	config   Config
	tls      *tlsConfigs // nil without TLS
	layers   map[Kind]*Layer
	refusals refusals

	handshakes *handshakes
}

// New checks c. Nothing is accepted before Run.
func New(c Config) (*Mux, error) {
	switch {
	case c.Listener == nil, c.Dial == nil:
		return nil, errors.New("configure peer port: listener and dial function are needed")
	case c.Name == "" || len(c.Name) > maxName:
		return nil, fmt.Errorf("configure peer port: node name %q: use 1 to %d bytes", c.Name, maxName)
	case c.ClusterID == "" || len(c.ClusterID) > maxCluster:
		return nil, fmt.Errorf("configure peer port: cluster id %q: use 1 to %d bytes", c.ClusterID, maxCluster)
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
		refusals:   refusals{logger: c.Logger},
		handshakes: newHandshakes(c.Members),
	}
	if c.TLS != nil {
		t, err := newTLSConfigs(c.TLS)
		if err != nil {
			return nil, fmt.Errorf("configure peer port: %w", err)
		}
		m.tls = t
	}
	for _, k := range []Kind{KindRaft, KindAppend, KindForward} {
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
	secured, peer, err := m.answer(conn)
	if m.handshakes.end(h) {
		err = errTooMany
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() == nil {
			m.refusals.log(conn.RemoteAddr(), err)
		}
		return
	}
	m.handshakes.know(conn)
	_ = secured.SetDeadline(time.Time{})
	c := &Conn{Conn: secured, name: peer.name, accepted: true}
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
