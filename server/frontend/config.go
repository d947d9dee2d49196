package frontend

import (
	"context"
	"crypto/tls"
	"log/slog"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/audit"
	"github.com/holdfast/holdfast/server/frontend/discovery"
	"github.com/holdfast/holdfast/server/frontend/observe"
	"github.com/holdfast/holdfast/server/pubsub"
	"github.com/holdfast/holdfast/server/tracking"
)

// Config configures a [Server]. The zero value of every field is a safe default. Fields that an operator sets have the
// names of their flags.
type Config struct {
	Limits
	Timeouts
	Memory
	Node Node
	// Administration changes the members. If it is nil, this node cannot.
	Administration Administration
	// AskClients asks another node about connections: see [Server.Clients]. If it is nil, no node can be asked.
	AskClients func(ctx context.Context, node string, q ClientsQuestion) (ClientsAnswer, error)
	// Sentinel configures the port for Sentinel's clients.
	Sentinel discovery.Sentinel
	Logger   *slog.Logger
	Options  Options
	// Hub has the subscriptions of the clients. It must receive the events of the state machine. If it is nil, New creates
	// one that receives none.
	Hub *pubsub.Hub
	// Tracking has the keys that clients track. It must receive the events, too. If it is nil, New creates one.
	Tracking *tracking.Table
	// Monitors are the clients of MONITOR. It must receive the events, too. If it is nil, New creates one.
	Monitors *observe.Monitors
	// Backups makes backups for clients. If it is nil, there are none.
	Backups Backups
	// TLS, if not nil, applies to every connection.
	TLS *tls.Config
	// CertificateUser selects the name in a client's certificate that is the user's: "CN", the common name, "URI", the
	// first URI that names a user, or "" for none.
	CertificateUser string
	// Audit records the clients and their refused commands. It may be nil.
	Audit *audit.Log
	// Users has the users. If it is nil, there is only "default", who may do everything and needs no password.
	Users Users
}

// Node describes this node to clients.
type Node struct {
	// Name is the node's name in the cluster.
	Name string
	// ClusterID returns the ID of the node's cluster, or "" before there is one. If it is nil, the ID is unknown.
	ClusterID func() string
	// Troubles, if not nil, returns what is wrong although there is a leader and voters answer, a sentence each.
	Troubles func() []string
	// Warnings, if not nil, returns what members warn of in themselves, a sentence each. A warning is no trouble yet.
	Warnings func() []string
	// Quarantined, if not nil, returns the IDs of the members that are known to be in quarantine.
	Quarantined func() []string
	// Waiting returns what the node waits for before it belongs to a cluster. If it is nil, the node waits for nothing.
	Waiting func() string
	// RunID is 40 hex digits, new at every start. If it is empty, New draws one.
	RunID string
	// Settings has further rows for CONFIG GET, such as "dir".
	Settings []Setting
}

// Setting is a row of CONFIG GET, named as Redis names it.
type Setting struct{ Name, Value string }

// Options enables or changes behaviour.
type Options struct {
	// Debug allows the DEBUG command.
	Debug bool
	// Faults runs the subcommands of DEBUG that are about the node rather than the client. known is false for others. It
	// may be nil, and is called only if Debug is set.
	Faults func(args []string) (reply protocol.Value, known bool)
	// EveryNodeMaster has every node report the role of a master in INFO, ROLE and HELLO, for clients that check the role
	// but know only one address. See DESIGN.md.
	EveryNodeMaster bool
	// ClusterMode enables the replies for clients of Redis Cluster: see discovery/cluster.go.
	ClusterMode bool
}

// Limits bounds the resources of one client. A zero selects the default.
type Limits struct {
	MaxClients     int // connections at a time
	MaxArgs        int // words of one command
	MaxBulkBytes   int // bytes of one word
	MaxKeyBytes    int // bytes of a key
	MaxValueBytes  int // bytes of any other word of a data command
	MaxQueryBytes  int // bytes that have arrived and are not parsed yet, and bytes of a MULTI queue
	MaxOutputBytes int // bytes of replies that a client may leave unread for longer than GraceTimeout
	MaxPipeline    int // commands that are answered as one batch
	// MaxSubscriptionBytes bounds the memory of a client's subscriptions.
	MaxSubscriptionBytes int
	// PubSub bounds the messages in the outbox of a subscriber.
	PubSub OutputLimit
}

// Timeouts has durations. A zero selects the default, except for IdleTimeout and LockQueueGrace.
type Timeouts struct {
	IdleTimeout      time.Duration // a client that is silent for this long is disconnected; 0: never
	TCPKeepAlive     time.Duration // interval of TCP keep-alive probes
	WriteTimeout     time.Duration // a client that takes no byte for this long is disconnected
	GraceTimeout     time.Duration // the same, for a client that has more than MaxOutputBytes unread
	ShutdownTimeout  time.Duration // how long Serve waits for commands in flight after its context ended
	HandshakeTimeout time.Duration // limit of a TLS handshake
	LockQueueGrace   time.Duration // how long a waiter whose wait has timed out keeps its place in the queue
}

