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

// lacksMajority requires that reads and writes on n fail.
func lacksMajority(t *testing.T, n *replicatest.Node) {
	t.Helper()
	for _, words := range [][]string{{"SET", "k", "lost"}, {"GET", "k"}} {
		reply := n.Do(words...)
		require.Equal(t, protocol.KindError, reply.Kind, "%v: %v", words, reply)
	}
}

// TestMembersWithoutAVoteCountNowhere: while two of three voters are down, no command succeeds, however many members
// without a vote there are. None of these leads.
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

// TestMembersWithoutAVoteAreNotNominated: a dead leader is replaced at once, by a voter.
func TestMembersWithoutAVoteAreNotNominated(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		for _, name := range []string{"a1", "a2"} { // of equal nodes the first by name is elected
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

// TestDemotedVoter: a demoted member does not count for the majority. It counts again when it has its vote again.
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

// TestLeaderIsRemoved: a leader can be removed or demoted. The others elect another leader.
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

// TestChangeIsWithheldFromMembersWithoutAVote: a member without a vote gets a new configuration only after it is
// committed, near and far. So does a member that loses its vote or is removed. Otherwise, if the leader were lost, such
// a member would have a configuration that the other voters lack, and wait for its voters.
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

// TestRemovedMemberComesBack: a member that was removed while it could not be reached starts elections when it is back.
// It gets no vote, and the leader stays.
func TestRemovedMemberComesBack(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		leader, removed := c.Leader(), c.Followers()[0]
		c.Net.Isolate(removed.Name)
		require.NoError(t, c.Change(raftnode.Remove, removed))
		require.Equal(t, protocol.OK, leader.Do("SET", "k", "v"))
		term := leader.Replica().Status().Term
		time.Sleep(time.Minute)
		c.Net.Heal()
		time.Sleep(time.Minute)
		require.Equal(t, leader, c.Leader())
		require.Equal(t, term, leader.Replica().Status().Term)
		require.Equal(t, protocol.KindError, removed.Do("GET", "k").Kind)
		require.Empty(t, events[replica.LeadershipGained](removed))
	})
}

// TestElectionByTheNewestConfiguration: a node gets a vote and the leader is lost, while another node is cut off: the
// voter that does not know of the vote, or does not know the node at all, or the new voter itself. The two remaining
// nodes are a majority, and the one with all committed entries is elected.
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

// TestFormerMajorityConfirmsNothing: after voters were added, a majority of the former voters confirms no leader.
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

// TestMembersMove: a node keeps its ID when its address changes, even if all addresses change at once.
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

// TestMemberWithoutAVoteDoesNotLead: a member without a vote refuses a request to stand for election. Raft itself does
// not check for a vote.
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

// TestRefusedChanges: an invalid change of the configuration is refused before raft gets it.
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
		require.Equal(t, index, same, "a change without effect appends no entry")
		learner := c.Add("n2")
		require.NoError(t, c.Change(raftnode.AddNonvoter, learner))
		c.Settle()
		require.ErrorIs(t, learner.Change(raftnode.Remove, learner), raftnode.ErrNotLeader)
	})
}

// TestOutcomeOfAChangeIsNotKnown: a change that no majority acknowledges has an unknown outcome. Here the next leader
// does not have it.
func TestOutcomeOfAChangeIsNotKnown(t *testing.T) {
	ofNodes(t, 3, func(t *testing.T, c *replicatest.Cluster) {
		leader, target := c.Leader(), c.Followers()[0]
		c.Net.Isolate(leader.Name)
		require.ErrorIs(t, leader.Change(raftnode.Remove, target), raftnode.ErrOutcomeUnknown)
		require.False(t, leader.Replica().Configuration().Has(target.ID), "in effect there")
		require.True(t, leader.Replica().CommittedConfiguration().Has(target.ID))
		require.Equal(t, protocol.OK, target.Do("SET", "k", "v"))
		c.Net.Heal()
		c.Settle()
		require.True(t, leader.Replica().Configuration().Has(target.ID), "another leader has taken it out of the log")
		require.False(t, target.Removed())
	})
}
