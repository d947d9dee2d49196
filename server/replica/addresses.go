package replica

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/members"
)

// Member is a member of the cluster as this node knows it.
type Member struct {
	ID, Name   string
	Voter      bool
	PeerAddr   string // host:port of the peer port
	ClientAddr string // host:port that clients use; empty while unknown
	// SentinelAddr is the host:port for clients of Sentinel. It is empty while unknown, or if the node has no such port.
	SentinelAddr string
	// Release is the release that the member runs, as this node or the leader knows it, or empty while unknown.
	Release string
	// NewestVersion is the newest version of the log that the member can use, by its last greeting, or 0 while unknown.
	// HoldVersion is the newest version that its operator allows, or 0 for any.
	NewestVersion, HoldVersion uint64
	// Silent is set if the member has not answered the leader for an election timeout, as the leader last reported, or if
	// the member cannot read the log.
	Silent bool
	// DiskFull is set if the member's disk is nearly full, as the member or the leader last reported.
	DiskFull bool
	// LogIndex is the index up to which the member's log agrees with the leader's, or 0 while unknown.
	LogIndex uint64
}

// Majority returns the number of voters, and how many of them are a majority.
func Majority(all []Member) (voters, quorum int) {
	for _, m := range all {
		if m.Voter {
			voters++
		}
	}
	return voters, members.Quorum(voters)
}

// Outdated reports whether the member cannot read the log of a cluster of that version.
func (m *Member) Outdated(version byte) bool {
	return m.NewestVersion > 0 && m.NewestVersion < uint64(version)
}

// addresses has the addresses of all nodes for clients, and their releases.
type addresses struct {
	mu      sync.Mutex
	members []Member // sorted by name
}

// follow adopts another configuration. self is this node.
func (a *addresses) follow(conf members.Configuration, self Member) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]Member, 0, len(conf.Members))
	for _, is := range conf.Members {
		m := Member{ID: is.ID}
		if i := slices.IndexFunc(a.members, func(m Member) bool { return m.ID == is.ID }); i >= 0 {
			m = a.members[i]
		}
		m.Name, m.PeerAddr, m.Voter = is.Name(), is.Addr, is.Voter
		if m.ID == self.ID {
			m.ClientAddr, m.SentinelAddr, m.Release = self.ClientAddr, self.SentinelAddr, self.Release
			m.NewestVersion, m.HoldVersion = self.NewestVersion, self.HoldVersion
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(x, y Member) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.ID, y.ID))
	})
	a.members = all
}

// update changes the record of a member, if there is one.
func (a *addresses) update(id string, change func(m *Member)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.IndexFunc(a.members, func(m Member) bool { return m.ID == id }); i >= 0 {
		change(&a.members[i])
	}
}

func (a *addresses) set(id string, addr forward.About) {
	if addr.ClientAddr == "" {
		return // an empty address is unknown to the other node, too
	}
	a.update(id, func(m *Member) {
		if m.ClientAddr != addr.ClientAddr || m.SentinelAddr != addr.SentinelAddr {
			m.ClientAddr, m.SentinelAddr = strings.Clone(addr.ClientAddr), strings.Clone(addr.SentinelAddr)
		}
	})
}

// maxRelease bounds the bytes of another node's release.
const maxRelease = 64

func (a *addresses) setRelease(id, release string) {
	release = release[:min(len(release), maxRelease)]
	a.update(id, func(m *Member) {
		if m.Release != release {
			m.Release = strings.Clone(release)
		}
	})
}

func (a *addresses) setVersions(id string, about forward.About) {
	a.update(id, func(m *Member) { m.NewestVersion, m.HoldVersion = about.NewestVersion, about.HoldVersion })
}

func (a *addresses) setProgress(id string, silent bool, index uint64) {
	a.update(id, func(m *Member) { m.Silent, m.LogIndex = silent, max(index, m.LogIndex) })
}

func (a *addresses) setDiskFull(id string, full bool) {
	a.update(id, func(m *Member) { m.DiskFull = full })
}

func (a *addresses) all() []Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.members)
}