// Memory has limits in bytes, derived from the machine's memory.
type Memory struct {
	// MaxMemoryBytes is the memory limit of keys and scripts while this node leads, for INFO. 0 is no limit.
	MaxMemoryBytes uint64
	// MachineBytes is the memory limit of the process, for INFO. 0 is unknown.
	MachineBytes uint64
	// MaxMemoryClientsBytes bounds the buffers, queues and replies of all connections together. If it is exceeded, the
	// connection that holds most is closed. A zero selects the default.
	MaxMemoryClientsBytes int
}

// DefaultLimits returns the defaults of Limits.
func DefaultLimits() Limits {
	return Limits{
		MaxClients: 10000, MaxArgs: 65536,
		MaxBulkBytes: 8 << 20, MaxKeyBytes: 64 << 10, MaxValueBytes: 8 << 20,
		MaxQueryBytes: 32 << 20, MaxOutputBytes: 64 << 20, MaxPipeline: 10000,
		MaxSubscriptionBytes: 64 << 20, PubSub: DefaultPubSubLimit(),
	}
}

// DefaultTimeouts returns the defaults of Timeouts.
func DefaultTimeouts() Timeouts {
	return Timeouts{
		TCPKeepAlive:     300 * time.Second,
		WriteTimeout:     30 * time.Second,
		GraceTimeout:     time.Second,
		ShutdownTimeout:  10 * time.Second,
		HandshakeTimeout: 10 * time.Second,
		LockQueueGrace:   2 * time.Second,
	}
}

// DefaultMaxMemoryClientsBytes is the default of Memory.MaxMemoryClientsBytes.
const DefaultMaxMemoryClientsBytes = 1 << 30

func orDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

func (c Config) withDefaults() Config {
	limits := DefaultLimits()
	orDefault(&c.MaxClients, limits.MaxClients)
	orDefault(&c.MaxArgs, limits.MaxArgs)
	orDefault(&c.MaxBulkBytes, limits.MaxBulkBytes)
	orDefault(&c.MaxKeyBytes, limits.MaxKeyBytes)
	orDefault(&c.MaxValueBytes, limits.MaxValueBytes)
	orDefault(&c.MaxQueryBytes, limits.MaxQueryBytes)
	orDefault(&c.MaxOutputBytes, limits.MaxOutputBytes)
	orDefault(&c.MaxPipeline, limits.MaxPipeline)
	orDefault(&c.MaxSubscriptionBytes, limits.MaxSubscriptionBytes)
	orDefault(&c.PubSub.HardBytes, limits.PubSub.HardBytes)
	orDefault(&c.PubSub.SoftBytes, limits.PubSub.SoftBytes)
	orDefault(&c.PubSub.SoftTime, limits.PubSub.SoftTime)
	orDefault(&c.MaxMemoryClientsBytes, DefaultMaxMemoryClientsBytes)
	timeouts := DefaultTimeouts()
	orDefault(&c.TCPKeepAlive, timeouts.TCPKeepAlive)
	orDefault(&c.WriteTimeout, timeouts.WriteTimeout)
	orDefault(&c.GraceTimeout, timeouts.GraceTimeout)
	orDefault(&c.ShutdownTimeout, timeouts.ShutdownTimeout)
	orDefault(&c.HandshakeTimeout, timeouts.HandshakeTimeout)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Users == nil {
		c.Users = onlyUser{acl.Only()}
	}
	if c.Tracking == nil {
		c.Tracking = tracking.New(tracking.DefaultLimits())
	}
	if c.Monitors == nil {
		c.Monitors = observe.NewMonitors()
	}
	if c.Hub == nil {
		c.Hub = pubsub.New(c.Logger)
	}
	return c
}

// discovery returns the configuration of the replies to clients that look for the leader.
func (c *Config) discovery() discovery.Config {
	return discovery.Config{
		EveryNodeMaster: c.Options.EveryNodeMaster, ClusterMode: c.Options.ClusterMode, TLS: c.TLS != nil,
		Sentinel:  c.Sentinel,
		ClusterID: c.Node.ClusterID, Troubles: c.Node.Troubles, Warnings: c.Node.Warnings,
		Quarantined: c.Node.Quarantined, Waiting: c.Node.Waiting,
	}
}

// OutputLimit is a limit of Redis's client-output-buffer-limit. A client is disconnected as soon as it has more than
// HardBytes waiting, or more than SoftBytes for longer than SoftTime. A HardBytes of 0 is no limit.
type OutputLimit struct {
	HardBytes, SoftBytes int
	SoftTime             time.Duration
}

// String returns the limit in the notation of CONFIG GET.
func (l OutputLimit) String() string {
	return strconv.Itoa(l.HardBytes) + " " + strconv.Itoa(l.SoftBytes) + " " + seconds(l.SoftTime)
}

// DefaultPubSubLimit returns Redis's default for subscribers.
func DefaultPubSubLimit() OutputLimit {
	return OutputLimit{HardBytes: 32 << 20, SoftBytes: 8 << 20, SoftTime: time.Minute}
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
