// Package replicatest is a cluster of replicas in memory, for tests in virtual time: real raft,
// real forwarding, real state machines. The network, the disks and the clocks are simulated and can
// be made to misbehave. Package servertest makes whole servers of the replicas by [Options.Server].
//
// The package promises that inside a testing/synctest bubble nothing waits in real time, that a
// crashed node leaves only a disk behind, and that when the test ends every goroutine has ended.
// [Seed] has raft's timeouts drawn from a seed. The package does not promise that two runs are alike:
// goroutines interleave at will.
//
// Start reading at [New], then [Node.Start].
package replicatest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/peertest"
	"github.com/holdfast/holdfast/server/replica"
)

// Options shape a cluster. The zero value is three nodes with default settings.
type Options struct {
	Nodes int // 0: three
	// Spares is how many nodes there are beside the first members. They do not run, and have empty disks.
	Spares int
	// Minted: the IDs of the first members are minted, as those of other nodes always are. Otherwise they are the
	// names, which are easier to read.
	Minted bool
	// Undead: a server that was removed goes on, which is wrong.
	Undead bool
	// Checks is between two comparisons of the nodes' states; negative: there are none but those that a node needs; 0:
	// there are none at all.
	Checks time.Duration
	// Configure, if not nil, changes a node's configuration at each start.
	Configure func(*replica.Config)
	// Logs, if not nil, gets what the nodes log.
	Logs *slog.Logger
	// Server, if not nil, returns what turns a starting node into a whole server.
	Server func(node string) Server
}

// Server is the rest of a server, beside the replica. A node with a Server ends when the disk or
// the replica fails.
type Server struct {
	// DiskStallLimit is how long a call to the disk may take.
	DiskStallLimit time.Duration
	// ShutdownTimeout bounds an end in good order.
	ShutdownTimeout time.Duration
	// Listen has the server told what the replica does; nil: it need not be told.
	Listen func(*replica.Config)
	// Front returns what serves clients, and answers requests of other nodes.
	Front func(r *replica.Replica, requests *memberrpc.Server, others *memberrpc.Client) Front
}

// Front serves the clients that connect to l until ctx ends and all of them are gone: ServeSentinel those
// of Sentinel.
type Front interface {
	ServeSentinel(ctx context.Context, l net.Listener) error
	Serve(ctx context.Context, l net.Listener) error
}

// Cluster is a set of nodes, running or not, and the network between them and their clients.
type Cluster struct {
	T   testing.TB
	Net *peertest.Network
	// OnFetch, if not nil, changes a state that is on its way from one node to another.
	OnFetch func(io.ReadCloser) io.ReadCloser

	options  Options
	nodes    []*Node
	founders []members.Member
}

// New starts a cluster, named n1, n2 and so on, and stops the cluster when the test ends.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	c := &Cluster{T: t, Net: peertest.New(), options: o}
	for i := range o.Nodes {
		n := c.node(fmt.Sprintf("n%d", i+1))
		n.ID = n.Name
		if o.Minted {
			n.ID = members.NewID(n.Name)
		}
		c.founders = append(c.founders, members.Member{ID: n.ID, Addr: n.PeerAddr, Voter: true})
	}
	t.Cleanup(c.Stop)
	for _, n := range c.nodes {
		n.Start()
	}
	for i := range o.Spares {
		c.node(fmt.Sprintf("n%d", o.Nodes+i+1))
	}
	return c
}

// Stop ends all nodes at once, as kill -9 does.
func (c *Cluster) Stop() {
	c.Net.Heal()
	for _, n := range c.nodes {
		n.Crash()
	}
}

// Node returns the node of that name.
func (c *Cluster) Node(name string) *Node {
	c.T.Helper()
	for _, n := range c.nodes {
		if n.Name == name {
			return n
		}
	}
	require.FailNow(c.T, "no such node", name)
	return nil
}

// Nodes returns all nodes, running or not.
func (c *Cluster) Nodes() []*Node { return slices.Clone(c.nodes) }

// Names returns the names of all nodes but the given.
func (c *Cluster) Names(but ...string) []string {
	var names []string
	for _, n := range c.nodes {
		if !slices.Contains(but, n.Name) {
			names = append(names, n.Name)
		}
	}
	return names
}

