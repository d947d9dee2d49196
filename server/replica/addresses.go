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
	// SentinelAddr is the same for clients that speak to a Sentinel; empty also if the node is none.
	SentinelAddr string
	// Release is what the member runs, as it told this node or the leader; empty while unknown.
	Release string
	// NewestVersion is the newest version of the log that the member can use, by its last greeting; 0: not known.
	// HoldVersion is the newest that its operator wants yet; 0: any.
	NewestVersion, HoldVersion uint64
	// Silent: the leader has not heard from the member for an election timeout, by the leader's last
	// word to this node, or the member cannot read the log.
	Silent bool
	// LogIndex: the member's log is known to agree with the leader's up to here; 0: not known.
	LogIndex uint64
}

// Majority returns how many of the members vote, and how many of those make a majority.
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

// addresses knows where clients reach each node, and what the node runs.
type addresses struct {
	mu      sync.Mutex
	members []Member // sorted by name
}

// follow goes over to another configuration. self is this node.
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

// update changes what is known of a member. It does nothing if there is no such member.
func (a *addresses) update(id string, change func(m *Member)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.IndexFunc(a.members, func(m Member) bool { return m.ID == id }); i >= 0 {
		change(&a.members[i])
	}
}

func (a *addresses) set(id string, addr forward.About) {
	if addr.ClientAddr == "" {
		return // an empty address is one that the other node does not know either
	}
	a.update(id, func(m *Member) {
		if m.ClientAddr != addr.ClientAddr || m.SentinelAddr != addr.SentinelAddr {
			m.ClientAddr, m.SentinelAddr = strings.Clone(addr.ClientAddr), strings.Clone(addr.SentinelAddr)
		}
	})
}

// maxRelease bounds what another node may call its release, in bytes.
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

func (a *addresses) all() []Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.members)
}
