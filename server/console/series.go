package console

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/api"
)

// The last hour, in steps. Counts of locks are totals since the node's start, so a step is the difference of two
// notes; one note a minute is all the work.

const (
	step  = time.Minute
	steps = 60
)

// note is what had been counted at an instant of the node's clock.
type note struct {
	at     time.Time
	counts api.Counts
}

// series has the notes of the last hour.
type series struct {
	mu    sync.Mutex
	notes []note // the oldest first; at most one more than steps
	late  note   // taken last for an answer
}

// Run notes the counts at the beginning of each step, until ctx ends.
func (c *Console) Run(ctx context.Context) {
	for {
		now := time.Now()
		c.hour.add(note{now, c.counts()})
		timer := time.NewTimer(now.Truncate(step).Add(step).Sub(now))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (s *series) add(n note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notes = append(s.notes, n); len(s.notes) > steps+1 {
		s.notes = append(s.notes[:0], s.notes[1:]...)
	}
}

// counts are the totals since the node's start.
func (c *Console) counts() api.Counts {
	m := c.config.Machine()
	if m == nil {
		return api.Counts{}
	}
	s := m.LockStats()
	counts := api.Counts{
		Grants: s.Grants, Waits: s.Waited.Count, TimedOut: s.Timeouts,
		Lost: s.LostExpired + s.LostSession + s.LostBroken + s.LostFlushed,
	}
	for _, class := range m.LockClasses() {
		counts.Grants += class.Stock.Grants
		counts.Lost += class.Stock.Expired
	}
	return counts
}

// countsOfLate are counts that may be some seconds old: all queues are looked at for them.
func (c *Console) countsOfLate() note {
	c.hour.mu.Lock()
	late := c.hour.late
	c.hour.mu.Unlock()
	if now := time.Now(); late.at.IsZero() || now.Sub(late.at) >= lateFor {
		late = note{now, c.counts()}
		c.hour.mu.Lock()
		c.hour.late = late
		c.hour.mu.Unlock()
	}
	return late
}

const lateFor = 5 * time.Second

// lossesOfHistory limits the losses of each kind in an answer, and the groups; lossesOfGroups limits the losses of a
// kind that are grouped: the cluster remembers no more.
const (
	lossesOfHistory = 50
	lossesOfGroups  = 1000
)

// History tells of the last hour, and of the last losses of keys that a user with these rules may read; empty: of all.
func (c *Console) History(rules string) (api.History, error) {
	state, err := c.open()
	if err != nil {
		return api.History{}, err
	}
	now := c.countsOfLate()
	losses, groups := []api.Loss{}, []api.LossGroup{}
	for _, kind := range []string{"NATIVE", "STOCK"} {
		v, err := state.askAs(protocol.Head{Rights: rules}, "lock.history", kind, "COUNT", strconv.Itoa(lossesOfGroups))
		if err != nil {
			return api.History{}, err
		}
		lost, err := api.LossesOf(v)
		if err != nil {
			return api.History{}, err
		}
		losses = append(losses, lost.Losses[:min(lossesOfHistory, len(lost.Losses))]...)
		some := api.GroupLosses(lost.Losses, state.unixMillis())
		slices.SortStableFunc(some, func(a, b api.LossGroup) int { return cmp.Compare(isAdvised(b), isAdvised(a)) })
		groups = append(groups, some[:min(lossesOfHistory, len(some))]...)
	}
	slices.SortFunc(groups, func(a, b api.LossGroup) int { return cmp.Compare(b.Last.ID, a.Last.ID) })
	slices.SortFunc(losses, func(a, b api.Loss) int { return cmp.Compare(b.ID, a.ID) })
	return api.History{
		Format: api.Format, Node: c.config.Node, NowUnixMillis: now.at.UnixMilli(), StepMillis: step.Milliseconds(),
		Steps: c.hour.until(now), Losses: losses, LossGroups: groups,
	}, nil
}

// isAdvised is 1 for a group with advice, which is kept before all others, else 0.
func isAdvised(g api.LossGroup) int { return min(1, len(g.Advice)) }

// until are the steps of the last hour. A step before the first note is not counted.
func (s *series) until(now note) []api.Step {
	s.mu.Lock()
	notes := append(append([]note(nil), s.notes...), now)
	s.mu.Unlock()
	all := make([]api.Step, steps)
	first := now.at.Truncate(step).Add(-(steps - 1) * step)
	for i := range all {
		all[i].StartUnixMillis = first.Add(time.Duration(i) * step).UnixMilli()
	}
	for i := range len(notes) - 1 {
		from, to := notes[i], notes[i+1]
		at := int(from.at.Sub(first) / step)
		if from.at.Before(first) || at >= steps {
			continue
		}
		all[at].Counted = all[at].Counted || from.at.Sub(first)%step < noteSlack
		all[at].Add(from.counts, to.counts)
	}
	return all
}

// noteSlack is how late a note may be and its step still be counted in full.
const noteSlack = time.Second
