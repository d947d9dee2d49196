package server

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/audit"
	"github.com/holdfast/holdfast/server/bootstrap"
	"github.com/holdfast/holdfast/server/consistency"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/frontend/discovery"
	"github.com/holdfast/holdfast/server/frontend/metrics"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/secrets"
	"github.com/holdfast/holdfast/server/store"
)

// Config has all settings of an operator. A flag is a row of cmd/holdfast/flags.go and the field of its name here:
// --max-query-bytes is MaxQueryBytes. A part of the node declares the struct of its own settings. Fields without a flag
// are for tests.
type Config struct {
	NodeConfig
	ListenConfig
	SecretsConfig
	LogConfig
	StorageConfig
	replica.SnapshotPolicy
	replica.Timing
	frontend.Timeouts
	frontend.Limits
	MemoryConfig
	DebugConfig
}

// NodeConfig identifies the node and the other nodes.
type NodeConfig struct {
	// Name is unique in the cluster and never changes.
	Name string
	// InitialCluster is "name=host:port,…" with the peer addresses of the nodes that found the cluster together, "" for
	// a cluster of one. It is used at the first start only.
	InitialCluster string
	// Join is "host:port,…" with peer addresses of nodes whose cluster this node is to join.
	Join     string
	NonVoter bool // join without ever asking for a vote
	// HoldVersion bounds the version of the cluster while this node is a member; 0 for no bound.
	HoldVersion int
}

// ListenConfig has the addresses on which the node listens.
type ListenConfig struct {
	Addr string // clients
	// AdvertiseAddr is the client address for other nodes and clients, by default Addr.
	AdvertiseAddr string
	PeerAddr      string // nodes
	// PeerAdvertiseAddr is the peer address for other nodes, by default this node's in InitialCluster, else PeerAddr.
	PeerAdvertiseAddr string
	// SentinelAddr is the address of the port for Sentinel's commands, "" for none.
	SentinelAddr string
	// SentinelAdvertiseAddr is that address for clients, by default the host of AdvertiseAddr with the port of
	// SentinelAddr.
	SentinelAdvertiseAddr string
	SentinelName          string // the name of the only master
	HTTPAddr              string // monitoring, "" for none
	HTTPPprof             bool   // serve Go's profiles there
	// ClusterMode answers clients of Redis Cluster.
	ClusterMode bool
	Insecure    bool // allow non-loopback addresses without password, secret or TLS
}

// SecretsConfig holds credentials, or the files that have them.
type SecretsConfig = secrets.Config

// LogConfig has the settings of the program's log lines and of the audit log. Raft's log is in StorageConfig.
type LogConfig struct {
	LogLevel  string // debug, info, warn or error
	LogFormat string // text or json
	// LockClass has patterns of lock names, by which locks are counted. A value has one or more, separated by blanks.
	LockClass []string
	// AuditLog is the path of the audit log, audit.Stdout or audit.Syslog, "" for none. AuditLogBytes bounds it
	// together with its older files. AuditLocks has patterns like LockClass of the locks that are logged, none for all.
	AuditLog, AuditLogBytes string
	AuditLocks              []string
}

// minAuditBytes is the minimum of --audit-log-bytes. Each of the eight files has room for several writes.
const minAuditBytes = 8 << 20

// auditBytes returns the value of AuditLogBytes.
func (c *Config) auditBytes() (int64, error) {
	n, err := parseMemory("audit-log-bytes", c.AuditLogBytes, 0)
	if err == nil && n < minAuditBytes {
		err = fmt.Errorf("audit-log-bytes %s: at least 8mb", c.AuditLogBytes)
	}
	return int64(n), err
}

// validateAudit also refuses a path of the audit log that a file of the node has.
func (c *Config) validateAudit() (errs []error) {
	if _, err := c.auditBytes(); err != nil {
		errs = append(errs, err)
	}
	if n := len(patternsOf(c.AuditLocks)); n > audit.MaxPatterns {
		errs = append(errs, fmt.Errorf("audit-locks: %d patterns, at most %d", n, audit.MaxPatterns))
	}
	if slices.Contains([]string{"", audit.Stdout, audit.Syslog}, c.AuditLog) {
		return errs
	}
	file := resolved(c.AuditLog)
	if within, err := filepath.Rel(resolved(c.DataDir), file); err == nil && filepath.IsLocal(within) {
		errs = append(errs, fmt.Errorf("audit-log %s is in data-dir", c.AuditLog))
	}
	for _, secret := range []string{
		c.PasswordFile, c.ACLFile, c.QuotaFile, c.ClusterSecretFile, c.TLSCert, c.TLSKey, c.TLSClientCA, c.PeerTLSCert,
		c.PeerTLSKey, c.PeerTLSCA,
	} {
		if secret != "" && resolved(secret) == file {
			errs = append(errs, fmt.Errorf("audit-log %s is a file of another flag", c.AuditLog))
		}
	}
	return errs
}

