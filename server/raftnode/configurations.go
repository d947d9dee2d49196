package raftnode

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// configurations tracks the configurations in this node's log. A configuration is in effect while it is the newest in
// the log, committed or not. Raft follows the same rule but does not reveal a configuration's index, so [parallelLog]
// reports what is appended and removed.
//
// The newest configuration is never changed by two goroutines at the same time.
type configurations struct {
	self string
	// latest is the newest configuration, which is in effect.
	latest atomic.Pointer[view]
	// changed is called after latest has changed, before raft continues. It is nil in tests.
	changed func(*view)
	// committed is called after a configuration is known to be committed.
	committed func(change committedChange)

	mu sync.Mutex
	// known has the configurations in the log, in order. The first is a snapshot's, or committed, or the log's first.
	known []members.Configuration
	// joined is set once a committed configuration had this node as a member.
	joined bool
	// moved is the channel that withheld returns. The method wake closes and replaces it.
	moved chan struct{}

	// replay and replayed are the next and the last entry that raft reads from the log while it is opened.
	replay, replayed uint64
}

// view is a configuration as this node sees it.
type view struct {
	members.Configuration
	voter       bool // whether this node has a vote
	others      int  // number of other voters that make a majority, with this node if it has a vote
	otherVoters int
}

// committedChange is a configuration that was committed, and the members that it removed.
type committedChange struct {
	index   uint64
	gone    []string
	removed bool // whether this node was removed
}

func newConfigurations(self string) *configurations {
	c := &configurations{self: self, moved: make(chan struct{})}
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

// open reads the newest snapshot's configuration, and prepares for raft's reading of the log behind it.
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

// read records an entry that raft reads while it is opened.
func (c *configurations) read(log *raft.Log) {
	if log.Index == c.replay && log.Index <= c.replayed { // never once raft runs
		c.replay++
		c.appended([]*raft.Log{log})
	}
}

// appended records entries that were appended to the log.
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

// truncated records that the entries from index on were removed, since another leader has others.
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

// before returns the configurations with a lower index.
func before(known []members.Configuration, index uint64) []members.Configuration {
	n := len(known)
	for n > 0 && known[n-1].Index >= index {
		n--
	}
	return slices.Clip(known[:n])
}

// installed records that a snapshot has replaced the state.
func (c *configurations) installed(meta *raft.SnapshotMeta) {
	conf := store.FromRaft(meta).Members
	c.mu.Lock()
	change := c.pass(conf)
	c.known = []members.Configuration{conf}
	c.mu.Unlock()
	c.set(conf)
	c.reportCommitted(change)
}

// reached records that the configuration at index is committed.
func (c *configurations) reached(index uint64) {
	c.mu.Lock()
	i := slices.IndexFunc(c.known, func(conf members.Configuration) bool { return conf.Index == index })
	if i < 0 {
		c.mu.Unlock()
		return // it precedes the snapshot that this node started with
	}
	change := c.pass(c.known[i])
	c.known = slices.Clone(c.known[i:])
	c.mu.Unlock()
	c.wake()
	c.reportCommitted(change)
}

// pass returns the change to a committed configuration. A node that applies an old log may find an earlier membership
// of its ID end there, so it counts as removed only if the newest configuration does not have it either. Requires c.mu.
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

// newestCommitted returns the newest configuration up to the commit index.
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

// following returns the first configuration in the log after index.
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

// withheld returns nil if a leader may send the entries to the node id, or a channel that is closed when the answer may
// have changed. A leader sends a configuration that is not known to be committed only to voters of the newest
// configuration. In the logs of other nodes it would remain after the loss of the leader, and hold up the voters: see
// server/raftnode/DESIGN.md.
func (c *configurations) withheld(id string, entries []*raft.Log) <-chan struct{} {
	if len(entries) == 0 || c.view().IsVoter(id) {
		return nil
	}
	first, last := entries[0].Index, entries[len(entries)-1].Index
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, conf := range c.known {
		if i > 0 && first <= conf.Index && conf.Index <= last {
			return c.moved
		}
	}
	return nil
}

// wake closes the channels that withheld has returned.
func (c *configurations) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.moved)
	c.moved = make(chan struct{})
}

func (c *configurations) set(conf members.Configuration) {
	v := c.see(conf)
	c.latest.Store(v)
	c.wake()
	if c.changed != nil {
		c.changed(v)
	}
}

func (c *configurations) reportCommitted(change committedChange) {
	if c.committed != nil {
		c.committed(change)
	}
}

// StoredConfigurations returns the newest committed configuration, which is that of the newest snapshot, and the newest
// one in snapshots and log, for a node whose raft cannot be opened. Both are the founders' if nothing else is stored.
// lastTerm is the term of the last entry.
func StoredConfigurations(log raft.LogStore, described []store.Snapshot, founders []members.Member) (committed,
	newest members.Configuration, lastTerm uint64, err error,
) {
	committed = members.NewConfiguration(0, founders...)
	for _, snapshot := range described {
		lastTerm = max(lastTerm, snapshot.Term)
		if snapshot.Members.Index >= committed.Index {
			committed = snapshot.Members
		}
	}
	newest = committed
	first, err := log.FirstIndex()
	if err != nil {
		return committed, newest, lastTerm, err
	}
	last, err := log.LastIndex()
	for i := first; err == nil && i <= last && last > 0; i++ {
		var entry raft.Log
		if err = log.GetLog(i, &entry); err == nil && entry.Type == raft.LogConfiguration && i >= newest.Index {
			newest = store.MembersFromRaft(raft.DecodeConfiguration(entry.Data), i)
		}
		lastTerm = max(lastTerm, entry.Term)
	}
	return committed, newest, lastTerm, err
}
