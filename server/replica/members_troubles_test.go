package replica_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// lacksMajority requires that a node can neither write nor read.
func lacksMajority(t *testing.T, n *replicatest.Node) {
	t.Helper()
	for _, words := range [][]string{{"SET", "k", "lost"}, {"GET", "k"}} {
		reply := n.Do(words...)
		require.Equal(t, protocol.KindError, reply.Kind, "%v: %v", words, reply)
	}
}

// Three voters of which two are gone do nothing, however many members without a vote there are.
func TestMembersWithoutAVoteCountNowhere(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		var learners []*replicatest.Node
		for _, name := range []string{"n4", "n5", "n6"} {
			learners = append(learners, c.Add(name))
			require.NoError(t, c.Change(raftnode.AddNonvoter, learners[len(learners)-1]))
		}
		leader := c.Leader()
		require.Equal(t, protocol.OK, learners[0].Do("SET", "k", "v"), "they serve clients by forwarding")
		c.Settle()
		require.Equal(t, 2, leader.Replica().WaitReplicated(t.Context(), 5, time.Second))
		for _, n := range c.Followers() {
			if !slices.Contains(learners, n) {
				n.Crash()
			}
		}
		lacksMajority(t, leader)
		lacksMajority(t, learners[1])
		leader.Crash()
		time.Sleep(time.Minute)
		for _, n := range learners {
			require.False(t, n.Replica().Status().Leading)
			require.Empty(t, events[replica.LeadershipGained](n))
		}
	})
}

// A dead leader is replaced at once, by a voter.
func TestMembersWithoutAVoteAreNotNominated(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		for _, name := range []string{"a1", "a2"} { // of equals the first is elected
			require.NoError(t, c.Change(raftnode.AddNonvoter, c.Add(name)))
		}
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "v"))
		c.Settle()
		time.Sleep(time.Second)
		c.Leader().Crash()
		began := time.Now()
		leader := c.Leader()
		require.Less(t, time.Since(began), 200*time.Millisecond)
		require.Contains(t, voters(leader), leader.Name)
	})
}

// A vote that was taken does not count from then on, and counts again when it is given back.
func TestDemotedVoter(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		leader, demoted, other := c.Leader(), c.Followers()[0], c.Followers()[1]
		require.NoError(t, c.Change(raftnode.Demote, demoted))
		require.False(t, demoted.Removed())
		require.Equal(t, protocol.OK, demoted.Do("SET", "k", "v"))
		other.Crash()
		lacksMajority(t, leader)
		other.Start()
		c.Settle()
		require.NoError(t, c.Change(raftnode.AddVoter, demoted))
		c.Settle()
		other.Crash()
		require.Equal(t, protocol.OK, demoted.Do("SET", "k", "v"))
	})
}

// A leader may be removed, and demoted: the others elect another.
func TestLeaderIsRemoved(t *testing.T) {
	for _, kind := range []raftnode.ChangeKind{raftnode.Remove, raftnode.Demote} {
		ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
			former := c.Leader()
			require.Equal(t, protocol.OK, former.Do("SET", "k", "v"))
			require.NoError(t, former.Change(kind, former))
			require.Eventually(t, func() bool { return !former.Replica().Status().Leading }, time.Minute, time.Millisecond)
			next := c.Leader()
			require.NotEqual(t, former, next)
			require.Equal(t, protocol.Bulk("v"), next.Do("GET", "k"))
			require.Equal(t, kind == raftnode.Remove, former.Removed())
			time.Sleep(10 * time.Second)
			if kind == raftnode.Remove {
				require.Equal(t, protocol.KindError, former.Do("GET", "k").Kind)
			} else {
				require.Equal(t, protocol.Bulk("v"), former.Do("GET", "k"))
			}
			require.Equal(t, next, c.Leader())
		})
	}
}

// TestChangeIsWithheldFromMembersWithoutAVote until it is committed, near and far: from one that has none, and from one
// that loses its vote or goes. Else they would have it, and wait for its voters, when the leader is lost.
func TestChangeIsWithheldFromMembersWithoutAVote(t *testing.T) {
	for _, kind := range []raftnode.ChangeKind{raftnode.Demote, raftnode.Remove} {
		for _, roundTrip := range []time.Duration{0, 5 * raftnode.FarAway} {
			ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
				leader := c.Leader()
				voters, learner := c.Followers(), c.Add("n4")
				require.NoError(t, c.Change(raftnode.AddNonvoter, learner))
				apart(c, roundTrip)
				c.Settle()
				before := leader.Replica().Configuration()
				c.Net.Cut(leader.Name, voters[1].Name)
				done := make(chan error, 1)
				go func() { done <- leader.Change(kind, voters[0]) }()
				time.Sleep(replica.DefaultElectionTimeout / 4)
				require.NotEqual(t, before, leader.Replica().Configuration())
				require.Equal(t, before, voters[0].Replica().Configuration())
				require.Equal(t, before, learner.Replica().Configuration())
				c.Net.Mend(leader.Name, voters[1].Name)
				require.NoError(t, <-done)
				c.Settle(leader, voters[1], learner)
				require.Equal(t, leader.Replica().Configuration(), learner.Replica().CommittedConfiguration())
				if kind == raftnode.Remove {
					voters[0].WaitRemoved()
				}
			})
		}
	}
}

