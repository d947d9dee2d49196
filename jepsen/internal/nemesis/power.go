package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

// Disks are disks whose power can be cut.
type Disks interface {
	Cut(member string) error
	Restore(member string) error
}

// powerFaults lose unsynced writes on all nodes. A minority stays off during the fault, so that acknowledged writes
// must be on the other disks.
var powerFaults = []fault{
	{alone(kind("power-cut", schedule.Disk, 2*second, 4*second, nil,
		"the power of all nodes is cut at once; the leader stays away")), leaderFirst, (*Nemesis).cutAll},
	{
		alone(kind("power-restart", schedule.Disk, 3*second, 5*second, nil,
			"nodes are killed and restarted at once, some times, then the power of all is cut; the leader stays away")),
		leaderFirst, (*Nemesis).restartAndCut,
	},
	{alone(kind("power-window", schedule.Disk, 6*second, 9*second, size(1, 2),
		"a follower is killed between write and sync and restarted; when it has answered for the entry, the power of all "+
			"is cut, and the leader stays away")), leaderFirst, (*Nemesis).cutInWindow},
}

// cutAll cuts the power of all members under load.
func (n *Nemesis) cutAll(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	w := n.witness(members[0])
	workload.Sleep(ctx, 300*time.Millisecond)
	return n.cut(ctx, s, w, members[:1], role(members[0], leader)+" stays away")
}

// restartAndCut restarts processes, which read unsynced writes of their predecessors, and then cuts the power at a
// random moment of writes to logs, snapshots and manifests.
func (n *Nemesis) restartAndCut(ctx context.Context, s step) (effect, error) {
	rng, fleet := s.Rand(), n.Target.Fleet()
	rounds := 1 + rng.IntN(4)
	for range rounds {
		members, _ := n.ordered(ctx, s)
		rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		members = members[:1+rng.IntN(len(members))]
		if err := errors.Join(atOnce(members, fleet.Kill), each(members, fleet.Start)); err != nil {
			return effect{mend: func() error { return each(n.Target.Members(), fleet.Start) }}, err
		}
		workload.Sleep(ctx, time.Duration(rng.IntN(500))*time.Millisecond)
	}
	members, leader := n.ordered(ctx, s)
	w := n.witness(members[0])
	workload.Sleep(ctx, time.Duration(rng.IntN(200))*time.Millisecond)
	return n.cut(ctx, s, w, members[:1], fmt.Sprintf("after %d rounds of restarts; %s stays away", rounds,
		role(members[0], leader)))
}

// cut cuts the power of all members at one instant, and restarts all but those in away, which the effect's mend starts.
// Writes acknowledged to the witness must be readable without those.
func (n *Nemesis) cut(ctx context.Context, s step, w *witness, away []string, detail string) (effect, error) {
	all, fleet := n.Target.Members(), n.Target.Fleet()
	var overs []func()
	for _, m := range all {
		overs = append(overs, fleet.Excuse(m)) // a thread may see an error before the process is stopped
	}
	mend := func() error {
		defer func() {
			for _, over := range overs {
				over()
			}
		}()
		return errors.Join(each(all, fleet.Resume), each(all, fleet.Start))
	}
	err := errors.Join(atOnce(all, fleet.Pause), atOnce(all, n.Disks.Cut), atOnce(all, fleet.Kill))
	w.end()
	if err == nil {
		err = each(all, n.Disks.Restore)
	}
	if err != nil {
		return effect{detail: detail, mend: mend}, err
	}
	back := slices.DeleteFunc(slices.Clone(all), func(m string) bool { return slices.Contains(away, m) })
	err = each(back, fleet.Start)
	if err == nil {
		mended := time.After(s.For)
		w.judge(context.WithoutCancel(ctx))
		select {
		case <-ctx.Done():
		case <-mended:
		}
	}
	return effect{detail: detail, mend: mend}, err
}

const (
	// windowTries bounds the attempts to hit the window before the power is cut anyway.
	windowTries = 4
	// windowLimit bounds the time until the restarted follower acknowledges its unsynced entries.
	windowLimit = 1200 * time.Millisecond
	// syncDelay is the duration of a sync in the window, in microseconds: longer than everything else.
	syncDelay = "30000000"
)

