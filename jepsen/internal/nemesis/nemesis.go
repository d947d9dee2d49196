// Package nemesis makes the faults of a schedule, and mends them.
//
// It promises: each fault is recorded with its beginning and end and the affected nodes; once [Nemesis.Epilogue] has
// returned, all faults are mended and every member runs.
//
// The faults by lane: net.go, process.go, hooks.go (clocks, disks and raft through the server's
// debug commands), files.go (damaged stores), holders.go (clients that freeze or vanish),
// hooks.go (nodes whose program is replaced). When all is mended epilogue.go asks whether the cluster serves.
// Goroutines: one for each step that has begun.
// Start reading at [Nemesis.Run].
package nemesis

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

// Nemesis injects faults into a target.
type Nemesis struct {
	Target   cluster.Target
	Net      network.Network
	Recorder *history.Recorder
	Log      *slog.Logger
	// DataDir returns a member's data folder, for faults that damage stores.
	DataDir func(member string) string
	// Disks are the disks for power cuts, or nil.
	Disks Disks
	// Stubbornness is added to ServesWithin, for tests with a node that is slow to detect a dead leader.
	Stubbornness time.Duration

	upgrade []upgradeStep // remaining steps; guarded by the lane of processes

	mu       sync.Mutex
	findings []string
	begun    int // number of faults made
	underWay int // number of faults not yet mended
	judged   int // number of times that the cluster had to serve
	stalls   []string

	last effect // the schedule's last fault, which the epilogue mends; zero if all are mended
}

// Findings returns what faults showed to be wrong with the service.
func (n *Nemesis) Findings() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.findings)
}

func (n *Nemesis) find(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.findings = append(n.findings, fmt.Sprintf(format, args...))
}

// effect describes a fault that was made: the affected nodes, and how to mend it.
type effect struct {
	detail string
	mend   func() error
	// details, if not nil, describes the outcome of the fault once it is mended.
	details func() string
	// dead are killed members that the latest voters can spare. If the fault is the schedule's last, the epilogue
	// judges the cluster without them.
	dead []string
}

// Run makes every fault of a schedule at its time since the recorder's start. It returns when all are mended, except
// for members that the last fault killed. When ctx ends, Run mends the active faults early and begins no other.
func (n *Nemesis) Run(ctx context.Context, steps []schedule.Step) {
	// lanes separate faults of one lane when a fault takes longer than planned. They are no mutexes, since waiting for
	// a mutex would stop virtual time.
	var lanes [schedule.Lanes]chan struct{}
	for i := range lanes {
		lanes[i] = make(chan struct{}, 1)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, s := range steps {
		if !workload.Sleep(ctx, s.At-time.Duration(n.Recorder.Now())) {
			return
		}
		wg.Go(func() {
			taken := lanes[:]
			if f := faultOf(s.Fault); !f.Alone {
				taken = lanes[f.Lane : f.Lane+1]
				if f.Ends { // the lane of processes comes first
					taken = []chan struct{}{lanes[schedule.Process], lanes[f.Lane]}
				}
			}
			for i, lane := range taken {
				select {
				case lane <- struct{}{}:
				case <-ctx.Done():
					release(taken[:i])
					return
				}
			}
			if ctx.Err() == nil {
				n.strike(ctx, s, i == len(steps)-1)
			}
			release(taken)
		})
	}
}

func release(lanes []chan struct{}) {
	for _, lane := range lanes {
		<-lane
	}
}

func (n *Nemesis) strike(ctx context.Context, s schedule.Step, last bool) {
	start := n.Recorder.Now()
	n.count(1, 1)
	defer n.count(0, -1)
	f := faultOf(s.Fault)
	e, err := f.inject(n, ctx, step{s, f.order})
	n.Log.Info("fault", "kind", s.Fault, "hit", e.detail, "for", s.For.Round(time.Millisecond), "error", err)
	if err != nil {
		e.detail += " (failed: " + err.Error() + ")"
	} else if !f.Alone {
		workload.Sleep(ctx, s.For)
	}
	if err == nil && last && e.dead != nil && n.alone() {
		<-ctx.Done()
		n.last = e
	} else if e.mend != nil {
		if err := e.mend(); err != nil {
			n.Log.Warn("mend", "kind", s.Fault, "error", err)
			e.detail += " (mending failed: " + err.Error() + ")"
		}
	}
	if e.details != nil {
		e.detail = strings.TrimSpace(e.detail + " " + e.details())
	}
	n.Recorder.Fault(history.Fault{Name: s.Fault, Detail: e.detail, Start: start, Nature: faultOf(s.Fault).Nature})
}

func (n *Nemesis) count(begun, underWay int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begun, n.underWay = n.begun+begun, n.underWay+underWay
}

// alone reports whether exactly one fault is active.
func (n *Nemesis) alone() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.underWay == 1
}

// beside starts a watch for faults other than the caller's; the returned function ends it, and reports whether there
// was one.
func (n *Nemesis) beside() func() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	begun, others := n.begun, n.underWay > 1
	return func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return others || n.begun != begun
	}
}

// Heal heals the network, resumes all members, and starts those that do not run, except for those that the schedule's
// last fault killed.
func (n *Nemesis) Heal() error {
	if err := n.Net.Set(network.State{}); err != nil {
		return err
	}
	for _, m := range n.Target.Members() {
		if err := n.Target.Fleet().Resume(m); err != nil {
			return err
		}
		if slices.Contains(n.last.dead, m) {
			continue
		}
		if err := n.Target.Fleet().Start(m); err != nil {
			return err
		}
	}
	return nil
}

// ordered returns the members in the step's order, with the leader at the fault's position.
func (n *Nemesis) ordered(ctx context.Context, s step) (members []string, leader string) {
	all := n.Target.Members()
	for _, i := range s.Order {
		if i < len(all) {
			members = append(members, all[i])
		}
	}
	if extra := len(s.Order); extra < len(all) {
		members = append(members, all[extra:]...) // members that joined during the run
	}
	leader, known := n.Target.Leader(ctx)
	if known && s.order != drawn {
		members = slices.DeleteFunc(members, func(m string) bool { return m == leader })
		if s.order == leaderFirst {
			return append([]string{leader}, members...), leader
		}
		return append(members, leader), leader
	}
	return members, leader
}

// role is a member's name in details.
func role(m, leader string) string {
	if m == leader {
		return m + " (leader)"
	}
	return m
}

func roles(members []string, leader string) string {
	named := make([]string, len(members))
	for i, m := range members {
		named[i] = role(m, leader)
	}
	return strings.Join(named, ", ")
}

// firstWord of a name with hyphens.
func firstWord(name string) string {
	word, _, _ := strings.Cut(name, "-")
	return word
}

// each calls do for several members and names those that failed.
func each(members []string, do func(string) error) error {
	for _, m := range members {
		if err := do(m); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}
