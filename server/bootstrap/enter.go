package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// EnterCluster returns once the node belongs to a cluster, its folder records that, and the folder's snapshot is whole.
// The caller may open raft then. An error is one line for the operator.
func (n *Node) EnterCluster(ctx context.Context) error {
	if err := n.ensureCluster(ctx); err != nil {
		return err
	}
	return n.repairSnapshot(ctx)
}

func (n *Node) ensureCluster(ctx context.Context) error {
	id := n.config.Folder.Identity()
	_, named := n.config.Initial[id.Name]
	switch {
	case id.ClusterID != "" && !id.Joins:
		return nil
	case id.Joins && len(n.initialContacts()) == 0:
		return fmt.Errorf("this node was about to join cluster %s: start it with --join again, or empty its folder",
			id.ClusterID)
	case id.Seed != "" && (!named || len(n.config.Contacts) > 0):
		return errors.New("this node's folder was restored, and joins no cluster: start it with the initial cluster and " +
			"without --join, or empty its folder to have it join")
	case n.canBootstrapAlone(id):
		self := members.Member{ID: id.ID, Addr: n.config.Initial[id.Name], Voter: true}
		return n.bootstrapCluster(n.config.NewestVersion, self)
	case id.Joins, !named, len(n.config.Initial) == 1:
		return n.join(ctx, n.initialContacts())
	default:
		return n.bootstrapTogether(ctx)
	}
}

// canBootstrapAlone reports whether the node founds a cluster of its own. A node that joins another never does.
func (n *Node) canBootstrapAlone(id store.Identity) bool {
	_, named := n.config.Initial[id.Name]
	return named && len(n.config.Initial) == 1 && len(n.config.Contacts) == 0 && !id.Joins
}

