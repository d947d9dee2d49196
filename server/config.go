package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sort"
	"strings"
	"time"

	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
)

// Config is everything an operator can set. Flags, environment and
// cmd/holdfast/FLAGS.md derive from cmd/holdfast's rows over these fields.
type Config struct {
	Node    NodeConfig
	Listen  ListenConfig
	Secrets SecretsConfig
	Timing  TimingConfig
	Log     LogConfig
	Limits  LimitsConfig
	Debug   DebugConfig
}

// NodeConfig says who the node is and where its state lives.
type NodeConfig struct {
	// Name is unique in the cluster and never changes.
	Name string
	// DataDir holds log, snapshots and identity.
	DataDir string
	// InitialCluster is "name=host:port,…" over all voters' peer addresses; empty for a cluster of one.
	InitialCluster string
	// LogStore is "wal" or "bolt".
	LogStore string
}

// ListenConfig says where the node listens.
type ListenConfig struct {
	Addr string // clients
	// Advertise is the client address told to other nodes and to clients; empty: Addr.
	Advertise string
	PeerAddr  string // nodes
	Insecure  bool   // allow non-loopback addresses without password, secret or TLS
}

// SecretsConfig holds credentials, or the files that have them.
type SecretsConfig struct {
	Password          string // clients' AUTH
	PasswordFile      string
	ClusterSecret     string // nodes to nodes
	ClusterSecretFile string
	// TLS for clients: certificate and key, and a CA when client certificates are demanded.
	TLSCert, TLSKey, TLSClientCA string
	// TLS between nodes, always mutual.
	PeerTLSCert, PeerTLSKey, PeerTLSCA string
}

// TimingConfig holds what is measured in time.
type TimingConfig struct {
	Heartbeat time.Duration // a follower without a leader's word for one to two of them starts an election
	Election  time.Duration // a candidate starts over after one to two of them
	Command   time.Duration // limit of one command, then UNCERTAIN, TRYAGAIN or CLUSTERDOWN
	Stall     time.Duration // a disk call that takes longer ends the process
	Shutdown  time.Duration // limit of a graceful shutdown
}

// LogConfig is about the raft log and the program's own log.
type LogConfig struct {
	Level             string // debug, info, warn, error
	Format            string // text or json
	SnapshotThreshold uint64 // log entries after which a snapshot is taken
	SnapshotInterval  time.Duration
	TrailingLogs      uint64 // entries kept behind a snapshot
}

// LimitsConfig bounds what clients may cost.
type LimitsConfig struct {
	MaxClients  int
	MaxArgs     int
	MaxBulk     int    // bytes of one argument
	MaxKey      int    // bytes of a key
	MaxValue    int    // bytes of a value in one command
	MaxQuery    int    // bytes of requests waiting unparsed on one connection
	MaxOutput   int    // bytes of replies a client may leave unread
	MaxPipeline int    // commands that are answered as one batch
	MaxMemory   string // what keys and scripts may take: see ParseMaxMemory
	// MaxMemoryClients is what all clients may take together, in the same words.
	MaxMemoryClients string
	IdleTimeout      time.Duration // 0: never
	TCPKeepAlive     time.Duration
}

// DebugConfig opens what only tests may use.
type DebugConfig struct {
	Enabled bool
	// PeerDial rewrites peer addresses at dial time: "original=replacement,…".
	PeerDial string
}

// DefaultConfig is one node on loopback, with the defaults of the packages that a value is for.
func DefaultConfig() Config {
	limits, timing := frontend.DefaultLimits(), frontend.DefaultTimeouts()
	return Config{
		Node:   NodeConfig{Name: "n1", DataDir: "./holdfast-data", LogStore: store.KindWAL},
		Listen: ListenConfig{Addr: "127.0.0.1:6379", PeerAddr: "127.0.0.1:7379"},
		Timing: TimingConfig{
			Heartbeat: replica.DefaultHeartbeat,
			Election:  replica.DefaultElection,
			Command:   replica.DefaultCommand,
			Stall:     10 * time.Second,
			Shutdown:  10 * time.Second,
		},
		Log: LogConfig{
			Level: "info", Format: "text",
			SnapshotThreshold: replica.DefaultSnapshotEntries,
			SnapshotInterval:  replica.DefaultSnapshotInterval,
			TrailingLogs:      replica.DefaultTrailing,
		},
		Limits: LimitsConfig{
			MaxClients: limits.MaxClients, MaxArgs: limits.MaxArgs,
			MaxBulk: limits.MaxBulkBytes, MaxKey: limits.MaxKeyBytes, MaxValue: limits.MaxValueBytes,
			MaxQuery: limits.MaxQueryBytes, MaxOutput: limits.MaxOutputBytes, MaxPipeline: limits.MaxPipeline,
			MaxMemory: DefaultMaxMemory, MaxMemoryClients: DefaultMaxMemoryClients, TCPKeepAlive: timing.TCPKeepAlive,
		},
	}
}

