package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/lifecycle"
	"github.com/holdfast/holdfast/server/loglimit"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/pubsub"
	"github.com/holdfast/holdfast/server/raftnode/hclogger"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/secrets"
	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/tracking"
	"github.com/holdfast/holdfast/server/web"
)

// Server is one node.
type Server struct {
	config  Config
	memory  memory
	logger  *slog.Logger
	clients net.Listener
	// sentinel is the port for Sentinel's clients; nil: there is none.
	sentinel net.Listener
	// monitoring is the port for HTTP, and observed what is counted for it; nil: there is none.
	monitoring net.Listener
	observed   *observed
	secrets    *secrets.Keyring
	store      *store.Store
	peers      *peer.Mux
	replica    *replica.Replica
	hub        *pubsub.Hub
	caches     *tracking.Table
	monitors   *frontend.Monitors
	front      *frontend.Server
	slowLocks  *loglimit.Limit
	web        *web.Server // nil without monitoring
	// fatal gets the error after which the process must end and leave its disk alone.
	fatal chan error
}

// New opens the node's ports and its data folder. Nothing is served before Run. When New fails,
// the ports and the folder are closed again.
func New(c Config, logger *slog.Logger) (_ *Server, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Server{config: c, logger: logger, slowLocks: newSlowLocks(), fatal: make(chan error, 1)}
	if err := s.fitClients(); err != nil {
		return nil, err
	}
	var opened closers
	defer func() {
		if err != nil {
			opened.close()
		}
	}()
	if s.secrets, err = secrets.Open(c.SecretsConfig, logger); err != nil {
		return nil, err
	}
	if s.clients, err = net.Listen("tcp", c.Addr); err != nil {
		return nil, fmt.Errorf("open client port: %w", err)
	}
	opened.add(s.clients.Close)
	if c.SentinelAddr != "" {
		if s.sentinel, err = net.Listen("tcp", c.SentinelAddr); err != nil {
			return nil, fmt.Errorf("open sentinel port: %w", err)
		}
		opened.add(s.sentinel.Close)
	}
	if c.HTTPAddr != "" {
		if s.monitoring, err = net.Listen("tcp", c.HTTPAddr); err != nil {
			return nil, fmt.Errorf("open http port: %w", err)
		}
		opened.add(s.monitoring.Close)
		s.observed = newObserved()
	}
	peerListener, err := net.Listen("tcp", c.PeerAddr)
	if err != nil {
		return nil, fmt.Errorf("open peer port: %w", err)
	}
	opened.add(peerListener.Close)
	if s.memory, err = newMemory(c.MemoryConfig, os.DirFS("/")); err != nil {
		return nil, err
	}
	faults := newFaults(c.DebugConfig)
	if s.store, err = store.Open(s.storeConfig(faults)); err != nil {
		return nil, err
	}
	opened.add(s.store.Close)
	if err = s.belong(); err != nil {
		return nil, err
	}
	if s.peers, err = peer.New(s.peerConfig(peerListener)); err != nil {
		return nil, err
	}
	s.hub = pubsub.New(logger)
	s.caches = tracking.New(tracking.DefaultLimits())
	s.monitors = frontend.NewMonitors()
	if s.replica, err = replica.Open(s.replicaConfig(faults)); err != nil {
		return nil, err
	}
	if faults != nil {
		faults.node = s.replica
	}
	s.front = frontend.New(s.frontConfig(faults), s.replica)
	s.web = s.newWeb()
	return s, nil
}

// belong makes sure that the folder belongs to the cluster that is configured.
func (s *Server) belong() error {
	peers, _ := s.config.Peers() // validated by New
	switch id, own := s.store.Identity(), clusterID(peers); id.ClusterID {
	case own:
		return nil
	case "":
		return s.store.SetIdentity(func(id *store.Identity) { id.ClusterID = own })
	default:
		return fmt.Errorf("open store: data folder %s belongs to cluster %q, this node is configured for %q", s.config.DataDir, id.ClusterID, own)
	}
}

// Reload reads certificates, authorities, passwords and secrets again; by says on whose account, for the log. Nothing
// that is connected is cut off.
func (s *Server) Reload(by string) { s.secrets.Reload(by) }

// fitClients lowers max-clients to what the limit of open files allows.
func (s *Server) fitClients() error {
	peers, _ := s.config.Peers() // validated by New
	wanted, limit := s.config.MaxClients, openFiles()
	others := 2 * frontend.Refusals
	if s.config.HTTPAddr != "" {
		others += web.MaxConnections
	}
	fit, err := fitClients(wanted, len(peers), others, limit)
	if err != nil {
		return err
	}
	if fit < wanted {
		s.config.MaxClients = fit
		s.logger.Warn("max-clients lowered: the limit of open files leaves room for no more",
			"max_clients", fit, "wanted", wanted, "open_files", limit, "kept_for_the_node", limit-uint64(fit))
	}
	return nil
}

// closers closes what New opened, last first.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c closers) close() {
	for i := len(c) - 1; i >= 0; i-- {
		_ = c[i]()
	}
}

// Run serves until ctx ends or the node must not go on; the error says why.
func (s *Server) Run(ctx context.Context) error {
	s.logger.Info("serving", "addr", s.clients.Addr().String(), "peer_addr", s.config.PeerAddr, "data_dir", s.config.DataDir)
	s.logMemory()
	parts := lifecycle.New(
		s.serveClients,
		s.replica.Run,
		s.peers.Run,
	)
	parts.Start()
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-parts.Failed():
	case err := <-s.fatal:
		parts.Abandon()
		return err
	}
	finished := make(chan error, 1)
	go func() { finished <- s.shutdown(parts) }()
	select {
	case err := <-finished:
		return errors.Join(cause, err)
	case err := <-s.fatal:
		parts.Abandon()
		return errors.Join(cause, err)
	}
}

