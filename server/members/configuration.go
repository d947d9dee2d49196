// Package members has the words for the members of a cluster: who they are, and where a node dials them.
//
// It promises:
//   - an ID is minted once, with a node's folder: an emptied folder is another member, whatever its name;
//   - an ID tells the name, and there is no other table of names;
//   - a [Configuration] is a value: nothing changes it after it was made;
//   - [Addresses] has an address for every member, and holds a bounded number of others.
//
// The package does no I/O, and knows neither raft nor connections. A [Configuration] comes from raft's log (package
// raftnode); package peer looks into [Addresses] at each dial.
//
// # Lock order
//
// The lock of [Addresses] is a leaf.
package members

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"
)

// Max is how many members a cluster can have: every change of members writes all of them to the log, and nodes keep
// descriptors for each other.
const Max = 32

// Member is a node of the cluster, as the configuration has it.
type Member struct {
	ID   string `json:"id"`   // raft's server ID
	Addr string `json:"addr"` // where other nodes dial the member
	// Voter: the member counts for majorities and may lead. Any other member only follows.
	Voter bool `json:"voter"`
}

// Name is the member's name.
func (m Member) Name() string { return Name(m.ID) }

// Configuration is who the members are.
type Configuration struct {
	Index   uint64   // of the log entry that made the configuration
	Members []Member // sorted by ID
}

// NewConfiguration returns the configuration of those members.
func NewConfiguration(index uint64, members ...Member) Configuration {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return Configuration{Index: index, Members: sorted}
}

// Find returns the member of that ID.
func (c Configuration) Find(id string) (Member, bool) {
	for _, m := range c.Members { // few
		if m.ID == id {
			return m, true
		}
	}
	return Member{}, false
}

// Named returns the member of that name.
func (c Configuration) Named(name string) (Member, bool) {
	for _, m := range c.Members {
		if m.Name() == name {
			return m, true
		}
	}
	return Member{}, false
}

// At returns the member with that address.
func (c Configuration) At(addr string) (Member, bool) {
	for _, m := range c.Members {
		if m.Addr == addr {
			return m, true
		}
	}
	return Member{}, false
}

// Has reports whether id is a member.
func (c Configuration) Has(id string) bool {
	_, ok := c.Find(id)
	return ok
}

// IsVoter reports whether id is a member with a vote.
func (c Configuration) IsVoter(id string) bool {
	m, ok := c.Find(id)
	return ok && m.Voter
}

// Voters returns how many members have a vote.
func (c Configuration) Voters() int {
	n := 0
	for _, m := range c.Members {
		if m.Voter {
			n++
		}
	}
	return n
}

// Quorum returns how many voters make a majority.
func (c Configuration) Quorum() int { return Quorum(c.Voters()) }

// Quorum returns how many of so many voters make a majority.
func Quorum(voters int) int { return voters/2 + 1 }

// CannotLead says why a member could not lead now; "": it could.
func CannotLead(voter, answers, quarantined bool) (why string) {
	switch {
	case !voter:
		return "it has no vote"
	case !answers:
		return "it does not answer"
	case quarantined:
		return "it is in quarantine"
	}
	return ""
}

// Margin is how many of so many voters may fail before the cluster stops: of those that answer a majority has to, and
// one has to be able to lead. Negative: it has stopped.
func Margin(voters, answer, canLead int) int { return min(answer-Quorum(voters), canLead-1) }

// Gone returns the IDs of the members that next does not have.
func (c Configuration) Gone(next Configuration) (ids []string) {
	for _, m := range c.Members {
		if !next.Has(m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// Same reports whether both have the same members, with the same addresses and votes.
func (c Configuration) Same(other Configuration) bool { return slices.Equal(c.Members, other.Members) }

// idMark stands between the name and the random part of an ID. No name contains the mark.
const idMark = "@"

// NewID mints the ID of a node: the name, '@' and twelve random hexadecimal digits.
func NewID(name string) string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	return name + idMark + hex.EncodeToString(random[:])
}

// ValidName reports whether a node can have the name: 1 to 64 letters, digits, '-', '_' or '.'.
func ValidName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r) {
			return false
		}
	}
	return true
}

// Name returns the name in an ID. An ID without a mark is the name.
func Name(id string) string {
	name, _, _ := strings.Cut(id, idMark)
	return name
}
