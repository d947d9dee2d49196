package replica_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

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
				n.Disk, n.Plain = old, true
				n.Start()
				ends(t, n)
				require.ErrorIs(t, n.Err(), incarnation.ErrSuperseded)
				require.ErrorContains(t, n.Err(), "the log knows incarnation")
			})
		})
	}
}
