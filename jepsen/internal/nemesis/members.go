package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

// changeLimit bounds a change of the members. It exceeds the longest fault of any other lane, pause-minute.
const changeLimit = 100 * time.Second

// memberFaults change the members. After each there are as many voters as before.
var memberFaults = []fault{
	{
		kind("member-join", schedule.Members, 1*second, 6*second, size(0, 4),
			"nodes join at the spare places, some without a vote; later as many are removed: the leader, the new ones, any"),
		drawn, (*Nemesis).joinAndLeave,
	},
	{
		kind("member-demote", schedule.Members, 1*second, 5*second, nil, "a member loses its vote, and gets it back"), drawn,
		(*Nemesis).demote,
	},
	{kind("member-demote-leader", schedule.Members, 1*second, 5*second, nil,
		"the leader loses its vote, and gets it back"), leaderFirst, (*Nemesis).demote},
	{
		kind("member-move", schedule.Members, second/2, 2*second, nil, "a node ends and comes back with another address"),
		drawn, (*Nemesis).moveMember,
	},
	{
		kind("member-lead", schedule.Members, 0, 0, nil, "the leadership is handed to a named member"), drawn,
		(*Nemesis).lead,
	},
	{kind("member-swap", schedule.Members, 1*second, 4*second, nil,
		"a node at a spare place takes the place of a member that runs"), drawn, (*Nemesis).swap},
	{
		ending(kind("member-lost", schedule.Members, 1*second, 4*second, size(0, 2),
			"a member is lost with its disk; a new node takes its place, under another name or under the old one")), drawn,
		(*Nemesis).loseMember,
	},
	{ending(kind("member-replace", schedule.Members, 1*second, 4*second, nil,
		"a member is removed, its folder emptied, and it joins under the old name")), drawn, (*Nemesis).replaceMember},
	{alone(kind("member-away", schedule.Members, 5*second, 9*second, size(0, 2),
		"a member is cut off and removed meanwhile; it comes back, to all or to the leader alone, and ends; a new node "+
			"takes its place")), drawn, (*Nemesis).removeAway},
	{alone(kind("member-back", schedule.Members, 4*second, 7*second, nil,
		"a node ends, its folder is copied, and it goes on; then the copy takes the folder's place: the node ends, and a "+
			"new one takes its place")), drawn, (*Nemesis).putBack},
	{alone(kind("member-copied", schedule.Members, 4*second, 7*second, size(0, copiedWays),
		"a node's folder is copied, and a second process starts with the copy at another address: of two the later one "+
			"goes on, unless the copy is older than the node's last start")), drawn, (*Nemesis).copyFolder},
	{alone(kind("member-snapshot", schedule.Members, 2*second, 4*second, size(0, 2),
		"a bit in the newest snapshot of the running leader changes; a new node takes a member's place and needs a "+
			"snapshot, or the leader is killed and started again")), leaderFirst, (*Nemesis).rot},
	{alone(kind("member-force", schedule.Members, 6*second, 9*second, size(0, 2),
		"as many as can fail are cut off, and another one is removed or loses its vote by force: all stands still until "+
			"they are back")), leaderFirst, (*Nemesis).force},
	{alone(kind("member-wiped", schedule.Members, 6*second, 9*second, nil,
		"a follower is cut off; another one's folder is emptied, and it comes back as it was started first; the leader is "+
			"cut off then, and those two could elect a leader if the emptied one voted")), leaderFirst, (*Nemesis).wipe},
	{
		alone(kind("member-split", schedule.Members, 6*second, 9*second, size(0, 2),
			"two nodes join, with a vote or without, and are cut off with the leader from all others: they are no majority")),
		leaderFirst, (*Nemesis).split,
	},
}

func ending(k schedule.Kind) schedule.Kind {
	k.Ends = true
	return k
}

// membership is the target's [cluster.Membership]. Requires: the target supports changes of the members.
func (n *Nemesis) membership() cluster.Membership { return n.Target.(cluster.Membership) }

// changed makes changes one after another, even after the end of the run. A failed change is a finding.
func (n *Nemesis) changed(what string, changes ...func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), changeLimit)
	defer cancel()
	for _, change := range changes {
		if err := change(ctx); err != nil {
			n.find("members: %s within %s: %v", what, changeLimit, err)
			return err
		}
	}
	return nil
}

func (n *Nemesis) joinAndLeave(ctx context.Context, s step) (effect, error) {
	m, rng := n.membership(), s.Rand()
	spares := m.Spares()
	votes := s.Size&1 == 0
	var joined, shown, left []string
	mend := func() error {
		var errs []error
		for range joined {
			errs = append(errs, n.leave(rng, &left))
		}
		return errors.Join(append(errs, n.refill(joined, left))...)
	}
	e := effect{mend: mend, details: func() string {
		return strings.Join(shown, ", ") + " joined; " +
			strings.Join(left, ", ") + " left"
	}}
	for i, place := range spares {
		if i == 1 && s.Size&2 == 0 {
			break
		}
		vote := votes || i == 1
		if err := n.changed(place+" joins", func(ctx context.Context) error { return m.Add(ctx, place, vote) }); err != nil {
			return e, err
		}
		joined, shown = append(joined, place), append(shown, place)
		if !vote {
			shown[i] += " without a vote"
		}
	}
	return e, nil
}

