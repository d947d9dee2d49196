//go:debug randseednop=0

package server_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/servertest"
	"github.com/holdfast/holdfast/server/store"
)

// trouble breaks something, and returns how to undo it; nil: there is nothing to undo.
type trouble struct {
	name  string
	cause func(c *servertest.Cluster, rng *rand.Rand) (undo func())
}

// victim is the leader, if there is one, half of the times.
func victim(c *servertest.Cluster, rng *rand.Rand) *servertest.Node {
	if rng.IntN(2) == 0 {
		for _, n := range c.Nodes() {
			if r := n.Replica(); r != nil && r.Status().Leading {
				return n
			}
		}
	}
	return c.Nodes()[rng.IntN(len(c.Nodes()))]
}

// minority is as many nodes as the cluster can do without.
func minority(c *servertest.Cluster, rng *rand.Rand) []*servertest.Node {
	nodes := c.Nodes()
	rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	few := nodes[:(len(nodes)-1)/2]
	if v := victim(c, rng); rng.IntN(2) == 0 {
		few[0] = v
		for i := 1; i < len(few); i++ {
			if few[i] == v {
				few[i] = nodes[len(few)]
			}
		}
	}
	return few
}

func crash(nodes []*servertest.Node) (undo func()) {
	for _, n := range nodes {
		n.Crash()
	}
	return func() {
		for _, n := range nodes {
			n.Start()
		}
	}
}

