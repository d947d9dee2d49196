package replica_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// TestLoneVoterIsElectedAtOnce: a single voter is elected without waiting for a timeout, even with the timeouts of a
// cluster.
func TestLoneVoterIsElectedAtOnce(t *testing.T) {
	ofNodes(t, 1, func(t *testing.T, c *replicatest.Cluster) {
		n := c.Leader()
		require.NoError(t, c.Change(raftnode.AddNonvoter, c.Add("n2")))
		require.Equal(t, protocol.OK, n.Do("SET", "k", "v"))
		n.Crash()
		n.Start()
		began := time.Now()
		require.Equal(t, n, c.Leader())
		require.Less(t, time.Since(began), 20*time.Millisecond)
	})
}

// TestMembersAreInSnapshots: a node that is added after the leader has truncated its log gets the configuration in a
// snapshot. A node that restarts has it from its own.
func TestMembersAreInSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{Configure: shortLog})
		var names []string
		for _, name := range []string{"n4", "n5"} {
			for range 60 {
				require.Equal(t, protocol.Null, c.Leader().Do("GET", "k"))
				require.NotEqual(t, protocol.KindError, c.Leader().Do("INCR", "n").Kind)
				time.Sleep(20 * time.Millisecond)
			}
			join(t, c, name)
		}
		for range 60 {
			require.NotEqual(t, protocol.KindError, c.Leader().Do("INCR", "n").Kind)
			time.Sleep(20 * time.Millisecond)
		}
		c.Settle()
		names = voters(c.Leader())
		require.Len(t, names, 5)
		for _, n := range c.Nodes() {
			n.Crash()
		}
		for _, n := range c.Nodes() {
			n.Start()
			require.False(t, n.Removed())
			require.Equal(t, names, voters(n), "%s knows the members from its own log", n.Name)
		}
		require.Equal(t, protocol.Bulk("180"), c.Leader().Do("GET", "n"))
	})
}

// TestJoiningIsNotRemoval: a node that is not a member yet gets a log whose configurations lack it. It does not
// conclude that it was removed.
func TestJoiningIsNotRemoval(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		for range 3 {
			other := c.Add("x")
			require.NoError(t, c.Change(raftnode.AddNonvoter, other))
			require.NoError(t, c.Change(raftnode.Remove, other))
			other.Crash()
			require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "v"))
		}
		for _, name := range []string{"n4", "n5", "n6", "n7", "n8"} { // some learn it from raft itself
			n := c.Add(name)
			require.NoError(t, c.Change(raftnode.AddNonvoter, n))
			n.Crash()
			n.Start()
			c.Settle(n, c.Leader())
			require.False(t, n.Removed())
			require.NoError(t, c.Change(raftnode.Remove, n))
			time.Sleep(time.Second)
			require.True(t, n.Removed(), name)
			require.False(t, n.Replica().CommittedConfiguration().Has(n.ID), "%s has the configuration that removed it", name)
		}
	})
}

// TestLateSnapshotKeepsTheMembers: a node has a configuration in its log, and gets a snapshot that ends before it. The
// node keeps the later configuration.
func TestLateSnapshotKeepsTheMembers(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		late, other := c.Followers()[0], c.Followers()[1]
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		require.NoError(t, leader.Replica().TakeSnapshot())
		learner := c.Add("n4")
		require.NoError(t, c.Change(raftnode.AddNonvoter, learner))
		c.Settle()
		learner.Crash()
		other.Crash()
		// The snapshot may be sent on a connection from before the partition, or entries may arrive before it. Then try
		// again.
		for sent := false; !sent; {
			late.Crash()
			c.Net.Isolate(leader.Name)
			time.Sleep(10 * time.Second) // until leader is deposed
			late.Start()
			require.True(t, late.Replica().Configuration().Has(learner.ID))
			require.Zero(t, late.Replica().Status().Applied)
			c.Net.Heal()
			resp, err := leader.Replica().SendSnapshot(late.ID)
			sent = err == nil && resp.Success && !leader.Replica().Status().Leading
			if !sent {
				c.Settle(leader, late)
			}
		}
		require.True(t, late.Replica().Configuration().Has(learner.ID))
		c.Settle(leader, late)
		require.Equal(t, leader.Replica().Configuration(), late.Replica().Configuration())
	})
}

// TestAnnounce: once there is a leader, Announce puts the node's incarnation into every member's log, even if no client
// uses the node. It makes one entry.
func TestAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{Nodes: 3})
		leader, follower, other := c.Leader(), c.Followers()[0], c.Followers()[1]
		leader.Crash()
		other.Crash()
		r, last := follower.Replica(), uint64(0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Announce(t.Context())
		}()
		time.Sleep(time.Minute)
		leader.Start()
		<-done
		other.Start()
		c.Settle()
		last = r.Status().LastLog
		for _, n := range c.Nodes() {
			require.NotZero(t, n.Replica().Incarnation(follower.ID))
			require.Zero(t, n.Replica().Incarnation(other.ID), "a node that sent nothing has no incarnation")
		}
		time.Sleep(time.Minute)
		require.Equal(t, last, r.Status().LastLog)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.Announce(ctx)
	})
}

// TestLaterIncarnationInTheLog: a node runs on an older copy of its data folder, and only the log knows its later
// incarnation. The node ends when it gets that from entries or a snapshot.
func TestLaterIncarnationInTheLog(t *testing.T) {
	for name, bySnap := range map[string]bool{"entries": false, "snapshot": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := bySnapshot(t, 3, 1)
				n := c.Followers()[0]
				c.Fill(3)
				c.Settle()
				n.Crash()
				old := n.Disk.Copy()
				n.Start()
				n.Replica().Announce(t.Context())
				c.Fill(5)
				c.Settle()
				n.Crash()
				if bySnap {
					snapshotAll(t, c)
				}
				leader := c.Leader() // it would find that the node's log has lost entries
				leader.Crash()
				leader.Start()
				c.Leader()
				n.Disk, n.Lies = old, true
				n.Start()
				ends(t, n)
				require.ErrorIs(t, n.Err(), incarnation.ErrSuperseded)
				require.ErrorContains(t, n.Err(), "the log knows incarnation")
			})
		})
	}
}
