package virtual

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/resp"
)

// world is a cluster in memory, as the tests' target and as their net. Requires: it is made
// within a bubble.
type world struct {
	cluster *replicatest.Cluster
	names   []string
	// broken, when set, stands between clients and a node's replica: a server that is wrong on purpose.
	broken func(node string, b resp.Backend) resp.Backend

	mu       sync.Mutex
	fronts   map[string]*front
	ended    map[string]bool // on purpose
	findings []string
}

// front is a node's client side, for one life of the node.
type front struct {
	stop context.CancelFunc
	done chan struct{}
}

var (
	_ cluster.Target    = target{}
	_ cluster.Processes = (*world)(nil)
	_ network.Network   = (*world)(nil)
)

func newWorld(t *testing.T, nodes int, broken func(string, resp.Backend) resp.Backend) *world {
	t.Helper()
	w := &world{names: network.Nodes(nodes), broken: broken, fronts: map[string]*front{}, ended: map[string]bool{}}
	w.cluster = replicatest.New(t, replicatest.Options{
		Nodes: nodes,
		Configure: func(c *replica.Config) {
			c.Snapshots.Entries, c.Snapshots.Interval, c.Snapshots.Trailing = 64, 500*time.Millisecond, 8
		},
	})
	t.Cleanup(func() {
		for _, n := range w.names {
			w.closeFront(n)
		}
	})
	return w
}

func (w *world) openFront(node string) error {
	r := w.cluster.Node(node).Replica()
	if r == nil {
		return fmt.Errorf("%s does not run", node)
	}
	ln, err := w.cluster.Net.Listen(node + ":6379")
	if err != nil {
		return err
	}
	var backend resp.Backend = r
	if w.broken != nil {
		backend = w.broken(node, r)
	}
	s := resp.New(resp.Config{Node: resp.Node{Name: node}, Logger: slog.New(slog.DiscardHandler)}, backend)
	ctx, stop := context.WithCancel(context.Background())
	f := &front{stop, make(chan struct{})}
	go func() {
		defer close(f.done)
		_ = s.Serve(ctx, ln)
	}()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fronts[node] = f
	return nil
}

func (w *world) closeFront(node string) {
	w.mu.Lock()
	f := w.fronts[node]
	delete(w.fronts, node)
	w.mu.Unlock()
	if f != nil {
		f.stop()
		<-f.done
	}
}

// As a service.

func (w *world) Nodes() []string { return w.names }

func (w *world) Sides() int { return len(w.names) }

func (w *world) Dial(ctx context.Context, from, node, _ string) (net.Conn, error) {
	if from == "" {
		from = "harness"
	}
	return w.cluster.Net.Dial(from+":0")(ctx, node+":6379")
}

// service is the world as clients see it: what Dial means differs between the interfaces.
type service struct{ *world }

func (s service) Dial(ctx context.Context, side int, node string) (net.Conn, error) {
	return s.world.Dial(ctx, network.ClientsOf(s.names[side]), node, "client")
}

// As a target.

type target struct{ service }

func (t target) Members() []string             { return t.names }
func (t target) Fleet() cluster.Processes      { return t.world }
func (t target) Close() error                  { return nil }
func (t target) Serving(context.Context) error { t.cluster.Leader(); return nil }

func (t target) Start(context.Context) error {
	for _, n := range t.names {
		if err := t.openFront(n); err != nil {
			return err
		}
	}
	t.cluster.Leader()
	return nil
}

func (t target) Features(context.Context) workload.Features {
	_, hashes := protocol.Lookup("hset")
	return workload.Features{Hashes: hashes, IfEq: true, Budget: true}
}

