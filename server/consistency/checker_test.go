package consistency_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/consistency"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

const interval = 5 * time.Minute

// inBubble runs a test of a cluster that compares its states in virtual time, with a short delay between the nodes.
func inBubble(t *testing.T, nodes int, checks time.Duration, test func(t *testing.T, c *replicatest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := replicatest.New(t, replicatest.Options{Nodes: nodes, Checks: checks, Configure: func(c *replica.Config) {
			c.TrailingLogs, c.CommandTimeout = 1, 30*time.Second
		}})
		for _, a := range c.Names() {
			for _, b := range c.Names(a) {
				c.Net.Delay(a, b, time.Millisecond)
			}
		}
		c.Leader()
		time.Sleep(20 * time.Second) // the check at the start
		test(t, c)
	})
}

func told[E consistency.Event](n *replicatest.Node) (all []E) {
	for _, e := range n.Checks() {
		if e, is := e.(E); is {
			all = append(all, e)
		}
	}
	return all
}

// misapply has a node apply an entry that the others do not have.
func misapply(t *testing.T, n *replicatest.Node) {
	t.Helper()
	require.NoError(t, n.Replica().Corrupt(protocoltest.AppendRequest(nil, 0, "set", "k0", "wrong")))
}

func quarantined(n *replicatest.Node) bool {
	on, _ := n.Replica().Quarantined()
	return on
}

func repair(t *testing.T, via *replicatest.Node, n *replicatest.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done, err := via.Checker().Repair(ctx, n.ID)
	require.NoError(t, err)
	require.NotZero(t, done.Index)
	require.True(t, done.Compared)
	require.False(t, quarantined(n))
}

// TestEqualStates shows that nodes whose leaders fail, which restart and get snapshots, are compared continually, and
// that none differs.
func TestEqualStates(t *testing.T) {
	inBubble(t, 3, 30*time.Second, func(t *testing.T, c *replicatest.Cluster) {
		for range 5 {
			n := c.Leader()
			n.Crash()
			c.Fill(30)
			require.NoError(t, c.Leader().Replica().TakeSnapshot())
			n.Start()
			time.Sleep(time.Minute)
		}
		for _, n := range c.Nodes() {
			require.Greater(t, len(told[consistency.Checked](n)), 5, n.Name)
			require.Empty(t, n.Checker().Troubles())
			require.Empty(t, told[consistency.Differs](n))
			require.Empty(t, told[consistency.Undecided](n))
			require.Empty(t, told[consistency.OthersDiffer](n))
		}
	})
}

// TestWhoDiffersIsFound shows that a follower or a leader with a different state is found within the interval. It stays
// in quarantine over a restart, the other nodes report it, and a repair ends the quarantine.
func TestWhoDiffersIsFound(t *testing.T) {
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprint("leads=", leads), func(t *testing.T) {
			inBubble(t, 3, interval, func(t *testing.T, c *replicatest.Cluster) {
				c.Fill(10)
				n := c.Followers()[0]
				if leads {
					n = c.Leader()
				}
				misapply(t, n)
				time.Sleep(interval + time.Second)
				require.True(t, quarantined(n))
				require.Len(t, told[consistency.Differs](n), 1)
				require.NotEqual(t, n, c.Leader())
				require.Equal(t, protocol.ErrQuarantined.Value(), n.Do("GET", "k0"))
				require.Equal(t, protocol.Bulk("v"), c.Leader().Do("GET", "k0"))
				for _, other := range c.Nodes() {
					require.Len(t, other.Checker().Troubles(), 1)
					require.Contains(t, other.Checker().Troubles()[0], "holdfast cluster repair "+n.Name)
					require.Equal(t, other == n, quarantined(other))
					require.Len(t, told[consistency.OthersDiffer](other), map[bool]int{true: 0, false: 1}[other == n])
				}

				n.Crash()
				n.Start()
				time.Sleep(3 * interval)
				require.True(t, quarantined(n))
				require.NotEqual(t, n, c.Leader())
				require.Len(t, n.Checker().Troubles(), 1)

				repair(t, c.Leader(), n)
				require.Len(t, told[consistency.Released](n), 1)
				require.Contains(t, told[consistency.Checked](n), consistency.Checked(told[consistency.Released](n)[0]),
					"compared before")
				require.Equal(t, protocol.Bulk("v"), n.Do("GET", "k0"))
				time.Sleep(interval)
				for _, other := range c.Nodes() {
					require.Empty(t, other.Checker().Troubles())
				}
				n.Crash()
				n.Start()
				time.Sleep(time.Minute)
				require.False(t, quarantined(n))
				c.Settle()
			})
		})
	}
}