// initialContacts returns the addresses of the initial cluster's other nodes, and the contacts.
func (n *Node) initialContacts() (addrs []string) {
	name := n.config.Folder.Identity().Name
	for _, other := range slices.Sorted(maps.Keys(n.config.Initial)) {
		if other != name {
			addrs = append(addrs, n.config.Initial[other])
		}
	}
	for _, addr := range n.config.Contacts {
		if addr != n.config.Addr && addr != n.config.Initial[name] && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// Alone reports whether the node enters its cluster without another node: it belongs to one already, or founds one
// alone.
func (n *Node) Alone() bool {
	id := n.config.Folder.Identity()
	if n.config.Folder.Missing() != nil {
		return len(n.candidateAddrs()) == 0
	}
	return id.ClusterID != "" && !id.Joins || n.canBootstrapAlone(id)
}

// bootstrapCluster records in the folder that this node belongs to a new cluster of those founders, whose log begins
// with that version.
func (n *Node) bootstrapCluster(version byte, founders ...members.Member) error {
	cluster := newClusterID()
	founders = members.NewConfiguration(0, founders...).Members
	err := n.config.Folder.SetIdentity(func(id *store.Identity) {
		id.ClusterID, id.Founders, id.FoundingVersion = cluster, founders, version
	})
	if err == nil {
		n.config.Logger.Info("cluster founded", "cluster", cluster, "members", names(founders))
	}
	return err
}

func names(all []members.Member) string {
	var found []string
	for _, m := range all {
		found = append(found, m.Name())
	}
	return strings.Join(found, ", ")
}

// bootstrapTogether exchanges identities with the other nodes of the initial cluster until one of them has founded it.
func (n *Node) bootstrapTogether(ctx context.Context) error {
	own := n.config.Folder.Identity()
	p := &retry{node: n}
	for {
		met := n.exchangeIdentities(ctx, n.initialContacts())
		if haveMixedMembership(met) {
			met = n.exchangeIdentities(ctx, n.initialContacts())
		}
		entered, err := n.joinExisting(ctx, own, met)
		if entered || err != nil {
			return err
		}
		missing, why := n.notReady(own, met)
		if founders := n.founders(own, met); len(missing) == 0 {
			if founders[0].ID == own.ID {
				return n.bootstrapCluster(n.commonVersion(founders, met), founders...)
			}
			missing = []string{founders[0].Name() + " to found it" + waitingFor(founders[0].Name(), met)}
		}
		if !p.wait(ctx, met, "waiting for nodes of the initial cluster: "+strings.Join(missing, ", "), why) {
			return context.Cause(ctx)
		}
	}
}

// haveMixedMembership reports whether one node belongs to a cluster and another to none yet. The second may have
// answered first and have founded that cluster since.
func haveMixedMembership(met []exchange) bool {
	belongs, none := false, false
	for _, m := range met {
		belongs = belongs || m.err == nil && m.Cluster != ""
		none = none || m.err == nil && m.Cluster == ""
	}
	return belongs && none
}

// joinExisting enters the cluster that another node already belongs to: as one of its founders, or by joining. It
// returns an error if this node has no place there, and false if no node belongs to a cluster.
func (n *Node) joinExisting(ctx context.Context, own store.Identity, met []exchange) (entered bool, err error) {
	var there []exchange
	for _, m := range met {
		if m.err != nil || m.Cluster == "" {
			continue
		}
		there = append(there, m)
		if slices.ContainsFunc(m.Founders, func(f members.Member) bool { return f.ID == own.ID }) {
			return true, n.adoptCluster(m)
		}
	}
	if len(there) == 0 {
		return false, nil
	}
	first := there[0]
	if a, b, torn := twoClusters(there); torn {
		return false,
			fmt.Errorf("%s is a member of cluster %s, and %s of cluster %s: the nodes of an initial cluster belong to one "+
				"cluster, or to none yet",
				members.Name(a.ID), a.Cluster, members.Name(b.ID), b.Cluster)
	}
	switch restored := slices.IndexFunc(there, func(m exchange) bool { return m.Restored && len(m.Founders) <= 1 }); {
	case own.Seed != "":
		return false,
			fmt.Errorf("%s is a member of cluster %s already, and this node's folder was restored: empty it, and add the "+
				"node with --join", members.Name(first.ID), first.Cluster)
	case len(n.config.Contacts) > 0:
		return true, n.join(ctx, n.initialContacts())
	case restored >= 0:
		return true, n.join(ctx, []string{there[restored].addr})
	}
	return false,
		fmt.Errorf("%s is a member of cluster %s already, and this node's folder is empty: add it with --join; if it is "+
			"to take the place of a member that is lost, see 'holdfast cluster replace'; if the majority is lost, see "+
			"'holdfast recover'",
			members.Name(first.ID), first.Cluster)
}

// adoptCluster records in the folder that this node is one of the founders of the other node's cluster.
func (n *Node) adoptCluster(m exchange) error {
	if got, want := names(m.Founders), strings.Join(slices.Sorted(maps.Keys(n.config.Initial)), ", "); got != want {
		return fmt.Errorf("%s has founded a cluster of %s, and this node was given the initial cluster %s",
			members.Name(m.ID), got, want)
	}
	err := n.config.Folder.SetIdentity(func(id *store.Identity) {
		id.ClusterID, id.Founders, id.FoundingVersion = m.Cluster, m.Founders, m.FoundingVersion
	})
	if err == nil {
		n.config.Logger.Info("cluster founded", "cluster", m.Cluster, "members", names(m.Founders), "by", members.Name(m.ID))
	}
	return err
}

// notReady returns the names of the nodes that cannot found the cluster yet, and the reasons in one line.
func (n *Node) notReady(self store.Identity, met []exchange) (missing []string, why string) {
	var reasons []string
	own, there := initialText(n.config.Initial), 0
	restored := self.Seed != "" && slices.ContainsFunc(met, func(m exchange) bool { return m.err == nil && m.Seed != "" })
	for _, m := range met {
		name, ours := n.nameAt(m.addr)
		if ours {
			there++
		} else {
			name = m.addr + " of --join" // its cluster is to take this node in, if there is one
		}
		err := m.err
		switch {
		case err == nil && !ours:
		case err == nil && members.Name(m.ID) != name:
			err = fmt.Errorf("%s answers at %s", members.Name(m.ID), m.addr)
		case err == nil && m.Initial != own:
			err = fmt.Errorf("%s was given the initial cluster %q, this node %q", name, m.Initial, own)
		case err == nil && restored && m.Seed == "":
			err = fmt.Errorf("%s has an empty folder, and others were restored: restore one node, or all of them", name)
		case err == nil && restored && m.Seed != self.Seed:
			err = fmt.Errorf("%s was restored from another backup than this node, or with other flags: restore all nodes "+
				"from one file with the same flags, or one node alone", name)
		}
		if err != nil {
			missing, reasons = append(missing, name), append(reasons, name+": "+err.Error())
		}
	}
	if there < len(n.config.Initial)-1 {
		err := errors.New("an address of the initial cluster leads back to this node")
		missing, reasons = append(missing, "another address"), append(reasons, err.Error())
	}
	return missing, strings.Join(reasons, "; ")
}

// waitingFor returns what the node of that name waits for, in parentheses; "" if it did not report anything.
func waitingFor(name string, met []exchange) string {
	for _, m := range met {
		if members.Name(m.ID) == name && m.Waiting != "" {
			return " (" + m.Waiting[:min(len(m.Waiting), maxTextBytes)] + ")"
		}
	}
	return ""
}

// nameAt returns the name of the initial cluster's node at an address.
func (n *Node) nameAt(addr string) (name string, ok bool) {
	for name, at := range n.config.Initial { // unordered: addresses differ
		if at == addr {
			return name, true
		}
	}
	return "", false
}

// commonVersion returns the newest version of the log that all founders can use.
func (n *Node) commonVersion(founders []members.Member, met []exchange) byte {
	version := n.config.NewestVersion
	for _, m := range met {
		if slices.ContainsFunc(founders, func(f members.Member) bool { return f.ID == m.ID }) {
			version = min(version, m.NewestVersion)
		}
	}
	return version
}

// founders returns the first members, in the order of their names; the first of them founds the cluster. They are the
// restored nodes among this node and the others, if there are any, and else all. Requires: every node is ready.
func (n *Node) founders(own store.Identity, met []exchange) []members.Member {
	seeds := map[string]string{own.ID: own.Seed}
	all := []members.Member{{ID: own.ID, Addr: n.config.Initial[own.Name], Voter: true}}
	for _, m := range met {
		if _, ours := n.nameAt(m.addr); ours {
			seeds[m.ID] = m.Seed
			all = append(all, members.Member{ID: m.ID, Addr: m.addr, Voter: true})
		}
	}
	slices.SortFunc(all, func(a, b members.Member) int { return strings.Compare(a.Name(), b.Name()) })
	restored := slices.Clone(all)
	if restored = slices.DeleteFunc(restored, func(m members.Member) bool {
		return seeds[m.ID] == ""
	}); len(restored) > 0 {
		return restored
	}
	return all
}