// cutInWindow brings entries to the disks of a minority and to one more follower's page cache. It restarts that
// follower, lets it acknowledge the entries, and cuts the power.
func (n *Nemesis) cutInWindow(ctx context.Context, s step) (effect, error) {
	rng := s.Rand()
	fleet := n.Target.Fleet().(cluster.Tracers)
	over := make([]func(), 0, len(n.Target.Members()))
	for _, m := range n.Target.Members() {
		over = append(over, fleet.Excuse(m)) // its disk seems to hang
	}
	defer func() {
		for _, done := range over {
			done()
		}
	}()
	var w window
	var seen *witness
	hit := false
	for try := range windowTries {
		members, leader := n.ordered(ctx, s)
		if leader == "" {
			workload.Sleep(ctx, time.Second)
			continue
		}
		// The leader and beside are together one short of a majority.
		beside := minority(members) - 1
		w = window{
			n: n, fleet: fleet, leader: leader, beside: members[1 : 1+beside], held: members[1+beside],
			silent: members[2+beside:], passed: int(s.Size),
		}
		seen = n.witness(leader)
		var err error
		if hit, err = w.try(ctx, rng); err != nil {
			seen.stop()
			return effect{detail: w.detail(), mend: func() error { return w.give() }}, err
		}
		if hit || ctx.Err() != nil || try == windowTries-1 {
			break
		}
		err = w.give()
		seen.end()
		if err != nil {
			return effect{detail: w.detail(), mend: func() error { return w.give() }}, err
		}
		_ = n.until(ctx, stepLimit, "there is a leader", func() bool { _, known := n.Target.Leader(ctx); return known })
		workload.Sleep(ctx, 500*time.Millisecond)
	}
	if w.leader == "" {
		return effect{detail: "no leader"}, nil
	}
	detail := w.detail() + ": did not answer in time"
	if hit {
		detail = w.detail() + ": answered for what it had not synced, or synced it first"
	}
	return n.cut(ctx, s, seen, append([]string{w.leader}, w.beside...), detail)
}

// window is one attempt to hit the window.
type window struct {
	n      *Nemesis
	fleet  cluster.Tracers
	leader string
	beside []string // healthy, and with the leader a minority
	held   string   // killed between write and sync
	silent []string // frozen, so that held completes the majority
	passed int      // the first sync of the restarted process to block
}

func (w *window) detail() string { return fmt.Sprintf("%s, led by %s", w.held, w.leader) }

// try reports whether the restarted held member acknowledged the entry.
func (w *window) try(ctx context.Context, rng *rand.Rand) (bool, error) {
	if err := each(w.silent, w.fleet.Pause); err != nil {
		return false, err
	}
	pids := w.fleet.PIDs(w.held)
	if len(pids) != 1 {
		return false, fmt.Errorf("%s does not run", w.held)
	}
	tracer := exec.Command("strace", "-f", "-q", "-p", strconv.Itoa(pids[0]), "-o", os.DevNull,
		"-e", "trace=fdatasync", "-e", "inject=fdatasync:delay_enter="+syncDelay)
	if err := tracer.Start(); err != nil {
		return false, fmt.Errorf("hold up syncs: %w", err)
	}
	defer func() {
		_ = tracer.Process.Kill()
		_ = tracer.Wait()
	}()
	stuck, since := position{}, time.Now()
	err := w.n.until(ctx, windowLimit, "an entry waits for "+w.held, func() bool {
		p, err := w.n.position(ctx, w.leader)
		if err != nil || p.last == p.commit || p.commit != stuck.commit {
			stuck, since = p, time.Now()
			return false
		}
		return time.Since(since) > 60*time.Millisecond
	})
	if err != nil {
		return false, nil
	}
	workload.Sleep(ctx, time.Duration(rng.IntN(100))*time.Millisecond)
	if err := w.fleet.Kill(w.held); err != nil {
		return false, err
	}
	if err := w.fleet.StartUnder(w.held, w.holding()...); err != nil {
		return false, err
	}
	err = w.n.until(ctx, windowLimit, "the entry is committed", func() bool {
		p, err := w.n.position(ctx, w.leader)
		return err == nil && p.commit > stuck.commit
	})
	if err == nil {
		workload.Sleep(ctx, time.Duration(20+rng.IntN(80))*time.Millisecond) // clients receive the acknowledgement
	}
	return err == nil, nil
}

// holding is the strace command under which all syncs of a process's log block, from the passed-th on.
func (w *window) holding() []string {
	words := []string{
		"strace", "-D", "-f", "--seccomp-bpf", "-q", "-o", os.DevNull,
		"-e", "trace=fdatasync", "-e", fmt.Sprintf("inject=fdatasync:delay_enter=%s:when=%d+", syncDelay, w.passed),
	}
	for _, pattern := range []string{"wal/*.seg", "log.db"} {
		found, _ := filepath.Glob(filepath.Join(w.n.DataDir(w.held), pattern))
		for _, path := range found {
			words = append(words, "-P", path)
		}
	}
	return words
}

// give undoes the attempt.
func (w *window) give() error {
	if w.held == "" {
		return nil
	}
	return errors.Join(each(w.silent, w.fleet.Resume), w.fleet.Kill(w.held), w.fleet.Start(w.held))
}
