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

// Config is what a [Server] is told. The zero value of every field is a safe default.
// Fields that an operator sets have the names of their flags.
type Config struct {
	Limits
	Timeouts
	Memory
	Node Node
	// Administration changes the members; nil: this node cannot.
	Administration Administration
	// AskClients asks another node about connections: see [Server.Clients]; nil: it cannot be asked.
	AskClients func(ctx context.Context, node string, q ClientsQuestion) (ClientsAnswer, error)
	// Sentinel is about the port for Sentinel's clients.
	Sentinel discovery.Sentinel
	Logger   *slog.Logger
	Options  Options
	// Hub has the subscriptions of the clients. It must be told the events of the state machine; nil: New
	// makes one that is told none.
	Hub *pubsub.Hub
	// Tracking has what clients track, and must be told the events, too; nil: New makes one.
	Tracking *tracking.Table
	// Monitors are the clients of MONITOR, and must be told the events, too; nil: New makes it.
	Monitors *observe.Monitors
	// Backups gives clients backups; nil: there are none.
	Backups Backups
	// TLS, when set, is spoken on every connection.
	TLS *tls.Config
	// CertificateUser says which name in a client's certificate is the user's: "CN", the common name, or "URI", the first
	// URI that is a user's. Empty: none.
	CertificateUser string
	// Audit is told who the clients are, and what they are refused; nil: nobody audits.
	Audit *audit.Log
	// Users are the users; nil: there is only "default", who may do everything and needs no password.
	Users Users
}

// Node describes this node to clients.
type Node struct {
	// Name is the node's name in the cluster.
	Name string
	// ClusterID is the ID of the cluster that the node belongs to, "" while there is none; nil: not known.
	ClusterID func() string
	// Troubles, unless nil, is what is wrong although a leader is there and voters answer, a sentence each.
	Troubles func() []string
	// Warnings, unless nil, is what members warn of in themselves, which is no trouble yet, a sentence each.
	Warnings func() []string
	// Quarantined, unless nil, are the IDs of the members in quarantine, as far as is known.
	Quarantined func() []string
	// Waiting says what the node waits for before it belongs to a cluster; nil: it waits for nothing.
	Waiting func() string
	// RunID is 40 hex digits, new with every start; empty: drawn by New.
	RunID string
	// Settings are further rows for CONFIG GET, such as "dir".
	Settings []Setting
}

// Setting is a row of CONFIG GET, named as Redis names it.
type Setting struct{ Name, Value string }

// Options open or change behaviour.
type Options struct {
	// Debug allows the DEBUG command.
	Debug bool
	// Faults answers the subcommands of DEBUG that are about the node rather than
	// the client; known is false for others. nil: there are none. It is called only with Debug.
	Faults func(args []string) (reply protocol.Value, known bool)
	// EveryNodeMaster lets every node call itself master in INFO, ROLE and HELLO,
	// for clients that check the role and know but one address. See DESIGN.md.
	EveryNodeMaster bool
	// ClusterMode answers clients of Redis Cluster: see discovery/cluster.go.
	ClusterMode bool
}

// Limits bound what one client may cost. A value of zero takes the default.
type Limits struct {
	MaxClients     int // connections at a time
	MaxArgs        int // words of one command
	MaxBulkBytes   int // bytes of one word
	MaxKeyBytes    int // bytes of a key
	MaxValueBytes  int // bytes of any other word of a data command
	MaxQueryBytes  int // bytes that have arrived and are not parsed yet, and bytes of a MULTI queue
	MaxOutputBytes int // bytes of replies that a client may leave unread for more than a moment
	MaxPipeline    int // commands that are answered as one batch
	// MaxSubscriptionBytes bounds the memory of a client's subscriptions.
	MaxSubscriptionBytes int
	// PubSub bounds the messages that wait for a subscriber.
	PubSub OutputLimit
}

// Timeouts holds the durations. A value of zero takes the default, except IdleTimeout and LockQueueGrace.
type Timeouts struct {
	IdleTimeout      time.Duration // a silent client is disconnected after it; 0: never
	TCPKeepAlive     time.Duration // interval of TCP keep-alive probes
	WriteTimeout     time.Duration // a client that takes no byte for this long is cut off
	GraceTimeout     time.Duration // the same, for a client that has more than MaxOutputBytes unread
	ShutdownTimeout  time.Duration // how long Serve waits for commands in flight after its context ended
	HandshakeTimeout time.Duration // limit of a TLS handshake
	LockQueueGrace   time.Duration // how long a lock keeps the place of a waiter whose time was over
}

// Memory is what the shares of the machine's memory come to in bytes.
type Memory struct {
	// MaxMemoryBytes is what keys and scripts may take while this node leads, for INFO; 0: no limit.
	MaxMemoryBytes uint64
	// MachineBytes is what the process may use at most, for INFO; 0: not known.
	MachineBytes uint64
	// MaxMemoryClientsBytes bounds the buffers, queues and replies of all connections together:
	// beyond it the connection that holds most is cut off. A value of zero takes the default.
	MaxMemoryClientsBytes int
}

// DefaultLimits are the limits of a Config that names none.
func DefaultLimits() Limits {
	return Limits{
		MaxClients: 10000, MaxArgs: 65536,
		MaxBulkBytes: 8 << 20, MaxKeyBytes: 64 << 10, MaxValueBytes: 8 << 20,
		MaxQueryBytes: 32 << 20, MaxOutputBytes: 64 << 20, MaxPipeline: 10000,
		MaxSubscriptionBytes: 64 << 20, PubSub: DefaultPubSubLimit(),
	}
}

// DefaultTimeouts are the durations of a Config that names none.
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

// DefaultMaxMemoryClientsBytes is the limit of all clients together in a Config that names none.
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

// discovery is what the node says of itself to clients that look for the leader.
func (c *Config) discovery() discovery.Config {
	return discovery.Config{
		EveryNodeMaster: c.Options.EveryNodeMaster, ClusterMode: c.Options.ClusterMode, TLS: c.TLS != nil,
		Sentinel:  c.Sentinel,
		ClusterID: c.Node.ClusterID, Troubles: c.Node.Troubles, Warnings: c.Node.Warnings,
		Quarantined: c.Node.Quarantined, Waiting: c.Node.Waiting,
	}
}

// OutputLimit is a limit of Redis's client-output-buffer-limit: a client is cut off as soon as more than
// HardBytes wait, or when more than SoftBytes have waited for longer than SoftTime. A HardBytes of 0 is no
// limit.
type OutputLimit struct {
	HardBytes, SoftBytes int
	SoftTime             time.Duration
}

// String is the limit as CONFIG GET shows it.
func (l OutputLimit) String() string {
	return strconv.Itoa(l.HardBytes) + " " + strconv.Itoa(l.SoftBytes) + " " + seconds(l.SoftTime)
}

// DefaultPubSubLimit is Redis's default for subscribers.
func DefaultPubSubLimit() OutputLimit {
	return OutputLimit{HardBytes: 32 << 20, SoftBytes: 8 << 20, SoftTime: time.Minute}
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