// TestComparedAfterAStart shows that states are compared soon after a start, long before the next interval, even a
// wrong one from the disk.
func TestComparedAfterAStart(t *testing.T) {
	inBubble(t, 3, 24*time.Hour, func(t *testing.T, c *replicatest.Cluster) {
		c.Fill(10)
		n := c.Followers()[0]
		before := len(told[consistency.Checked](n))
		n.Crash()
		n.Start()
		time.Sleep(time.Minute)
		require.Len(t, told[consistency.Checked](n), before+1, "also without a snapshot")

		misapply(t, n)
		require.NoError(t, n.Replica().TakeSnapshot())
		n.Crash()
		n.Start()
		time.Sleep(time.Minute)
		require.True(t, quarantined(n))
	})
}

// TestComparedAfterASnapshot shows that states are compared soon after a node has received a snapshot, here one of a
// leader with a wrong state. Without the comparison the two wrong states could grow to a majority.
func TestComparedAfterASnapshot(t *testing.T) {
	inBubble(t, 5, 24*time.Hour, func(t *testing.T, c *replicatest.Cluster) {
		leader, n := c.Leader(), c.Followers()[0]
		c.Net.Isolate(n.Name)
		c.Fill(30)
		c.Settle(slices.DeleteFunc(c.Nodes(), func(o *replicatest.Node) bool { return o == n })...)
		misapply(t, leader)
		require.NoError(t, leader.Replica().TakeSnapshot())
		c.Net.Rejoin(n.Name)
		time.Sleep(time.Minute)
		require.True(t, quarantined(n), "its state came from the leader")
		require.True(t, quarantined(leader))
		require.NotEqual(t, leader, c.Leader())
		require.Len(t, n.Checker().Troubles(), 2)
		repair(t, n, leader)
		repair(t, n, n)
		c.Settle()
	})
}

// TestNoMajority shows that if no majority has the same state, all nodes report that they differ, and continue to
// serve. The operator can then replace a state.
func TestNoMajority(t *testing.T) {
	for _, nodes := range []int{2, 4} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			inBubble(t, nodes, interval, func(t *testing.T, c *replicatest.Cluster) {
				c.Fill(5)
				c.Settle()
				wrong := c.Followers()[:nodes/2]
				for _, n := range wrong {
					misapply(t, n)
				}
				for range 2 {
					time.Sleep(interval)
				}
				for _, n := range c.Nodes() {
					require.False(t, quarantined(n))
					require.Len(t, told[consistency.Undecided](n), 1)
					require.Contains(t, n.Checker().Troubles()[0], "no majority")
				}
				require.Equal(t, protocol.Bulk("v"), wrong[0].Do("GET", "k0"), "the leader's")
				for _, n := range wrong {
					repair(t, c.Leader(), n)
				}
				time.Sleep(interval)
				for _, n := range c.Nodes() {
					require.Empty(t, n.Checker().Troubles())
				}
				c.Settle()
			})
		})
	}
}

// TestLeadersChange shows that states are compared once an interval, however often the leader changes.
func TestLeadersChange(t *testing.T) {
	inBubble(t, 3, time.Minute, func(t *testing.T, c *replicatest.Cluster) {
		before := len(told[consistency.Checked](c.Node("n1")))
		for range 40 {
			time.Sleep(15 * time.Second)
			_ = c.Leader().Transfer()
		}
		require.InDelta(t, before+10, len(told[consistency.Checked](c.Node("n1"))), 1)
	})
}

// TestWhoIsBehind shows that a node that was cut off when the index of the comparison was set answers later, and gets
// the verdict.
func TestWhoIsBehind(t *testing.T) {
	inBubble(t, 3, interval, func(t *testing.T, c *replicatest.Cluster) {
		c.Fill(5)
		c.Settle()
		n := c.Followers()[0]
		misapply(t, n)
		time.Sleep(interval - 30*time.Second)
		for _, other := range c.Names(n.Name) {
			c.Net.Cut(other, n.Name)
		}
		time.Sleep(40 * time.Second)
		require.False(t, quarantined(n))
		c.Net.Heal()
		time.Sleep(20 * time.Second)
		require.True(t, quarantined(n))
	})
}

// TestRepairIsRefused shows that the leader cannot be repaired, since the others get its state, and that no repair
// begins without a leader.
func TestRepairIsRefused(t *testing.T) {
	inBubble(t, 3, interval, func(t *testing.T, c *replicatest.Cluster) {
		leader, n := c.Leader(), c.Followers()[0]
		_, err := n.Checker().Repair(t.Context(), leader.ID)
		require.ErrorContains(t, err, "this node leads")
		require.False(t, quarantined(leader))
		for _, other := range c.Names(n.Name) {
			c.Node(other).Crash()
		}
		time.Sleep(time.Minute)
		_, err = n.Checker().Repair(t.Context(), n.ID)
		require.ErrorContains(t, err, "no leader is known")
		require.False(t, quarantined(n))
	})
}

