package nemesis

import (
	"context"

	"github.com/holdfast/holdfast/jepsen/internal/schedule"
)

// victims are the members that a fault of processes takes.
func (n *Nemesis) victims(ctx context.Context, s schedule.Step) (members []string, detail string) {
	members, leader := n.ordered(ctx, s)
	switch s.Fault {
	case "kill-all", "pause-all", "restart-all", "restart-rolling":
	case "kill-minority", "pause-minority":
		members = members[:minority(members)]
	default:
		members = members[:1]
	}
	return members, roles(members, leader)
}

func (n *Nemesis) kill(ctx context.Context, s schedule.Step) (effect, error) {
	members, detail := n.victims(ctx, s)
	fleet := n.Target.Fleet()
	// All are hit at once: who is left must not have time to notice the first.
	errs := make(chan error)
	for _, m := range members {
		go func() { errs <- fleet.Kill(m) }()
	}
	var first error
	for range members {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return effect{detail, func() error { return each(members, fleet.Start) }}, first
}

func (n *Nemesis) pause(ctx context.Context, s schedule.Step) (effect, error) {
	members, detail := n.victims(ctx, s)
	fleet := n.Target.Fleet()
	return effect{detail, func() error { return each(members, fleet.Resume) }}, each(members, fleet.Pause)
}

// restart ends members in good order and starts them again: all at once, or one after the other.
func (n *Nemesis) restart(ctx context.Context, s schedule.Step) (effect, error) {
	members, detail := n.victims(ctx, s)
	fleet := n.Target.Fleet()
	if s.Fault == "restart-rolling" {
		return effect{detail: detail}, each(members, func(m string) error {
			if err := fleet.Stop(m); err != nil {
				return err
			}
			return fleet.Start(m)
		})
	}
	errs := make(chan error)
	for _, m := range members {
		go func() { errs <- fleet.Stop(m) }()
	}
	var first error
	for range members {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return effect{detail, func() error { return each(members, fleet.Start) }}, first
}
