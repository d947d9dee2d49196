package replica_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

const older, newer = protocol.OldestEntryVersion, protocol.EntryVersion

// releases are the newest versions of the log that nodes can use, by name; the newest where none is given.
type releases map[string]byte

// ofReleases runs a test of three nodes in virtual time, whose log begins with the oldest version.
func ofReleases(t *testing.T, can releases, test func(t *testing.T, c *replicatest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, replicatest.New(t, replicatest.Options{Configure: func(c *replica.Config) {
			c.NewestVersion, c.FoundingVersion = can[members.Name(c.ID)], 0
		}}))
	})
}

// requireVersion waits for more than a beacon, and has all nodes agree on the version of the cluster.
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

// TestVersionWaitsForAllMembers: the log goes over to a newer version when the last member can, whichever that is and
// whoever leads, and not back. Until then a member can be started with the earlier release again.
func TestVersionWaitsForAllMembers(t *testing.T) {
	can := releases{"n1": older, "n2": older, "n3": older}
	ofReleases(t, can, func(t *testing.T, c *replicatest.Cluster) {
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
		newest := map[string]uint64{}
		for _, m := range c.Node("n3").Replica().Status().Members {
			newest[m.Name] = m.NewestVersion
		}
		require.Equal(t, map[string]uint64{"n1": older, "n2": newer, "n3": newer}, newest)
		start("n1", newer)
		requireVersion(t, newer, c)
		start("n2", older)
		lead(t, c, c.Node("n2"))
		require.Equal(t, protocol.OK, c.Node("n3").Do("SET", "k", "v"))
		requireVersion(t, newer, c)
	})
}

// TestVersionWaitsForAbsentMembers: what a member could before it went does not count, as it may come back with another
// release; a member that is removed does not count at all.
func TestVersionWaitsForAbsentMembers(t *testing.T) {
	can := releases{"n3": older}
	ofReleases(t, can, func(t *testing.T, c *replicatest.Cluster) {
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

// TestVersionWaitsForNonvoters: they apply the log, too.
func TestVersionWaitsForNonvoters(t *testing.T) {
	can := releases{"n1": older, "n4": older}
	ofReleases(t, can, func(t *testing.T, c *replicatest.Cluster) {
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

// TestVersionOfAnEmptyLog: a cluster begins with the version that all founders can use, so that no command ever meets an
// earlier one.
func TestVersionOfAnEmptyLog(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		c.Node("n3").Crash() // so that the others do not learn what it can
		c.Leader()
		require.Equal(t, newer, int(c.Leader().Replica().Version()))
	})
}

// TestVersionIsInTheSnapshot: a node that gets a snapshot instead of the log knows the version.
func TestVersionIsInTheSnapshot(t *testing.T) {
	ofReleases(t, nil, func(t *testing.T, c *replicatest.Cluster) {
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