// resolved returns a path without symbolic links, as far as its folders exist.
func resolved(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	folder := filepath.Dir(path)
	if folder == path {
		return path
	}
	return filepath.Join(resolved(folder), filepath.Base(path))
}

func (c *Config) validateLockClasses() (errs []error) {
	patterns := c.lockClasses()
	if len(patterns) > fsm.MaxLockClasses {
		errs = append(errs, fmt.Errorf("lock-class: %d patterns, at most %d", len(patterns), fsm.MaxLockClasses))
	}
	for i, p := range patterns {
		if p == metrics.OtherLocks || slices.Contains(patterns[:i], p) {
			errs = append(errs, fmt.Errorf("lock-class %q: there is a class of that name already", p))
		}
	}
	return errs
}

// lockClasses returns the patterns of LockClass.
func (c *Config) lockClasses() []string { return patternsOf(c.LockClass) }

func patternsOf(values []string) (patterns []string) {
	for _, some := range values {
		patterns = append(patterns, strings.Fields(some)...)
	}
	return patterns
}

// StorageConfig has the settings of the disk.
type StorageConfig struct {
	DataDir        string        // log, snapshots and identity
	DiskStallLimit time.Duration // a longer call to the disk ends the process
	// ConsistencyCheckInterval is the time between two comparisons of the members' states, 0 if this node requests
	// none.
	ConsistencyCheckInterval time.Duration
}

// MemoryConfig has limits as shares of the machine's memory or in bytes (see [ParseMaxMemory]), and the limits of
// scripts.
type MemoryConfig struct {
	MaxScriptSteps   int
	MaxMemory        string // keys and scripts
	MaxMemoryClients string // the buffers, queues and replies of all clients together
}

// DebugConfig enables hooks for tests.
type DebugConfig struct {
	Debug bool
	// DebugPeerDial rewrites peer addresses at dial time: "original=replacement,…".
	DebugPeerDial string
}

// DefaultConfig returns the configuration of one node on loopback, with the defaults of its packages.
func DefaultConfig() Config {
	c := Config{
		NodeConfig:   NodeConfig{Name: "n1"},
		ListenConfig: ListenConfig{Addr: "127.0.0.1:6379", PeerAddr: "127.0.0.1:7379", SentinelName: "mymaster"},
		LogConfig:    LogConfig{LogLevel: "info", LogFormat: "text", AuditLogBytes: "1gb"},
		StorageConfig: StorageConfig{
			DataDir:        "./holdfast-data",
			DiskStallLimit: store.DefaultDiskStallLimit, ConsistencyCheckInterval: consistency.DefaultInterval,
		},
		Timeouts: frontend.DefaultTimeouts(),
		Limits:   frontend.DefaultLimits(),
		MemoryConfig: MemoryConfig{
			MaxMemory: DefaultMaxMemory, MaxMemoryClients: DefaultMaxMemoryClients, MaxScriptSteps: fsm.DefaultScriptSteps,
		},
	}
	// Package replica derives the timings that stay 0 from these.
	c.HeartbeatTimeout, c.ElectionTimeout = replica.DefaultHeartbeatTimeout, replica.DefaultElectionTimeout
	c.CommandTimeout = replica.DefaultCommandTimeout
	c.SnapshotThreshold, c.TrailingLogs = replica.DefaultSnapshotThreshold, replica.DefaultTrailingLogs
	return c
}

