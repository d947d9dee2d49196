package bootstrap

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

const (
	// checkEvery is the time between two checks of the node's membership.
	checkEvery = time.Second
	// leaderlessAfter is how long the node may know no leader before it meets the others at each check, as it does once when
	// it has lost the leader: it may have been removed, they may have moved, and one that was away may not know it.
	leaderlessAfter = 2 * time.Second
	// requestWithin is how long a request to the cluster may take.
	requestWithin = 10 * time.Second
)

// WatchMembership keeps the node's address and vote up to date in the cluster until ctx ends, and learns of the node's
// removal. Raft is open.
func (n *Node) WatchMembership(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	if err := n.prove(ctx); err != nil {
		return err
	}
	led := time.Now()
	for {
		select {
		case <-timer.C:
			timer.Reset(checkEvery)
		case <-n.wake:
		case <-ctx.Done():
			return nil
		}
		if n.config.Led() {
			led = time.Now()
		}
		if err := n.check(ctx, time.Since(led) >= leaderlessAfter); err != nil {
			return err
		}
	}
}

// check does what is due.
func (n *Node) check(ctx context.Context, leaderless bool) error {
	id, conf := n.config.Folder.Identity(), n.config.Committed()
	self, member := conf.Find(id.ID)
	moved := member && self.Addr != n.config.Addr && CheckAddr(n.config.Addr) == nil
	if n.suspects.Swap(false) || leaderless || moved {
		n.greet(ctx)
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

// request asks the cluster for something. What fails is tried again at the next check.
func (n *Node) request(ctx context.Context, what string, ask func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	if err := ask(ctx); err != nil && ctx.Err() == nil {
		n.config.Logger.Debug("cannot "+what+" yet", "error", err)
	}
}

// greet introduces the node to all that may be members: the others learn where this node is, and this node where they
// are and whether it is a member still.
func (n *Node) greet(ctx context.Context) { n.checkRemoved(n.meet(ctx, n.known())) }

// known are the addresses of all that may be members.
func (n *Node) known() (known []string) {
	self := n.config.Folder.Identity()
	addrs := make(map[string]bool)
	for _, m := range slices.Concat(n.config.Committed().Members, n.config.Newest().Members, n.newest().Members) {
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

// checkRemoved reports whether a node that was met knows that this one was removed.
func (n *Node) checkRemoved(met []meeting) (removed bool) {
	self, own, newest := n.config.Folder.Identity(), n.config.Committed(), n.config.Newest()
	for _, m := range met {
		if m.err == nil && m.Cluster == self.ClusterID && gone(self, m.Configuration, own, newest) {
			n.config.Logger.Warn("this node was removed from the cluster", "told_by", members.Name(m.ID), "configuration",
				m.Configuration.Index)
			n.config.Removed()
			return true
		}
	}
	return false
}

// gone reports whether a node that was a member is none in a newer configuration, which is committed. The former ones
// need not be: a node whose raft is open has been a member in a committed configuration. A node that is removed before
// it gets the entry that adds it is in none of them, and knows when it joined.
func gone(self store.Identity, newer members.Configuration, former ...members.Configuration) bool {
	was := self.JoinedAt > 0 && newer.Index > self.JoinedAt
	for _, conf := range former {
		was = was || newer.Index > conf.Index && conf.Has(self.ID)
	}
	return was && !newer.Has(self.ID)
}