// leading is the node that leads at this instant in the highest term, or nil. A leader that was
// deposed and has not noticed yet counts if there is no other.
func (c *Cluster) leading() *Node {
	var found *Node
	var term uint64
	for _, n := range c.nodes {
		if r := n.Replica(); r != nil {
			if s := r.Status(); s.Leading && s.Term >= term {
				found, term = n, s.Term
			}
		}
	}
	return found
}

// patience is how long a test waits for what must come: longer than any
// election takes, and no time at all outside of the bubble.
const patience = time.Minute

// eventually waits until condition holds, and returns false if patience runs out.
func eventually(condition func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if condition() {
			return true
		}
	}
	return false
}

// Leader waits until a node that can reach a majority leads, and returns that node.
func (c *Cluster) Leader() *Node {
	c.T.Helper()
	var found *Node
	ok := eventually(func() bool { found = c.leading(); return found != nil })
	require.True(c.T, ok, "no leader: network %v", c.Net)
	return found
}

// Lead makes n the leader: the node that was elected hands over to n. Raft hands over to the first
// of the nodes that have the whole log, so some nodes cannot be made leader.
func (c *Cluster) Lead(n *Node) {
	c.T.Helper()
	ok := eventually(func() bool {
		leader := c.Leader()
		if leader != n {
			c.Settle(n, leader)
			_ = leader.Transfer()
		}
		return leader == n
	})
	require.True(c.T, ok, "%s does not become leader", n.Name)
}

// Followers returns the running nodes that do not lead.
func (c *Cluster) Followers() []*Node {
	var fs []*Node
	for _, n := range c.nodes {
		if r := n.Replica(); r != nil && !r.Status().Leading {
			fs = append(fs, n)
		}
	}
	return fs
}

// Settle waits until the given nodes, or all running nodes if none is given, have applied the same
// entries and followers know of that. Settle requires that the nodes then have the same state, and
// returns their names.
func (c *Cluster) Settle(nodes ...*Node) []string {
	c.T.Helper()
	if len(nodes) == 0 {
		nodes = slices.DeleteFunc(c.Nodes(), func(n *Node) bool { return n.Replica() == nil })
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	var digests []digest
	ok := eventually(func() bool { digests = digestsOf(nodes); return settled(digests) })
	require.True(c.T, ok, "the nodes %v do not settle: %v, network %v", names, digests, c.Net)
	for i, d := range digests {
		require.Equal(c.T, digests[0].hash, d.hash, "state of %s and %s at log index %d", names[0], names[i], d.changed)
	}
	return names
}

// digest is how far a node is, and what state the node holds.
type digest struct {
	lastLog, applied, changed uint64
	hash                      string
}

func digestsOf(nodes []*Node) []digest {
	var all []digest
	for _, n := range nodes {
		var d digest
		if r := n.Replica(); r != nil {
			d.lastLog = r.Status().LastLog
			d.changed, d.hash = r.Digest()
			d.applied = r.Status().Applied
		}
		all = append(all, d)
	}
	return all
}

// settled reports whether the nodes are equally far. Applied says that entries were given to the
// state machine; only the digest's own index says that the machine has them.
func settled(digests []digest) bool {
	if len(digests) == 0 {
		return false
	}
	first := digests[0]
	for _, d := range digests {
		if d.lastLog != first.lastLog || d.applied != d.lastLog || d.changed != first.changed || d.lastLog == 0 {
			return false
		}
	}
	return true
}

// Seed has raft's timeouts drawn from a seed, until the next call: hashicorp/raft draws them from the global source of
// math/rand. Runs in one process share the source, so a run that is to come back must be alone.
//
// Requires: the test's package says "//go:debug randseednop=0" in one of its files (rand.Seed has no effect else).
func Seed(t testing.TB, seed uint64) {
	t.Helper()
	draw := func() int64 {
		//lint:ignore SA1019 raft has no source of its own
		rand.Seed(int64(seed))
		return rand.Int63()
	}
	require.Equal(t, draw(), draw(), "the package's tests lack //go:debug randseednop=0")
	//lint:ignore SA1019 raft has no source of its own
	rand.Seed(int64(seed))
}