// The troubles.
var (
	crashMinority = trouble{"crash a minority", func(c *servertest.Cluster, rng *rand.Rand) func() {
		return crash(minority(c, rng))
	}}
	crashMost = trouble{"crash a majority", func(c *servertest.Cluster, rng *rand.Rand) func() {
		nodes := c.Nodes()
		rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		return crash(nodes[:len(nodes)/2+1])
	}}
	crashAll = trouble{"crash all", func(c *servertest.Cluster, _ *rand.Rand) func() { return crash(c.Nodes()) }}
	shutDown = trouble{"stop a node", func(c *servertest.Cluster, rng *rand.Rand) func() {
		n := victim(c, rng)
		_ = n.Stop()
		return n.Start
	}}
	partition = trouble{"partition", func(c *servertest.Cluster, rng *rand.Rand) func() {
		var few []string
		for _, n := range minority(c, rng) {
			few = append(few, n.Name)
		}
		c.Net.Partition(few, c.Names(few...))
		return c.Net.Heal
	}}
	shatter = trouble{"cut some ways", func(c *servertest.Cluster, rng *rand.Rand) func() {
		for _, a := range c.Names() {
			for _, b := range c.Names() {
				if a != b && rng.IntN(3) == 0 {
					c.Net.Cut(a, b)
				}
			}
		}
		return c.Net.Heal
	}}
	slow = trouble{"slow network", func(c *servertest.Cluster, rng *rand.Rand) func() {
		for _, a := range c.Names() {
			for _, b := range c.Names() {
				c.Net.Delay(a, b, time.Duration(rng.IntN(80))*time.Millisecond)
			}
		}
		return c.Net.Heal
	}}
	breakConnections = trouble{"break connections", func(c *servertest.Cluster, rng *rand.Rand) func() {
		n := victim(c, rng)
		for _, other := range c.Names(n.Name) {
			c.Net.Break(n.Name, other)
		}
		return nil
	}}
	transfer = trouble{"transfer leadership", func(c *servertest.Cluster, rng *rand.Rand) func() {
		n := victim(c, rng)
		return background(func() { _ = n.Transfer() })
	}}
	snapshot = trouble{"take a snapshot", func(c *servertest.Cluster, rng *rand.Rand) func() {
		r := victim(c, rng).Replica()
		return background(func() {
			if r != nil {
				_ = r.TakeSnapshot()
			}
		})
	}}
	wallClocks = trouble{"set wall clocks", func(c *servertest.Cluster, rng *rand.Rand) func() {
		for _, n := range c.Nodes() {
			n.Clock.Jump(time.Duration(rng.IntN(7200)-3600) * time.Second)
		}
		return nil
	}}
	// An older copy of a node's folder takes the folder's place. If the others have met a later start of the node it ends;
	// if not, the later start has done nothing, and the node goes on with the copy.
	putBack = trouble{"put a folder back", func(c *servertest.Cluster, rng *rand.Rand) func() {
		n := victim(c, rng)
		n.Crash()
		old := n.Disk.Copy()
		n.Start()
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		n.Crash()
		newest, deaths := n.Disk, len(n.Deaths())
		n.Disk = old
		n.Start()
		return func() {
			for range 300 {
				if len(n.Deaths()) > deaths {
					n.Crash() // it is ending, and its disk is in use until it has ended
					n.Disk = newest
					n.Start()
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	}}
	slowDisk = trouble{"slow disk", func(c *servertest.Cluster, rng *rand.Rand) func() {
		n := victim(c, rng)
		return n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: time.Duration(1+rng.IntN(300)) * time.Millisecond})
	}}

	brokenDisk = trouble{"a disk fails", func(c *servertest.Cluster, rng *rand.Rand) func() {
		n := victim(c, rng)
		n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Err: syscall.EIO})
		return func() {
			n.Crash() // if it has not ended by itself
			n.Start()
		}
	}}
	slowClock = trouble{"a clock runs slow", func(c *servertest.Cluster, rng *rand.Rand) func() {
		n := victim(c, rng)
		n.Clock.SetRate(0.3 + 0.7*rng.Float64())
		return func() { n.Clock.SetRate(1) }
	}}
	// Some nodes miss so much that the others have cut it from their logs.
	fallBehind = trouble{"fall behind", func(c *servertest.Cluster, rng *rand.Rand) func() {
		few := minority(c, rng)
		var names []string
		for _, n := range few {
			names = append(names, n.Name)
		}
		rest := c.Names(names...)
		c.Net.Partition(names, rest)
		time.Sleep(time.Duration(1+rng.IntN(3)) * time.Second)
		for _, name := range rest {
			if r := c.Node(name).Replica(); r != nil {
				_ = r.TakeSnapshot()
			}
		}
		return c.Net.Heal
	}}
	// The stubborn leader goes on to believe that it leads: see ordeal.
	isolateStubborn = trouble{"isolate the stubborn leader", func(c *servertest.Cluster, rng *rand.Rand) func() {
		n := c.Node(stubborn)
		for range 5 {
			if leader := c.Leader(); leader != n {
				_ = leader.Transfer()
			}
		}
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		c.Net.Partition([]string{n.Name}, c.Names(n.Name))
		return c.Net.Heal
	}}

	allTroubles = []trouble{
		crashMinority, crashMinority, crashAll, shutDown, partition, partition, shatter, slow, breakConnections,
		transfer, snapshot, wallClocks, slowDisk, isolateStubborn,
		brokenDisk, slowClock, fallBehind, putBack,
	}
)

const stubborn = "n1"

// background runs f, and is undone when f has returned.
func background(f func()) (undo func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return func() { <-done }
}

// ordeal is a cluster with clients on it, and what goes wrong meanwhile.
type ordeal struct {
	nodes    int
	seed     uint64
	clients  int
	ops      int64
	pause    time.Duration // the longest between two operations of a client
	mix      mix
	troubles []trouble
	longest  time.Duration // of one trouble
}

// name says how to make the same troubles and timeouts again; goroutines interleave at will.
func (o *ordeal) name() string { return fmt.Sprintf("%d nodes, seed %d", o.nodes, o.seed) }

// checks are what a test asks beyond what must hold in any case.
type checks struct {
	// cluster looks at the cluster when all is mended and before it is stopped.
	cluster func(t *testing.T, c *servertest.Cluster, h *history)
	// history looks at what clients saw.
	history func(t *testing.T, h *history)
}

// each passes the ordeal with three nodes and with five, and a few seeds.
func (o ordeal) each(t *testing.T, more checks) {
	for i := range 6 {
		one := o
		one.nodes, one.seed = 3+2*(i%2), o.seed+uint64(i)
		one.pass(t, more)
	}
}

