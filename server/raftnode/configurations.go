package raftnode

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// configurations knows who the members are, as the log of this node says. A configuration is in effect as soon
// as it is in the log, committed or not, and until it is taken out of the log again. Raft goes by the same rule, and
// does not tell the index of a configuration; so the log is watched on its way to the store ([parallelLog]).
//
// One of raft's goroutines at a time changes the newest configuration.
type configurations struct {
	self string
	// latest is the newest, which is in effect.
	latest atomic.Pointer[view]
	// changed is called after a change of the newest, before raft goes on; nil while the node is opened.
	changed func(*view)
	// committed is called after a configuration was found committed.
	committed func(change committedChange)

	mu sync.Mutex
	// known are the configurations in the log, in order. The first is a snapshot's, or committed, or the first of the log.
	known []members.Configuration
	// joined: this node was a member in a committed configuration.
	joined bool

	// Raft, while opened, reads the entries from replay to replayed, which were there before.
	replay, replayed uint64
}

// view is a configuration as this node sees it.
type view struct {
	members.Configuration
	voter       bool // this node has a vote
	others      int  // how many other voters make a majority, with this node if this node has a vote
	otherVoters int
}

// committedChange is a configuration that was found committed, and the members that are so no more.
type committedChange struct {
	index   uint64
	gone    []string
	removed bool // this node is gone
}

func newConfigurations(self string) *configurations {
	c := &configurations{self: self}
	c.latest.Store(c.see(members.Configuration{}))
	return c
}

func (c *configurations) see(conf members.Configuration) *view {
	v := &view{Configuration: conf, voter: conf.IsVoter(c.self)}
	v.otherVoters, v.others = v.Voters(), v.Quorum()
	if v.voter {
		v.otherVoters--
		v.others--
	}
	return v
}

// view returns the configuration in effect.
func (c *configurations) view() *view { return c.latest.Load() }

// open prepares for raft's look through the log, from the newest snapshot on.
func (c *configurations) open(log raft.LogStore, snapshots raft.SnapshotStore) error {
	stored, err := snapshots.List()
	if err != nil {
		return err
	}
	c.replay = 1
	if len(stored) > 0 {
		c.replay = stored[0].Index + 1
		c.known = []members.Configuration{store.FromRaft(stored[0]).Members}
		c.joined = c.known[0].Has(c.self)
		c.latest.Store(c.see(c.known[0]))
	}
	c.replayed, err = log.LastIndex()
	return err
}

// read is told of an entry that raft reads.
func (c *configurations) read(log *raft.Log) {
	if log.Index == c.replay && log.Index <= c.replayed { // never once raft runs
		c.replay++
		c.appended([]*raft.Log{log})
	}
}

// appended is told of entries that the log has now.
func (c *configurations) appended(logs []*raft.Log) {
	for _, log := range logs {
		if log.Type != raft.LogConfiguration {
			continue
		}
		conf := store.MembersFromRaft(raft.DecodeConfiguration(log.Data), log.Index)
		c.mu.Lock()
		c.known = append(before(c.known, log.Index), conf)
		c.mu.Unlock()
		c.set(conf)
	}
}

// truncated is told that the entries from index on were removed: another leader has other ones.
func (c *configurations) truncated(index uint64) {
	c.mu.Lock()
	n := len(c.known)
	if rest := before(c.known, index); len(rest) > 0 {
		c.known = rest
	}
	fewer := len(c.known) < n
	var newest members.Configuration
	if fewer {
		newest = c.known[len(c.known)-1]
	}
	c.mu.Unlock()
	if fewer {
		c.set(newest)
	}
}

// before are the configurations with a lower index.
func before(known []members.Configuration, index uint64) []members.Configuration {
	n := len(known)
	for n > 0 && known[n-1].Index >= index {
		n--
	}
	return slices.Clip(known[:n])
}

// installed is told of a snapshot that has replaced the state.
func (c *configurations) installed(meta *raft.SnapshotMeta) {
	conf := store.FromRaft(meta).Members
	c.mu.Lock()
	change := c.pass(conf)
	c.known = []members.Configuration{conf}
	c.mu.Unlock()
	c.set(conf)
	c.reportCommitted(change)
}

// reached is told that the entry of a configuration is committed.
func (c *configurations) reached(index uint64) {
	c.mu.Lock()
	i := slices.IndexFunc(c.known, func(conf members.Configuration) bool { return conf.Index == index })
	if i < 0 {
		c.mu.Unlock()
		return // of before the snapshot that this node began with
	}
	change := c.pass(c.known[i])
	c.known = slices.Clone(c.known[i:])
	c.mu.Unlock()
	c.reportCommitted(change)
}

// pass goes on to a committed configuration, and returns what changed. A node that applies an old log may see a
// former life of its ID end: this node counts as removed only if the newest configuration does not have the node
// either. Requires c.mu.
func (c *configurations) pass(to members.Configuration) committedChange {
	change := committedChange{index: to.Index}
	if len(c.known) > 0 {
		change.gone = c.known[0].Gone(to)
	}
	if to.Has(c.self) {
		c.joined = true
	}
	change.removed = c.joined && !to.Has(c.self) && (len(c.known) == 0 || to.Index >= c.known[len(c.known)-1].Index ||
		!c.known[len(c.known)-1].Has(c.self))
	return change
}

// newestCommitted returns the newest configuration at or before commit, the commit index.
func (c *configurations) newestCommitted(commit uint64) members.Configuration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.known) - 1; i >= 0; i-- {
		if c.known[i].Index <= commit || i == 0 {
			return c.known[i]
		}
	}
	return members.Configuration{}
}

// following returns the configuration that the log has behind the configuration with that index.
func (c *configurations) following(index uint64) (members.Configuration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conf := range c.known {
		if conf.Index > index {
			return conf, true
		}
	}
	return members.Configuration{}, false
}

func (c *configurations) set(conf members.Configuration) {
	v := c.see(conf)
	c.latest.Store(v)
	if c.changed != nil {
		c.changed(v)
	}
}

func (c *configurations) reportCommitted(change committedChange) {
	if c.committed != nil {
		c.committed(change)
	}
}

// StoredConfigurations are the newest configuration that the described snapshots have, which is committed, and the
// newest of these and of the log, for a node whose raft cannot be opened. Without any they are the founders.
func StoredConfigurations(log raft.LogStore, described []store.Snapshot, founders []members.Member) (committed,
	newest members.Configuration, err error,
) {
	committed = members.NewConfiguration(0, founders...)
	for _, snapshot := range described {
		if snapshot.Members.Index >= committed.Index {
			committed = snapshot.Members
		}
	}
	newest = committed
	first, err := log.FirstIndex()
	if err != nil {
		return committed, newest, err
	}
	last, err := log.LastIndex()
	for i := first; err == nil && i <= last && last > 0; i++ {
		var entry raft.Log
		if err = log.GetLog(i, &entry); err == nil && entry.Type == raft.LogConfiguration && i >= newest.Index {
			newest = store.MembersFromRaft(raft.DecodeConfiguration(entry.Data), i)
		}
	}
	return committed, newest, err
}