// Validate returns all mistakes in c, joined.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(members.ValidName(c.Name), "name %q: use 1 to 64 letters, digits, '-', '_' or '.'", c.Name)
	check(members.ValidName(c.SentinelName), "sentinel-name %q: use 1 to 64 letters, digits, '-', '_' or '.'",
		c.SentinelName)
	check(c.SentinelAdvertiseAddr == "" || c.SentinelAddr != "", "sentinel-advertise-addr needs sentinel-addr")
	check(!c.HTTPPprof || c.HTTPAddr != "", "http-pprof needs http-addr")
	check(c.DataDir != "", "data-dir is empty")
	check(c.HeartbeatTimeout >= 10*time.Millisecond, "heartbeat-timeout %v: at least 10ms", c.HeartbeatTimeout)
	check(c.ElectionTimeout >= c.HeartbeatTimeout, "election-timeout %v is below heartbeat-timeout %v", c.ElectionTimeout,
		c.HeartbeatTimeout)
	check(c.CommandTimeout > 0, "command-timeout %v: use a positive duration", c.CommandTimeout)
	check(c.DiskStallLimit >= time.Second, "disk-stall-limit %v: at least 1s", c.DiskStallLimit)
	check(c.ConsistencyCheckInterval == 0 || c.ConsistencyCheckInterval >= consistency.MinInterval,
		"consistency-check-interval %v: at least %v, or 0", c.ConsistencyCheckInterval, consistency.MinInterval)
	check(c.LogFormat == "text" || c.LogFormat == "json", "log-format %q: use text or json", c.LogFormat)
	errs = append(errs, c.validateLockClasses()...)
	check(c.SnapshotThreshold > 0, "snapshot-threshold is 0")
	check(c.LockQueueGrace >= 0 && c.LockQueueGrace <= time.Hour, "lock-queue-grace %v: from 0s to 1h", c.LockQueueGrace)
	check(c.HoldVersion == 0 || c.HoldVersion >= protocol.OldestEntryVersion && c.HoldVersion <= protocol.EntryVersion,
		"hold-version %d: from %d to %d, or 0", c.HoldVersion, protocol.OldestEntryVersion, protocol.EntryVersion)
	check(c.DebugPeerDial == "" || c.Debug, "debug-peer-dial needs debug")
	errs = append(errs, c.validateLimits()...)
	errs = append(errs, c.validateAudit()...)
	errs = append(errs, c.validateCluster()...)
	errs = append(errs, c.validateAddrs()...)
	return errors.Join(errs...)
}

// foundingVersion returns the newest version with which this node can found a cluster.
func (c *Config) foundingVersion() byte {
	if c.HoldVersion > 0 {
		return byte(c.HoldVersion)
	}
	return protocol.EntryVersion
}

// SentinelView returns the part of the configuration that Sentinel's commands show.
func SentinelView(c *Config) discovery.Sentinel {
	return discovery.Sentinel{Name: c.SentinelName, DownAfter: c.HeartbeatTimeout, FailoverTimeout: c.ElectionTimeout}
}

func (c *Config) validateLimits() []error {
	var errs []error
	for _, row := range []struct {
		name          string
		value, lo, hi int
	}{
		{"max-clients", c.MaxClients, 1, math.MaxInt},
		{"max-query-bytes", c.MaxQueryBytes, 64 << 10, math.MaxInt},
		{"max-output-bytes", c.MaxOutputBytes, 64 << 10, math.MaxInt},
		{protocol.ScriptStepsFlag, c.MaxScriptSteps, 10_000, fsm.MaxScriptSteps},
	} {
		switch {
		case row.value < row.lo:
			errs = append(errs, fmt.Errorf("%s %d: at least %d", row.name, row.value, row.lo))
		case row.value > row.hi:
			errs = append(errs, fmt.Errorf("%s %d: at most %d", row.name, row.value, row.hi))
		}
	}
	if _, err := ParseMaxMemory(c.MaxMemory, 0); err != nil {
		errs = append(errs, err)
	}
	if _, err := (memory{}).clientsLimit(c.MaxMemoryClients); err != nil {
		errs = append(errs, err)
	}
	return errs
}

func (c *Config) validateCluster() []error {
	peers, err := c.Peers()
	if err != nil {
		return []error{err}
	}
	var errs []error
	if peers[c.Name] == "" && c.Join == "" {
		errs = append(errs, fmt.Errorf("initial-cluster does not name this node, %q", c.Name))
	}
	if n := len(peers); n > 0 && n%2 == 0 {
		errs = append(errs,
			fmt.Errorf("initial-cluster has %d nodes: use 1, 3 or 5 (an even number tolerates no more failures than one less)",
				n))
	}
	for _, contact := range c.contacts() {
		if err := bootstrap.CheckAddr(contact); err != nil {
			errs = append(errs, fmt.Errorf("join: %w", err))
		}
	}
	if c.NonVoter && c.Join == "" {
		errs = append(errs, errors.New("non-voter needs join"))
	}
	if c.PeerAdvertiseAddr != "" {
		if err := bootstrap.CheckAddr(c.PeerAdvertiseAddr); err != nil {
			errs = append(errs, fmt.Errorf("peer-advertise-addr: %w", err))
		}
	}
	if own := c.peerAddress(peers); c.Join != "" && bootstrap.CheckAddr(own) != nil {
		errs = append(errs, fmt.Errorf("join: other nodes cannot dial peer-addr %s: set peer-advertise-addr", own))
	}
	return errs
}

