package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

// The faults that leave a bare majority running, in which nodes have hardly met or one is in quarantine. That majority
// must serve.

// The ways to change the members while a voter is off, as the size of a step. There are twice as many sizes: at an odd
// one the new members are restarted.
const (
	absentReplaced = iota // another voter is replaced
	absentGrown           // two nodes join
	absentShrunk          // two others are removed; two nodes joined before
	absentWays
)

var bareFaults = []fault{
	{alone(kind("member-absent", schedule.Members, 2*second, 4*second, size(0, 2*absentWays),
		"a voter is off while another one is replaced, two join, or two are removed; it comes back, and as many others are "+
			"lost as a majority can spare: the rest must serve")), drawn, (*Nemesis).changeWithout},
	{alone(kind("state-frozen", schedule.Raft, 14*second, 18*second, size(0, 2),
		"one node is in quarantine, or takes another's state there, and the leader freezes, with as many as a majority can "+
			"spare: the rest must serve")), drawn, (*Nemesis).freezeBeside},
	{
		alone(kind("state-last", schedule.Members, 14*second, 18*second, nil,
			"one node is in quarantine, and the others are removed by force until that is refused: the rest must serve")), drawn,
		(*Nemesis).removeOthers,
	},
	{
		alone(kind("state-recovered", schedule.Members, 14*second, 18*second, nil,
			"one node is in quarantine, and a copy of its folder is made a cluster of its own, which must serve")), drawn,
		(*Nemesis).recoverWrong,
	},
}

// changeWithout changes the members while a voter is off.
func (n *Nemesis) changeWithout(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	m, fleet := n.membership(), n.Target.Fleet()
	spares := m.Spares()
	if len(members) < 3 || len(spares) < 2 {
		return effect{detail: "no place is free"}, nil
	}
	away, way, again := members[0], s.Size/2, s.Size%2 == 1
	join := func() error {
		return n.changed("two join", func(ctx context.Context) error { return m.Add(ctx, spares[0], true) },
			func(ctx context.Context) error { return m.Add(ctx, spares[1], true) })
	}
	steps := []func() error{func() error { return fleet.Kill(away) }}
	how := "two joined"
	switch way {
	case absentReplaced:
		how = spares[0] + " took the place of " + role(members[1], leader)
		steps = append(steps, func() error { return n.replace(members[1], spares[0]) }, func() error { return m.Out(members[1]) })
	case absentGrown:
		steps = append(steps, join)
	case absentShrunk:
		how = "two joined before, and " + roles(members[1:3], leader) + " were removed"
		steps = append([]func() error{join}, steps...)
		for _, place := range members[1:3] {
			steps = append(steps, func() error { return n.changed(place+" leaves", n.takeOut(place)) })
		}
	}
	var roll map[string]bool
	steps = append(steps, func() error {
		return n.changed("the members are known", func(ctx context.Context) error {
			return n.until(ctx, changeLimit, "", func() bool {
				var err error
				roll, err = m.Roll(ctx)
				return err == nil
			})
		})
	})
	e := effect{detail: fmt.Sprintf("%s was off while %s", role(away, leader), how)}
	e.mend = func() error {
		err := errors.Join(fleet.Start(away), each(e.dead, fleet.Start))
		for _, place := range spares {
			if len(n.Target.Members()) > len(members) {
				err = errors.Join(err, n.changed(place+" leaves", n.takeOut(place)))
			}
		}
		return err
	}
	if err := firstError(steps...); err != nil {
		return e, err
	}
	others := slices.DeleteFunc(n.Target.Members(), func(place string) bool { return place == away || !roll[place] })
	slices.SortStableFunc(others, func(a, b string) int { return slices.Index(spares, a) - slices.Index(spares, b) })
	left := majority(len(others)+1) - 1 // including the voter that was off
	lost, rest := others[:len(others)-left], others[len(others)-left:]
	e.detail += "; then lost: " + strings.Join(lost, ", ")
	e.dead = lost
	err := atOnce(lost, fleet.Kill)
	if again {
		err = errors.Join(err, each(rest, fleet.Kill), each(rest, fleet.Start))
	}
	err = errors.Join(err, fleet.Start(away))
	n.Serves(context.WithoutCancel(ctx), e.detail)
	return e, err
}

