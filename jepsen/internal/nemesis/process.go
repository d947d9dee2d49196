package nemesis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

// kill kills some members (kill -9).
func kill(count func([]string) int) inject {
	return func(n *Nemesis, ctx context.Context, s step) (effect, error) {
		members, leader := n.ordered(ctx, s)
		voters := len(members)
		members = members[:count(members)]
		fleet := n.Target.Fleet()
		// All are killed at once, before the others can notice.
		err := atOnce(members, fleet.Kill)
		e := effect{detail: roles(members, leader), mend: func() error { return each(members, fleet.Start) }}
		if len(members) <= voters-majority(voters) {
			e.dead = members
		}
		return e, err
	}
}

// pause freezes some members (SIGSTOP).
func pause(count func([]string) int) inject {
	return func(n *Nemesis, ctx context.Context, s step) (effect, error) {
		members, leader := n.ordered(ctx, s)
		members = members[:count(members)]
		fleet := n.Target.Fleet()
		return effect{detail: roles(members, leader), mend: func() error { return each(members, fleet.Resume) }},
			each(members, fleet.Pause)
	}
}

// restartAll stops all members gracefully at once, and restarts them.
func (n *Nemesis) restartAll(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	fleet := n.Target.Fleet()
	err := atOnce(members, fleet.Stop)
	return effect{detail: roles(members, leader), mend: func() error { return each(members, fleet.Start) }}, err
}

// restartRolling restarts one member after the other gracefully.
func (n *Nemesis) restartRolling(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	fleet := n.Target.Fleet()
	return effect{detail: roles(members, leader)}, each(members, func(m string) error {
		if err := fleet.Stop(m); err != nil {
			return err
		}
		return fleet.Start(m)
	})
}

// crashLoop kills a member every 50 to 600 ms, mostly the leader, and restarts it within a tenth of a second.
func (n *Nemesis) crashLoop(_ context.Context, s step) (effect, error) {
	fleet, rng := n.Target.Fleet(), s.Rand()
	members := n.Target.Members()
	kills := 0
	e := n.again(func(ctx context.Context) error {
		m := members[rng.IntN(len(members))]
		if rng.IntN(10) < 6 {
			if leader, known := n.Target.Leader(ctx); known {
				m = leader
			}
		}
		if err := fleet.Kill(m); err != nil {
			return err
		}
		kills++
		workload.Sleep(ctx, []time.Duration{0, 10, 100}[rng.IntN(3)]*time.Millisecond)
		err := fleet.Start(m)
		workload.Sleep(ctx, time.Duration(50+rng.IntN(550))*time.Millisecond)
		return err
	})
	loop := e.mend
	e.mend = func() error { return errors.Join(loop(), each(members, fleet.Start)) }
	e.details = func() string { return fmt.Sprintf("%d times", kills) }
	return e, nil
}

// strobe pauses and resumes the leader in periods near its lease. After an election the new leader is next.
func (n *Nemesis) strobe(_ context.Context, s step) (effect, error) {
	turns := []struct{ stopped, running time.Duration }{{100, 50}, {300, 50}, {380, 10}, {50, 50}, {450, 20}}
	fleet, rng := n.Target.Fleet(), s.Rand()
	hits := 0
	e := n.again(func(ctx context.Context) error {
		leader, known := n.Target.Leader(ctx)
		if !known {
			workload.Sleep(ctx, 50*time.Millisecond)
			return nil
		}
		hits++
		for until := time.Now().Add(2 * time.Second); time.Now().Before(until) && ctx.Err() == nil; {
			t := turns[rng.IntN(len(turns))]
			if err := fleet.Pause(leader); err != nil {
				return err
			}
			workload.Sleep(ctx, t.stopped*time.Millisecond)
			if err := fleet.Resume(leader); err != nil {
				return err
			}
			workload.Sleep(ctx, t.running*time.Millisecond)
		}
		return nil
	})
	e.details = func() string { return fmt.Sprintf("%d leaders in turn", hits) }
	return e, nil
}

// again calls do in a loop until the effect is mended or do fails.
func (n *Nemesis) again(do func(context.Context) error) effect {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := do(ctx); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	return effect{mend: func() error {
		stop()
		return <-done
	}}
}

// atOnce calls do for several members concurrently, and returns the first error.
func atOnce(members []string, do func(string) error) error {
	errs := make(chan error)
	for _, m := range members {
		go func() { errs <- do(m) }()
	}
	var first error
	for range members {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}
