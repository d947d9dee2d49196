package nemesis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

// The epilogue of a run tests what no checker of a history can: that a cluster with a healthy majority serves.

// ServesWithin bounds the time until the cluster grants a lock: ten election timeouts of the server.
const ServesWithin = 4 * second

// Liveness returns how often a majority of healthy voters had to grant a lock, and when it did not.
func (n *Nemesis) Liveness() (judged int, stalls []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.judged, slices.Clone(n.stalls)
}

// Epilogue judges a cluster after [Nemesis.Heal], in which members that the schedule's last fault killed may still be
// dead. A lock must be granted. Then as many healthy voters as the cluster can spare are killed or frozen, and another
// lock must be granted. Finally all members run.
func (n *Nemesis) Epilogue(ctx context.Context, seed uint64) {
	m, ok := n.Target.(cluster.Membership)
	if !ok {
		return
	}
	when := "after all faults"
	if dead := n.last.dead; dead != nil {
		when += ", without " + strings.Join(dead, ", ")
	}
	if n.Serves(ctx, when) {
		n.loseMinority(ctx, m, rand.New(rand.NewPCG(seed, 3)))
	}
	if n.last.mend != nil {
		if err := n.last.mend(); err != nil {
			n.find("after the epilogue: %v", err)
		}
	}
}

// loseMinority ends or freezes a minority of the voters, checks that the others serve, and brings the minority back.
func (n *Nemesis) loseMinority(ctx context.Context, m cluster.Membership, rng *rand.Rand) {
	var roll map[string]bool
	if n.until(ctx, wholeLimit, "", func() (known bool) {
		var err error
		roll, err = m.Roll(ctx)
		return err == nil
	}) != nil {
		return // reported by Whole
	}
	fleet, voters := n.Target.Fleet(), 0
	var healthy []string
	for place, vote := range roll { // unordered: sorted below
		if !vote {
			continue
		}
		voters++
		if fleet.Running(place) && !n.quarantined(ctx, place) {
			healthy = append(healthy, place)
		}
	}
	slices.Sort(healthy)
	rng.Shuffle(len(healthy), func(i, j int) { healthy[i], healthy[j] = healthy[j], healthy[i] })
	lost := healthy[:max(0, len(healthy)-majority(voters))]
	how, lose, back := "killed", fleet.Kill, fleet.Start
	if rng.IntN(2) == 0 {
		how, lose, back = "frozen", fleet.Pause, fleet.Resume
	}
	if len(lost) == 0 {
		return // no voter can be spared
	}
	if err := atOnce(lost, lose); err != nil {
		n.find("epilogue: %v", err)
	}
	n.Serves(ctx, fmt.Sprintf("of %d voters after %s were %s for good", voters, strings.Join(lost, ", "), how))
	if err := each(lost, back); err != nil {
		n.find("epilogue: %v", err)
	}
}

// EachLeads transfers leadership to each voter in turn, except those in quarantine, and judges each time whether the
// cluster serves. Requires: all faults are mended.
func (n *Nemesis) EachLeads(ctx context.Context) {
	m, ok := n.Target.(cluster.Membership)
	if !ok {
		return
	}
	roll, err := m.Roll(ctx)
	if err != nil {
		n.find("no leader names the members in the end: %v", err)
		return
	}
	for _, place := range slices.Sorted(maps.Keys(roll)) {
		if !roll[place] || n.quarantined(ctx, place) {
			continue
		}
		err := errors.New("not tried")
		if n.until(ctx, ServesWithin+n.Stubbornness, "", func() bool {
			asking, stop := context.WithTimeout(ctx, stepLimit)
			defer stop()
			err = m.Lead(asking, place)
			return err == nil
		}) != nil {
			n.find("%s cannot lead in the end: %v", place, err)
			continue
		}
		n.Serves(ctx, "led by "+place)
	}
}

// majority returns the size of a majority of the voters.
func majority(voters int) int { return voters/2 + 1 }

// Serves reports whether the node at one of the places, or else any member, grants a lock in time, and records a stall
// otherwise. Requires: a majority of the voters in the latest committed configuration runs, with whole folders and
// links among them, and one of them is not in quarantine.
func (n *Nemesis) Serves(ctx context.Context, when string, places ...string) bool {
	if places == nil {
		places = n.Target.Members()
	}
	within := ServesWithin + n.Stubbornness
	asking, stop := context.WithTimeout(ctx, within)
	defer stop()
	var granted atomic.Bool
	var clients sync.WaitGroup
	for _, m := range places {
		clients.Go(func() {
			for i := 0; asking.Err() == nil; i++ {
				// Each try has a key of its own, since the previous try's outcome may be unknown.
				key := fmt.Sprintf("jepsen-lock-%d-%s-%d", n.Recorder.Now(), m, i)
				v, err := n.Target.Debug(asking, m, "SET", key, m, "NX", "PX", "1000")
				if err == nil && !v.IsNull() && asking.Err() == nil {
					granted.Store(true)
					stop()
				}
				workload.Sleep(asking, 10*time.Millisecond)
			}
		})
	}
	clients.Wait()
	n.mu.Lock()
	n.judged++
	n.mu.Unlock()
	if granted.Load() || ctx.Err() != nil {
		return true
	}
	var shown []string
	for _, m := range places {
		if p, err := n.position(ctx, m); err == nil {
			shown = append(shown, fmt.Sprintf("the log of %s ends at %d with %d committed", m, p.last, p.commit))
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stalls = append(n.stalls, fmt.Sprintf("%s: no lock was granted within %s: %s", when, within,
		strings.Join(shown, ", ")))
	return false
}
