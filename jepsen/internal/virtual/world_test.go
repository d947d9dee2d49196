package virtual

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/nemesis"
	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/reconfig"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/servertest"
	"github.com/holdfast/holdfast/server/store"
)

// world is a cluster in memory, and also the tests' target and network. Requires: it is made within a bubble.
type world struct {
	cluster *servertest.Cluster
	places  []string                 // initial members, then spares
	starts  map[string]chan struct{} // held while a place's process is started or stopped
	delay   time.Duration            // of messages between nodes without faults

	mu sync.Mutex
	in map[string]bool // whether a place is in: see cluster.Membership
	// executors are the nodes' executors of changes of the members. With raw, the changes are raft's own, which nothing
	// refuses, except those by force.
	executors map[*replica.Replica]*reconfig.Executor
	raw       bool
	excused   map[string]int // deaths excused by a fault
	paused    map[string]bool
	rng       *rand.Rand // draws what power cuts leave
}

var (
	_ cluster.Target    = target{}
	_ cluster.Processes = (*world)(nil)
	_ network.Network   = (*world)(nil)
	_ nemesis.Caches    = (*world)(nil)
)

// worldOptions shape a world.
type worldOptions struct {
	nodes int
	seed  uint64 // for what power cuts leave
	// stubborn: the first node believes for seconds that it still leads.
	stubborn bool
	// slow: messages between nodes take usualDelay, as in a real network.
	slow bool
	// resends: lost messages arrive when TCP would send them again.
	resends bool
	// raw: members change by raft's own changes, without package reconfig's rules.
	raw bool
	// undead: removed nodes continue.
	undead bool
	// broken, if not nil, wraps a node's replica for its clients.
	broken func(node string, b frontend.Backend) frontend.Backend
}

// stallLimit is the nodes' --disk-stall-limit, as in the program.
const stallLimit = 2 * time.Second

func newWorld(t *testing.T, o worldOptions) *world {
	t.Helper()
	w := &world{
		places: network.Nodes(o.nodes + spares), in: map[string]bool{}, starts: map[string]chan struct{}{},
		excused: map[string]int{}, paused: map[string]bool{}, rng: rand.New(rand.NewPCG(o.seed, 2)),
		executors: map[*replica.Replica]*reconfig.Executor{}, raw: o.raw,
	}
	for i, place := range w.places {
		w.in[place], w.starts[place] = i < o.nodes, make(chan struct{}, 1)
	}
	aclFile, quotaFile, err := workload.WriteUsers(t.TempDir(), true)
	require.NoError(t, err)
	options := servertest.Options{
		Nodes: o.nodes, Spares: spares, Minted: true, Undead: o.undead, Backend: o.broken, Checks: nemesis.CheckInterval,
		Tune: func(c *server.Config) {
			c.SnapshotThreshold, c.SnapshotInterval, c.TrailingLogs = 64, 500*time.Millisecond, 8
			c.DiskStallLimit = stallLimit
			c.ACLFile, c.QuotaFile = aclFile, quotaFile
		},
	}
	if o.stubborn {
		options.Stubborn = w.places[0]
	}
	w.cluster = servertest.New(t, options)
	w.cluster.OnFetch = func(state io.ReadCloser) io.ReadCloser { return fetched{state, w} }
	if o.resends {
		w.cluster.Net.ResendAsTCP()
	}
	if o.slow {
		w.delay = usualDelay
		_ = w.Set(network.State{})
	}
	return w
}

const usualDelay = 20 * time.Millisecond

// The world as a service.

// Nodes returns the present members.
func (w *world) Nodes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.places), func(place string) bool { return !w.in[place] })
}

func (w *world) Sides() int { return len(w.places) - spares }

func (w *world) Dial(ctx context.Context, from, node, _ string) (net.Conn, error) {
	if from == "" {
		from = "harness"
	}
	return w.cluster.Net.Dial(from+":0")(ctx, node+":6379")
}

// service is the world as clients see it. Its Dial is that of [workload.Service], which differs from the network's.
type service struct{ *world }

func (s service) Dial(ctx context.Context, side int, node string) (net.Conn, error) {
	return s.world.Dial(ctx, network.ClientsOf(s.places[side]), node, "client")
}

// The world as a target.

type target struct{ service }

