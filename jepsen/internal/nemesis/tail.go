package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

const (
	// awayFor is how long a follower is away while clients write: longer than the log that a snapshot keeps.
	awayFor = 1500 * time.Millisecond
	// quietLimit bounds the wait until the log stops growing: leases and waits of the workloads expire within it.
	quietLimit = 18 * time.Second
	// stillFor is how long a quiet log must not grow: longer than the interval of the leader's stamps.
	stillFor = 1300 * time.Millisecond
	// stepLimit bounds each step, which should take a moment.
	stepLimit = 5 * time.Second
	// followLimit bounds the time until a follower follows a new leader.
	followLimit = 8 * time.Second
)

// position is the last and the committed index of a member's log.
type position struct{ last, commit int64 }

func (n *Nemesis) position(ctx context.Context, m string) (position, error) {
	info, err := n.Target.Debug(ctx, m, "INFO", "holdfast")
	p := position{cluster.InfoInt(info.Str, "raft_last_log_index"), cluster.InfoInt(info.Str, "raft_commit_index")}
	if err == nil && p.commit == 0 {
		err = fmt.Errorf("%s does not say where its log stands", m)
	}
	return p, err
}

// caughtUp waits until a member's log has every entry that was committed at the call.
func (n *Nemesis) caughtUp(ctx context.Context, m, leader string) error {
	now, err := n.position(ctx, leader)
	if err != nil {
		return err
	}
	return n.until(ctx, followLimit, m+" has what is committed", func() bool {
		p, _ := n.position(ctx, m)
		return p.last >= now.commit
	})
}

// loseTail lets a follower return by a snapshot, gives it an entry that no other member keeps, and kills the leader.
// The next leader's log ends at that follower's snapshot index, and the follower must be able to follow it. Clients are
// cut off meanwhile, since their writes would hide the gap.
func (n *Nemesis) loseTail(ctx context.Context, s step) (effect, error) {
	fleet := n.Target.Fleet()
	var overs []func()
	for _, m := range n.Target.Members() {
		overs = append(overs, fleet.Excuse(m)) // the leader's disk hangs
	}
	members, leader := n.ordered(ctx, s)
	mend := func() error {
		err := n.undisturb(leader)
		err = errors.Join(err, each(n.Target.Members(), fleet.Resume), each(n.Target.Members(), fleet.Start), n.wholeNet())
		for _, over := range overs {
			over()
		}
		return err
	}
	if leader == "" || len(members) < 3 {
		return effect{detail: "no leader", mend: mend}, nil
	}
	members = slices.DeleteFunc(members, func(m string) bool { return m == leader })
	returned, others := members[0], members[1:]
	detail := fmt.Sprintf("%s returns to %s", returned, role(leader, leader))
	left, err := n.tail(ctx, returned, leader, others)
	if err == nil && left != nil {
		err = left()
	}
	return effect{detail: detail, mend: mend}, err
}

