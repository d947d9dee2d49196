package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/audit"
	"github.com/holdfast/holdfast/server/console"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/frontend/observe"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/lifecycle"
	"github.com/holdfast/holdfast/server/loglimit"
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
	// sentinel is the port for Sentinel's clients, or nil.
	sentinel net.Listener
	// monitoring is the port for HTTP, or nil. observed and metrics are what it shows, and nil without it.
	monitoring net.Listener
	observed   *observed
	syncs      syncTimes // of the log
	metrics    *prometheus.Registry
	secrets    *secrets.Keyring
	store      *store.Store
	faults     *faults // nil without --debug
	peers      *peer.Mux
	cluster    clusterNode
	// incarnations has the incarnations of this node and of the other members.
	incarnations *incarnation.Registry
	hub          *pubsub.Hub
	caches       *tracking.Table
	monitors     *observe.Monitors
	slowLocks    *loglimit.Limit
	audit        *audit.Log // nil without --audit-log
	console      *console.Console
	web          *web.Server // nil without monitoring
	clusterEntry
	// fatal has the error after which the process must end without writing to its disk.
	fatal chan error
}

// clusterEntry has the parts of a node that belongs to a cluster, and the state of its entry into the cluster.
type clusterEntry struct {
	// opened is closed once member and front are set. member is set first.
	opened chan struct{}
	member atomic.Pointer[replica.Replica]
	front  *frontend.Server
	// waitingFront returns the frontend that serves clients before that.
	waitingFront func() *frontend.Server
	opening      sync.Mutex // held while member is opened
	// ending is cancelled by endEntry, after which the node enters no cluster.
	ending   context.Context
	endEntry context.CancelFunc
	removal  sync.Once
}

// New opens the node's ports and its data folder, for [Server.Run]. If it fails, it closes them again.
func New(c Config, logger *slog.Logger) (_ *Server, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Server{config: c, logger: logger, slowLocks: newSlowLocks(), fatal: make(chan error, 1)}
	s.opened = make(chan struct{})
	s.syncs.lines.Burst, s.syncs.lines.Every = 1, time.Minute
	s.ending, s.endEntry = context.WithCancel(context.Background())
	s.waitingFront = sync.OnceValue(s.newClusterlessFront)
	s.cluster.removed = make(map[string]bool)
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
	if err := c.exposes(s.secrets.Held()); err != nil {
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
	s.faults = newFaults(c.DebugConfig)
	if s.store, err = store.Open(s.storeConfig()); err != nil {
		return nil, err
	}
	opened.add(s.store.Close)
	if err = s.openAudit(); err != nil {
		return nil, err
	}
	opened.add(s.audit.Close)
	s.incarnations = s.newIncarnations()
	if s.peers, err = peer.New(s.peerConfig(peerListener)); err != nil {
		return nil, err
	}
	if err = s.newClusterNode(); err != nil {
		return nil, err
	}
	s.hub = pubsub.New(logger)
	s.caches = tracking.New(tracking.DefaultLimits())
	s.monitors = observe.NewMonitors()
	s.console = s.newConsole()
	s.web = s.newWeb()
	if s.cluster.bootstrap.Alone() {
		err = s.enterCluster(context.Background())
	}
	return s, err
}

// Reload reads certificates, authorities, passwords and secrets again; by says on whose account, for the log. Nothing
// that is connected is cut off; the next look whether the members still admit each other is at once.
func (s *Server) Reload(by string) {
	s.secrets.Reload(by)
	s.cluster.admissions.Check()
}

// fitClients lowers max-clients to what the limit of open files allows.
func (s *Server) fitClients() error {
	wanted, limit := s.config.MaxClients, openFiles()
	others := 2 * frontend.Refusals
	if s.config.HTTPAddr != "" {
		others += web.MaxConnections
	}
	fit, err := fitClients(wanted, others, limit)
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
	s.logger.Info("serving", "addr", s.clients.Addr().String(), "peer_addr", s.config.PeerAddr, "data_dir",
		s.config.DataDir)
	s.logMemory()
	parts := lifecycle.New(
		s.serveClients,
		s.runReplica,
		s.runPeers,
	)
	parts.Start()
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-parts.Failed():
		if noCluster := (noClusterError{}); errors.As(cause, &noCluster) {
			cause = noCluster.error
		}
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
	ports := []func(context.Context) error{func(ctx context.Context) error {
		return s.servePort(ctx, s.clients, (*frontend.Server).Serve)
	}}
	if s.sentinel != nil {
		ports = append(ports, func(ctx context.Context) error {
			return s.servePort(ctx, s.sentinel, (*frontend.Server).ServeSentinel)
		})
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
	err := parts.Shutdown(s.stopReplica)
	if late := s.audit.Close(); late != nil { // the reader of a pipe may be frozen, which is no fault of the node
		s.logger.Warn("close audit log", "error", late)
	}
	err = errors.Join(err, s.store.Close())
	s.logger.Info("stopped")
	return err
}

// openAudit opens the audit log, if the node has one.
func (s *Server) openAudit() (err error) {
	if s.config.AuditLog == "" {
		return nil
	}
	most, err := s.config.auditBytes()
	if err != nil {
		return err
	}
	if s.config.AuditLog == audit.Stdout {
		// The end of whoever reads the pipe would otherwise end the node. Ignored, it is an error of the write.
		signal.Ignore(syscall.SIGPIPE)
	}
	s.audit, err = audit.Open(audit.Config{
		Path: s.config.AuditLog, Stdout: os.Stdout, Bytes: most, Patterns: patternsOf(s.config.AuditLocks),
		Node: s.config.Name, Logger: s.logger,
	})
	if err != nil {
		return err
	}
	s.secrets.OnRead(func(changed, by string) {
		s.audit.Note(audit.Line{Event: audit.CredentialsRead, Text: changed, By: by})
	})
	return nil
}

// auditor returns the function that gets the changes of locks, or nil.
func (s *Server) auditor() func(uint64, []event.LockChange) {
	if s.audit == nil {
		return nil
	}
	return s.audit.Changes
}

func (s *Server) storeConfig() store.Config {
	return store.Config{
		DataDir: s.config.DataDir,
		Name:    s.config.Name,
		Logger:  s.logger,
		Hooks:   s.storeHooks(s.faults),
		Mends:   true,
	}
}

func (s *Server) peerConfig(ln net.Listener) peer.Config {
	peers, _ := s.config.Peers()
	dial := rewriteDial(s.config.DebugPeerDial, dialPeer)
	return peer.Config{
		Listener:  ln,
		Dial:      func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) },
		Advertise: s.config.peerAddress(peers),
		ClusterID: s.clusterID,
		ID:        s.store.Identity().ID,
		Addresses: &s.cluster.addresses,
		Removed:   s.cluster.wasRemoved,
		OnRemoved: func() { s.cluster.bootstrap.Suspect() },
		OnMisfit:  func() { s.cluster.admissions.Suspect() },
		Secrets:   s.secrets.Cluster(),
		TLS:       s.secrets.PeerTLS(),
		Logger:    s.logger,

		Incarnations: s.incarnations,
	}
}