// TestLeaderFreezesWhileItsStateComes shows that a member that receives the leader's state votes meanwhile, so that
// another node can lead if the leader fails.
func TestLeaderFreezesWhileItsStateComes(t *testing.T) {
	inBubble(t, 3, interval, func(t *testing.T, c *replicatest.Cluster) {
		c.Fill(5)
		leader, n, other := c.Leader(), c.Followers()[0], c.Followers()[1]
		c.OnFetch = func(state io.ReadCloser) io.ReadCloser { return frozen{state} }
		failed := make(chan error, 1)
		go func() {
			_, err := leader.Checker().Repair(t.Context(), n.ID)
			failed <- err
		}()
		time.Sleep(time.Second)
		require.True(t, quarantined(n))
		c.Net.Isolate(leader.Name)
		time.Sleep(5 * time.Second)
		require.True(t, other.Replica().Status().Leading)
		require.Equal(t, protocol.OK, other.Do("SET", "k", "v"))
		c.Net.Heal()
		require.Error(t, <-failed)
		c.OnFetch = nil
		repair(t, other, n)
	})
}

// frozen is a state that is never sent.
type frozen struct{ io.Closer }

func (frozen) Read([]byte) (int, error) {
	time.Sleep(20 * time.Second)
	return 0, errors.New("cut off")
}

// TestRepairAfterAChangeOfMembers shows that a repair does not use a snapshot from before a change of members, even if
// that has all applied entries.
func TestRepairAfterAChangeOfMembers(t *testing.T) {
	inBubble(t, 3, interval, func(t *testing.T, c *replicatest.Cluster) {
		c.Fill(5)
		leader, n, other := c.Leader(), c.Followers()[0], c.Followers()[1]
		misapply(t, n)
		time.Sleep(interval)
		require.True(t, quarantined(n))
		require.NoError(t, leader.Replica().TakeSnapshot())
		require.NoError(t, leader.Change(raftnode.Remove, other))
		repair(t, leader, n)
	})
}

// TestRepairedWithoutChecks shows that a replaced state is compared even if periodic comparisons are off. The leader
// knows of the quarantine of a repair at once, and of another one soon.
func TestRepairedWithoutChecks(t *testing.T) {
	inBubble(t, 3, -1, func(t *testing.T, c *replicatest.Cluster) {
		c.Fill(5)
		leader, n, other := c.Leader(), c.Followers()[0], c.Followers()[1]
		repaired := make(chan struct{})
		go func() {
			repair(t, leader, n)
			close(repaired)
		}()
		time.Sleep(100 * time.Millisecond)
		require.True(t, quarantined(n))
		require.Equal(t, []string{n.ID}, leader.Checker().Report().InQuarantine)
		<-repaired
		time.Sleep(time.Second)
		require.Empty(t, leader.Checker().Report().InQuarantine)

		other.Replica().Quarantine()
		time.Sleep(20 * time.Second)
		for _, node := range c.Nodes() {
			require.Equal(t, []string{other.ID}, node.Checker().Report().InQuarantine)
			require.NotEmpty(t, node.Checker().Troubles())
		}
		leader.Crash()
		leader.Start()
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{other.ID}, c.Leader().Checker().Report().InQuarantine)
	})
}

// TestReplacedStateThatDiffersAgain shows that a replaced state that differs again is frozen again, so that it can be
// replaced while the cluster works.
func TestReplacedStateThatDiffersAgain(t *testing.T) {
	inBubble(t, 3, interval, func(t *testing.T, c *replicatest.Cluster) {
		c.Fill(5)
		leader, n := c.Leader(), c.Followers()[0]
		misapply(t, n)
		time.Sleep(interval)
		require.True(t, quarantined(n))
		replaced := make(chan struct{})
		go func() {
			_, err := leader.Checker().Repair(t.Context(), n.ID)
			require.NoError(t, err)
			close(replaced)
		}()
		for len(told[consistency.Replaced](n)) == 0 {
			time.Sleep(time.Millisecond)
		}
		misapply(t, n)
		<-replaced
		on, frozen := n.Replica().Quarantined()
		require.True(t, on && frozen)
		require.Len(t, told[consistency.Differs](n), 2)
		c.Fill(5)
		repair(t, leader, n)
	})
}
