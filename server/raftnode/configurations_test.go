package raftnode

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// configurationAt returns the log entry of a configuration of voters.
func configurationAt(index uint64, ids ...string) *raft.Log {
	var all []members.Member
	for _, id := range ids {
		all = append(all, members.Member{ID: id, Addr: id + ":1", Voter: true})
	}
	data := raft.EncodeConfiguration(store.MembersToRaft(all))
	return &raft.Log{Index: index, Type: raft.LogConfiguration, Data: data}
}

// withNonvoter returns the log entry of a configuration of voters and one member without a vote.
func withNonvoter(index uint64, nonvoter string, voters ...string) *raft.Log {
	conf := raft.DecodeConfiguration(configurationAt(index, voters...).Data)
	conf.Servers = append(conf.Servers, raft.Server{
		ID: raft.ServerID(nonvoter), Address: raft.ServerAddress(nonvoter + ":1"), Suffrage: raft.Nonvoter,
	})
	return &raft.Log{Index: index, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(conf)}
}

// watched returns the configurations of n1. removed is set when a removal of n1 is reported.
func watched() (c *configurations, removed *bool) {
	c, removed = newConfigurations("n1"), new(bool)
	c.committed = func(change committedChange) { *removed = *removed || change.removed }
	return c, removed
}

func (c *configurations) ids() (ids []string) {
	for _, m := range c.view().Members {
		ids = append(ids, m.ID)
	}
	return ids
}

// TestConfigurationInEffect: a configuration is in effect from its append to the log until it is truncated.
func TestConfigurationInEffect(t *testing.T) {
	c, _ := watched()
	c.appended([]*raft.Log{
		configurationAt(1, "n1"),
		{Index: 2},
		configurationAt(3, "n1", "n2"),
		{Index: 4},
		configurationAt(5, "n1", "n2", "n3"),
	})
	require.Equal(t, []string{"n1", "n2", "n3"}, c.ids())
	require.Equal(t, uint64(3), c.newestCommitted(4).Index)
	require.Equal(t, uint64(1), c.newestCommitted(0).Index, "the first configuration is committed")
	require.Equal(t, uint64(5), c.newestCommitted(9).Index)
	c.truncated(6)
	require.Equal(t, uint64(5), c.view().Index)
	c.truncated(4)
	require.Equal(t, []string{"n1", "n2"}, c.ids())
	c.reached(3)
	c.truncated(1)
	require.Equal(t, []string{"n1", "n2"}, c.ids(), "committed: a snapshot took the place of the log")
	next, ok := c.following(1)
	require.True(t, ok)
	require.Equal(t, uint64(3), next.Index)
	_, ok = c.following(3)
	require.False(t, ok)
}

// TestConfigurationsAreReadOnce: raft reads the log once while it is opened, from the snapshot on. Later reads change
// no configuration.
func TestConfigurationsAreReadOnce(t *testing.T) {
	log, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	require.NoError(t, log.StoreLogs([]*raft.Log{configurationAt(1, "n1"), {Index: 2}, configurationAt(3, "n1", "n2")}))
	c, _ := watched()
	require.NoError(t, c.open(log, snapshots))
	read := func(index uint64) {
		var entry raft.Log
		require.NoError(t, log.GetLog(index, &entry))
		c.read(&entry)
	}
	read(3) // raft reads the last entry first
	require.Empty(t, c.ids())
	for i := range uint64(3) {
		read(i + 1)
	}
	require.Equal(t, uint64(3), c.view().Index)
	for index, ids := range map[uint64][]string{4: {"n1", "n2", "n3"}, 5: {"n1", "n3"}} {
		require.NoError(t, log.StoreLog(configurationAt(index, ids...)))
	}
	c.appended([]*raft.Log{configurationAt(4, "n1", "n2", "n3"), configurationAt(5, "n1", "n3")})
	for _, index := range []uint64{3, 4} { // as for a follower
		read(index)
		require.Equal(t, uint64(5), c.view().Index)
	}
}

// TestConfigurationsBehindASnapshot: configurations behind a snapshot are read. Those that the log still has from
// before the snapshot are not.
func TestConfigurationsBehindASnapshot(t *testing.T) {
	log, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	require.NoError(t, log.StoreLogs([]*raft.Log{
		configurationAt(1, "n1"), configurationAt(2, "n1", "n2"), configurationAt(3, "n2"),
	}))
	addSnapshot(t, snapshots, 2, 2, "n1", "n2")
	c, removed := watched()
	require.NoError(t, c.open(log, snapshots))
	require.Equal(t, uint64(2), c.view().Index)
	for _, index := range []uint64{1, 2, 3} {
		var entry raft.Log
		require.NoError(t, log.GetLog(index, &entry))
		c.read(&entry)
		require.Equal(t, max(2, index), c.view().Index)
	}
	c.reached(3)
	require.True(t, *removed, "it was a member when it was stopped")
}

