package nemesis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol"
)

// strobePeriod is the period of a strobing clock in milliseconds.
const strobePeriod = "37"

// hook sends a debug command. Debug commands are idempotent, so one without a reply is sent again.
func (n *Nemesis) hook(ctx context.Context, member string, words ...string) error {
	_, err := n.Target.Debug(ctx, member, append([]string{"DEBUG"}, words...)...)
	if err != nil {
		_, err = n.Target.Debug(ctx, member, append([]string{"DEBUG"}, words...)...)
	}
	return err
}

// unhook undoes a fault, unless the member has ended.
func (n *Nemesis) unhook(member string, words ...string) error {
	if !n.Target.Fleet().Running(member) {
		return nil
	}
	return n.hook(context.Background(), member, words...)
}

// clock changes a member's clock.
func (n *Nemesis) clock(ctx context.Context, s step, how string, words ...string) (effect, error) {
	members, leader := n.ordered(ctx, s)
	m := members[0]
	e := effect{detail: role(m, leader) + " " + how, mend: func() error { return n.unhook(m, "CLOCK", "OK") }}
	return e, n.hook(ctx, m, append([]string{"CLOCK"}, words...)...)
}

func (n *Nemesis) jump(ctx context.Context, s step) (effect, error) {
	size := strconv.FormatInt(s.Size, 10)
	return n.clock(ctx, s, fmt.Sprintf("by %s ms", size), "JUMP", size)
}

func (n *Nemesis) strobeClock(ctx context.Context, s step) (effect, error) {
	size := strconv.FormatInt(s.Size, 10)
	return n.clock(ctx, s, fmt.Sprintf("by %s ms every %s ms", size, strobePeriod), "STROBE", size, strobePeriod)
}

func (n *Nemesis) rate(ctx context.Context, s step) (effect, error) {
	size := strconv.FormatInt(s.Size, 10)
	return n.clock(ctx, s, fmt.Sprintf("at %s permille", size), "RATE", size)
}

// disk makes the writes of a member slow, hang or fail. The member may end, which is excused, and is restarted.
func disk(how string) inject {
	return func(n *Nemesis, ctx context.Context, s step) (effect, error) {
		members, leader := n.ordered(ctx, s)
		m := members[0]
		fleet := n.Target.Fleet()
		words := []string{"DISK", how}
		if s.Size != 0 {
			words = append(words, strconv.FormatInt(s.Size, 10))
		}
		over := fleet.Excuse(m)
		mend := func() error {
			defer over()
			err := n.undisturb(m)
			if startErr := fleet.Start(m); err == nil || fleet.Running(m) {
				err = startErr
			}
			return err
		}
		return effect{detail: role(m, leader), mend: mend}, n.hook(ctx, m, words...)
	}
}

// busy slows down the state machines of some members in every entry.
func busy(count func([]string) int) inject {
	return func(n *Nemesis, ctx context.Context, s step) (effect, error) {
		members, leader := n.ordered(ctx, s)
		members = members[:count(members)]
		size := strconv.FormatInt(s.Size, 10)
		return effect{
			detail: fmt.Sprintf("%s for %s ms an entry", roles(members, leader), size),
			mend: func() error {
				return each(members, func(m string) error { return n.unhook(m, "APPLY", "OK") })
			},
		}, each(members, func(m string) error { return n.hook(ctx, m, "APPLY", "DELAY", size) })
	}
}

// undisturb undoes a disk fault, and then gives a member time to end because of it.
func (n *Nemesis) undisturb(member string) error {
	if member == "" {
		return nil
	}
	err := n.unhook(member, "DISK", "OK")
	workload.Sleep(context.Background(), 300*time.Millisecond)
	return err
}

func (n *Nemesis) transfer(ctx context.Context, _ step) (effect, error) {
	leader, known := n.Target.Leader(ctx)
	if !known {
		return effect{detail: "no leader"}, nil
	}
	return effect{detail: "from " + leader}, n.hook(ctx, leader, "TRANSFER")
}

// snapshot makes every member take a snapshot. A member without new entries refuses.
func (n *Nemesis) snapshot(ctx context.Context, _ step) (effect, error) {
	taken := 0
	for _, m := range n.Target.Members() {
		if _, err := n.Target.Debug(ctx, m, "DEBUG", "SNAPSHOT"); err == nil {
			taken++
		}
	}
	return effect{detail: fmt.Sprintf("on %d members", taken)}, nil
}

// An upgrade replaces the previous release's program node by node. The cluster version is held meanwhile, one node is
// downgraded again, and finally the hold is released.

var releaseFaults = []fault{
	{
		kind("release-stop", schedule.Process, second/10, 1*second, nil,
			"the next step of an upgrade: a node ends in good order, and comes back with the other release"), drawn,
		nextRelease(cluster.Processes.Stop),
	},
	{kind("release-kill", schedule.Process, second/10, 1*second, nil,
		"the next step of an upgrade, after kill -9 of the node"), drawn, nextRelease(cluster.Processes.Kill)},
}

// upgradeStep gives a node another program.
type upgradeStep struct {
	place   string
	release cluster.Release
}

// planUpgrade returns the steps from the previous release to this one.
func planUpgrade(members []string) (steps []upgradeStep) {
	for i, m := range members {
		steps = append(steps, upgradeStep{m, cluster.Held})
		if i == len(members)/2 {
			steps = append(steps, upgradeStep{m, cluster.Before}, upgradeStep{m, cluster.Held})
		}
	}
	for _, m := range members {
		steps = append(steps, upgradeStep{m, cluster.This})
	}
	return steps
}

// nextRelease makes the upgrade's next step; the first call plans the upgrade.
func nextRelease(end func(fleet cluster.Processes, place string) error) inject {
	return func(n *Nemesis, ctx context.Context, s step) (effect, error) {
		members, leader := n.ordered(ctx, s)
		if n.upgrade == nil {
			n.upgrade = planUpgrade(members)
		}
		if len(n.upgrade) == 0 {
			return effect{detail: "all was done"}, nil
		}
		at := n.upgrade[0]
		n.upgrade = n.upgrade[1:]
		fleet := n.Target.Fleet()
		err := end(fleet, at.place)
		n.Target.(cluster.Releases).Run(at.place, at.release)
		return effect{
			detail: fmt.Sprintf("%s gets %s", role(at.place, leader), at.release),
			mend:   func() error { return fleet.Start(at.place) },
		}, err
	}
}

// FinishUpgrade makes the remaining steps of an upgrade that the run began.
func (n *Nemesis) FinishUpgrade() error {
	for _, at := range n.upgrade {
		n.Target.(cluster.Releases).Run(at.place, at.release)
		if err := n.Target.Fleet().Stop(at.place); err != nil {
			return err
		}
		if err := n.Target.Fleet().Start(at.place); err != nil {
			return err
		}
	}
	return nil
}

// raiseLimit bounds the time until the leader has learned the versions of all members, without faults.
const raiseLimit = 15 * time.Second

// Raised reports a cluster that does not switch to this release's version. Requires: the upgrade is finished.
func (n *Nemesis) Raised(ctx context.Context) {
	if n.upgrade == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, raiseLimit)
	defer cancel()
	for _, m := range n.Target.Members() {
		for {
			info, err := n.Target.Debug(ctx, m, "INFO", "holdfast")
			if err == nil && cluster.InfoInt(info.Str, "cluster_version") == protocol.EntryVersion {
				break
			}
			if !workload.Sleep(ctx, 50*time.Millisecond) {
				n.find("upgrade: %s does not have version %d within %s", m, protocol.EntryVersion, raiseLimit)
				return
			}
		}
	}
}
