package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
)

// The faults in which a member leaves for good: it is replaced, lost, removed while away, or removed by force.

// swap replaces a running member by a new node.
func (n *Nemesis) swap(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	place, m := members[0], n.membership()
	spares := m.Spares()
	if len(spares) == 0 {
		return effect{detail: "no place is free"}, nil
	}
	e := effect{detail: fmt.Sprintf("%s for %s", spares[0], role(place, leader))}
	if err := n.replace(place, spares[0]); err != nil {
		return e, err
	}
	e.mend = func() error {
		n.expectEnd(place)
		return m.Out(place)
	}
	return e, nil
}

// replace adds a node without a vote at a spare place, and lets it replace a member.
func (n *Nemesis) replace(place, by string) error {
	m := n.membership()
	return n.changed(by+" takes the place of "+place,
		func(ctx context.Context) error { return m.Add(ctx, by, false) }, func(ctx context.Context) error {
			return m.Replace(ctx, place, by)
		})
}

// loseMember destroys a node and its disk for good.
func (n *Nemesis) loseMember(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	place, m := members[0], n.membership()
	spares := m.Spares()
	e := effect{detail: role(place, leader), dead: []string{place}, mend: func() error { return n.renewed(place) }}
	if s.Size == 0 && len(spares) > 0 {
		e.detail += ", by " + spares[0]
		e.mend = func() error { return n.replace(place, spares[0]) }
	}
	return e, m.Out(place)
}

// removeAway removes a member that is cut off. The removed node then returns, connected to all or to the leader alone;
// it must neither serve nor count in a majority, and must end.
func (n *Nemesis) removeAway(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	place, m := members[0], n.membership()
	mend := func() error { return errors.Join(n.wholeNet(), n.renewed(place)) }
	e := effect{detail: role(place, leader), mend: mend}
	if err := n.Net.Set(n.off(place)); err != nil {
		return e, err
	}
	s.part(ctx, 20)
	over := n.Target.Fleet().Excuse(place) // it ends once it learns of its removal
	e.mend = func() error {
		defer over()
		return mend()
	}
	if err := n.changed(place+" is removed", func(ctx context.Context) error { return m.Remove(ctx, place) }); err != nil {
		return e, err
	}
	through := n.witness(place)
	if s.Size == 1 {
		detail, err := n.backToLeader(ctx, s, place)
		e.detail += detail
		if err != nil {
			through.end()
			return e, err
		}
	} else {
		s.part(ctx, 40)
	}
	err := n.wholeNet()
	s.part(ctx, 20)
	n.expectEnd(place)
	through.end()
	if served := through.count(); served > 0 {
		n.find("members: %s acknowledged %d writes after it was removed", place, served)
	}
	return e, err
}

// putBack restores an older copy of a node's folder. The node must neither serve nor count in a majority, and must end.
func (n *Nemesis) putBack(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	place, fleet := members[0], n.Target.Fleet()
	older := n.copyOf(place)
	e := effect{detail: role(place, leader), mend: func() error { return errors.Join(older.Forget(), n.renewed(place)) }}
	err := firstError(
		func() error { return fleet.Kill(place) },
		older.Make,
		func() error { return fleet.Start(place) },
	)
	if err != nil {
		return e, err
	}
	w := n.witness(place)
	s.part(ctx, 40)
	w.end()
	over := fleet.Excuse(place) // it ends once it detects the copy
	defer over()
	if err := firstError(func() error { return fleet.Kill(place) }, older.PutBack); err != nil || w.count() == 0 {
		e.detail += ": it had served nobody since"
		return e, err
	}
	w = n.witness(place)
	err = fleet.Start(place)
	if err == nil && n.until(ctx, changeLimit, "", func() bool { return !fleet.Running(place) }) != nil {
		n.find("members: %s goes on with an older copy of its folder", place)
	}
	w.end()
	if served := w.count(); served > 0 {
		n.find("members: %s acknowledged %d writes with an older copy of its folder", place, served)
	}
	return e, err
}

// rot flips a bit in the running leader's newest snapshot. Then either a new node joins, which needs a snapshot and
// must still get its state, or the leader is killed and restarted.
func (n *Nemesis) rot(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	if leader == "" || len(members) < 2 {
		return effect{detail: "no leader"}, nil
	}
	e := effect{detail: role(leader, leader)}
	if _, err := n.Target.Debug(ctx, leader, "DEBUG", "SNAPSHOT"); err != nil {
		e.detail += ": " + err.Error()
	}
	back, ok, err := corruptSnapshot(n.DataDir(leader))
	if !ok {
		e.detail += ": it has no snapshot"
		return e, err
	}
	if err == nil && s.Size == 0 {
		e.mend = back // undoes the damage if the leader's snapshot was not used
		err = n.renewed(members[1])
	} else if err == nil {
		e.detail += ", at its start"
		err = n.startRotten(leader)
	}
	return e, err
}