func (t target) Members() []string           { return t.Nodes() }
func (t target) Fleet() cluster.Processes    { return t.world }
func (t target) Close() error                { return nil }
func (t target) Start(context.Context) error { t.cluster.Leader(); return nil }

// patience bounds the time until the cluster has a leader after all faults.
const patience = time.Minute

// Serving waits until a node verifiably leads.
func (t target) Serving(ctx context.Context) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, ok := t.look(ctx); ok {
			return nil
		}
	}
	return fmt.Errorf("no leader within %s, the members that run: %s", patience, t.shown())
}

// shown describes each running node's view of the members.
func (t target) shown() string {
	var b strings.Builder
	for _, n := range t.cluster.Nodes() {
		if r := n.Replica(); r != nil {
			st := r.Status()
			fmt.Fprintf(&b, "%s term %d, %d of %d committed, members %v; ", n.ID, st.Term, st.Committed, st.LastLog,
				r.Configuration())
		}
	}
	return b.String()
}

func (t target) Features(context.Context) workload.Features {
	_, hashes := protocol.Lookup("hincrby")
	_, native := protocol.Lookup("lock.acquire")
	return workload.Features{Hashes: hashes, IfEq: true, Budget: true, Native: native, Users: true}
}

// Supports returns all faults except those that need a kernel or a real disk: lost packets, and torn, changed or copied
// files.
func (t target) Supports(context.Context) []string {
	faults := []string{
		"partition-one", "partition-leader", "partition-halves", "partition-ring", "partition-oneway", "partition-deaf",
		"packets-slow", "packets-large", "packets-reset", "kill-leader", "kill-follower", "kill-minority", "kill-all",
		"restart-all", "restart-rolling",
		"pause-leader", "pause-minority", "pause-all", "clock-jump", "clock-strobe", "clock-leader", "clock-rate",
		"disk-slow", "disk-hang", "disk-error", "disk-full", "power-cut", "power-restart", "power-append", "power-sync",
		"busy-leader", "busy-follower", "busy-all", "transfer", "snapshot", "state-wrong", "state-frozen", "state-last",
		"holder-frozen", "holder-vanished", "holder-many",
	}
	for _, k := range nemesis.Kinds() {
		if k.Group == "member" && !slices.Contains([]string{"member-copied", "member-snapshot"}, k.Name) {
			faults = append(faults, k.Name)
		}
	}
	if t.delay > 0 { // without a delay, virtual time stands still while refused appends are sent again
		faults = append(faults, "snapshot-tail")
	}
	if t.Sides() > 3 {
		faults = append(faults, "partition-bridge")
	}
	return faults
}

func (t target) Leader(context.Context) (string, bool) {
	best, term := "", uint64(0)
	for _, n := range t.cluster.Nodes() {
		if r := n.Replica(); r != nil {
			if s := r.Status(); s.Leading && s.Term > term {
				best, term = n.Name, s.Term
			}
		}
	}
	return best, best != ""
}

// Debug implements the server's DEBUG in memory. Other commands are sent to the server.
func (t target) Debug(ctx context.Context, member string, words ...string) (protocol.Value, error) {
	n := t.cluster.Node(member)
	r := n.Replica()
	switch {
	case words[0] == "RAFT.REPAIR":
		return protocol.OK, t.repair(ctx, n, words[1])
	case words[0] != "DEBUG":
		return t.ask(ctx, member, words)
	case r == nil:
		return protocol.Value{}, fmt.Errorf("%s does not run", member)
	}
	number := func(i int) time.Duration {
		v, _ := strconv.ParseInt(words[i], 10, 64)
		return time.Duration(v)
	}
	var err error
	switch strings.Join(words[1:min(3, len(words))], " ") {
	case "CLOCK JUMP":
		n.Clock.SetWallTrue()
		n.Clock.Jump(number(3) * time.Millisecond)
	case "CLOCK STROBE":
		n.Clock.Strobe(number(3)*time.Millisecond, number(4)*time.Millisecond)
	case "CLOCK RATE":
		n.Clock.SetRate(float64(number(3)) / 1000)
	case "CLOCK OK":
		n.Clock.SetWallTrue()
		n.Clock.SetRate(1)
	case "DISK DELAY":
		disturb(n, store.Fault{Delay: number(3) * time.Millisecond})
	case "DISK HANG":
		disturb(n, store.Fault{Hang: true})
	case "DISK ERROR":
		disturb(n, store.Fault{Err: syscall.EIO})
	case "DISK ENOSPC":
		disturb(n, store.Fault{Err: syscall.ENOSPC})
	case "DISK OK":
		n.Faults.Clear()
	case "APPLY DELAY":
		n.Busy.Store(int64(number(3) * time.Millisecond))
	case "APPLY OK":
		n.Busy.Store(0)
	case "TRANSFER":
		err = n.Transfer()
	case "SNAPSHOT":
		err = r.TakeSnapshot()
	case "CORRUPT":
		n.Busy.Store(0)
		time.Sleep(2 * replicatest.BusyStep) // meanwhile a mutex of the state is held
		err = r.Corrupt(nil)
	default:
		err = errors.ErrUnsupported
	}
	return protocol.OK, err
}

