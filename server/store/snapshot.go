package store

import (
	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/members"
)

// Snapshot describes a committed state. Only this package and raftnode use raft's own type instead.
type Snapshot struct {
	Index   uint64                `json:"index"` // index of the last entry in the state
	Term    uint64                `json:"term"`  // term of that entry
	Bytes   int64                 `json:"bytes"`
	Members members.Configuration `json:"members"` // in effect at Index
}

// Plausible reports whether s can describe a committed state.
func (s Snapshot) Plausible() bool {
	return s.Term > 0 && s.Bytes >= 0 && s.Members.Index <= s.Index && len(s.Members.Members) > 0
}

// FromRaft translates raft's description of a snapshot.
func FromRaft(meta *raft.SnapshotMeta) Snapshot {
	return Snapshot{
		Index: meta.Index, Term: meta.Term, Bytes: meta.Size,
		Members: MembersFromRaft(meta.Configuration, meta.ConfigurationIndex),
	}
}

// MembersFromRaft translates raft's configuration at index.
func MembersFromRaft(conf raft.Configuration, index uint64) members.Configuration {
	all := make([]members.Member, 0, len(conf.Servers))
	for _, s := range conf.Servers {
		all = append(all, members.Member{ID: string(s.ID), Addr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return members.NewConfiguration(index, all...)
}

// MembersToRaft translates members into raft's servers, in the same order.
func MembersToRaft(all []members.Member) (conf raft.Configuration) {
	for _, m := range all {
		suffrage := raft.Nonvoter
		if m.Voter {
			suffrage = raft.Voter
		}
		conf.Servers = append(conf.Servers, raft.Server{
			Suffrage: suffrage, ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Addr),
		})
	}
	return conf
}
