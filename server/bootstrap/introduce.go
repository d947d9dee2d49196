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

// opIntroduce is the request by which two nodes exchange their identities.
const opIntroduce = "introduce"

// Introduction is a node's description of itself.
type Introduction struct {
	ID   string `json:"id"`
	Addr string `json:"addr"` // where other nodes dial this one
	// Cluster is the ID of the node's cluster; "" before it belongs to one.
	Cluster string `json:"cluster,omitempty"`
	// Initial is the initial cluster in one line, until the node belongs to a cluster.
	Initial string `json:"initial,omitempty"`
	// Waiting describes what the node waits for, until it belongs to a cluster.
	Waiting string `json:"waiting,omitempty"`
	// Founders are the first members of Cluster.
	Founders []members.Member `json:"founders,omitempty"`
	// NewestVersion is the newest version of the log that the node can use. FoundingVersion is the version with which
	// Cluster's log began, 0 if unknown.
	NewestVersion   byte `json:"newestVersion,omitempty"`
	FoundingVersion byte `json:"foundingVersion,omitempty"`
	// Restored reports that the node's folder was restored from a backup, and that other nodes are to join it.
	Restored bool `json:"restored,omitempty"`
	// Seed is the digest of the state in a restored folder that has not founded a cluster yet.
	Seed string `json:"seed,omitempty"`
	// Configuration is the newest configuration that the node knows to be committed, and Newest the newest one in its log.
	// After a start a node may know none to be committed.
	Configuration members.Configuration `json:"configuration"`
	Newest        members.Configuration `json:"newest"`
	// LastTerm is the term of the log's last entry, 0 if unknown.
	LastTerm uint64 `json:"lastTerm,omitempty"`
}

const (
	maxTextBytes = 512 // bytes of an ID and of an address
	maxMembers   = 128
)

// check returns an error if no node of this project would send such an introduction. id is the ID that the peer has
// proved.
func (i *Introduction) check(id string) error {
	bad := i.ID != id || len(i.Cluster) > maxTextBytes || len(i.Seed) > maxTextBytes || len(i.Founders) > maxMembers ||
		len(i.Configuration.Members) > maxMembers || len(i.Newest.Members) > maxMembers
	for _, m := range slices.Concat(i.Founders, i.members(), []members.Member{{ID: i.ID, Addr: i.Addr}}) {
		bad = bad || m.ID == "" || len(m.ID) > maxTextBytes || m.Addr == "" || len(m.Addr) > maxTextBytes
	}
	if bad {
		return errors.New("its introduction makes no sense")
	}
	return nil
}

// members returns the members of both configurations, some of them twice.
func (i *Introduction) members() []members.Member {
	return slices.Concat(i.Configuration.Members, i.Newest.Members)
}

// CheckAddr returns an error if other nodes cannot dial addr.
func CheckAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	switch ip := net.ParseIP(host); {
	case err != nil || port == "" || len(addr) > maxTextBytes:
		return fmt.Errorf("address %q: use host:port", addr)
	case host == "" || ip != nil && ip.IsUnspecified():
		return fmt.Errorf("address %s: other nodes cannot dial it", addr)
	}
	return nil
}

// initialText returns an initial cluster in one line, which is the same on every node.
func initialText(peers map[string]string) string {
	var items []string
	for _, name := range slices.Sorted(maps.Keys(peers)) {
		items = append(items, name+"="+peers[name])
	}
	return strings.Join(items, ",")
}

// introduction returns this node's description of itself.
func (n *Node) introduction() Introduction {
	id, own := n.config.Folder.Identity(), n.newestInLog()
	i := Introduction{
		ID: id.ID, Addr: n.config.Addr, Cluster: id.ClusterID, Founders: id.Founders, Restored: id.Restored,
		Configuration: n.config.Committed(), Newest: own.conf, LastTerm: own.lastTerm, Seed: id.Seed,
		NewestVersion: n.config.NewestVersion, FoundingVersion: id.FoundingVersion,
	}
	if id.Joins {
		i.Cluster = "" // the cluster may refuse
	}
	if i.Cluster == "" {
		i.Initial, i.Waiting = initialText(n.config.Initial), n.Waiting()
	}
	return i
}

