package replica_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

const older, newer = protocol.OldestEntryVersion, protocol.EntryVersion

// needsTwo skips a test of a change of the log's version while this release knows only one.
func needsTwo(t *testing.T) {
	t.Helper()
	if older == newer {
		t.Skip("this release knows one version of the log")
	}
}

// holds has the holds of the nodes on the cluster's version, by name; 0 is none.
type holds map[string]byte

// ofHolds runs a test of three nodes in virtual time. Their log begins with the oldest version.
func ofHolds(t *testing.T, can holds, test func(t *testing.T, c *replicatest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, replicatest.New(t, replicatest.Options{Configure: func(c *replica.Config) {
			c.HoldVersion, c.FoundingVersion = can[members.Name(c.ID)], 0
		}}))
	})
}

// requireVersion waits until status messages have arrived, and requires that all nodes have the version want.
func requireVersion(t *testing.T, want byte, c *replicatest.Cluster) {
	t.Helper()
	c.Leader()
	time.Sleep(5 * time.Second)
	c.Settle()
	for _, n := range c.Nodes() {
		if r := n.Replica(); r != nil {
			require.Equal(t, want, r.Version(), n.Name)
		}
	}
}

// TestVersionWaitsForAllMembers: the log's version rises when the last member can use a newer one, whichever member
// that is and whoever leads. It never falls. Before that, a member can be restarted with the earlier release.
func TestVersionWaitsForAllMembers(t *testing.T) {
	needsTwo(t)
	can := holds{"n1": older, "n2": older, "n3": older}
	ofHolds(t, can, func(t *testing.T, c *replicatest.Cluster) {
		requireVersion(t, older, c)
		start := func(name string, version byte) {
			can[name] = version
			c.Node(name).Crash()
			c.Leader()
			c.Node(name).Start()
			c.Settle()
		}
		start("n1", newer)
		start("n2", newer)
		start("n1", older)
		start("n3", newer)
		lead(t, c, c.Node("n2"))
		requireVersion(t, older, c)
		lead(t, c, c.Node("n1"))
		requireVersion(t, older, c)
		for _, n := range c.Nodes() {
			st := n.Replica().Status()
			by := st.HeldBackBy()
			require.Len(t, by, 1, n.Name)
			require.Equal(t, "n1", by[0].Name)
			require.Equal(t, older, int(by[0].HoldVersion))
			require.Equal(t, newer, int(by[0].NewestVersion))
		}
		start("n1", newer)
		requireVersion(t, newer, c)
		raised := 0
		for _, n := range c.Nodes() {
			raised += len(events[replica.VersionRaised](n))
		}
		require.Equal(t, 1, raised)
		start("n2", older) // a hold below the present version has no effect
		lead(t, c, c.Node("n2"))
		require.Equal(t, protocol.OK, c.Node("n3").Do("SET", "k", "v"))
		requireVersion(t, newer, c)
	})
}

// TestVersionWaitsForAbsentMembers: an absent member keeps the version from rising, whatever it could use before, since
// it may return with another release. A removed member does not.
func TestVersionWaitsForAbsentMembers(t *testing.T) {
	needsTwo(t)
	can := holds{"n3": older}
	ofHolds(t, can, func(t *testing.T, c *replicatest.Cluster) {
		requireVersion(t, older, c)
		if c.Leader() == c.Node("n3") {
			lead(t, c, c.Node("n1"))
		}
		c.Node("n3").Crash()
		requireVersion(t, older, c)
		can["n3"] = newer
		require.NoError(t, c.Change(raftnode.Remove, c.Node("n3")))
		requireVersion(t, newer, c)
	})
}

