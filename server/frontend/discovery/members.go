package discovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/replica"
)

// The replies to RAFT.MEMBERS and RAFT.STATUS come from this node alone, so they need no leader.

func memberReplies() map[string]Reply {
	return map[string]Reply{
		"raft.members": func(d *Directory, _ [][]byte) protocol.Value { return d.census().members() },
		"raft.status":  func(d *Directory, _ [][]byte) protocol.Value { return d.ClusterStatus() },
	}
}

// ClusterStatus returns the reply to RAFT.STATUS.
func (d *Directory) ClusterStatus() protocol.Value { return d.census().reply() }

// Voters counts the members with a vote.
func Voters(all []replica.Member) int {
	n, _ := replica.Majority(all)
	return n
}

// majorityOf returns the number of voters that are a majority.
func majorityOf(all []replica.Member) int {
	_, n := replica.Majority(all)
	return n
}

// census is the cluster as this node knows it, at one instant.
type census struct {
	st      replica.Status
	leader  replica.Member // zero if none is known
	cluster string
	waiting string // what this node waits for, if it belongs to no cluster
	// troubles has what is wrong beside silent members. warnings has what members warn of in themselves.
	troubles, warnings []string
	// quarantined has the IDs of the members in quarantine.
	quarantined []string
}

func (d *Directory) census() *census {
	c := &census{st: d.status(), cluster: d.ClusterID()}
	if d.cfg.Waiting != nil {
		c.waiting = d.cfg.Waiting()
	}
	if d.cfg.Troubles != nil {
		c.troubles = d.cfg.Troubles()
	}
	if d.cfg.Warnings != nil {
		c.warnings = d.cfg.Warnings()
	}
	if d.cfg.Quarantined != nil {
		c.quarantined = d.cfg.Quarantined()
	}
	for i := range c.st.Members {
		if m := &c.st.Members[i]; m.Outdated(c.st.Version) {
			c.troubles = append(c.troubles, m.Name+" runs an older log format: upgrade it now")
		}
	}
	if c.st.FarApart {
		heartbeat, command := replica.TimeoutsFor(c.st.RoundTrip)
		c.troubles = append(c.troubles, fmt.Sprintf("a round trip to a majority takes %v, too long for the timeouts: "+
			"set heartbeat-timeout and election-timeout to %v, and command-timeout to %v, on all nodes",
			c.st.RoundTrip.Round(time.Millisecond), heartbeat, command))
	}
	c.leader = c.st.Leader
	for _, m := range c.st.Members {
		if m.ID == c.leader.ID {
			c.leader = m
		}
	}
	return c
}

func (c *census) leads(m replica.Member) bool { return c.leader.ID != "" && m.ID == c.leader.ID }

// Self returns this node as a member. It may be no member yet, or no longer.
func Self(st *replica.Status) replica.Member {
	for _, m := range st.Members {
		if m.ID == st.ID {
			return m
		}
	}
	return replica.Member{ID: st.ID, Name: st.Name}
}

// silent reports whether the member does not answer the leader, as far as this node knows. Without a leader all nodes
// but this one count as silent.
func (c *census) silent(m replica.Member) bool {
	switch {
	case m.ID == c.st.ID, c.leads(m):
		return false
	case c.leader.ID == "":
		return true
	}
	return m.Silent
}

// lag returns the number of entries of the leader's log that the member lacks, or -1 if it is unknown.
func (c *census) lag(m replica.Member) int64 {
	switch {
	case c.leads(m):
		return 0
	case c.leader.LogIndex == 0, m.LogIndex == 0:
		return -1
	}
	return max(0, int64(c.leader.LogIndex)-int64(m.LogIndex))
}

func (c *census) role(m replica.Member) string {
	switch {
	case c.leads(m):
		return "leader"
	case m.Voter:
		return "follower"
	}
	return "non-voter"
}