// A member that was removed while it could not be reached stands for election when it is back, and gets nothing.
func TestRemovedMemberComesBack(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		leader, gone := c.Leader(), c.Followers()[0]
		c.Net.Isolate(gone.Name)
		require.NoError(t, c.Change(raftnode.Remove, gone))
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		term := leader.Replica().Status().Term
		time.Sleep(time.Minute)
		c.Net.Heal()
		time.Sleep(time.Minute)
		require.Equal(t, leader, c.Leader())
		require.Equal(t, term, leader.Replica().Status().Term)
		require.Equal(t, protocol.KindError, gone.Do("GET", "k").Kind)
		require.Empty(t, events[replica.LeadershipGained](gone))
	})
}

// A node gets a vote and the leader is lost, while one of the other two is cut off: the voter that does not know of the
// vote, or of that node at all, or the node itself. These two are a majority, and one has all that is committed.
func TestElectionByTheNewestConfiguration(t *testing.T) {
	for _, row := range []struct{ stranger, itself bool }{{}, {stranger: true}, {itself: true}} {
		ofNodes(t, 2, func(t *testing.T, c *replicatest.Cluster) {
			leader, voter, added := c.Leader(), c.Followers()[0], c.Add("n3")
			if !row.stranger {
				require.NoError(t, c.Change(raftnode.AddNonvoter, added))
				c.Settle()
			}
			behind, next := voter, added
			if row.itself {
				behind, next = next, behind
			}
			c.Net.Isolate(behind.Name)
			require.NoError(t, leader.Change(raftnode.AddVoter, added))
			require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
			leader.Crash()
			c.Net.Heal()
			require.Equal(t, next, c.Leader())
			require.Equal(t, protocol.Bulk("v"), behind.Do("GET", "k"))
		})
	}
}

// The majority that a cluster had confirms nothing once there are more voters.
func TestFormerMajorityConfirmsNothing(t *testing.T) {
	for _, size := range []int{1, 3} {
		ofNodes(t, size, func(t *testing.T, c *replicatest.Cluster) {
			former := c.Leader()
			require.Equal(t, protocol.OK, former.Do("SET", "k", "old"))
			var added []*replicatest.Node
			for _, name := range []string{"a1", "a2"} {
				added = append(added, join(t, c, name))
			}
			lead(t, c, former)
			c.Settle()
			few, many := []string{former.Name}, []string{"a1", "a2"}
			for i, n := range slices.DeleteFunc(c.Followers(), func(n *replicatest.Node) bool {
				return slices.Contains(many, n.Name)
			}) {
				if i == 0 {
					few = append(few, n.Name)
				} else {
					many = append(many, n.Name)
				}
			}
			c.Net.Partition(few, many)
			require.Equal(t, protocol.KindError, former.Do("GET", "k").Kind)
			require.Equal(t, protocol.OK, added[0].Do("SET", "k", "new"))
			require.Equal(t, protocol.KindError, former.Do("GET", "k").Kind)
		})
	}
}

// A node keeps its ID when its address changes, also when all move at once.
func TestMembersMove(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "v"))
		mover := c.Followers()[0]
		mover.Crash()
		mover.PeerAddr = mover.Name + ":7380"
		require.NoError(t, c.Change(raftnode.Move, mover))
		mover.Start()
		c.Settle()
		for _, n := range c.Nodes() {
			n.Crash()
			n.PeerAddr = n.Name + ":7381"
		}
		for _, n := range c.Nodes() {
			n.Start()
		}
		for _, n := range c.Nodes() {
			for _, of := range c.Nodes() {
				n.Hint(of)
			}
		}
		require.Equal(t, protocol.Bulk("v"), mover.Do("GET", "k"))
		for _, n := range c.Nodes() {
			require.NoError(t, c.Change(raftnode.Move, n))
		}
		c.Settle()
		for _, m := range c.Leader().Replica().Configuration().Members {
			require.Equal(t, members.Member{ID: m.ID, Addr: m.ID + ":7381", Voter: true}, m)
		}
		c.Leader().Crash()
		require.Equal(t, protocol.OK, c.Leader().Do("SET", "k", "w"))
	})
}