func (t target) Supports(context.Context) []string {
	faults := []string{
		"partition-one", "partition-leader", "partition-halves", "partition-ring", "partition-oneway", "partition-deaf",
		"packets-slow", "kill-leader", "kill-follower", "kill-minority", "kill-all", "restart-all", "restart-rolling",
		"clock-jump", "clock-rate", "transfer", "snapshot",
	}
	if len(t.names) > 3 {
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

// Debug does what the server's DEBUG does, to what is in memory.
func (t target) Debug(_ context.Context, member string, words ...string) (protocol.Value, error) {
	n := t.cluster.Node(member)
	r := n.Replica()
	if r == nil {
		return protocol.Value{}, fmt.Errorf("%s does not run", member)
	}
	number := func() int64 {
		v, _ := strconv.ParseInt(words[len(words)-1], 10, 64)
		return v
	}
	var err error
	switch strings.Join(words[:min(3, len(words))], " ") {
	case "DEBUG CLOCK JUMP":
		n.Clock.Jump(time.Duration(number()) * time.Millisecond)
	case "DEBUG CLOCK RATE":
		n.Clock.SetRate(float64(number()) / 1000)
	case "DEBUG CLOCK OK":
		n.Clock.SetRate(1)
	case "DEBUG TRANSFER":
		err = r.TransferLeadership(context.Background())
	case "DEBUG SNAPSHOT":
		err = r.TakeSnapshot()
	default:
		err = errors.ErrUnsupported
	}
	return protocol.OK, err
}

// Agree waits until all replicas stand at one index, and compares their states.
func (t target) Agree(ctx context.Context) (int, []string) {
	for range 3000 {
		indexes, hashes := map[uint64]bool{}, map[string]string{}
		for _, n := range t.cluster.Nodes() {
			if r := n.Replica(); r != nil {
				index, hash := r.Digest()
				indexes[index] = true
				hashes[n.Name] = hash
			}
		}
		if len(indexes) == 1 && len(hashes) == len(t.names) {
			var findings []string
			for _, n := range t.names[1:] {
				if hashes[n] != hashes[t.names[0]] {
					findings = append(findings, fmt.Sprintf("%s and %s differ at one index", t.names[0], n))
				}
			}
			return len(t.names), findings
		}
		select {
		case <-ctx.Done():
			return 0, []string{"interrupted"}
		case <-time.After(10 * time.Millisecond):
		}
	}
	return 0, []string{"the replicas do not come to one index"}
}

// As processes.

func (w *world) running(member string) bool { return w.cluster.Node(member).Replica() != nil }

func (w *world) Running(member string) bool { return w.running(member) }

func (w *world) Start(member string) error {
	if w.running(member) {
		return nil
	}
	w.mu.Lock()
	if !w.ended[member] {
		w.findings = append(w.findings, fmt.Sprintf("%s ended by itself: %v", member, w.cluster.Node(member).Err()))
	}
	w.ended[member] = false
	w.mu.Unlock()
	w.closeFront(member)
	w.cluster.Node(member).Start()
	return w.openFront(member)
}

func (w *world) end(member string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended[member] = true
}

func (w *world) Kill(member string) error {
	w.end(member)
	w.cluster.Node(member).Crash()
	w.closeFront(member)
	return nil
}

func (w *world) Stop(member string) error {
	w.end(member)
	// A leader that is alone cannot hand over: it ends all the same.
	_ = w.cluster.Node(member).Stop()
	w.closeFront(member)
	return nil
}

func (w *world) Pause(string) error   { return errors.ErrUnsupported }
func (w *world) Resume(string) error  { return nil }
func (w *world) Excuse(string) func() { return func() {} }

func (w *world) Findings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.findings
}

// As a net.

func (w *world) Kind() string                                { return "memory" }
func (w *world) Listen(node, _ string) string                { return node + ":6379" }
func (w *world) Reach(_, node, _ string) string              { return node + ":6379" }
func (w *world) Command(string, string, ...string) *exec.Cmd { return nil }
func (w *world) Close() error                                { return nil }

func (w *world) Set(s network.State) error {
	w.cluster.Net.Heal()
	for _, l := range s.Cut {
		w.cluster.Net.Cut(l.From, l.To)
		if s.Reset {
			w.cluster.Net.Break(l.From, l.To)
		}
	}
	for _, from := range w.names {
		for _, to := range w.names {
			if from != to && s.Delay > 0 {
				w.cluster.Net.Delay(from, to, s.Delay)
			}
		}
	}
	return nil
}