// TestWithheldConfigurations: a configuration that is not known to be committed is withheld from all but the voters of
// the newest one.
func TestWithheldConfigurations(t *testing.T) {
	c, _ := watched()
	c.appended([]*raft.Log{configurationAt(1, "n1", "n2"), {Index: 2}, withNonvoter(3, "n2", "n1", "n3"), {Index: 4}})
	withheld := func(id string, first, last uint64) bool {
		return c.withheld(id, []*raft.Log{{Index: first}, {Index: last}}) != nil
	}
	require.Nil(t, c.withheld("n2", nil))
	require.True(t, withheld("n2", 3, 4))
	require.True(t, withheld("n2", 1, 3))
	require.True(t, withheld("n9", 1, 4), "n9 was removed")
	require.False(t, withheld("n2", 1, 2))
	require.False(t, withheld("n2", 4, 4), "the member has the configuration")
	require.False(t, withheld("n3", 1, 4))
	changed := func(since <-chan struct{}) bool {
		select {
		case <-since:
			return true
		default:
			return false
		}
	}
	before := c.withheld("n2", []*raft.Log{{Index: 3}})
	require.False(t, changed(before))
	c.reached(3)
	require.True(t, changed(before))
	require.False(t, withheld("n2", 1, 4))
	c.appended([]*raft.Log{configurationAt(5, "n1")})
	before = c.withheld("n2", []*raft.Log{{Index: 5}})
	c.appended([]*raft.Log{configurationAt(6, "n1", "n2")})
	require.True(t, changed(before))
	require.False(t, withheld("n2", 5, 6), "its vote may be needed for both")
}

// TestNothingIsWithheldForEver: a request that waits for a withheld configuration ends with the leadership.
func TestNothingIsWithheldForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ended := openSingle(t), make(chan error, 1)
		n.append.answer = takesAll
		n.start()
		args := &raft.AppendEntriesRequest{Term: n.Term(), Entries: []*raft.Log{configurationAt(90, "n1")}}
		n.configurations.appended(args.Entries)
		go func() { ended <- n.transport.AppendEntries("n2", "", args, &raft.AppendEntriesResponse{}) }()
		synctest.Wait()
		require.Empty(t, ended)
		newer := &raft.AppendEntriesRequest{RPCHeader: nomination().RPCHeader, Term: args.Term + 1}
		n.filter.requests <- raft.RPC{Command: newer, RespChan: make(chan raft.RPCResponse, 1)}
		synctest.Wait()
		require.Len(t, ended, 1)
		require.ErrorIs(t, <-ended, raft.ErrLeadershipLost)
	})
}

// TestWhatIsKnownOfConfigurations: the oldest configuration that is kept is the newest committed one. When the next one
// is committed, members that only the former one has are reported as gone.
func TestWhatIsKnownOfConfigurations(t *testing.T) {
	c := newConfigurations("n1")
	var changes []committedChange
	c.committed = func(change committedChange) { changes = append(changes, change) }
	c.truncated(1)
	require.Empty(t, c.ids(), "an empty log has no members")
	c.appended([]*raft.Log{
		configurationAt(1, "n1", "n2", "n3", "n4"), configurationAt(4, "n1", "n2", "n3"), configurationAt(7, "n1", "n2"),
	})
	for _, index := range []uint64{1, 4, 5, 7} {
		c.reached(index)
	}
	require.Len(t, c.known, 1)
	c.installed(&raft.SnapshotMeta{
		Index: 20, ConfigurationIndex: 9, Configuration: raft.DecodeConfiguration(configurationAt(9, "n1").Data),
	})
	require.Equal(t, []committedChange{
		{index: 1},
		{index: 4, gone: []string{"n4"}},
		{index: 7, gone: []string{"n3"}},
		{index: 9, gone: []string{"n2"}},
	}, changes)
	require.Equal(t, uint64(9), c.newestCommitted(20).Index)
	require.Len(t, c.known, 1)
}