func (s *Server) replicaConfig() replica.Config {
	id := s.store.Identity()
	return replica.Config{
		ID:           id.ID,
		ClientAddr:   s.advertised(),
		SentinelAddr: s.advertisedSentinel(),
		Release:      protocol.HoldfastVersion,
		Bootstrap:    id.Founders,

		HoldVersion: byte(s.config.HoldVersion), FoundingVersion: id.FoundingVersion,
		Stores: replica.Stores{
			Log: s.store.Log, Stable: s.store.Stable, Snapshots: s.store.Snapshots, Lineage: s.store.Lineage,
		},
		Peers: replica.Peers{
			Raft: s.peers.Layer(peer.KindRaft), Append: s.peers.Layer(peer.KindAppend),
			Forward: s.peers.Layer(peer.KindForward),
		},
		Clock:          s.faults.clock(),
		Secret:         rand.Text,
		Timing:         s.config.Timing,
		SnapshotPolicy: s.config.SnapshotPolicy,
		EntryLimits: protocol.EntryLimits{
			MemoryBytes: s.memory.limitBytes, ScriptSteps: uint64(s.config.MaxScriptSteps),
		},
		LockClasses:   s.config.lockClasses(),
		Logger:        s.logger,
		RaftLogger:    hclogger.New(s.logger),
		OnEvent:       s.onEvent,
		OnEntry:       s.observed.onEntry(),
		OnStateEvents: s.onStateEvents,
		Audit:         s.auditor(),
		Report:        s.hub.Answer,
		RunsReads:     s.caches.Wants,

		Quarantined: id.InQuarantine(), OnCapture: s.cluster.checker.Captured,
		OnConfiguration: s.reconfigured,
		OnRemoved:       s.removed,
	}
}

// advertised returns the client address for other nodes and clients.
func (s *Server) advertised() string {
	if s.config.AdvertiseAddr != "" {
		return s.config.AdvertiseAddr
	}
	return s.clients.Addr().String()
}

// advertisedSentinel returns the address for Sentinel's clients, "" if there is no such port.
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

func (s *Server) frontConfig() frontend.Config {
	return frontend.Config{
		Limits:   s.config.Limits,
		Timeouts: s.config.Timeouts,
		Memory: frontend.Memory{
			MaxMemoryBytes: s.memory.limitBytes, MachineBytes: s.memory.machineBytes,
			MaxMemoryClientsBytes: s.memory.clientsBytes,
		},
		Node: frontend.Node{
			Name:        s.config.Name,
			ClusterID:   s.clusterID,
			Troubles:    s.troubles,
			Warnings:    func() []string { return s.cluster.admissions.Warnings() },
			Quarantined: func() []string { return s.cluster.checker.Report().InQuarantine },
			Settings:    []frontend.Setting{{Name: "dir", Value: absolute(s.config.DataDir)}},
		},
		Administration: s.cluster.reconfig,
		AskClients:     s.askClients,

		Logger:   s.logger,
		Sentinel: SentinelView(&s.config),
		Hub:      s.hub,
		Tracking: s.caches,
		Monitors: s.monitors,
		Backups:  newBackups(s, s.config.MaxOutputBytes),
		Options:  frontend.Options{Debug: s.config.Debug, Faults: s.faults.handler(), ClusterMode: s.config.ClusterMode},
		TLS:      s.secrets.ClientTLS(),
		Users:    s.secrets,
		Audit:    s.audit,

		CertificateUser: s.config.CertificateUser(),
	}
}

// clusterID returns the ID of the cluster that this node belongs to or is joining, or "".
func (s *Server) clusterID() string { return s.store.Identity().ClusterID }

func absolute(dir string) string {
	if path, err := filepath.Abs(dir); err == nil {
		return path
	}
	return dir
}