// repair replaces a node's state, as the program does for RAFT.REPAIR.
func (t target) repair(ctx context.Context, via *servertest.Node, place string) error {
	checker, of := via.Checker(), t.cluster.Node(place)
	if checker == nil || of.Replica() == nil {
		return fmt.Errorf("%s or %s does not run", via.Name, place)
	}
	if on, _ := of.Replica().Quarantined(); !on {
		return fmt.Errorf("the state of %s is not known to differ", place)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := checker.Repair(ctx, of.ID)
	return err
}

// askLimit bounds a command to a node that may be frozen.
const askLimit = time.Second

// dial connects to a node; no network fault cuts the connection.
func (t target) dial(ctx context.Context, member string) (*wire.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	nc, err := t.world.Dial(ctx, "", member, "")
	if err != nil {
		return nil, err
	}
	return wire.New(nc, askLimit), nil
}

func (t target) ask(ctx context.Context, member string, words []string) (protocol.Value, error) {
	conn, err := t.dial(ctx, member)
	if err != nil {
		return protocol.Value{}, err
	}
	defer conn.Close()
	r := conn.Do(words...)
	if r.Outcome != history.OK {
		return protocol.Value{}, errors.New(r.Why)
	}
	return r.Value, nil
}

// disturb makes writes slow, hang or fail, except those of terms and votes: a process that ended during such a write
// would make raft panic, and so end the tests.
func disturb(n *servertest.Node, f store.Fault) {
	for _, f.Op = range []store.Op{store.OpStoreLogs, store.OpDeleteRange, store.OpSnapshot} {
		n.Faults.Inject(f)
	}
}

// Agree waits until all replicas have applied the same index, and compares their states.
func (t target) Agree(ctx context.Context) (int, []string) {
	members := t.Members()
	for range 3000 {
		indexes, hashes := map[uint64]bool{}, map[string]string{}
		for _, m := range members {
			if r := t.cluster.Node(m).Replica(); r != nil {
				index, hash := r.Digest()
				indexes[index] = true
				hashes[m] = hash
			}
		}
		if len(indexes) == 1 && len(hashes) == len(members) {
			var findings []string
			for _, m := range members[1:] {
				if hashes[m] != hashes[members[0]] {
					findings = append(findings, fmt.Sprintf("%s and %s differ at one index", members[0], m))
				}
			}
			return len(members), findings
		}
		select {
		case <-ctx.Done():
			return 0, []string{"interrupted"}
		case <-time.After(10 * time.Millisecond):
		}
	}
	return 0, []string{"the replicas do not come to one index"}
}

// The world as processes.

func (w *world) Running(member string) bool { return w.cluster.Node(member).Replica() != nil }

// hold blocks starts and stops of a place's process until release is called. It uses no mutex, since waiting for a
// mutex would stop virtual time.
func (w *world) hold(place string) (release func()) {
	w.starts[place] <- struct{}{}
	return func() { <-w.starts[place] }
}

func (w *world) isIn(place string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.in[place]
}

// Start skips places that are out.
func (w *world) Start(member string) error {
	defer w.hold(member)()
	return w.start(member)
}

func (w *world) start(member string) error {
	n := w.cluster.Node(member)
	if w.isIn(member) && !w.Running(member) && !n.Removed() { // the folder of a removed node is refused
		// DEBUG CLOCK changes the clock of a process; a fault is not undone once its process has ended.
		n.Clock.SetWallTrue()
		n.Clock.SetRate(1)
		n.Start()
	}
	return nil
}

// Kill also ends a pause: the next process is not paused.
func (w *world) Kill(member string) error {
	defer w.hold(member)()
	return w.kill(member)
}

func (w *world) kill(member string) error {
	w.cluster.Node(member).Crash()
	return w.Resume(member)
}

func (w *world) Stop(member string) error {
	defer w.hold(member)()
	// A leader without others cannot transfer leadership, and ends nevertheless.
	_ = w.cluster.Node(member).Stop()
	return nil
}

// Pause is as close to SIGSTOP as a bubble allows: the node neither receives nor sends, and its clock stops. Its raft
// continues, and detects its isolation: see worldOptions.stubborn.
func (w *world) Pause(member string) error {
	w.cluster.Node(member).Clock.Freeze()
	w.cluster.Net.Isolate(member)
	w.setPaused(member, true)
	return nil
}

func (w *world) Resume(member string) error {
	w.cluster.Node(member).Clock.Thaw()
	w.cluster.Net.Rejoin(member)
	w.setPaused(member, false)
	return nil
}

func (w *world) setPaused(member string, paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused[member] = true; !paused {
		delete(w.paused, member)
	}
}

// fetched is a state being sent from one node to another. While a node is paused, it does not proceed.
type fetched struct {
	io.ReadCloser
	w *world
}

func (f fetched) Read(b []byte) (int, error) {
	for time.Sleep(200 * time.Millisecond); f.somePaused(); time.Sleep(10 * time.Millisecond) {
	}
	return f.ReadCloser.Read(b)
}

func (f fetched) somePaused() bool {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return len(f.w.paused) > 0
}

func (w *world) Excuse(member string) func() {
	n := w.cluster.Node(member)
	before := len(n.Deaths())
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.excused[member] += len(n.Deaths()) - before
	}
}

