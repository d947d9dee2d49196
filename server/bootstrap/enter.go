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

// EnterCluster returns when the node belongs to a cluster, its folder says so, and misses nothing. Raft may be opened
// then. An error is one line for the operator.
func (n *Node) EnterCluster(ctx context.Context) error {
	if err := n.ensureCluster(ctx); err != nil {
		return err
	}
	return n.mend(ctx)
}

func (n *Node) ensureCluster(ctx context.Context) error {
	id := n.config.Folder.Identity()
	_, named := n.config.Initial[id.Name]
	switch {
	case id.ClusterID != "" && !id.Joins:
		return nil
	case id.Joins && len(n.others()) == 0:
		return fmt.Errorf("this node was about to join cluster %s: start it with --join again, or empty its folder",
			id.ClusterID)
	case id.Seed != "" && (!named || len(n.config.Contacts) > 0):
		return errors.New("this node's folder was restored, and joins no cluster: start it with the initial cluster and " +
			"without --join, or empty its folder to have it join")
	case n.foundsAlone(id):
		return n.found(n.config.NewestVersion, members.Member{ID: id.ID, Addr: n.config.Initial[id.Name], Voter: true})
	case id.Joins, !named, len(n.config.Initial) == 1:
		return n.join(ctx, n.others())
	default:
		return n.foundTogether(ctx)
	}
}

// foundsAlone reports whether the node founds a cluster of its own. A node that is to join others never does.
func (n *Node) foundsAlone(id store.Identity) bool {
	_, named := n.config.Initial[id.Name]
	return named && len(n.config.Initial) == 1 && len(n.config.Contacts) == 0 && !id.Joins
}

// others are the addresses of the initial cluster's other nodes, and the contacts.
func (n *Node) others() (addrs []string) {
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

// Alone reports whether the node needs no other node to enter its cluster: it belongs to a cluster already, or founds
// one alone.
func (n *Node) Alone() bool {
	id := n.config.Folder.Identity()
	if n.config.Folder.Missing() != nil {
		return len(n.known()) == 0
	}
	return id.ClusterID != "" && !id.Joins || n.foundsAlone(id)
}

// found notes that this node belongs to a new cluster of those members, whose log begins with a version.
func (n *Node) found(version byte, founders ...members.Member) error {
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

// foundTogether meets the other nodes of the initial cluster until one of them has founded it.
func (n *Node) foundTogether(ctx context.Context) error {
	own := n.config.Folder.Identity()
	p := &patience{node: n}
	for {
		met := n.meet(ctx, n.others())
		if differ(met) {
			met = n.meet(ctx, n.others())
		}
		entered, err := n.follow(ctx, own, met)
		if entered || err != nil {
			return err
		}
		missing, why := n.missing(own, met)
		if founders := n.founders(own, met); len(missing) == 0 {
			if founders[0].ID == own.ID {
				return n.found(n.common(founders, met), founders...)
			}
			missing = []string{founders[0].Name() + " to found it" + waitingFor(founders[0].Name(), met)}
		}
		if !p.wait(ctx, met, "waiting for nodes of the initial cluster: "+strings.Join(missing, ", "), why) {
			return context.Cause(ctx)
		}
	}
}

// differ reports whether one node belongs to a cluster, and another to none yet. The second may have answered
// first, and have founded that cluster since.
func differ(met []meeting) bool {
	belongs, none := false, false
	for _, m := range met {
		belongs = belongs || m.err == nil && m.Cluster != ""
		none = none || m.err == nil && m.Cluster == ""
	}
	return belongs && none
}

// follow checks whether a node that was met belongs to a cluster already. Then this node is one of the founders, too;
// or it joins; or it has no place there.
func (n *Node) follow(ctx context.Context, own store.Identity, met []meeting) (entered bool, err error) {
	var there []meeting
	for _, m := range met {
		if m.err != nil || m.Cluster == "" {
			continue
		}
		there = append(there, m)
		if slices.ContainsFunc(m.Founders, func(f members.Member) bool { return f.ID == own.ID }) {
			return true, n.adopt(m)
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
	switch restored := slices.IndexFunc(there, func(m meeting) bool { return m.Restored && len(m.Founders) <= 1 }); {
	case own.Seed != "":
		return false,
			fmt.Errorf("%s is a member of cluster %s already, and this node's folder was restored: empty it, and add the "+
				"node with --join", members.Name(first.ID), first.Cluster)
	case len(n.config.Contacts) > 0:
		return true, n.join(ctx, n.others())
	case restored >= 0:
		return true, n.join(ctx, []string{there[restored].addr})
	}
	return false,
		fmt.Errorf("%s is a member of cluster %s already, and this node's folder is empty: add it with --join; if it is "+
			"to take the place of a member that is lost, see 'holdfast cluster replace'; if the majority is lost, see "+
			"'holdfast recover'",
			members.Name(first.ID), first.Cluster)
}

// adopt notes that this node is one of the founders of the cluster of a node that was met.
func (n *Node) adopt(m meeting) error {
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

// missing names the nodes that are not ready to found, and why.
func (n *Node) missing(self store.Identity, met []meeting) (missing []string, why string) {
	var reasons []string
	own, there := initial(n.config.Initial), 0
	restored := self.Seed != "" && slices.ContainsFunc(met, func(m meeting) bool { return m.err == nil && m.Seed != "" })
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

// waitingFor is what a node that was met says that it waits for.
func waitingFor(name string, met []meeting) string {
	for _, m := range met {
		if members.Name(m.ID) == name && m.Waiting != "" {
			return " (" + m.Waiting[:min(len(m.Waiting), maxWord)] + ")"
		}
	}
	return ""
}

// nameAt is the name of the initial cluster's node at an address.
func (n *Node) nameAt(addr string) (name string, ok bool) {
	for name, at := range n.config.Initial { // unordered: addresses differ
		if at == addr {
			return name, true
		}
	}
	return "", false
}

// common is the newest version of the log that all founders can use.
func (n *Node) common(founders []members.Member, met []meeting) byte {
	version := n.config.NewestVersion
	for _, m := range met {
		if slices.ContainsFunc(founders, func(f members.Member) bool { return f.ID == m.ID }) {
			version = min(version, m.NewestVersion)
		}
	}
	return version
}

// founders are the first members, and the first of them is who founds: of this node and those that were met the ones
// that were restored, if any were, else all. Requires: none is missing.
func (n *Node) founders(own store.Identity, met []meeting) []members.Member {
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
