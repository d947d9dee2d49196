package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/members"
)

// ChangeKind is what a [Change] does.
type ChangeKind uint8

const (
	// AddNonvoter adds a member without a vote.
	AddNonvoter ChangeKind = iota
	// AddVoter gives a member a vote, or adds a member with a vote.
	AddVoter
	// Demote takes a member's vote.
	Demote
	// Remove removes a member.
	Remove
	// Move changes a member's address.
	Move
)

// Change is a change of a single member. Of Member, the ID is always used, and the address only to add or move one.
type Change struct {
	Kind   ChangeKind
	Member members.Member
	// After is the index of the configuration to change. The change is refused if another is in effect.
	After uint64
}

// Errors of [Node.Change] and [Node.TransferTo].
var (
	ErrNotLeader            = errors.New("this node does not lead")
	ErrConfigurationChanged = errors.New("the members have changed meanwhile")
	ErrNotMember            = errors.New("no such member")
	ErrMember               = errors.New("that node is a member already")
	ErrAddressInUse         = errors.New("another member has that address")
	ErrLastVoter            = errors.New("no voter would be left")
	ErrNotVoter             = errors.New("that member has no vote")
	// ErrOutcomeUnknown means that the leadership or ctx ended before the change was committed or lost.
	ErrOutcomeUnknown = errors.New("the change may or may not be made")
)

// applyTo returns the members of conf after the change.
func (ch Change) applyTo(conf members.Configuration) ([]members.Member, error) {
	all := slices.Clone(conf.Members)
	at := slices.IndexFunc(all, func(m members.Member) bool { return m.ID == ch.Member.ID })
	switch adds := ch.Kind == AddNonvoter || ch.Kind == AddVoter; {
	case ch.Kind == AddNonvoter && at >= 0:
		return nil, fmt.Errorf("%s: %w", ch.Member.ID, ErrMember)
	case !adds && at < 0:
		return nil, fmt.Errorf("%s: %w", ch.Member.ID, ErrNotMember)
	case adds && at < 0:
		all = append(all, members.Member{ID: ch.Member.ID, Addr: ch.Member.Addr, Voter: ch.Kind == AddVoter})
	case ch.Kind == Remove:
		all = slices.Delete(all, at, at+1)
	case ch.Kind == Move:
		all[at].Addr = ch.Member.Addr
	default:
		all[at].Voter = ch.Kind == AddVoter
	}
	next := members.NewConfiguration(0, all...)
	for i, m := range next.Members {
		if other := slices.IndexFunc(next.Members, func(o members.Member) bool { return o.Addr == m.Addr }); other != i {
			return nil, fmt.Errorf("%s: %w", m.Addr, ErrAddressInUse)
		}
		if m.ID == "" || m.Addr == "" {
			return nil, fmt.Errorf("a member without an ID or an address: %q at %q", m.ID, m.Addr)
		}
	}
	if next.Voters() == 0 {
		return nil, ErrLastVoter
	}
	return next.Members, nil
}

// Configuration returns the configuration in effect on this node: the newest in the log, committed or not.
func (n *Node) Configuration() members.Configuration { return n.configurations.view().Configuration }

// CommittedConfiguration returns the newest configuration that this node knows to be committed.
func (n *Node) CommittedConfiguration() members.Configuration {
	return n.configurations.newestCommitted(max(n.raft.CommitIndex(), n.raft.AppliedIndex()))
}

// retryChange is the time between two attempts to pass a change to raft, which reports a refusal to a future only.
const retryChange = time.Second

// pollChange is the interval at which Change checks the outcome of the change.
const pollChange = 2 * time.Millisecond

// Change changes a member while this node leads, and returns the index of the new configuration once it is committed.
// Changes are made one at a time. A change without effect appends no entry.
func (n *Node) Change(ctx context.Context, ch Change) (index uint64, err error) {
	term, leading := n.Leading()
	conf := n.Configuration()
	switch {
	case !leading:
		return 0, ErrNotLeader
	case ch.After != conf.Index:
		return 0, fmt.Errorf("%w: since %d, to %d", ErrConfigurationChanged, ch.After, conf.Index)
	}
	next, err := ch.applyTo(conf)
	if err != nil {
		return 0, err
	}
	want := members.Configuration{Index: conf.Index, Members: next}
	if !conf.Same(want) {
		if want.Index, err = n.append(ctx, term, ch, want); err != nil {
			return 0, err
		}
	}
	return want.Index, n.awaitChange(ctx, term, want)
}

// append has raft append the change and returns its index. Retries cannot apply it twice, since raft accepts one change
// after ch.After.
func (n *Node) append(ctx context.Context, term uint64, ch Change, want members.Configuration) (uint64, error) {
	if err := n.hold(ctx); err != nil {
		return 0, err
	}
	defer n.release()
	for {
		if !n.Leads(term) || ctx.Err() != nil {
			return 0, n.unknown(ctx)
		}
		n.give(ch)
		limit, stop := context.WithTimeout(ctx, retryChange)
		n.until(limit, pollChange, func() bool {
			_, ok := n.configurations.following(ch.After)
			return ok || !n.Leads(term)
		})
		stop()
		if got, ok := n.configurations.following(ch.After); ok {
			if !got.Same(want) {
				return 0, fmt.Errorf("%w: since %d, to %d", ErrConfigurationChanged, ch.After, got.Index)
			}
			return got.Index, nil
		}
	}
}

// give passes the change to raft and ignores the future, see [Node.Propose]. A void entry follows a new vote, since
// raft may have ignored the new voter's acknowledgement of the configuration and would not request another.
func (n *Node) give(ch Change) {
	id, addr := raft.ServerID(ch.Member.ID), raft.ServerAddress(ch.Member.Addr)
	is, known := n.Configuration().Find(ch.Member.ID)
	if known && ch.Kind != Move {
		addr = raft.ServerAddress(is.Addr)
	}
	switch {
	case ch.Kind == Remove:
		n.raft.RemoveServer(id, ch.After, retryChange)
	case ch.Kind == Demote:
		n.raft.DemoteVoter(id, ch.After, retryChange)
	case ch.Kind == AddVoter || ch.Kind == Move && is.Voter:
		n.raft.AddVoter(id, addr, ch.After, retryChange)
		n.proposeVoid()
	default:
		n.raft.AddNonvoter(id, addr, ch.After, retryChange)
	}
}

// awaitChange waits until the configuration is committed. Once the leadership has ended, another leader may commit it
// or remove it from the log.
func (n *Node) awaitChange(ctx context.Context, term uint64, want members.Configuration) error {
	n.until(ctx, pollChange, func() bool {
		return n.CommittedConfiguration().Index >= want.Index || !n.Leads(term) && n.Configuration().Index < want.Index
	})
	switch c := n.CommittedConfiguration(); {
	case c.Index == want.Index && c.Same(want):
		return nil
	case c.Index > want.Index && n.Leads(term):
		return nil // and a later change, too
	default:
		return n.unknown(ctx)
	}
}

func (n *Node) unknown(ctx context.Context) error {
	return errors.Join(ErrOutcomeUnknown, ctx.Err())
}

// until calls done at every interval until it returns true. It returns false if ctx or the node ends first.
func (n *Node) until(ctx context.Context, every time.Duration, done func() bool) bool {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-n.stopped:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (n *Node) hold(ctx context.Context) error {
	select {
	case n.changing <- struct{}{}:
		return nil
	case <-n.stopped:
		return ErrNotLeader
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Node) release() { <-n.changing }
