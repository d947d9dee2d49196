package nemesis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

// Caches are disks whose page cache the tests control: they can block a log between write and sync. Real disks do not
// implement it; see cutInWindow.
type Caches interface {
	Disks
	// HoldSyncs blocks the syncs of a member's log until the process ends.
	HoldSyncs(member string)
	// FailSync makes the next sync of a member's log fail. Unsynced data can be read until the power is cut.
	FailSync(member string)
}

// cacheFaults restart a process on a log that only the page cache holds, and have it acknowledge that log.
var cacheFaults = []fault{
	{alone(kind("power-append", schedule.Disk, 2*second, 4*second, nil,
		"a majority but for the leader is killed between write and sync and restarted, then the power of all is cut; the "+
			"leader stays away")), leaderFirst, (*Nemesis).cutAfterAppend},
	{alone(kind("power-sync", schedule.Disk, 2*second, 4*second, nil,
		"a majority but for the leader ends because a sync fails, and is restarted, then the power of all is cut; the "+
			"leader stays away")), leaderFirst, (*Nemesis).cutAfterFailedSync},
}

func (n *Nemesis) cutAfterAppend(ctx context.Context, s step) (effect, error) {
	fleet, rng := n.Target.Fleet(), s.Rand()
	return n.cutBelieved(ctx, s, "killed between write and sync", func(disks Caches, held []string) error {
		for _, m := range held {
			disks.HoldSyncs(m)
		}
		workload.Sleep(ctx, time.Duration(50+rng.IntN(150))*time.Millisecond)
		return atOnce(held, fleet.Kill)
	})
}

func (n *Nemesis) cutAfterFailedSync(ctx context.Context, s step) (effect, error) {
	fleet := n.Target.Fleet()
	return n.cutBelieved(ctx, s, "with a failed sync", func(disks Caches, held []string) error {
		for _, m := range held {
			over := fleet.Excuse(m)
			defer over()
			disks.FailSync(m)
		}
		// Only one end is awaited: without that member the leader may have no majority, and the others would append
		// nothing more.
		ended := func(m string) bool { return !fleet.Running(m) }
		err := n.until(ctx, stepLimit, "a node ends", func() bool { return slices.ContainsFunc(held, ended) })
		return errors.Join(err, atOnce(held, fleet.Kill))
	})
}

// cutBelieved ends as many followers as form a majority with the leader, stops the others, and cuts the power. In
// between, the leader can commit only with the restarted followers: they acknowledge what they read from the page
// cache, and sync nothing more.
func (n *Nemesis) cutBelieved(ctx context.Context, s step, how string, end func(disks Caches, held []string) error) (
	effect, error,
) {
	fleet, disks := n.Target.Fleet(), n.Disks.(Caches)
	mend := func() error { return each(n.Target.Members(), fleet.Start) }
	members, leader := n.ordered(ctx, s)
	if leader == "" || len(members) < 3 {
		return effect{detail: "no leader", mend: mend}, nil
	}
	needed := len(members) / 2
	held, silent := members[1:1+needed], members[1+needed:]
	detail := strings.Join(held, ", ") + " " + how + ", led by " + leader
	w := n.witness(leader)
	err := atOnce(silent, fleet.Kill)
	if err == nil {
		err = errors.Join(end(disks, held), each(held, fleet.Start))
	}
	if err != nil {
		w.stop()
		return effect{detail: detail, mend: mend}, err
	}
	for _, m := range held {
		disks.HoldSyncs(m)
	}
	workload.Sleep(ctx, time.Duration(100+s.Rand().IntN(600))*time.Millisecond)
	return n.cut(ctx, s, w, []string{leader}, detail)
}