// Raft looks at no vote when it is told to stand for election.
func TestMemberWithoutAVoteDoesNotLead(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		learner := c.Add("n4")
		require.NoError(t, c.Change(raftnode.AddNonvoter, learner))
		c.Settle()
		leader := c.Leader()
		term := leader.Replica().Status().Term
		require.ErrorIs(t, leader.Replica().TransferLeadership(t.Context(), learner.ID), raftnode.ErrNotVoter)
		require.ErrorIs(t, leader.Replica().TransferLeadership(t.Context(), "n9"), raftnode.ErrNotMember)
		require.ErrorContains(t, leader.Replica().SendTimeoutNow(learner.ID), "no vote")
		time.Sleep(10 * time.Second)
		require.Equal(t, term, leader.Replica().Status().Term)
		to := c.Followers()[0]
		require.NotEqual(t, learner, to)
		require.NoError(t, leader.Replica().TransferLeadership(t.Context(), to.ID))
		require.Equal(t, to, c.Leader())
	})
}

// What cannot be done is refused before raft has it.
func TestRefusedChanges(t *testing.T) {
	ofNodes(t, 1, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		r := leader.Replica()
		index := r.Configuration().Index
		for name, test := range map[string]struct {
			change replica.Change
			want   error
		}{
			"not said after which": {
				replica.Change{Kind: raftnode.AddNonvoter, Member: members.Member{ID: "x", Addr: "x:1"}},
				raftnode.ErrConfigurationChanged,
			},
			"after another": {replica.Change{
				Kind: raftnode.AddNonvoter, Member: members.Member{ID: "x", Addr: "x:1"},
				After: index + 1,
			}, raftnode.ErrConfigurationChanged},
			"a stranger's removal": {
				replica.Change{Kind: raftnode.Remove, Member: members.Member{ID: "x"}, After: index},
				raftnode.ErrNotMember,
			},
			"a stranger's demotion": {
				replica.Change{Kind: raftnode.Demote, Member: members.Member{ID: "x"}, After: index},
				raftnode.ErrNotMember,
			},
			"the last voter": {
				replica.Change{Kind: raftnode.Remove, Member: members.Member{ID: "n1"}, After: index},
				raftnode.ErrLastVoter,
			},
			"the last vote": {
				replica.Change{Kind: raftnode.Demote, Member: members.Member{ID: "n1"}, After: index},
				raftnode.ErrLastVoter,
			},
			"an address in use": {replica.Change{Kind: raftnode.AddNonvoter, Member: members.Member{
				ID:   "x",
				Addr: leader.PeerAddr,
			}, After: index}, raftnode.ErrAddressInUse},
			"a member once more": {replica.Change{
				Kind: raftnode.AddNonvoter, Member: members.Member{ID: "n1", Addr: "x:1"},
				After: index,
			}, raftnode.ErrMember},
		} {
			_, err := r.Change(t.Context(), test.change)
			require.ErrorIs(t, err, test.want, name)
		}
		require.Equal(t, index, r.Configuration().Index)
		same, err := r.Change(t.Context(), replica.Change{Kind: raftnode.AddVoter, Member: leader.Member(), After: index})
		require.NoError(t, err)
		require.Equal(t, index, same, "that makes no difference")
		learner := c.Add("n2")
		require.NoError(t, c.Change(raftnode.AddNonvoter, learner))
		c.Settle()
		require.ErrorIs(t, learner.Change(raftnode.Remove, learner), raftnode.ErrNotLeader)
	})
}

// A change that no majority takes has no known outcome, and may be made later.
func TestOutcomeOfAChangeIsNotKnown(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		leader, gone := c.Leader(), c.Followers()[0]
		c.Net.Isolate(leader.Name)
		require.ErrorIs(t, leader.Change(raftnode.Remove, gone), raftnode.ErrOutcomeUnknown)
		require.False(t, leader.Replica().Configuration().Has(gone.ID), "in effect there")
		require.True(t, leader.Replica().CommittedConfiguration().Has(gone.ID))
		require.Equal(t, protocol.OK, gone.Do("SET", "k", "v"))
		c.Net.Heal()
		c.Settle()
		require.True(t, leader.Replica().Configuration().Has(gone.ID), "another leader has taken it out of the log")
		require.False(t, gone.Removed())
	})
}