// startRotten restarts a member whose newest snapshot is damaged. The member must recover from the log and an older
// snapshot, or from another member's state.
func (n *Nemesis) startRotten(place string) error {
	fleet := n.Target.Fleet()
	if err := firstError(func() error { return fleet.Kill(place) }, func() error {
		return fleet.Start(place)
	}); err != nil {
		return err
	}
	err := n.until(context.Background(), changeLimit, place+" serves", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		v, err := n.Target.Debug(ctx, place, "SET", "jepsen-rotten", place)
		return err == nil && !v.IsError()
	})
	if err != nil {
		n.find("members: %s was started with a damaged snapshot: %v", place, err)
	}
	return err
}

// firstError calls functions in order until one fails.
func firstError(things ...func() error) error {
	for _, do := range things {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// backToLeader reconnects a removed node to the leader alone. The two must not form a majority.
func (n *Nemesis) backToLeader(ctx context.Context, s step, place string) (detail string, err error) {
	leader, known := n.Target.Leader(ctx)
	if !known || leader == place {
		s.part(ctx, 40)
		return "", nil
	}
	if err := n.Net.Set(n.off(leader, place)); err != nil {
		return "", err
	}
	w := n.witness(leader)
	s.part(ctx, 40)
	served := w.count()
	w.stop()
	if served > 0 {
		n.find("members: %s acknowledged %d writes while it heard none but %s, which had been removed", leader, served, place)
	}
	err = n.wholeNet()
	w.end()
	return fmt.Sprintf("; back to %s (leader) alone", leader), err
}

// expectEnd waits until a removed node has ended, restarts it, and expects it to end again. The node must not be a
// member.
func (n *Nemesis) expectEnd(place string) {
	ctx, cancel := context.WithTimeout(context.Background(), changeLimit)
	defer cancel()
	m, fleet := n.membership(), n.Target.Fleet()
	ended := func() bool { return m.Removed(place) }
	if n.until(ctx, changeLimit, "", ended) != nil {
		n.find("members: %s was removed, and goes on", place)
		return
	}
	if fleet.Start(place) != nil || n.until(ctx, changeLimit, "", ended) != nil {
		n.find("members: %s was removed, and can be started again", place)
	}
	if roll, err := m.Roll(ctx); err == nil {
		if _, again := roll[place]; again {
			n.find("members: %s was removed, and is a member again", place)
		}
	}
}

// force removes a member, or its vote, while less than a majority of the others answers. All writes, and the change
// itself, then wait until the absent members return. Acknowledged writes must survive.
func (n *Nemesis) force(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	if leader == "" || len(members) < 3 {
		return effect{detail: "no leader"}, nil
	}
	spare := (len(members) - 1) / 2
	away, place, remove := members[1:1+spare], members[1+spare], s.Size == 1
	m := n.membership()
	what := "loses its vote"
	if remove {
		what = "is removed"
	}
	e := effect{detail: fmt.Sprintf("%s %s; %s away; led by %s", place, what, strings.Join(away, ", "), leader)}
	e.mend = func() error {
		if remove {
			return errors.Join(n.wholeNet(), n.renewed(place))
		}
		return errors.Join(n.wholeNet(), n.changed(place+" gets its vote back", func(ctx context.Context) error {
			return m.Vote(ctx, place, true)
		}))
	}
	if err := n.Net.Set(n.off(away...)); err != nil {
		return e, err
	}
	w := n.witness(leader)
	s.part(ctx, 30)
	limit, cancel := context.WithTimeout(ctx, s.For/2)
	defer cancel()
	if err := m.Force(limit, place, remove); err != nil {
		e.detail += ": " + err.Error()
	}
	<-limit.Done()
	w.stop()
	e.details = func() string {
		w.end()
		w.judge(context.Background())
		return fmt.Sprintf("%d writes", w.count())
	}
	return e, nil
}

// wholeLimit bounds the time, after all faults, until the members are the places that are in.
const wholeLimit = 15 * time.Second

// Whole checks, after all faults, that the members are exactly the places that are in, with the given number of voters:
// no change is stuck, no removed node is left, no node is missing.
func (n *Nemesis) Whole(ctx context.Context, voters int) {
	m, ok := n.Target.(cluster.Membership)
	if !ok {
		return
	}
	want := n.Target.Members()
	slices.Sort(want)
	why := ""
	_ = n.until(ctx, wholeLimit, "", func() bool {
		roll, err := m.Roll(ctx)
		var are []string
		votes := 0
		for name, vote := range roll { // unordered: sorted below
			are = append(are, name)
			if vote {
				votes++
			}
		}
		slices.Sort(are)
		switch {
		case err != nil:
			why = err.Error()
		case !slices.Equal(are, want) || votes != voters:
			why = fmt.Sprintf("they are %v, %d with a vote", are, votes)
		default:
			why = ""
		}
		return why == ""
	})
	if why != "" {
		n.find("members: %s after all was mended, they should be %v, %d with a vote: %s", wholeLimit, want, voters, why)
	}
}
