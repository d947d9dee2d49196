package nemesis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/schedule"
)

// strobePeriod is how fast a strobing clock flips, in milliseconds.
const strobePeriod = "37"

// hook sends a debug command. One whose reply was lost is sent again, as all of them
// set and none adds.
func (n *Nemesis) hook(ctx context.Context, member string, words ...string) error {
	_, err := n.Target.Debug(ctx, member, append([]string{"DEBUG"}, words...)...)
	if err != nil {
		_, err = n.Target.Debug(ctx, member, append([]string{"DEBUG"}, words...)...)
	}
	return err
}

// unhook takes a fault back, unless the member has ended with it.
func (n *Nemesis) unhook(member string, words ...string) error {
	if !n.Target.Fleet().Running(member) {
		return nil
	}
	return n.hook(context.Background(), member, words...)
}

func (n *Nemesis) clock(ctx context.Context, s schedule.Step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	m, size := members[0], strconv.FormatInt(s.Size, 10)
	e := effect{mend: func() error { return n.unhook(m, "CLOCK", "OK") }}
	switch s.Fault {
	case "clock-jump":
		e.detail = fmt.Sprintf("%s by %s ms", role(m, leader), size)
		return e, n.hook(ctx, m, "CLOCK", "JUMP", size)
	case "clock-strobe", "clock-leader":
		e.detail = fmt.Sprintf("%s by %s ms every %s ms", role(m, leader), size, strobePeriod)
		return e, n.hook(ctx, m, "CLOCK", "STROBE", size, strobePeriod)
	default:
		e.detail = fmt.Sprintf("%s at %s permille", role(m, leader), size)
		return e, n.hook(ctx, m, "CLOCK", "RATE", size)
	}
}

// disk makes the writes of one member go wrong. The member may end over it: that is excused, and it is started again.
func (n *Nemesis) disk(ctx context.Context, s schedule.Step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	m := members[0]
	fleet := n.Target.Fleet()
	words := map[string][]string{
		"disk-slow":  {"DISK", "DELAY", strconv.FormatInt(s.Size, 10)},
		"disk-hang":  {"DISK", "HANG"},
		"disk-error": {"DISK", "ERROR"},
		"disk-full":  {"DISK", "ENOSPC"},
		"disk-torn":  {"DISK", "TORN"},
	}[s.Fault]
	over := fleet.Excuse(m)
	mend := func() error {
		defer over()
		err := n.unhook(m, "DISK", "OK")
		// It may be about to end over what it met: give it the time, then start it.
		sleep(context.Background(), 300*time.Millisecond)
		if startErr := fleet.Start(m); err == nil || fleet.Running(m) {
			err = startErr
		}
		return err
	}
	return effect{role(m, leader), mend}, n.hook(ctx, m, words...)
}

func (n *Nemesis) transfer(ctx context.Context, _ schedule.Step) (effect, error) {
	leader, known := n.Target.Leader(ctx)
	if !known {
		return effect{detail: "no leader"}, nil
	}
	return effect{detail: "from " + leader}, n.hook(ctx, leader, "TRANSFER")
}

// snapshot makes every member take one; a member with nothing new says so.
func (n *Nemesis) snapshot(ctx context.Context, _ schedule.Step) (effect, error) {
	taken := 0
	for _, m := range n.Target.Members() {
		if _, err := n.Target.Debug(ctx, m, "DEBUG", "SNAPSHOT"); err == nil {
			taken++
		}
	}
	return effect{detail: fmt.Sprintf("on %d members", taken)}, nil
}