// TestVersionWaitsForNonvoters: a nonvoter keeps the version from rising, since it applies the log, too.
func TestVersionWaitsForNonvoters(t *testing.T) {
	needsTwo(t)
	can := holds{"n1": older, "n4": older}
	ofHolds(t, can, func(t *testing.T, c *replicatest.Cluster) {
		n4 := c.Add("n4")
		require.NoError(t, c.Change(raftnode.AddNonvoter, n4))
		can["n1"] = newer
		c.Node("n1").Crash()
		c.Node("n1").Start()
		requireVersion(t, older, c)
		can["n4"] = newer
		n4.Crash()
		n4.Start()
		requireVersion(t, newer, c)
	})
}

// TestVersionOfAnEmptyLog: a cluster begins with the version that all founders can use. So no command runs with an
// earlier one.
func TestVersionOfAnEmptyLog(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		c.Node("n3").Crash() // so that the others do not learn what it can use
		c.Leader()
		require.Equal(t, newer, int(c.Leader().Replica().Version()))
	})
}

// TestVersionIsInTheSnapshot: a node that starts from a snapshot knows the version.
func TestVersionIsInTheSnapshot(t *testing.T) {
	ofHolds(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		requireVersion(t, newer, c)
		for _, n := range c.Nodes() {
			require.Equal(t, protocol.OK, c.Leader().Do("SET", n.Name, "v"))
			require.NoError(t, n.Replica().TakeSnapshot())
			n.Crash()
			n.Start()
			c.Settle()
		}
		requireVersion(t, newer, c)
	})
}

// TestOutdatedMembersDoNotAnswer: a member whose release cannot read the log is reported as silent by every other node
// until it is upgraded, even if raft hears from it.
func TestOutdatedMembersDoNotAnswer(t *testing.T) {
	needsTwo(t)
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		n := c.Followers()[0]
		for _, version := range []uint64{older, newer, older} {
			leader.Replica().OnGreeting(forward.Member{ID: n.ID, About: forward.About{
				ClientAddr:    "x:1",
				NewestVersion: version,
			}})
			leader.Replica().OnGreeting(forward.Member{ID: n.ID, About: forward.About{ClientAddr: "x:1"}}) // without versions
			time.Sleep(2 * time.Second)
			for _, other := range c.Nodes() {
				st := other.Replica().Status()
				require.Empty(t, st.HeldBackBy())
				for _, m := range st.Members {
					outdated := m.ID == n.ID && version == older && other != n // a node knows its own versions
					require.Equal(t, outdated, m.Outdated(newer), "%s of %s", other.Name, m.Name)
					require.Equal(t, outdated, m.Silent, "%s of %s", other.Name, m.Name)
				}
			}
		}
		leader.Replica().OnGreeting(forward.Member{ID: n.ID, About: forward.About{ClientAddr: "x:1", NewestVersion: newer}})
		require.Len(t, leader.Replica().Status().Followers, 2)
		c.Net.Isolate(n.Name)
		time.Sleep(2 * time.Second)
		st := leader.Replica().Status()
		require.Len(t, st.Followers, 1)
		for _, m := range st.Members {
			require.Equal(t, m.ID == n.ID, m.Silent, "%s, one that really does not answer", m.Name)
		}
	})
}

// TestSnapshotOfALaterVersionEndsTheStart: a node was downgraded after the version had risen, and its log begins with a
// snapshot. Its start fails with an error that says what to do.
func TestSnapshotOfALaterVersionEndsTheStart(t *testing.T) {
	ofNodes(t, 1, func(t *testing.T, c *replicatest.Cluster) {
		n := c.Leader()
		n.Crash()
		later := raft.NewInmemSnapshotStore()
		_, transport := raft.NewInmemTransport("")
		conf := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(n.ID), Address: raft.ServerAddress(n.PeerAddr)}}}
		sink, err := later.Create(1, 1, 1, conf, 1, transport)
		require.NoError(t, err)
		_, err = sink.Write(append([]byte("HOLDFAST\x01"), newer+1))
		require.NoError(t, err)
		require.NoError(t, sink.Close())
		require.ErrorContains(t, n.Open(func(c *replica.Config) { c.Stores.Snapshots = later }),
			protocol.NewerError("snapshot is of a cluster of", newer+1).Error())
	})
}
