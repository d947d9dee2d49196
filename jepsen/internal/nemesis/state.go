package nemesis

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

var stateFaults = []fault{
	{alone(kind("state-wrong", schedule.Raft, 12*second, 16*second, nil,
		"one node applies an entry wrongly; the others must find out, and the node must refuse its clients until its "+
			"state is replaced")), drawn, (*Nemesis).misapply},
}

const (
	// CheckInterval is between two comparisons of the members' states: the least that the server takes.
	CheckInterval = 10 * time.Second
	// foundWithin is how long a state that differs may go unnoticed: an interval, and the time to hash and to ask.
	foundWithin = CheckInterval + 5*time.Second
	// repairWithin is how long the replacement may take, with the next comparison.
	repairWithin = 40 * time.Second
)

// misapply has one member apply an entry that is in no log. The members must find out within the interval.
func (n *Nemesis) misapply(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	m := members[0]
	if len(members) < 3 {
		return effect{detail: "no majority could say which member is wrong"}, nil
	}
	if err := n.hook(ctx, m, "CORRUPT"); err != nil {
		return effect{detail: role(m, leader)}, err
	}
	// The end of the run is no reason to stop: a wrong state must not be left behind.
	ctx, began := context.WithoutCancel(ctx), time.Now()
	detail := role(m, leader) + ", found after "
	if err := n.until(ctx, foundWithin, m+" is in quarantine", func() bool { return n.quarantined(ctx, m) }); err != nil {
		n.find("state: %s applied an entry wrongly, and went on for %s", m, foundWithin)
		detail = role(m, leader) + ", not found after "
	}
	detail += time.Since(began).Round(time.Second / 10).String()
	return effect{detail: detail, mend: func() error { return n.repair(m) }}, nil
}

// quarantined reports whether a member refuses clients as its state differs.
func (n *Nemesis) quarantined(ctx context.Context, m string) bool {
	_, err := n.Target.Debug(ctx, m, "EXISTS", "jepsen-state")
	return err != nil && strings.Contains(err.Error(), "state differs")
}

// repair has a member's state replaced, through the others.
func (n *Nemesis) repair(m string) error {
	ctx, cancel := context.WithTimeout(context.Background(), repairWithin)
	defer cancel()
	for i := 0; ; i++ {
		others := n.Target.Members()
		if other := others[i%len(others)]; other != m {
			_, _ = n.Target.Debug(ctx, other, "RAFT.REPAIR", m) // refused when m is not in quarantine any more
		}
		if _, err := n.Target.Debug(ctx, m, "EXISTS", "jepsen-state"); err == nil {
			return nil
		}
		if !workload.Sleep(ctx, time.Second) {
			n.find("state: the state of %s was not replaced within %s", m, repairWithin)
			return ctx.Err()
		}
	}
}
