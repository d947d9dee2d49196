package servertest

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/audit"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/frontend/observe"
	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/pubsub"
	"github.com/holdfast/holdfast/server/raftnode/hclogger"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/secrets"
	"github.com/holdfast/holdfast/server/tracking"
)

// Options shape a cluster. The zero value is three nodes, as an operator gets them without flags.
type Options struct {
	Nodes int // 0: three
	// For Spares, Minted and Undead see [replicatest.Options].
	Spares int
	Minted bool
	Undead bool
	// Tune, if not nil, changes the configuration that all nodes start with.
	Tune func(*server.Config)
	// Stubborn, if not empty, names a node that believes for seconds in its own leadership, long
	// after the others elected another leader, as a node does that was frozen.
	Stubborn string
	// NoRefusalDelay: nodes refuse polls at once, so that in virtual time no command takes any.
	NoRefusalDelay bool
	// Backend, if not nil, stands between a node's clients and its replica: a server that is
	// wrong on purpose.
	Backend func(node string, b frontend.Backend) frontend.Backend
	// Checks is between two comparisons of the nodes' states; 0: there are none.
	Checks time.Duration
	// Audit, if not nil, opens the audit log of a node that starts.
	Audit func(node string) *audit.Log
	// Logs, if not nil, gets what the nodes log.
	Logs *slog.Logger
}

// Node is a member of a cluster.
type Node = replicatest.Node

// Cluster is a cluster of replicas that serve clients.
type Cluster struct {
	*replicatest.Cluster

	clients atomic.Int64 // made so far
}

// New starts a cluster of nodes n1, n2 and so on, and stops the cluster when the test ends. New
// must be called in a synctest bubble.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Logs == nil {
		o.Logs = slog.New(slog.DiscardHandler)
	}
	m := maker{t, o}
	return &Cluster{
		Cluster: replicatest.New(t, replicatest.Options{
			Nodes: o.Nodes, Spares: o.Spares, Minted: o.Minted, Undead: o.Undead, Checks: o.Checks, Logs: o.Logs,
			Configure: m.configure, Server: m.server,
		}),
	}
}

// Entries is how long the log is that the cluster agrees on.
func (c *Cluster) Entries() uint64 {
	c.T.Helper()
	c.Settle()
	return c.Leader().Replica().Status().LastLog
}

// maker makes the parts of nodes as server.New does.
type maker struct {
	t testing.TB
	Options
}

// opClients asks a node about its clients.
const opClients = "clients"

// config is what the nodes are configured with.
func (m maker) config(name string) server.Config {
	conf := server.DefaultConfig()
	conf.Name = name
	if m.Tune != nil {
		m.Tune(&conf)
	}
	return conf
}

// server makes a server of a replica.
func (m maker) server(node string) replicatest.Server {
	conf, hub, caches := m.config(node), pubsub.New(m.Logs), tracking.New(tracking.DefaultLimits())
	monitors := observe.NewMonitors()
	var audited *audit.Log
	if m.Audit != nil {
		audited = m.Audit(node)
	}
	return replicatest.Server{
		Listen: func(c *replica.Config) {
			if audited != nil {
				c.Audit = audited.Changes
			}
			c.OnStateEvents = func(events []event.Event) {
				hub.Events(events)
				caches.Events(events)
				monitors.Events(events)
			}
			c.RunsReads, c.Report = caches.Wants, hub.Answer
			hear := c.OnEvent
			c.OnEvent = func(e replica.Event) {
				if _, restored := e.(replica.Restored); restored {
					hub.Gap()
					caches.InvalidateAll()
				}
				hear(e)
			}
		},
		DiskStallLimit:  conf.DiskStallLimit,
		ShutdownTimeout: conf.ShutdownTimeout,
		Front: func(r *replica.Replica, requests *memberrpc.Server, others *memberrpc.Client) replicatest.Front {
			var backend frontend.Backend = r
			if m.Backend != nil {
				backend = m.Backend(node, backend)
			}
			front := m.front(&conf)
			front.Users = m.users(&conf)
			front.Hub, front.Tracking, front.Monitors, front.Audit = hub, caches, monitors, audited
			front.AskClients = func(ctx context.Context, id string, q frontend.ClientsQuestion) (
				frontend.ClientsAnswer, error,
			) {
				return memberrpc.Call[frontend.ClientsAnswer](ctx, others, id, opClients, q)
			}
			s := frontend.New(front, backend)
			memberrpc.Handle(requests, opClients, func(_ context.Context, _ memberrpc.Caller,
				q frontend.ClientsQuestion,
			) (frontend.ClientsAnswer, error) {
				return s.Clients(q), nil
			})
			return s
		},
	}
}

// Stubbornness is for how long a stubborn leader does without followers, and a third of the longest time for which a
// stubborn follower believes in a silent leader: raft looks at the last contact each one to two heartbeat timeouts.
const Stubbornness = 3 * time.Second

// configure configures a replica.
func (m maker) configure(c *replica.Config) {
	name := members.Name(c.ID)
	conf := m.config(name)
	c.Timing, c.SnapshotPolicy = conf.Timing, conf.SnapshotPolicy
	if m.NoRefusalDelay {
		c.RefusalDelay = -1
	}
	if name == m.Stubborn {
		c.HeartbeatTimeout, c.ElectionTimeout, c.LeaseTimeout = Stubbornness, Stubbornness, Stubbornness
		c.ClockStep = conf.ElectionTimeout
	}
	c.EntryLimits = protocol.EntryLimits{
		MemoryBytes: m.memoryLimit(&conf), ScriptSteps: uint64(conf.MaxScriptSteps),
	}
	c.Logger = m.Logs.With("node", name)
	c.RaftLogger = hclogger.New(c.Logger)
}

func (m maker) front(conf *server.Config) frontend.Config {
	return frontend.Config{
		Limits:   conf.Limits,
		Timeouts: conf.Timeouts,
		Memory:   frontend.Memory{MaxMemoryBytes: m.memoryLimit(conf)},
		Node:     frontend.Node{Name: conf.Name},
		Sentinel: server.SentinelView(conf),
		Options:  frontend.Options{ClusterMode: conf.ClusterMode},
		Logger:   m.Logs,
	}
}

// users are those of the node's files, nil without files.
func (m maker) users(conf *server.Config) frontend.Users {
	if conf.ACLFile == "" {
		return nil
	}
	keyring, err := secrets.Open(conf.SecretsConfig, m.Logs)
	require.NoError(m.t, err)
	return keyring
}

// memoryLimit is max-memory on a machine that does not tell how much memory there is.
func (m maker) memoryLimit(conf *server.Config) uint64 {
	limitBytes, err := server.ParseMaxMemory(conf.MaxMemory, 0)
	require.NoError(m.t, err)
	return limitBytes
}
