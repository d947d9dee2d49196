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

// A single voter waits for no other node, although its timeouts are a cluster's.
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

// A node that was added after the leader's log was cut gets the members in a snapshot, and so does a node that
// starts again.
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
			require.Equal(t, names, voters(n), "before a node has told %s", n.Name)
		}
		require.Equal(t, protocol.Bulk("180"), c.Leader().Do("GET", "n"))
	})
}

// A node that was never a member, or is about to be one, does not take itself for removed while it gets a log in
// which it is none.
func TestJoiningIsNotRemoval(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		for range 3 {
			other := c.Add("x")
			require.NoError(t, c.Change(raftnode.AddNonvoter, other))
			require.NoError(t, c.Change(raftnode.Remove, other))
			other.Crash()
			require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "v"))
		}
		for _, name := range []string{"n4", "n5", "n6", "n7", "n8"} { // raft itself tells some
			n := c.Add(name)
			require.NoError(t, c.Change(raftnode.AddNonvoter, n))
			n.Crash()
			n.Start()
			c.Settle(n, c.Leader())
			require.False(t, n.Removed())
			require.NoError(t, c.Change(raftnode.Remove, n))
			time.Sleep(time.Second)
			require.True(t, n.Removed(), name)
			require.False(t, n.Replica().CommittedConfiguration().Has(n.ID), "the leader has told %s", name)
		}
	})
}

// A snapshot that ends before a configuration in the log does not take the node back to the configuration before.
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
		// A connection from before the partition may be taken for the snapshot, or entries may come before it.
		for sent := false; !sent; {
			late.Crash()
			c.Net.Isolate(leader.Name)
			time.Sleep(10 * time.Second) // leader leads no more
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

// TestAnnounce: every member's log knows the incarnation of each member, also of one that no client uses, once a leader
// is there; and there is one entry for it.
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
			require.Zero(t, n.Replica().Incarnation(other.ID), "it has sent nothing")
		}
		time.Sleep(time.Minute)
		require.Equal(t, last, r.Status().LastLog)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.Announce(ctx)
	})
}

// TestLaterIncarnationInTheLog: nobody but the log knows that the node's folder was put back. It ends when it gets
// there, by entries or by a snapshot.
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
				leader := c.Leader() // which would find that the node's log has lost entries
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