// leave removes some member: the leader, a new member or a random one.
func (n *Nemesis) leave(rng *rand.Rand, left *[]string) error {
	members := n.Target.Members()
	place := members[rng.IntN(len(members))]
	if rng.IntN(3) == 0 {
		if leader, known := n.Target.Leader(context.Background()); known {
			place = leader
		}
	}
	*left = append(*left, place)
	return n.changed(place+" leaves", n.takeOut(place))
}

// takeOut removes the member at a place, if there is one, and ends its node.
func (n *Nemesis) takeOut(place string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := n.membership().Remove(ctx, place); err != nil {
			return err
		}
		return n.membership().Out(place)
	}
}

// refill gives every member a vote, since a voter may have left while a member without a vote stayed.
func (n *Nemesis) refill(joined, left []string) error {
	for _, place := range joined {
		if slices.Contains(left, place) {
			continue
		}
		if err := n.changed(place+" gets a vote", func(ctx context.Context) error {
			return n.membership().Vote(ctx, place, true)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (n *Nemesis) demote(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	place, m := members[0], n.membership()
	mend := func() error {
		return n.changed(place+" gets its vote back", func(ctx context.Context) error { return m.Vote(ctx, place, true) })
	}
	return effect{detail: role(place, leader), mend: mend}, n.changed(place+" loses its vote",
		func(ctx context.Context) error { return m.Vote(ctx, place, false) })
}

func (n *Nemesis) moveMember(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	place := members[0]
	return effect{detail: role(place, leader)}, n.changed(place+" moves", func(ctx context.Context) error {
		return n.membership().Move(ctx, place)
	})
}

// lead transfers leadership. A refusal is tolerated: the new leader may lag.
func (n *Nemesis) lead(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	detail := "to " + role(members[0], leader)
	if err := n.membership().Lead(ctx, members[0]); err != nil {
		detail += ": " + err.Error()
	}
	return effect{detail: detail}, nil
}

func (n *Nemesis) replaceMember(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	place, m := members[0], n.membership()
	e := effect{detail: role(place, leader), mend: func() error {
		return n.changed(place+" joins anew", func(ctx context.Context) error { return m.Add(ctx, place, true) })
	}}
	return e, n.changed(place+" leaves", n.takeOut(place))
}

// renewed removes the member at a place, if there is one, and adds a new node there.
func (n *Nemesis) renewed(place string) error {
	m := n.membership()
	return n.changed(place+" is replaced", n.takeOut(place), func(ctx context.Context) error {
		return m.Add(ctx, place, true)
	})
}

// off returns the state in which the links between some members and all others are cut.
func (n *Nemesis) off(some ...string) network.State {
	var links []network.Link
	for _, a := range some {
		for _, b := range n.Target.Members() {
			if !slices.Contains(some, b) {
				links = append(links, network.Link{From: a, To: b}, network.Link{From: b, To: a})
			}
		}
	}
	return network.State{Cut: links}
}

// part sleeps for a percentage of the step's duration.
func (s step) part(ctx context.Context, percent int) {
	workload.Sleep(ctx, s.For*time.Duration(percent)/100)
}

func (n *Nemesis) wipe(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	if leader == "" || len(members) < 3 {
		return effect{detail: "no leader"}, nil
	}
	// The leader, the emptied member and the members that are not away form a majority.
	emptied, away := members[1], members[1+len(members)/2:]
	m, fleet := n.membership(), n.Target.Fleet()
	over := fleet.Excuse(emptied) // it may refuse to start
	e := effect{detail: fmt.Sprintf("%s; %s was away; led by %s", emptied, strings.Join(away, ", "), leader)}
	e.mend = func() error {
		defer over()
		return errors.Join(n.wholeNet(), n.renewed(emptied))
	}
	if err := n.Net.Set(n.off(away...)); err != nil {
		return e, err
	}
	w := n.witness(leader)
	s.part(ctx, 20)
	err := m.Empty(emptied)
	if err == nil {
		err = n.Net.Set(n.off(leader))
	}
	w.stop()
	if err == nil {
		err = fleet.Start(emptied)
	}
	s.part(ctx, 80)
	e.details = func() string {
		w.end()
		w.judge(context.Background())
		return fmt.Sprintf("%d writes", w.count())
	}
	return e, err
}

func (n *Nemesis) split(ctx context.Context, s step) (effect, error) {
	m := n.membership()
	spares := m.Spares()
	var joined []string
	vote := s.Size == 0
	e := effect{}
	e.mend = func() error {
		err := n.wholeNet()
		for _, place := range joined {
			err = errors.Join(err, n.changed(place+" leaves", n.takeOut(place)))
		}
		return err
	}
	for _, place := range spares {
		if err := n.changed(place+" joins", func(ctx context.Context) error { return m.Add(ctx, place, vote) }); err != nil {
			return e, err
		}
		joined = append(joined, place)
	}
	leader, known := n.Target.Leader(ctx)
	if !known {
		return e, nil
	}
	side := []string{leader}
	for _, place := range joined {
		if vote && len(side) > (len(n.Target.Members())-1)/2-1 {
			break // more would be a majority
		}
		if place != leader {
			side = append(side, place)
		}
	}
	e.detail = fmt.Sprintf("%s (with a vote: %v) | the others, led by %s", strings.Join(side, ", "), vote, leader)
	err := n.Net.Set(n.off(side...))
	s.part(ctx, 100)
	return e, err
}
