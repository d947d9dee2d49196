package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
)

// opIntroduce is the request by which two nodes say who they are.
const opIntroduce = "introduce"

// Introduction is what a node says of itself.
type Introduction struct {
	ID   string `json:"id"`
	Addr string `json:"addr"` // where other nodes dial this one
	// Cluster is the cluster that the node belongs to; empty: none yet.
	Cluster string `json:"cluster,omitempty"`
	// Initial is the initial cluster, while the node waits to found it.
	Initial string `json:"initial,omitempty"`
	// Waiting is what the node waits for, while it belongs to no cluster.
	Waiting string `json:"waiting,omitempty"`
	// Founders are the first members of Cluster.
	Founders []members.Member `json:"founders,omitempty"`
	// NewestVersion is the newest version of the log that the node can use, and FoundingVersion the one with which Cluster
	// began; 0: not known.
	NewestVersion   byte `json:"newestVersion,omitempty"`
	FoundingVersion byte `json:"foundingVersion,omitempty"`
	// Restored: the node's folder was restored, and other nodes join it.
	Restored bool `json:"restored,omitempty"`
	// Seed is of the state in a restored folder that has to found a cluster yet.
	Seed string `json:"seed,omitempty"`
	// Configuration is the newest committed configuration that the node knows, and Newest the newest in its log: a node
	// that was started again may know of none that it is committed.
	Configuration members.Configuration `json:"configuration"`
	Newest        members.Configuration `json:"newest"`
}

const (
	maxWord    = 512 // bytes of an ID and of an address
	maxMembers = 128
)

// check finds what a node would not say. id is the ID that it has proved.
func (i *Introduction) check(id string) error {
	bad := i.ID != id || len(i.Cluster) > maxWord || len(i.Seed) > maxWord || len(i.Founders) > maxMembers ||
		len(i.Configuration.Members) > maxMembers || len(i.Newest.Members) > maxMembers
	for _, m := range slices.Concat(i.Founders, i.members(), []members.Member{{ID: i.ID, Addr: i.Addr}}) {
		bad = bad || m.ID == "" || len(m.ID) > maxWord || m.Addr == "" || len(m.Addr) > maxWord
	}
	if bad {
		return errors.New("its introduction makes no sense")
	}
	return nil
}

// members are all that the node says of, some of them twice.
func (i *Introduction) members() []members.Member {
	return slices.Concat(i.Configuration.Members, i.Newest.Members)
}

// CheckAddr reports why other nodes cannot dial addr.
func CheckAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	switch ip := net.ParseIP(host); {
	case err != nil || port == "" || len(addr) > maxWord:
		return fmt.Errorf("address %q: use host:port", addr)
	case host == "" || ip != nil && ip.IsUnspecified():
		return fmt.Errorf("address %s: other nodes cannot dial it", addr)
	}
	return nil
}

// initial is an initial cluster in one line, the same on every node.
func initial(peers map[string]string) string {
	var items []string
	for _, name := range slices.Sorted(maps.Keys(peers)) {
		items = append(items, name+"="+peers[name])
	}
	return strings.Join(items, ",")
}

// introduction is what this node says of itself.
func (n *Node) introduction() Introduction {
	id := n.config.Folder.Identity()
	i := Introduction{
		ID: id.ID, Addr: n.config.Addr, Cluster: id.ClusterID, Founders: id.Founders, Restored: id.Restored,
		Configuration: n.config.Committed(), Newest: n.config.Newest(), Seed: id.Seed,
		NewestVersion: n.config.NewestVersion, FoundingVersion: id.FoundingVersion,
	}
	if id.Joins {
		i.Cluster = "" // the cluster may refuse
	}
	if i.Cluster == "" {
		i.Initial, i.Waiting = initial(n.config.Initial), n.Waiting()
	}
	return i
}

// introduced answers another node, and notes what it says.
func (n *Node) introduced(_ context.Context, from memberrpc.Caller, other Introduction) (Introduction, error) {
	if err := other.check(from.ID); err != nil {
		return Introduction{}, err
	}
	own := n.introduction()
	n.hear(own.Cluster, other)
	return own, nil
}

// hear notes where a node of this cluster is, and which members it knows. Both nodes have proved themselves.
func (n *Node) hear(cluster string, other Introduction) {
	if cluster == "" || other.Cluster != cluster {
		return
	}
	if CheckAddr(other.Addr) == nil && n.config.Addresses.Addr(other.ID) != other.Addr {
		n.config.Addresses.Hint(other.ID, other.Addr)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = newer(n.heard, other.Configuration, other.Newest)
}

// newest is the newest configuration in this node's log, or in the logs of the members that it met.
func (n *Node) newest() members.Configuration {
	n.mu.Lock()
	heard := n.heard
	n.mu.Unlock()
	return newer(n.config.Newest(), heard)
}

// newer is the newest of configurations, the first of several.
func newer(first members.Configuration, others ...members.Configuration) members.Configuration {
	for _, c := range others {
		if c.Index > first.Index {
			first = c
		}
	}
	return first
}

// askWithin is how long another node may take to introduce itself.
const askWithin = 3 * time.Second

// meeting is what became of an attempt to meet the node at an address.
type meeting struct {
	Introduction
	addr string
	err  error
}

// meet introduces this node to the nodes at those addresses, at once, and to the members of their cluster that only
// they know: the members may have changed since this node was there. This node itself is left out.
func (n *Node) meet(ctx context.Context, addrs []string) []meeting {
	type answer struct {
		at int
		meeting
	}
	var met []meeting
	asked, answers := make(map[string]bool), make(chan answer)
	ask := func(addr string) {
		at := len(met)
		met, asked[addr] = append(met, meeting{}), true
		go func() { answers <- answer{at, n.meetAt(ctx, addr)} }()
	}
	for _, addr := range addrs {
		ask(addr)
	}
	self := n.config.Folder.Identity()
	for waiting := len(met); waiting > 0; waiting-- {
		a := <-answers
		met[a.at] = a.meeting
		if a.err != nil || a.Cluster == "" || self.ClusterID != "" && a.Cluster != self.ClusterID {
			continue
		}
		for _, m := range a.members() {
			if m.ID != self.ID && m.Addr != n.config.Addr && !asked[m.Addr] {
				ask(m.Addr)
				waiting++
			}
		}
	}
	return slices.DeleteFunc(met, func(m meeting) bool { return errors.Is(m.err, peer.ErrSelf) })
}

func (n *Node) meetAt(ctx context.Context, addr string) meeting {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	own := n.introduction()
	other, id, err := memberrpc.CallAt[Introduction](ctx, n.config.Client, addr, opIntroduce, own)
	if err == nil {
		err = other.check(id)
	}
	if err == nil {
		n.hear(own.Cluster, other)
	}
	return meeting{other, addr, err}
}