// contacts returns the addresses in Join.
func (c *Config) contacts() []string {
	var all []string
	for addr := range strings.SplitSeq(c.Join, ",") {
		if addr = strings.TrimSpace(addr); addr != "" || c.Join != "" {
			all = append(all, addr)
		}
	}
	return all
}

// peerAddress returns the address at which other nodes dial this one.
func (c *Config) peerAddress(peers map[string]string) string {
	return cmp.Or(c.PeerAdvertiseAddr, peers[c.Name], c.PeerAddr)
}

type listenAddr struct{ flag, addr string }

// validateAddrs checks the addresses on which the node listens, and then whether they expose it.
func (c *Config) validateAddrs() []error {
	ports := []listenAddr{{"addr", c.Addr}, {"sentinel-addr", c.SentinelAddr}, {"http-addr", c.HTTPAddr}}
	var errs []error
	for _, port := range append(slices.Clone(ports), listenAddr{"peer-addr", c.PeerAddr}) {
		if _, _, err := net.SplitHostPort(port.addr); err != nil && port.addr != "" {
			errs = append(errs, fmt.Errorf("%s %q: use host:port", port.flag, port.addr))
		}
	}
	if errs != nil || c.Insecure {
		return errs
	}
	return c.validateExposure(ports)
}

// validateExposure refuses to listen beyond loopback when clients or nodes need no credentials. ports are for clients.
func (c *Config) validateExposure(ports []listenAddr) []error {
	var errs []error
	for _, port := range ports {
		if port.addr != "" && !loopback(port.addr) && c.Password == "" && c.PasswordFile == "" && c.ACLFile == "" &&
			c.TLSClientCA == "" {
			errs = append(errs,
				fmt.Errorf("%s %s is not loopback: set password, password-file, acl-file or tls-client-ca, or say insecure",
					port.flag, port.addr))
		}
	}
	if !loopback(c.PeerAddr) && c.ClusterSecret == "" && c.ClusterSecretFile == "" && c.PeerTLSCA == "" {
		errs = append(errs,
			fmt.Errorf("peer-addr %s is not loopback: set cluster-secret, cluster-secret-file or peer-tls-*, or say insecure",
				c.PeerAddr))
	}
	return errs
}

// exposes refuses to listen beyond loopback if the file of users has a default user without a password.
func (c *Config) exposes(users *acl.Users) error {
	if c.Insecure || c.ACLFile == "" || c.TLSClientCA != "" || !users.Default().Open() {
		return nil
	}
	for _, addr := range []string{c.Addr, c.SentinelAddr, c.HTTPAddr} {
		if addr != "" && !loopback(addr) {
			return fmt.Errorf("acl-file %s: the default user needs no password, and %s is not loopback: give it one, turn it "+
				"off, or say insecure", c.ACLFile, addr)
		}
	}
	return nil
}

// Peers returns the peer addresses of the initial cluster by name. Without InitialCluster it has only this node, or no
// node if this one joins a cluster.
func (c *Config) Peers() (map[string]string, error) {
	switch {
	case c.InitialCluster == "" && c.Join != "":
		return nil, nil
	case c.InitialCluster == "":
		return map[string]string{c.Name: cmp.Or(c.PeerAdvertiseAddr, c.PeerAddr)}, nil
	}
	peers := make(map[string]string)
	addrs := make(map[string]string)
	for item := range strings.SplitSeq(c.InitialCluster, ",") {
		name, addr, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok || !members.ValidName(name) {
			return nil, fmt.Errorf("initial-cluster: %q is not name=host:port", item)
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, fmt.Errorf("initial-cluster: %s: %w", name, err)
		}
		if peers[name] != "" {
			return nil, fmt.Errorf("initial-cluster names %s twice", name)
		}
		if other := addrs[addr]; other != "" {
			return nil, fmt.Errorf("initial-cluster gives %s and %s the same address %s", other, name, addr)
		}
		peers[name], addrs[addr] = addr, name
	}
	return peers, nil
}

// loopback reports whether only this machine can reach addr.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