// serveClients serves the ports for clients, and the port for monitoring, which ends with them: the clients' port is
// what those who monitor wait for.
func (s *Server) serveClients(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ports := []func(context.Context) error{func(ctx context.Context) error { return s.front.Serve(ctx, s.clients) }}
	if s.sentinel != nil {
		ports = append(ports, func(ctx context.Context) error { return s.front.ServeSentinel(ctx, s.sentinel) })
	}
	if s.web != nil {
		ports = append(ports, s.serveMonitoring)
	}
	served := make(chan error, len(ports))
	for _, serve := range ports {
		go func() {
			defer cancel() // a port that fails ends the others
			served <- serve(ctx)
		}()
	}
	var errs []error
	for range ports {
		errs = append(errs, <-served)
	}
	return errors.Join(errs...)
}

// shutdown ends the parts in good order, and closes the store.
func (s *Server) shutdown(parts *lifecycle.Parts) error {
	err := parts.Shutdown(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), s.config.ShutdownTimeout)
		defer cancel()
		return s.replica.Shutdown(ctx)
	})
	err = errors.Join(err, s.store.Close())
	s.logger.Info("stopped")
	return err
}

func (s *Server) storeConfig(f *faults) store.Config {
	return store.Config{
		DataDir:  s.config.DataDir,
		Name:     s.config.Name,
		LogStore: s.config.LogStore,
		Logger:   s.logger,
		Hooks:    s.storeHooks(f),
	}
}

func (s *Server) peerConfig(ln net.Listener) peer.Config {
	peers, _ := s.config.Peers()
	dial := rewriteDial(s.config.DebugPeerDial, new(net.Dialer).DialContext)
	return peer.Config{
		Listener:  ln,
		Dial:      func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) },
		Advertise: peers[s.config.Name],
		ClusterID: func() string { return clusterID(peers) },
		ID:        s.config.Name,
		Book:      bookOf(peers),
		Secrets:   s.secrets.Cluster(),
		TLS:       s.secrets.PeerTLS(),
		Logger:    s.logger,
	}
}

// bookOf says where the nodes of the initial cluster are.
func bookOf(peers map[string]string) *members.Book {
	b := &members.Book{}
	for name, addr := range peers { // unordered
		b.Hint(name, addr)
	}
	return b
}

// firstMembers are the nodes of the initial cluster.
func firstMembers(peers map[string]string) []members.Member {
	var all []members.Member
	for name, addr := range peers { // unordered
		all = append(all, members.Member{ID: name, Addr: addr, Voter: true})
	}
	return all
}

func (s *Server) replicaConfig(f *faults) replica.Config {
	peers, _ := s.config.Peers()
	return replica.Config{
		ID:           s.config.Name,
		ClientAddr:   s.advertised(),
		SentinelAddr: s.advertisedSentinel(),
		Bootstrap:    firstMembers(peers),
		Stores: replica.Stores{
			Log: s.store.Log, Stable: s.store.Stable, Snapshots: s.store.Snapshots, Epoch: s.store.Epoch,
		},
		Peers:          replica.Peers{Raft: s.peers.Layer(peer.KindRaft), Append: s.peers.Layer(peer.KindAppend), Forward: s.peers.Layer(peer.KindForward)},
		Clock:          f.clock(),
		Timing:         s.config.Timing,
		SnapshotPolicy: s.config.SnapshotPolicy,
		MaxMemoryBytes: s.memory.limitBytes,
		Logger:         s.logger,
		RaftLogger:     hclogger.New(s.logger),
		OnEvent:        s.onEvent,
		OnEntry:        s.observed.onEntry(),
		OnStateEvents:  s.onStateEvents,
		RunsReads:      s.caches.Wants,
	}
}

// advertised is the address that other nodes and clients are told.
func (s *Server) advertised() string {
	if s.config.AdvertiseAddr != "" {
		return s.config.AdvertiseAddr
	}
	return s.clients.Addr().String()
}

// advertisedSentinel is the same for Sentinel's clients; empty: there is no such port.
func (s *Server) advertisedSentinel() string {
	if s.sentinel == nil || s.config.SentinelAdvertiseAddr != "" {
		return s.config.SentinelAdvertiseAddr
	}
	addr := s.sentinel.Addr().String()
	host, _, err := net.SplitHostPort(s.config.AdvertiseAddr)
	if err != nil {
		return addr
	}
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(host, port)
}

func (s *Server) frontConfig(f *faults) frontend.Config {
	return frontend.Config{
		Limits:   s.config.Limits,
		Timeouts: s.config.Timeouts,
		Memory:   frontend.Memory{MaxMemoryBytes: s.memory.limitBytes, MachineBytes: s.memory.machineBytes, MaxMemoryClientsBytes: s.memory.clientsBytes},
		Node: frontend.Node{
			Name:     s.config.Name,
			Settings: []frontend.Setting{{Name: "dir", Value: absolute(s.config.DataDir)}},
		},
		Logger:   s.logger,
		Sentinel: SentinelView(&s.config),
		Hub:      s.hub,
		Tracking: s.caches,
		Monitors: s.monitors,
		Backups:  newBackups(s, s.config.MaxOutputBytes),
		Options:  frontend.Options{Debug: s.config.Debug, Faults: f.handler(), ClusterMode: s.config.ClusterMode},
		TLS:      s.secrets.ClientTLS(),
		Password: s.secrets.Password(),
	}
}

func absolute(dir string) string {
	if path, err := filepath.Abs(dir); err == nil {
		return path
	}
	return dir
}
