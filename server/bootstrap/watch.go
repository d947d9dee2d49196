package bootstrap

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

const (
	// checkInterval is the time between two checks of the node's membership.
	checkInterval = time.Second
	// leaderlessTimeout is how long the node may know no leader before each check exchanges identities: the node may have
	// been removed, the others may have moved, and a node that was down may not have learned it.
	leaderlessTimeout = 2 * time.Second
	// requestTimeout bounds a request to the cluster.
	requestTimeout = 10 * time.Second
)

// WatchMembership keeps the node's address and vote up to date in the cluster until ctx ends, and detects the node's
// removal. Requires: raft is open.
func (n *Node) WatchMembership(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	if err := n.confirmIncarnation(ctx); err != nil {
		return err
	}
	led := time.Now()
	for {
		select {
		case <-timer.C:
			timer.Reset(checkInterval)
		case <-n.wake:
		case <-ctx.Done():
			return nil
		}
		if n.config.Led() {
			led = time.Now()
		}
		if err := n.check(ctx, time.Since(led) >= leaderlessTimeout); err != nil {
			return err
		}
	}
}

// check makes the exchange of identities and the request to the cluster that are due.
func (n *Node) check(ctx context.Context, leaderless bool) error {
	id, conf := n.config.Folder.Identity(), n.config.Committed()
	self, member := conf.Find(id.ID)
	moved := member && self.Addr != n.config.Addr && CheckAddr(n.config.Addr) == nil
	if n.suspects.Swap(false) || leaderless || moved {
		n.introduce(ctx)
	}
	switch {
	case !member || !n.config.Led():
	case moved:
		n.request(ctx, "move to "+n.config.Addr, func(ctx context.Context) error { return n.config.Move(ctx, n.config.Addr) })
	case self.Voter && id.Votes:
		n.config.Logger.Info("this node votes", "cluster", id.ClusterID)
		return n.config.Folder.SetIdentity(func(id *store.Identity) { id.Votes = false })
	case id.Votes:
		n.request(ctx, "get a vote", n.config.Promote)
	}
	return nil
}

// request makes a request to the cluster. The next check repeats a failed one.
func (n *Node) request(ctx context.Context, what string, ask func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := ask(ctx); err != nil && ctx.Err() == nil {
		n.config.Logger.Debug("cannot "+what+" yet", "error", err)
	}
}

// introduce exchanges identities with all candidates: the others learn this node's address, and this node learns theirs
// and whether it is still a member.
func (n *Node) introduce(ctx context.Context) {
	n.checkRemoved(n.exchangeIdentities(ctx, n.candidateAddrs()))
}

// candidateAddrs returns the addresses of all nodes that may be members, other than this one.
func (n *Node) candidateAddrs() (known []string) {
	self := n.config.Folder.Identity()
	addrs := make(map[string]bool)
	committed, newest, learned := n.config.Committed(), n.config.Newest(), n.newestConfiguration()
	for _, m := range slices.Concat(committed.Members, newest.Members, learned.Members) {
		if m.ID != self.ID {
			addrs[m.Addr], addrs[n.config.Addresses.Addr(m.ID)] = true, true
		}
	}
	for name, addr := range n.config.Initial {
		addrs[addr] = name != self.Name
	}
	for _, addr := range n.config.Contacts {
		addrs[addr] = true
	}
	for addr, ask := range addrs { // unordered: they are asked at once
		if ask && addr != "" && addr != n.config.Addr {
			known = append(known, addr)
		}
	}
	return known
}

// checkRemoved reports whether another node's committed configuration shows that this node was removed, and if so tells
// the owner.
func (n *Node) checkRemoved(met []exchange) (removed bool) {
	self, own, newest := n.config.Folder.Identity(), n.config.Committed(), n.config.Newest()
	for _, m := range met {
		if m.err == nil && m.Cluster == self.ClusterID && isRemoved(self, m.Configuration, own, newest) {
			n.config.Logger.Warn("this node was removed from the cluster", "told_by", members.Name(m.ID), "configuration",
				m.Configuration.Index)
			n.config.Removed()
			return true
		}
	}
	return false
}

// isRemoved reports whether a node was a member before newer, which is committed, and is none in it. The former
// configurations need not be committed: a node whose raft is open has been a member in a committed one. A node that was
// removed before it got the entry that adds it is in none of them, but has recorded when it joined.
func isRemoved(self store.Identity, newer members.Configuration, former ...members.Configuration) bool {
	was := self.JoinedAt > 0 && newer.Index > self.JoinedAt
	for _, conf := range former {
		was = was || newer.Index > conf.Index && conf.Has(self.ID)
	}
	return was && !newer.Has(self.ID)
}
