package nemesis

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
)

// Nemesis breaks one target.
type Nemesis struct {
	Target   cluster.Target
	Net      network.Network
	Recorder *history.Recorder
	Log      *slog.Logger
	// DataDir is where a member keeps its store; for the faults that damage it.
	DataDir func(member string) string
}

// effect is what a fault did: whom it hit, and how to mend it.
type effect struct {
	detail string
	mend   func() error
}

// inject makes one fault.
type inject func(n *Nemesis, ctx context.Context, s schedule.Step) (effect, error)

// faults binds each kind of the schedule's table to what does it.
var faults = map[string]inject{
	"partition-one":    (*Nemesis).partition,
	"partition-leader": (*Nemesis).partition,
	"partition-halves": (*Nemesis).partition,
	"partition-ring":   (*Nemesis).partition,
	"partition-bridge": (*Nemesis).partition,
	"partition-oneway": (*Nemesis).partition,
	"partition-deaf":   (*Nemesis).partition,
	"packets-lost":     (*Nemesis).packets,
	"packets-slow":     (*Nemesis).packets,
	"packets-reset":    (*Nemesis).flap,
	"kill-leader":      (*Nemesis).kill,
	"kill-follower":    (*Nemesis).kill,
	"kill-minority":    (*Nemesis).kill,
	"kill-all":         (*Nemesis).kill,
	"restart-all":      (*Nemesis).restart,
	"restart-rolling":  (*Nemesis).restart,
	"pause-leader":     (*Nemesis).pause,
	"pause-minority":   (*Nemesis).pause,
	"pause-all":        (*Nemesis).pause,
	"clock-jump":       (*Nemesis).clock,
	"clock-strobe":     (*Nemesis).clock,
	"clock-leader":     (*Nemesis).clock,
	"clock-rate":       (*Nemesis).clock,
	"disk-slow":        (*Nemesis).disk,
	"disk-hang":        (*Nemesis).disk,
	"disk-error":       (*Nemesis).disk,
	"disk-full":        (*Nemesis).disk,
	"disk-torn":        (*Nemesis).disk,
	"store-torn":       (*Nemesis).store,
	"store-flipped":    (*Nemesis).store,
	"transfer":         (*Nemesis).transfer,
	"snapshot":         (*Nemesis).snapshot,
}

// Run makes every fault of a schedule at its time, counted from the recorder's start, and
// returns when all are mended. When ctx ends it mends what is broken and makes no more.
func (n *Nemesis) Run(ctx context.Context, steps []schedule.Step) {
	// lanes keep faults of one lane apart when one takes longer than was planned. Not mutexes: to
	// wait for one of those would stop virtual time.
	var lanes [schedule.Lanes]chan struct{}
	for i := range lanes {
		lanes[i] = make(chan struct{}, 1)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range steps {
		if !sleep(ctx, s.At-time.Duration(n.Recorder.Now())) {
			return
		}
		wg.Go(func() {
			lane := lanes[schedule.LaneOf(s.Fault)]
			select {
			case lane <- struct{}{}:
				n.step(ctx, s)
				<-lane
			case <-ctx.Done():
			}
		})
	}
}

func (n *Nemesis) step(ctx context.Context, s schedule.Step) {
	start := n.Recorder.Now()
	e, err := faults[s.Fault](n, ctx, s)
	n.Log.Info("fault", "kind", s.Fault, "hit", e.detail, "for", s.For.Round(time.Millisecond), "error", err)
	if err != nil {
		e.detail += " (failed: " + err.Error() + ")"
	} else {
		sleep(ctx, s.For)
	}
	if e.mend != nil {
		if err := e.mend(); err != nil {
			n.Log.Warn("mend", "kind", s.Fault, "error", err)
			e.detail += " (mending failed: " + err.Error() + ")"
		}
	}
	n.Recorder.Fault(s.Fault, e.detail, start)
}

// Heal makes the net whole, lets everybody go on, and starts who does not run.
func (n *Nemesis) Heal() error {
	if err := n.Net.Set(network.State{}); err != nil {
		return err
	}
	for _, m := range n.Target.Members() {
		if err := n.Target.Fleet().Resume(m); err != nil {
			return err
		}
		if err := n.Target.Fleet().Start(m); err != nil {
			return err
		}
	}
	return nil
}

// ordered are the members in the step's order, with the leader where the fault wants it: first, or
// last for a fault of followers.
func (n *Nemesis) ordered(ctx context.Context, s schedule.Step) (members []string, leader string) {
	all := n.Target.Members()
	leader, known := n.Target.Leader(ctx)
	for _, i := range s.Order {
		if m := all[i%len(all)]; !known || m != leader {
			members = append(members, m)
		}
	}
	if known {
		if strings.HasSuffix(s.Fault, "-leader") || s.Fault == "partition-deaf" || s.Fault == "disk-hang" {
			return append([]string{leader}, members...), leader
		}
		if strings.HasSuffix(s.Fault, "-follower") {
			return append(members, leader), leader
		}
		// Everything else takes nodes in the order that was drawn, leader or not.
		members = nil
		for _, i := range s.Order {
			members = append(members, all[i%len(all)])
		}
	}
	return members, leader
}

// role is a member as details name it.
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

// minority is the number of members that a majority can spare; one of one.
func minority(members []string) int { return max(1, (len(members)-1)/2) }

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// each does something to several members and says which failed.
func each(members []string, do func(string) error) error {
	for _, m := range members {
		if err := do(m); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}
