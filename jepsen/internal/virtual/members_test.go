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
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/reconfig"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/servertest"
	"github.com/holdfast/holdfast/server/store/storetest"
)

// spares is the number of places that are empty at first.
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

// Add acts like a node started with --join: the node is added without a vote, and is given one when it has caught up.
func (t target) Add(ctx context.Context, place string, vote bool) error {
	n := t.cluster.Node(place)
	release := t.hold(place)
	_ = t.kill(place)
	n.Wipe()
	t.set(place, true)
	err := t.start(place)
	release()
	m := n.Member()
	a := memberChange{
		reconfig.Request{Op: reconfig.Join, Member: m.ID, Addr: m.Addr, LogFormat: protocol.EntryVersion},
		raftnode.AddNonvoter, m,
	}
	err = errors.Join(err, t.change(ctx, a, func(c members.Configuration) bool { return c.Has(m.ID) }))
	if err != nil || !vote {
		return err
	}
	if t.raw {
		err = t.caughtUp(ctx, place)
	}
	if err != nil {
		return err
	}
	return t.Vote(ctx, place, true)
}

// caughtUp waits until a node has applied all entries that the leader had committed at the call.
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

// sight is the state of a verified leader; another node's may be outdated.
type sight struct {
	replica         *replica.Replica
	conf, committed members.Configuration
}

func (t target) look(ctx context.Context) (s sight, ok bool) {
	leader, known := t.Leader(ctx)
	if !known {
		return s, false
	}
	n := t.cluster.Node(leader)
	if s.replica = n.Replica(); s.replica == nil {
		return s, false
	}
	term := s.replica.Status().Term
	s.conf, s.committed = s.replica.Configuration(), s.replica.CommittedConfiguration()
	if n.Do("GET", "jepsen-probe").IsError() {
		return s, false
	}
	now := s.replica.Status()
	return s, now.Leading && now.Term == term
}

// memberChange is a change in two forms: a request, which package reconfig carries out stepwise, and a single raft
// change.
type memberChange struct {
	reconfig.Request
	kind   raftnode.ChangeKind
	member members.Member
}

// carryOut lets a leader execute as much of a request as possible.
func (t target) carryOut(ctx context.Context, r *replica.Replica, a memberChange) error {
	if t.raw && !a.Force {
		try, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		_, err := r.Change(try, replica.Change{Kind: a.kind, Member: a.member, After: r.Configuration().Index})
		return err
	}
	switch reply := t.executor(r).Do(ctx, a.Request); {
	case reply.Error != "":
		return errors.New(reply.Error)
	case reply.Uncertain, reply.NotLeader:
		return errors.New("the leader was lost")
	}
	return nil
}

// executor returns the executor of a node's present replica.
func (t target) executor(r *replica.Replica) *reconfig.Executor {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.executors[r] == nil {
		id := r.Status().ID
		raft := server.Raft{
			Identity: func() (string, string) { return id, "test" }, Replica: func() *replica.Replica { return r },
		}
		for _, n := range t.cluster.Nodes() {
			if n.Replica() == r {
				raft.Checker = n.Checker()
			}
		}
		t.executors[r] = reconfig.NewExecutor(raft, func(reconfig.AppliedStep) {})
	}
	return t.executors[r]
}