// cannotLead returns why a member could not lead now, or "".
func (c *census) cannotLead(m replica.Member) string {
	return members.CannotLead(m.Voter, !c.silent(m), slices.Contains(c.quarantined, m.ID))
}

// majority returns the numbers of voters, of voters that answer, of voters that must answer, and of members that could
// lead.
func (c *census) majority() (all, live, quorum, lead int) {
	for _, m := range c.st.Members {
		if m.Voter && !c.silent(m) {
			live++
		}
		if c.cannotLead(m) == "" {
			lead++
		}
	}
	all, quorum = replica.Majority(c.st.Members)
	return all, live, quorum, lead
}

func (c *census) reply() protocol.Value {
	voters, live, quorum, lead := c.majority()
	all := protocol.Fields(
		"node", protocol.Bulk(c.st.Name),
		"node-id", protocol.Bulk(c.st.ID),
		"cluster-id", protocol.Bulk(c.cluster),
		"role", protocol.Bulk(c.role(Self(&c.st))),
		"leader", protocol.Bulk(c.leader.Name),
		"term", number(c.st.Term),
		"commit-index", number(c.st.Committed),
		"applied-index", number(c.st.Applied),
		"last-index", number(c.st.LastLog),
		"cluster-version", protocol.Integer(int64(c.st.Version)),
		"held-back-by", protocol.Strings(HeldBackBy(&c.st)...),
		"voters", protocol.Integer(int64(voters)),
		"non-voters", protocol.Integer(int64(len(c.st.Members)-voters)),
		"live-voters", protocol.Integer(int64(live)),
		"quorum", protocol.Integer(int64(quorum)),
		"able-to-lead", protocol.Integer(int64(lead)),
		"margin", protocol.Integer(int64(c.margin())),
		"members", c.members(),
	)
	if c.waiting != "" {
		all.Elems = append(all.Elems, protocol.Bulk("waiting"), protocol.Bulk(c.waiting))
	}
	if len(c.troubles) > 0 {
		all.Elems = append(all.Elems, protocol.Bulk("troubles"), protocol.Strings(c.troubles...))
	}
	if len(c.warnings) > 0 {
		all.Elems = append(all.Elems, protocol.Bulk("warnings"), protocol.Strings(c.warnings...))
	}
	return all
}

// HeldBackBy returns the names of the members that keep the cluster at its version.
func HeldBackBy(st *replica.Status) (names []string) {
	for _, m := range st.HeldBackBy() {
		names = append(names, m.Name)
	}
	return names
}

// margin returns how many further voters may fail before the cluster stops. It is negative if the cluster has stopped.
func (c *census) margin() int {
	voters, live, _, lead := c.majority()
	margin := members.Margin(voters, live, lead)
	if c.leader.ID == "" {
		return min(-1, margin)
	}
	return max(0, margin)
}

func (c *census) members() protocol.Value {
	shown := make([]protocol.Value, len(c.st.Members))
	for i, m := range c.st.Members {
		shown[i] = protocol.Fields(
			"name", protocol.Bulk(m.Name),
			"id", protocol.Bulk(m.ID),
			"peer-address", protocol.Bulk(m.PeerAddr),
			"client-address", protocol.Bulk(m.ClientAddr),
			"voter", flag(m.Voter),
			"role", protocol.Bulk(c.role(m)),
			"silent", flag(c.silent(m)),
			"cannot-lead", protocol.Bulk(c.cannotLead(m)),
			"match-index", number(m.LogIndex),
			"lag", protocol.Integer(c.lag(m)),
			"version", protocol.Bulk(m.Release),
			"log-format", number(m.NewestVersion),
			"hold-version", number(m.HoldVersion),
		)
	}
	return protocol.Array(shown...)
}

func number(n uint64) protocol.Value { return protocol.Integer(int64(n)) }

func flag(yes bool) protocol.Value {
	if yes {
		return protocol.Integer(1)
	}
	return protocol.Integer(0)
}