// tail creates that entry. The returned function kills the leader and checks that the follower follows.
func (n *Nemesis) tail(ctx context.Context, returned, leader string, others []string) (func() error, error) {
	fleet := n.Target.Fleet()
	if err := fleet.Kill(returned); err != nil {
		return nil, err
	}
	workload.Sleep(ctx, awayFor)
	if err := n.Net.Set(network.State{Cut: n.clientsOff()}); err != nil {
		return nil, err
	}
	for _, m := range append([]string{leader}, others...) {
		// The session of a native lock is renewed in the log while its connection is open, and nodes do not detect that
		// clients are cut off. So the connections are closed.
		_, _ = n.Target.Debug(ctx, m, "CLIENT", "KILL", "TYPE", "normal")
	}
	end, err := n.still(ctx, append([]string{leader}, others...))
	if err != nil {
		return nil, err
	}
	for _, m := range append([]string{leader}, others...) {
		// A member without new entries already has a snapshot of its whole log.
		_, _ = n.Target.Debug(ctx, m, "DEBUG", "SNAPSHOT")
	}
	if err := fleet.Start(returned); err != nil {
		return nil, err
	}
	if err := n.until(ctx, stepLimit, returned+" returns", func() bool {
		p, err := n.position(ctx, returned)
		return err == nil && p.commit >= end && p.last == p.commit
	}); err != nil {
		return nil, err
	}
	before, err := n.position(ctx, returned)
	if err != nil {
		return nil, err
	}
	small := len(others) == 1
	if err := atOnce(others, fleet.Kill); err != nil {
		return nil, err
	}
	if small {
		// The leader and the follower are a majority: without the leader's disk the entry is not committed.
		if err := n.hook(ctx, leader, "DISK", "HANG"); err != nil {
			return nil, err
		}
	}
	go func() { _, _ = n.Target.Debug(ctx, leader, "SET", "jepsen-tail", "lost") }()
	if err := n.until(ctx, time.Second, "the entry reaches "+returned, func() bool {
		p, err := n.position(ctx, returned)
		return err == nil && p.last > before.last
	}); err != nil {
		return nil, err
	}
	return func() error { return n.loseLeader(ctx, returned, leader, others, small) }, nil
}

func (n *Nemesis) loseLeader(ctx context.Context, returned, leader string, others []string, small bool) error {
	fleet := n.Target.Fleet()
	if err := errors.Join(fleet.Pause(returned), fleet.Kill(leader)); err != nil {
		return err
	}
	starting := others
	if small {
		starting = append([]string{leader}, others...) // the leader lost the entry
	}
	if err := each(starting, fleet.Start); err != nil {
		return err
	}
	var next string
	if err := n.until(ctx, stepLimit, "the others elect a leader", func() (known bool) {
		next, known = n.Target.Leader(ctx)
		return known && next != returned
	}); err != nil {
		return err
	}
	if err := fleet.Resume(returned); err != nil {
		return err
	}
	var of, by position
	began := time.Now()
	err := n.until(context.WithoutCancel(ctx), followLimit, "", func() bool {
		now, known := n.Target.Leader(ctx)
		if !known {
			return false
		}
		var err1, err2 error
		by, err1 = n.position(ctx, now)
		of, err2 = n.position(ctx, returned)
		return err1 == nil && err2 == nil && by.commit > 0 && of.commit >= by.commit
	})
	if err != nil {
		n.find("%s did not follow %s within %s of its return (by a snapshot, with an entry behind it that was lost): its "+
			"log ends at %d with %d committed, the leader's at %d with %d",
			returned, next, followLimit, of.last, of.commit, by.last, by.commit)
		return nil
	}
	n.Log.Info("follows", "member", returned, "after", time.Since(began).Round(time.Millisecond))
	return nil
}

// clientsOff returns the links from all clients to all nodes.
func (n *Nemesis) clientsOff() []network.Link {
	var links []network.Link
	for _, from := range n.Target.Members() {
		for _, to := range n.Target.Members() {
			links = append(links, network.Link{From: network.ClientsOf(from), To: to})
		}
	}
	return links
}

// still waits until the members' logs stop growing, and returns their last index.
func (n *Nemesis) still(ctx context.Context, members []string) (int64, error) {
	var end int64
	since := time.Now()
	err := n.until(ctx, quietLimit, "the log stands still", func() bool {
		first, err := n.position(ctx, members[0])
		same := err == nil && first.last == end
		for _, m := range members {
			p, err := n.position(ctx, m)
			same = same && err == nil && p == position{end, end}
		}
		if !same {
			end, since = first.last, time.Now()
		}
		return same && time.Since(since) > stillFor
	})
	return end, err
}

// until polls a condition within a limit.
func (n *Nemesis) until(ctx context.Context, limit time.Duration, what string, so func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !so() {
		if !workload.Sleep(ctx, 10*time.Millisecond) {
			return fmt.Errorf("not so within %s: %s", limit, what)
		}
	}
	return nil
}