// oneWrong corrupts one member's state and waits for its quarantine. It returns that member and the others, the leader
// first, or no others if the fault was not possible.
func (n *Nemesis) oneWrong(ctx context.Context, s step) (wrong string, others []string, e effect, err error) {
	members, _ := n.ordered(ctx, s)
	wrong = members[0]
	if e, err = n.misapply(ctx, s); err != nil || e.mend == nil {
		return wrong, nil, e, err
	}
	err = n.until(context.WithoutCancel(ctx), stepLimit, "another node leads", func() bool {
		leader, known := n.Target.Leader(ctx)
		if known && leader != wrong {
			others = slices.DeleteFunc(members, func(m string) bool { return m == wrong || m == leader })
			others = append([]string{leader}, others...)
		}
		return others != nil
	})
	return wrong, others, e, err
}

// freezeBeside freezes the leader while another member is in quarantine.
func (n *Nemesis) freezeBeside(ctx context.Context, s step) (effect, error) {
	wrong, others, e, err := n.oneWrong(ctx, s)
	if others == nil {
		return e, err
	}
	fleet, repair := n.Target.Fleet(), e.mend
	lost := others[:len(others)+1-majority(len(others)+1)]
	e.mend = func() error { return errors.Join(each(lost, fleet.Resume), repair()) }
	if s.Size == 1 {
		go func() { _, _ = n.Target.Debug(context.WithoutCancel(ctx), others[len(others)-1], "RAFT.REPAIR", wrong) }()
		workload.Sleep(ctx, time.Duration(s.Rand().IntN(150))*time.Millisecond)
		e.detail += ", being repaired"
	}
	e.detail += "; then frozen: " + strings.Join(lost, ", ")
	err = atOnce(lost, fleet.Pause)
	n.Serves(context.WithoutCancel(ctx), e.detail)
	return e, err
}

// removeOthers removes by force every voter but one in quarantine, until a removal is refused.
func (n *Nemesis) removeOthers(ctx context.Context, s step) (effect, error) {
	_, others, e, err := n.oneWrong(ctx, s)
	if others == nil {
		return e, err
	}
	m, repair := n.membership(), e.mend
	var removed []string
	e.mend = func() error {
		err := repair()
		for _, place := range removed {
			err = errors.Join(err, n.renewed(place))
		}
		return err
	}
	for i := range others {
		place := others[len(others)-1-i] // the leader comes last
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepLimit)
		refused := m.Force(limit, place, true)
		roll, err := m.Roll(limit)
		cancel()
		if _, stays := roll[place]; refused != nil && (err != nil || stays) {
			break
		}
		removed = append(removed, place)
		if i < len(others)-1 { // a removed node no longer serves
			if err := m.Out(place); err != nil {
				return e, err
			}
		}
	}
	e.detail += "; then removed by force: " + strings.Join(removed, ", ")
	n.Serves(context.WithoutCancel(ctx), e.detail)
	return e, nil
}

// recoverWrong recovers a cluster from a copy of a quarantined member's folder.
func (n *Nemesis) recoverWrong(ctx context.Context, s step) (effect, error) {
	spares := n.membership().Spares()
	if len(spares) == 0 {
		return effect{detail: "no place is free"}, nil
	}
	wrong, others, e, err := n.oneWrong(ctx, s)
	if others == nil {
		return e, err
	}
	m, fleet, at, repair := n.membership(), n.Target.Fleet(), spares[0], e.mend
	e.detail += "; recovered at " + at
	e.mend = func() error { return errors.Join(m.Out(at), repair()) }
	err = firstError(
		func() error { return m.Out(at) },
		func() error { return fleet.Stop(wrong) },
		func() error { return copyTree(n.DataDir(at), n.DataDir(wrong)) },
		func() error { return fleet.Start(wrong) },
		func() error { return n.Target.(cluster.Backups).Recover(context.WithoutCancel(ctx), at, wrong) },
	)
	if err == nil {
		n.Serves(context.WithoutCancel(ctx), e.detail, at)
	}
	return e, err
}