// change repeats a change on the present leader until the configuration satisfies made.
func (t target) change(ctx context.Context, a memberChange, made func(members.Configuration) bool) error {
	err := errors.New("no leader")
	for ctx.Err() == nil {
		if s, ok := t.look(ctx); ok {
			if made(s.committed) && made(s.conf) {
				return nil
			}
			err = t.carryOut(ctx, s.replica, a)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s of %s: %w (%w)", a.Op, a.Member, err, ctx.Err())
}

// named returns the member with a place's name.
func (t target) named(ctx context.Context, place string) (m members.Member, found bool) {
	for ctx.Err() == nil {
		if s, ok := t.look(ctx); ok {
			return s.conf.Named(place)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return members.Member{}, false
}

// Roll implements cluster.Membership.
func (t target) Roll(ctx context.Context) (map[string]bool, error) {
	s, ok := t.look(ctx)
	switch {
	case !ok:
		return nil, errors.New("no leader")
	case s.conf.Index != s.committed.Index:
		return nil, errors.New("a change is under way")
	}
	roll := map[string]bool{}
	for _, m := range s.conf.Members {
		roll[m.Name()] = m.Voter
	}
	return roll, nil
}

func removal(m members.Member) memberChange {
	return memberChange{reconfig.Request{Op: reconfig.Remove, Member: m.ID}, raftnode.Remove, m}
}

func suffrage(m members.Member, vote bool) memberChange {
	if vote {
		return memberChange{reconfig.Request{Op: reconfig.Promote, Member: m.ID}, raftnode.AddVoter, m}
	}
	return memberChange{reconfig.Request{Op: reconfig.Demote, Member: m.ID}, raftnode.Demote, m}
}

// Remove implements cluster.Membership.
func (t target) Remove(ctx context.Context, place string) error {
	m, found := t.named(ctx, place)
	if !found {
		return ctx.Err()
	}
	return t.change(ctx, removal(m), func(c members.Configuration) bool { return !c.Has(m.ID) })
}

// Vote implements cluster.Membership.
func (t target) Vote(ctx context.Context, place string, vote bool) error {
	m, found := t.named(ctx, place)
	if !found {
		return fmt.Errorf("%s is no member: %w", place, ctx.Err())
	}
	return t.change(ctx, suffrage(m, vote), func(c members.Configuration) bool {
		return c.Has(m.ID) && c.IsVoter(m.ID) == vote
	})
}

// Replace implements cluster.Membership.
func (t target) Replace(ctx context.Context, place, by string) error {
	old, _ := t.named(ctx, place)
	m, found := t.named(ctx, by)
	switch {
	case !found:
		return fmt.Errorf("%s is no member: %w", by, ctx.Err())
	case t.raw:
		return errors.Join(t.caughtUp(ctx, by), t.Vote(ctx, by, true), t.Remove(ctx, place))
	}
	a := memberChange{Request: reconfig.Request{Op: reconfig.Replace, Member: old.ID, By: m.ID}}
	return t.change(ctx, a, func(c members.Configuration) bool { return c.IsVoter(m.ID) && !c.Has(old.ID) })
}

// Force implements cluster.Membership.
func (t target) Force(ctx context.Context, place string, remove bool) error {
	s, ok := t.look(ctx)
	m, found := s.conf.Named(place)
	if !ok || !found {
		return errors.New("no leader, or no member")
	}
	a := suffrage(m, false)
	if remove {
		a = removal(m)
	}
	a.Force = true
	return t.carryOut(ctx, s.replica, a)
}

// Removed implements cluster.Membership.
func (t target) Removed(place string) bool {
	return t.cluster.Node(place).Removed() && !t.Running(place)
}

// Lead implements cluster.Membership.
func (t target) Lead(ctx context.Context, place string) error {
	m, found := t.named(ctx, place)
	if s, ok := t.look(ctx); ok && found {
		switch {
		case s.replica == t.cluster.Node(place).Replica():
			return nil
		case t.raw:
			return s.replica.TransferLeadership(ctx, m.ID)
		}
		return t.carryOut(ctx, s.replica, memberChange{Request: reconfig.Request{Op: reconfig.Transfer, Member: m.ID}})
	}
	return errors.New("no leader, or no member")
}

// Move lets the node tell its new address to all others, which use it until the configuration has it.
func (t target) Move(ctx context.Context, place string) error {
	n := t.cluster.Node(place)
	release := t.hold(place)
	_ = t.kill(place)
	n.PeerAddr = map[string]string{place + ":7379": place + ":7380", place + ":7380": place + ":7379"}[n.PeerAddr]
	err := t.start(place)
	release()
	hinting, over := context.WithCancel(ctx)
	defer over()
	go func() {
		for hinting.Err() == nil {
			for _, other := range t.Members() {
				if other != place {
					t.cluster.Node(other).Hint(n)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	m := n.Member()
	a := memberChange{reconfig.Request{Op: reconfig.Readdress, Member: m.ID, Addr: m.Addr}, raftnode.Move, m}
	return errors.Join(err, t.change(ctx, a, func(c members.Configuration) bool {
		is, _ := c.Find(m.ID)
		return is.Addr == m.Addr
	}))
}

// CopyOf implements cluster.Folders.
func (t target) CopyOf(place string) cluster.FolderCopy {
	return &diskCopy{node: t.cluster.Node(place)}
}

// diskCopy is a copy of a node's disk.
type diskCopy struct {
	node *servertest.Node
	disk *storetest.Disk
}

func (c *diskCopy) Make() error {
	c.disk = c.node.Disk.Copy()
	return nil
}

func (c *diskCopy) PutBack() error {
	c.node.Disk = c.disk
	return nil
}

func (c *diskCopy) Forget() error { return nil }

// Twin implements cluster.Membership. Nodes in memory have no folders to copy.
func (t target) Twin(string, string) error { return errors.ErrUnsupported }

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

// churned are the faults during changes of the members.
const churned = "member,partition,kill,restart,pause,snapshot,transfer"

func TestMembersComeAndGoUnderFaults(t *testing.T) {
	protocoltest.SkipShort(t, "long simulations")
	eachSeed(t, 2, func(t *testing.T, seed uint64) {
		o := runOptions{
			workload: "append,register,counter,lock,native,queue", nemesis: "member", nodes: 3, seed: seed, time: time.Minute,
			stubborn: seed%2 == 0,
		}
		if seed%2 == 0 {
			o.nemesis = "member," + trueRates
		}
		requireValid(t, o)
	})
}

// The promises of native locks hold while members come and go: each loss is reported and no other, fences grow,
// sessions end with their connections or leases, and nothing is left.
func TestNativeLocksWhileMembersComeAndGo(t *testing.T) {
	protocoltest.SkipShort(t, "long simulations")
	eachSeed(t, 2, func(t *testing.T, seed uint64) {
		o := runOptions{
			workload: nativeLocks, nemesis: "member", nodes: 3, seed: seed, time: 40 * time.Second,
			stubborn: seed%2 == 0,
		}
		if seed%2 == 0 {
			o.nemesis = churned
		}
		requireValid(t, o)
	})
}

func requireValid(t *testing.T, o runOptions) {
	t.Helper()
	verdict, text := judged(t, o)
	if testing.Verbose() || verdict != checker.Valid {
		t.Log(text)
	}
	require.Equal(t, checker.Valid, verdict, text)
}