// serveIntroduction answers another node's introduction with this node's, and learns from it.
func (n *Node) serveIntroduction(_ context.Context, from memberrpc.Caller, other Introduction) (Introduction, error) {
	if err := other.check(from.ID); err != nil {
		return Introduction{}, err
	}
	own := n.introduction()
	n.learn(own.Cluster, other)
	return own, nil
}

// learn records the address of a node of this cluster, and the members that it knows. Both nodes are authenticated.
func (n *Node) learn(cluster string, other Introduction) {
	if cluster == "" || other.Cluster != cluster {
		return
	}
	if CheckAddr(other.Addr) == nil && n.config.Addresses.Addr(other.ID) != other.Addr {
		n.config.Addresses.Hint(other.ID, other.Addr)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conf := range []members.Configuration{other.Configuration, other.Newest} {
		n.learned = newerOf(n.learned, inLog{conf, other.LastTerm})
	}
}

// inLog is a configuration in the log of a member, and the term of that log's last entry, 0 if unknown.
type inLog struct {
	conf     members.Configuration
	lastTerm uint64
}

// newestInLog returns the newest configuration in this node's log. The term is read first: if both change meanwhile, the
// configuration is taken for an older one.
func (n *Node) newestInLog() inLog {
	term := n.config.LastTerm()
	return inLog{n.config.Newest(), term}
}

// newestConfiguration returns the newest configuration in this node's log and in the introductions of other members.
func (n *Node) newestConfiguration() members.Configuration {
	n.mu.Lock()
	heard := n.learned
	n.mu.Unlock()
	return newerOf(n.newestInLog(), heard).conf
}

// newerOf returns b if b is newer than a, and else a. As in elections the later last term counts first: the other log
// may have a change of members that was never committed. Logs with the same last term agree as far as both go.
func newerOf(a, b inLog) inLog {
	isNewer := b.conf.Index > a.conf.Index
	if a.lastTerm != b.lastTerm && a.lastTerm > 0 && b.lastTerm > 0 {
		isNewer = b.lastTerm > a.lastTerm
	}
	if isNewer {
		return b
	}
	return a
}

// introductionTimeout bounds the exchange of identities with one node.
const introductionTimeout = 3 * time.Second

// exchange is the outcome of an exchange of identities with the node at an address.
type exchange struct {
	Introduction
	addr string
	err  error
}

// exchangeIdentities introduces this node to the nodes at those addresses, concurrently, and to the members of their
// cluster that their answers name: the members may have changed while this node was down. An address that leads back to
// this node is left out.
func (n *Node) exchangeIdentities(ctx context.Context, addrs []string) []exchange {
	type answer struct {
		at int
		exchange
	}
	var met []exchange
	asked, answers := make(map[string]bool), make(chan answer)
	ask := func(addr string) {
		at := len(met)
		met, asked[addr] = append(met, exchange{}), true
		go func() { answers <- answer{at, n.exchangeIdentity(ctx, addr)} }()
	}
	for _, addr := range addrs {
		ask(addr)
	}
	self := n.config.Folder.Identity()
	for waiting := len(met); waiting > 0; waiting-- {
		a := <-answers
		met[a.at] = a.exchange
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
	return slices.DeleteFunc(met, func(m exchange) bool { return errors.Is(m.err, peer.ErrSelf) })
}

func (n *Node) exchangeIdentity(ctx context.Context, addr string) exchange {
	ctx, cancel := context.WithTimeout(ctx, introductionTimeout)
	defer cancel()
	own := n.introduction()
	other, id, err := memberrpc.CallAt[Introduction](ctx, n.config.Client, addr, opIntroduce, own)
	if err == nil {
		err = other.check(id)
	}
	if err == nil {
		n.learn(own.Cluster, other)
	}
	return exchange{other, addr, err}
}