// Validate reports all that is wrong with c, joined, so that an operator mends it in one go.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(validName(c.Node.Name), "name %q: use 1 to 64 letters, digits, '-', '_' or '.'", c.Node.Name)
	check(c.Node.DataDir != "", "data-dir is empty")
	check(c.Node.LogStore == store.KindWAL || c.Node.LogStore == store.KindBolt, "log-store %q: use wal or bolt", c.Node.LogStore)
	check(c.Timing.Heartbeat >= 10*time.Millisecond, "heartbeat-timeout %v: at least 10ms", c.Timing.Heartbeat)
	check(c.Timing.Election >= c.Timing.Heartbeat, "election-timeout %v is below heartbeat-timeout %v", c.Timing.Election, c.Timing.Heartbeat)
	check(c.Timing.Command > 0, "command-timeout %v: use a positive duration", c.Timing.Command)
	check(c.Timing.Stall >= time.Second, "disk-stall-limit %v: at least 1s", c.Timing.Stall)
	check(c.Log.Format == "text" || c.Log.Format == "json", "log-format %q: use text or json", c.Log.Format)
	check(c.Log.SnapshotThreshold > 0, "snapshot-threshold is 0")
	check(c.Log.SnapshotInterval >= 5*time.Millisecond, "snapshot-interval %v: at least 5ms", c.Log.SnapshotInterval)
	check(c.Debug.PeerDial == "" || c.Debug.Enabled, "debug-peer-dial needs debug")
	errs = append(errs, c.Limits.validate()...)
	errs = append(errs, c.validateCluster()...)
	errs = append(errs, c.validateExposure()...)
	return errors.Join(errs...)
}

func (l *LimitsConfig) validate() []error {
	var errs []error
	for _, row := range []struct {
		name      string
		value, lo int
	}{
		{"max-clients", l.MaxClients, 1},
		{"max-args", l.MaxArgs, 16},
		{"max-bulk-bytes", l.MaxBulk, 1024},
		{"max-key-bytes", l.MaxKey, 16},
		{"max-value-bytes", l.MaxValue, 16},
		{"max-query-bytes", l.MaxQuery, 64 << 10},
		{"max-output-bytes", l.MaxOutput, 64 << 10},
		{"max-pipeline", l.MaxPipeline, 1},
	} {
		if row.value < row.lo {
			errs = append(errs, fmt.Errorf("%s %d: at least %d", row.name, row.value, row.lo))
		}
	}
	if _, err := ParseMaxMemory(l.MaxMemory, 0); err != nil {
		errs = append(errs, err)
	}
	if _, err := (memory{}).clientsLimit(l.MaxMemoryClients); err != nil {
		errs = append(errs, err)
	}
	if l.MaxBulk > 16<<20 {
		// A raft log segment holds an entry whole.
		errs = append(errs, fmt.Errorf("max-bulk-bytes %d: at most %d", l.MaxBulk, 16<<20))
	}
	return errs
}

func (c *Config) validateCluster() []error {
	peers, err := c.Peers()
	if err != nil {
		return []error{err}
	}
	var errs []error
	if peers[c.Node.Name] == "" {
		errs = append(errs, fmt.Errorf("initial-cluster does not name this node, %q", c.Node.Name))
	}
	if n := len(peers); n%2 == 0 {
		errs = append(errs, fmt.Errorf("initial-cluster has %d nodes: use 1, 3 or 5 (an even number tolerates no more failures than one less)", n))
	}
	return errs
}

// validateExposure refuses to listen where strangers are without a way to tell them from friends.
func (c *Config) validateExposure() []error {
	if c.Listen.Insecure {
		return nil
	}
	var errs []error
	s := c.Secrets
	if !loopback(c.Listen.Addr) && s.Password == "" && s.PasswordFile == "" && s.TLSClientCA == "" {
		errs = append(errs, fmt.Errorf("addr %s is not loopback: set password, password-file or tls-client-ca, or say insecure", c.Listen.Addr))
	}
	if !loopback(c.Listen.PeerAddr) && s.ClusterSecret == "" && s.ClusterSecretFile == "" && s.PeerTLSCA == "" {
		errs = append(errs, fmt.Errorf("peer-addr %s is not loopback: set cluster-secret, cluster-secret-file or peer-tls-*, or say insecure", c.Listen.PeerAddr))
	}
	return errs
}

// Peers is the initial cluster by name. Without one it is this node alone.
func (c *Config) Peers() (map[string]string, error) {
	if c.Node.InitialCluster == "" {
		return map[string]string{c.Node.Name: c.Listen.PeerAddr}, nil
	}
	peers := make(map[string]string)
	addrs := make(map[string]string)
	for item := range strings.SplitSeq(c.Node.InitialCluster, ",") {
		name, addr, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok || !validName(name) {
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

// clusterID names the cluster: its first members. Two clusters with the same
// members and addresses are the same cluster.
func clusterID(peers map[string]string) string {
	items := make([]string, 0, len(peers))
	for name, addr := range peers {
		items = append(items, name+"="+addr)
	}
	sort.Strings(items)
	sum := sha256.Sum256([]byte(strings.Join(items, ",")))
	return hex.EncodeToString(sum[:8])
}

func validName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r) {
			return false
		}
	}
	return true
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