func (w *world) Findings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var findings []string
	for _, n := range w.cluster.Nodes() {
		if deaths := n.Deaths(); len(deaths) > w.excused[n.Name] {
			findings = append(findings, fmt.Sprintf("%s ended by itself, %d times excused: %v", n.Name, w.excused[n.Name],
				deaths))
		}
	}
	return findings
}

// The world as disks.

func (w *world) Cut(member string) error {
	w.mu.Lock()
	seed := w.rng.Uint64()
	w.mu.Unlock()
	defer w.hold(member)()
	w.cluster.Node(member).PowerCut(seed)
	return nil
}

func (w *world) Restore(string) error { return nil }

func (w *world) HoldSyncs(member string) { w.cluster.Node(member).Disk.HoldSyncs() }
func (w *world) FailSync(member string)  { w.cluster.Node(member).Disk.FailSync(0) }

// The world as a network.

func (w *world) Kind() string                                { return "memory" }
func (w *world) Listen(node, _ string) string                { return node + ":6379" }
func (w *world) Reach(_, node, _ string) string              { return node + ":6379" }
func (w *world) Command(string, string, ...string) *exec.Cmd { return nil }
func (w *world) Close() error                                { return nil }

// Set keeps pauses, which are cuts here too.
func (w *world) Set(s network.State) error {
	cut, large := map[network.Link]bool{}, map[network.Link]int{}
	for _, l := range s.Large {
		large[l] = network.LargeBytes
	}
	for _, l := range s.Cut {
		cut[l] = true
		w.cluster.Net.Cut(l.From, l.To)
		if s.Reset {
			w.cluster.Net.Break(l.From, l.To)
		}
	}
	for _, a := range w.places {
		for _, b := range w.places {
			for _, l := range []network.Link{{From: a, To: b}, {From: a, To: network.ClientsOf(b)}, {
				From: network.ClientsOf(a),
				To:   b,
			}} {
				if !cut[l] {
					w.cluster.Net.Mend(l.From, l.To)
				}
			}
			if a != b {
				w.cluster.Net.LoseAbove(a, b, large[network.Link{From: a, To: b}])
				w.cluster.Net.Delay(a, b, max(s.Delay, w.delay))
			}
		}
	}
	return nil
}