func TestWhoIsRemoved(t *testing.T) {
	snapshot := func(index uint64, ids ...string) *raft.SnapshotMeta {
		return &raft.SnapshotMeta{
			Index: 100, Configuration: raft.DecodeConfiguration(configurationAt(index, ids...).Data),
			ConfigurationIndex: index,
		}
	}
	for name, test := range map[string]struct {
		happens func(c *configurations)
		removed bool
	}{
		"a member that leaves": {func(c *configurations) {
			c.appended([]*raft.Log{configurationAt(1, "n1", "n2"), configurationAt(5, "n2")})
			c.reached(1)
			c.reached(5)
		}, true},
		"a member that leaves before others do": {func(c *configurations) {
			c.appended([]*raft.Log{
				configurationAt(1, "n1", "n2", "n3"), configurationAt(5, "n2", "n3"), configurationAt(9, "n2"),
			})
			c.reached(1)
			c.reached(5)
		}, true},
		"a removal that is not committed": {func(c *configurations) {
			c.appended([]*raft.Log{configurationAt(1, "n1", "n2"), configurationAt(5, "n2")})
			c.reached(1)
		}, false},
		"a joiner that reads what was before": {func(c *configurations) {
			c.appended([]*raft.Log{configurationAt(1, "n2"), configurationAt(5, "n2", "n3"), configurationAt(9, "n1", "n2",
				"n3")})
			c.reached(1)
			c.reached(5)
			c.reached(9)
		}, false},
		"a joiner that installs what was before": {func(c *configurations) {
			c.installed(snapshot(5, "n2", "n3"))
		}, false},
		"an addition that is taken back": {func(c *configurations) {
			c.appended([]*raft.Log{configurationAt(1, "n2"), configurationAt(5, "n1", "n2")})
			c.truncated(5)
			c.appended([]*raft.Log{configurationAt(5, "n2", "n3")})
			c.reached(1)
			c.reached(5)
		}, false},
		"a former incarnation of the ID": {func(c *configurations) {
			c.appended([]*raft.Log{configurationAt(1, "n1", "n2"), configurationAt(5, "n2"), configurationAt(9, "n1", "n2")})
			c.reached(1)
			c.reached(5)
			c.reached(9)
		}, false},
		"a snapshot without a member": {func(c *configurations) {
			c.appended([]*raft.Log{configurationAt(1, "n1", "n2")})
			c.reached(1)
			c.installed(snapshot(5, "n2"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, removed := watched()
			test.happens(c)
			require.Equal(t, test.removed, *removed)
		})
	}
}

func TestMajorityOfOthers(t *testing.T) {
	for _, test := range []struct {
		view             *view
		others, allOther int
	}{
		{viewOf("n1"), 0, 0},
		{viewOf("n1", "-n2", "-n3"), 0, 0},
		{viewOf("n1", "n2"), 1, 1},
		{viewOf("n1", "n2", "n3"), 1, 2},
		{viewOf("n1", "n2", "n3", "n4", "n5", "-n6"), 2, 4},
		{newConfigurations("n1").see(members.NewConfiguration(1, members.Member{ID: "n1"},
			members.Member{ID: "n2", Voter: true})), 1, 1},
		{newConfigurations("n9").see(viewOf("n1", "n2", "n3").Configuration), 2, 3},
	} {
		require.Equal(t, test.others, test.view.others, "%v", test.view)
		require.Equal(t, test.allOther, test.view.otherVoters, "%v", test.view)
	}
}

// TestChanges: the members after each kind of change, and the changes that are refused.
func TestChanges(t *testing.T) {
	conf := members.NewConfiguration(7,
		members.Member{ID: "n1", Addr: "a1", Voter: true}, members.Member{ID: "n2", Addr: "a2", Voter: true},
		members.Member{ID: "n3", Addr: "a3"})
	for _, row := range []struct {
		kind     ChangeKind
		id, addr string
		want     string
		err      error
	}{
		{AddNonvoter, "n4", "a4", "n1@a1+ n2@a2+ n3@a3 n4@a4", nil},
		{AddNonvoter, "n3", "a4", "", ErrMember},
		{AddNonvoter, "n4", "a1", "", ErrAddressInUse},
		{AddVoter, "n4", "a4", "n1@a1+ n2@a2+ n3@a3 n4@a4+", nil},
		{AddVoter, "n3", "", "n1@a1+ n2@a2+ n3@a3+", nil},
		{AddVoter, "n1", "", "n1@a1+ n2@a2+ n3@a3", nil},
		{Demote, "n2", "", "n1@a1+ n2@a2 n3@a3", nil},
		{Demote, "n9", "", "", ErrNotMember},
		{Remove, "n2", "", "n1@a1+ n3@a3", nil},
		{Remove, "n9", "", "", ErrNotMember},
		{Move, "n3", "a9", "n1@a1+ n2@a2+ n3@a9", nil},
		{Move, "n3", "a2", "", ErrAddressInUse},
		{Move, "n9", "a9", "", ErrNotMember},
	} {
		next, err := Change{Kind: row.kind, Member: members.Member{ID: row.id, Addr: row.addr}}.applyTo(conf)
		require.ErrorIs(t, err, row.err, "%+v", row)
		var got []string
		for _, m := range next {
			got = append(got, m.ID+"@"+m.Addr+map[bool]string{true: "+"}[m.Voter])
		}
		require.Equal(t, row.want, strings.Join(got, " "), "%+v", row)
		require.Equal(t, "a2", conf.Members[1].Addr, "the configuration before stays")
	}
	for _, m := range []members.Member{{ID: "n4"}, {Addr: "a4"}} {
		_, err := Change{Kind: AddVoter, Member: m}.applyTo(conf)
		require.ErrorContains(t, err, "without an ID or an address")
	}
	alone := members.NewConfiguration(7, members.Member{ID: "n1", Addr: "a1", Voter: true},
		members.Member{ID: "n3", Addr: "a3"})
	for _, kind := range []ChangeKind{Demote, Remove} {
		_, err := Change{Kind: kind, Member: members.Member{ID: "n1"}}.applyTo(alone)
		require.ErrorIs(t, err, ErrLastVoter)
	}
}