// again is how often a failed ordeal is repeated: the count tells how much a seed alone brings back.
const again = 10

// pass runs the ordeal in a bubble of its own. It checks what must hold in any
// case: no node died, no key's history shows that there is more than one copy, and all
// nodes have the same state in the end.
func (o ordeal) pass(t *testing.T, more checks) {
	if o.once(t, more) {
		return
	}
	failed := 0
	for range again {
		if !o.once(t, more) {
			failed++
		}
	}
	t.Logf("%s failed again in %d of %d tries", o.name(), failed, again)
}

// once runs the ordeal, and reports whether it passed.
func (o ordeal) once(t *testing.T, more checks) bool {
	return t.Run(o.name(), func(t *testing.T) {
		replicatest.Seed(t, o.seed)
		var h *history
		synctest.Test(t, func(t *testing.T) {
			c := servertest.New(t, servertest.Options{Nodes: o.nodes, Stubborn: stubborn, Tune: func(c *server.Config) {
				c.TrailingLogs = 20
			}})
			c.Leader()
			h = newHistory()
			o.run(t, c, h)
			o.finish(t, c, h)
			if more.cluster != nil {
				more.cluster(t, c, h)
			}
		})
		if t.Failed() {
			return
		}
		h.requireLinearizable(t)
		if more.history != nil {
			more.history(t, h)
		}
	})
}

// run lets clients work, and troubles come and go, until the clients are through.
func (o *ordeal) run(t *testing.T, c *servertest.Cluster, h *history) {
	rng := rand.New(rand.NewPCG(o.seed, 0))
	latency(c, rng)
	var left atomic.Int64
	left.Store(o.ops)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for id := range o.clients {
		cl := newClient(t, id+1, o.seed, c, h)
		clients.Go(func() { cl.run(o.mix, o.pause, &left, stop) })
	}
	through := make(chan struct{})
	go func() {
		clients.Wait()
		close(through)
	}()
	for going := true; going; {
		one := o.troubles[rng.IntN(len(o.troubles))]
		t.Logf("%8v %s", time.Since(h.begun).Round(time.Millisecond), one.name)
		undo := one.cause(c, rng)
		going = !waitFor(through, time.Duration(rng.Int64N(int64(o.longest))))
		if undo != nil {
			undo()
			latency(c, rng)
		}
		t.Logf("%8v it is over", time.Since(h.begun).Round(time.Millisecond))
		going = going && !waitFor(through, time.Duration(rng.IntN(1500))*time.Millisecond)
	}
	<-through
}

// latency makes everything take a little time, so that things happen side by side.
func latency(c *servertest.Cluster, rng *rand.Rand) {
	for _, a := range c.Names() {
		for _, b := range c.Names() {
			if a != b {
				c.Net.Delay(a, b, time.Duration(rng.IntN(3000))*time.Microsecond)
			}
		}
	}
}

func waitFor(c <-chan struct{}, limit time.Duration) bool {
	select {
	case <-c:
		return true
	case <-time.After(limit):
		return false
	}
}

// finish mends everything, and reads all keys on all nodes.
func (o *ordeal) finish(t *testing.T, c *servertest.Cluster, h *history) {
	c.Net.Heal()
	for _, n := range c.Nodes() {
		n.Faults.Clear()
		for _, err := range n.Deaths() {
			if !errors.Is(err, incarnation.ErrSuperseded) {
				require.ErrorIs(t, err, syscall.EIO, "%s ended by itself", n.Name)
			}
		}
	}
	c.Leader()
	for i, n := range c.Nodes() {
		cl := newClient(t, 100+i, o.seed, c, h)
		cl.conn = c.Client(n, 2)
		for _, key := range []string{"register0", "register1", "counter0", "counter1", "log0", "log1", "lock0", "lock1"} {
			cl.read(key)
		}
		getBoth(cl)
		cl.conn.Close()
	}
	c.Settle()
}
