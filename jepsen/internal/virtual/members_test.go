package virtual

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica"
)

// spares is the number of places beside those of the first members.
const spares = 2

var _ cluster.Membership = target{}

// Spares implements cluster.Membership.
func (t target) Spares() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.places), func(place string) bool { return t.in[place] })
}

func (t target) set(place string, in bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in[place] = in
}

// Add does what a node does that is started with --join: it is added without a vote, and gets one when it has the log.
func (t target) Add(ctx context.Context, place string, vote bool) error {
	n := t.cluster.Node(place)
	release := t.hold(place)
	_ = t.kill(place)
	n.Wipe()
	t.set(place, true)
	err := t.start(place)
	release()
	m := n.Member()
	err = errors.Join(err, t.change(ctx, raftnode.AddNonvoter, m, func(c members.Configuration) bool { return c.Has(m.ID) }))
	if err != nil || !vote {
		return err
	}
	if err := t.caughtUp(ctx, place); err != nil {
		return err
	}
	return t.Vote(ctx, place, true)
}

// caughtUp waits until a node has applied what the leader had committed.
func (t target) caughtUp(ctx context.Context, place string) error {
	var least uint64
	for ctx.Err() == nil {
		if leader, known := t.Leader(ctx); known && least == 0 {
			if r := t.cluster.Node(leader).Replica(); r != nil {
				least = r.Status().Committed
			}
		}
		if r := t.cluster.Node(place).Replica(); r != nil && least > 0 && r.Status().Applied >= least {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s does not catch up: %w", place, ctx.Err())
}

// change has the leader of the moment make a change, until the change is made.
func (t target) change(ctx context.Context, kind raftnode.ChangeKind, m members.Member, made func(members.Configuration) bool) error {
	err := errors.New("no leader")
	for ctx.Err() == nil {
		if leader, known := t.Leader(ctx); known {
			if r := t.cluster.Node(leader).Replica(); r != nil {
				conf := r.Configuration()
				if made(r.CommittedConfiguration()) && made(conf) {
					return nil
				}
				try, cancel := context.WithTimeout(ctx, 3*time.Second)
				_, err = r.Change(try, replica.Change{Kind: kind, Member: m, After: conf.Index})
				cancel()
				if err == nil {
					return nil
				}
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%v of %s: %w (%w)", kind, m.ID, err, ctx.Err())
}

// named finds the member with the name of a place, as a leader knows that leads indeed: what another one has may be old.
func (t target) named(ctx context.Context, place string) (m members.Member, found bool) {
	for ctx.Err() == nil {
		if leader, known := t.Leader(ctx); known {
			n := t.cluster.Node(leader)
			if r := n.Replica(); r != nil {
				m, found = r.Configuration().Named(place)
				if term := r.Status().Term; !n.Do("GET", "jepsen-probe").IsError() && r.Status().Leading && r.Status().Term == term {
					return m, found
				}
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return members.Member{}, false
}

// Remove implements cluster.Membership.
func (t target) Remove(ctx context.Context, place string) error {
	m, found := t.named(ctx, place)
	if !found {
		return ctx.Err()
	}
	return t.change(ctx, raftnode.Remove, m, func(c members.Configuration) bool { return !c.Has(m.ID) })
}

// Vote implements cluster.Membership.
func (t target) Vote(ctx context.Context, place string, vote bool) error {
	m, found := t.named(ctx, place)
	if !found {
		return fmt.Errorf("%s is no member: %w", place, ctx.Err())
	}
	kind := raftnode.Demote
	if vote {
		kind = raftnode.AddVoter
	}
	return t.change(ctx, kind, m, func(c members.Configuration) bool { return c.Has(m.ID) && c.IsVoter(m.ID) == vote })
}

// Lead implements cluster.Membership.
func (t target) Lead(ctx context.Context, place string) error {
	m, found := t.named(ctx, place)
	if leader, known := t.Leader(ctx); known && found {
		if r := t.cluster.Node(leader).Replica(); r != nil {
			return r.TransferLeadership(ctx, m.ID)
		}
	}
	return errors.New("no leader, or no member")
}

// Move has the node tell all others, which take its word until the configuration has the address.
func (t target) Move(ctx context.Context, place string) error {
	n := t.cluster.Node(place)
	release := t.hold(place)
	_ = t.kill(place)
	n.PeerAddr = map[string]string{place + ":7379": place + ":7380", place + ":7380": place + ":7379"}[n.PeerAddr]
	err := t.start(place)
	release()
	told, over := context.WithCancel(ctx)
	defer over()
	go func() {
		for told.Err() == nil {
			for _, other := range t.Members() {
				if other != place {
					t.cluster.Node(other).Hint(n)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	m := n.Member()
	return errors.Join(err, t.change(ctx, raftnode.Move, m, func(c members.Configuration) bool {
		is, _ := c.Find(m.ID)
		return is.Addr == m.Addr
	}))
}

// Empty implements cluster.Membership.
func (t target) Empty(place string) error {
	defer t.hold(place)()
	err := t.kill(place)
	t.cluster.Node(place).Wipe()
	return err
}

// Out implements cluster.Membership.
func (t target) Out(place string) error {
	defer t.hold(place)()
	t.set(place, false)
	err := t.kill(place)
	t.cluster.Node(place).Wipe()
	return err
}

func TestMembersComeAndGoUnderFaults(t *testing.T) {
	first, count := seeds(t, 3)
	for seed := first; seed < first+count; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			o := runOptions{
				workload: "append,register,counter,lock,native,queue", nemesis: "member", nodes: 3, seed: seed, time: time.Minute, stubborn: seed%2 == 0,
			}
			if seed%2 == 0 {
				o.nemesis = "member," + trueRates
			}
			verdict, text := run(t, o)
			if testing.Verbose() || verdict != checker.Valid {
				t.Log(text)
			}
			require.Equal(t, checker.Valid, verdict, text)
		})
	}
}
