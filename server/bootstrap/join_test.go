package bootstrap

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

func alone(c *Config) {
	name := c.Folder.Identity().Name
	c.Initial = map[string]string{name: name + ":1"}
}

// joinedAt is the index of the configuration that added the joining node.
const joinedAt = 5

// takenIn is a Join that accepts every node, and returns no index.
func takenIn(context.Context, string, string, members.Member) (uint64, string, error) {
	return 0, "", nil
}

// joins has a node join by n1, which answers as asked says.
func joins(asked func(cluster string, self members.Member) (string, error)) func(*Config) {
	return func(c *Config) {
		c.Initial, c.Contacts = nil, []string{"n4:1", "n9:1", "n1:1"}
		c.Join = func(_ context.Context, contact, cluster string, self members.Member) (uint64, string, error) {
			if contact != "n1:1" {
				panic("the node at " + contact + " is in no cluster")
			}
			refused, err := asked(cluster, self)
			return joinedAt, refused, err
		}
	}
}

func TestNodeJoins(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var four *life
		asked := 0
		four = w.start("n4", joins(func(cluster string, self members.Member) (string, error) {
			id := four.store.Identity()
			require.Equal(t, store.Identity{Name: "n4", ID: id.ID, ClusterID: cluster, Joins: true, Votes: true}, id,
				"before it asks")
			require.Equal(t, members.Member{ID: id.ID, Addr: "n4:1"}, self)
			if asked++; asked < 3 {
				return "", errors.New("no leader")
			}
			return "", nil
		}))
		time.Sleep(10 * time.Second)
		require.Equal(t,
			`INFO msg="waiting to join by n9:1, n1:1" why="n9:1: dial peer n9:1: dial mem n9:1: connection refused; n1:1: dial peer n1:1: dial mem n1:1: connection refused"`, four.log.text())
		one := w.start("n1", alone)
		require.NoError(t, <-one.entered)
		require.NoError(t, <-four.entered)
		id := four.store.Identity()
		require.Equal(t, store.Identity{
			Name: "n4", ID: id.ID, ClusterID: one.store.Identity().ClusterID, Votes: true,
			JoinedAt: joinedAt,
		}, id)
		require.Equal(t, 3, asked)
		require.NoError(t, <-w.start("n4", func(c *Config) { c.Initial = nil }).entered, "it belongs to the cluster for good")
	})
}

func TestNodeThatIsNotTakenIn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		require.NoError(t, <-w.start("n1", alone).entered)
		four := w.start("n4", joins(func(string, members.Member) (string, error) { return "the name n4 is in use", nil }))
		require.ErrorContains(t, <-four.entered, "by n1:1: refused: the name n4 is in use")
		require.Equal(t, store.Identity{Name: "n4", ID: four.store.Identity().ID}, four.store.Identity(),
			"it may be another's")

		five := w.start("n5", joins(nil), func(c *Config) { c.Contacts = []string{c.Addr} })
		require.EqualError(t, <-five.entered, "join: all addresses given lead back to this node")
		six := w.start("n6", joins(nil), func(c *Config) {
			c.Addr = "0.0.0.0:1"
		})
		require.EqualError(t, <-six.entered, "address 0.0.0.0:1: other nodes cannot dial it: say --peer-advertise-addr")
	})
}

// TestContactsOfTwoClusters shows that a node whose contacts belong to different clusters joins none of them. A contact
// that does not answer is ignored.
func TestContactsOfTwoClusters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		cluster := make(map[string]string)
		for _, name := range []string{"n1", "n2"} {
			cluster[name] = w.requireEntered(w.start(name, func(c *Config) {
				c.Initial = map[string]string{name: name + ":1"}
			})).ClusterID
		}
		both := func(c *Config) {
			c.Initial, c.Contacts = nil, []string{"n9:1", "n1:1", "n2:1"}
			c.Join = takenIn
		}
		four := w.start("n4", both)
		require.EqualError(t, <-four.entered, "join: n1 at n1:1 is a member of cluster "+cluster["n1"]+
			", and n2 at n2:1 of cluster "+cluster["n2"]+": say addresses of one cluster")
		require.Empty(t, four.store.Identity().ClusterID)
		w.kill("n1")
		four = w.start("n4", both)
		require.NoError(t, <-four.entered)
		require.Equal(t, cluster["n2"], four.store.Identity().ClusterID)
	})
}

// TestJoinWithAnotherSecret shows that a node that joins with another secret logs a warning at once, and asks the
// members seldom.
func TestJoinWithAnotherSecret(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.requireEntered(w.start("n1", alone))
		w.secrets["n4"] = "another"
		four := w.start("n4", joins(func(string, members.Member) (string, error) { return "", nil }), func(c *Config) {
			c.Contacts = []string{"n1:1"}
		})
		time.Sleep(100 * time.Millisecond)
		require.Regexp(t,
			`^WARN msg="waiting to join by n1:1, and refused" why="n1:1: dial peer n1:1: node \\"n1@.*\\" refused: it has another cluster secret, or none"$`, four.log.text())
		before := w.dials.Load()
		time.Sleep(10 * time.Minute)
		require.Less(t, w.dials.Load()-before, int64(80))
		require.LessOrEqual(t, strings.Count(four.log.text(), "WARN"), 11)
	})
}

// TestKilledWhileJoining shows that a node that was killed while it joined, perhaps after the cluster had added it,
// continues to join the same cluster. Without contacts it ends, and says which cluster it was joining.
func TestKilledWhileJoining(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one := w.start("n1", alone)
		require.NoError(t, <-one.entered)
		var asked []string
		taken := joins(func(_ string, self members.Member) (string, error) { asked = append(asked, self.ID); return "", nil })
		four := w.start("n4", taken, func(c *Config) { c.NonVoter, c.Folder.(*folder).left = true, 2 })
		require.ErrorIs(t, <-four.entered, errKilled)
		err := <-w.start("n4", func(c *Config) { c.Initial = nil }).entered
		require.ErrorContains(t, err, "about to join cluster "+one.store.Identity().ClusterID+": start it with --join again")
		require.NoError(t, <-w.start("n2", alone).entered)
		four = w.start("n4", taken, func(c *Config) { c.Contacts = []string{"n2:1"} })
		time.Sleep(time.Second)
		require.Contains(t, four.log.text(), "n2:1: dial peer n2:1: refused: it belongs to another cluster")
		four = w.start("n4", taken)
		require.NoError(t, <-four.entered)
		id := four.store.Identity()
		require.Equal(t, []string{id.ID, id.ID}, asked)
		require.False(t, id.Joins)
		require.False(t, id.Votes, "as it was started first")
	})
}

// TestOthersJoinARestoredNode shows that the other nodes of an initial cluster, with empty folders, join a restored
// node, even if it is not the first by name.
func TestOthersJoinARestoredNode(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		two := w.start("n2", func(c *Config) {
			require.NoError(t, c.Folder.SetIdentity(func(id *store.Identity) { id.ClusterID, id.Restored = "c7", true }))
		})
		require.NoError(t, <-two.entered)
		join := func(c *Config) {
			c.Join = func(_ context.Context, contact, cluster string, _ members.Member) (uint64, string, error) {
				require.Equal(t, "n2:1", contact)
				require.Equal(t, "c7", cluster)
				return 0, "", nil
			}
		}
		for _, name := range []string{"n1", "n3"} {
			l := w.start(name, join)
			require.NoError(t, <-l.entered)
			require.Equal(t, store.Identity{Name: name, ID: l.store.Identity().ID, ClusterID: "c7", Votes: true},
				l.store.Identity())
		}
	})
}

// restored gives a node a folder with a restored state and no cluster. seed identifies the backup.
func restored(t *testing.T, seed string) func(*Config) {
	return func(c *Config) {
		require.NoError(t, c.Folder.SetIdentity(func(id *store.Identity) { id.Seed, id.Restored = seed, true }))
	}
}

// TestRestoredNodesFoundTogether shows that nodes that were restored from one file bootstrap a cluster. A node that is
// emptied or restored later cannot enter it by its initial cluster.
func TestRestoredNodesFoundTogether(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		same := restored(t, "s")
		id := w.requireEntered(w.start("n2", same), w.start("n3", same), w.start("n1", same))
		require.Len(t, id.Founders, 3)
		w.wipe("n2")
		err := <-w.start("n2", same).entered
		require.ErrorContains(t, err, "is a member of cluster "+id.ClusterID+
			" already, and this node's folder was restored: empty it, and add the node with --join")
		w.wipe("n2")
		require.ErrorContains(t, <-w.start("n2").entered, "and this node's folder is empty: add it with --join")
	})
}

// TestOneRestoredNodeFoundsAlone shows that a single restored node bootstraps a cluster alone once all others have
// answered, and that these, with empty folders, join it.
func TestOneRestoredNodeFoundsAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		join := func(c *Config) {
			c.Join = takenIn
		}
		two, three := w.start("n2", restored(t, "s")), w.start("n3", join)
		time.Sleep(time.Minute)
		require.Empty(t, two.store.Identity().ClusterID, "n1 may have been restored, too")
		one := w.start("n1", join)
		for _, l := range []*life{one, two, three} {
			require.NoError(t, <-l.entered)
			require.Equal(t, two.store.Identity().ClusterID, l.store.Identity().ClusterID)
		}
		require.Equal(t, []members.Member{{ID: two.store.Identity().ID, Addr: "n2:1", Voter: true}},
			two.store.Identity().Founders)
		require.Empty(t, one.store.Identity().Founders)
	})
}

// TestAnswerOlderThanAnother shows that a node copes with answers of different age. n3 has an answer of n2 from before
// n2 bootstrapped its cluster, and a later one of n1, which has joined n2. n3 must join n2, too.
func TestAnswerOlderThanAnother(t *testing.T) {
	for tick := range time.Duration(40) {
		inWorld(t, func(t *testing.T, w *world) {
			w.dialing = func(from, addr string) {
				if from == "n3" && addr == "n1:1" {
					time.Sleep(400 * time.Millisecond)
				}
			}
			join := func(c *Config) {
				c.Join = takenIn
			}
			two, three := w.start("n2", restored(t, "s")), w.start("n3", join)
			time.Sleep(tick * 20 * time.Millisecond)
			for _, l := range []*life{two, w.start("n1", join), three} {
				require.NoError(t, <-l.entered)
			}
		})
	}
}

// TestRestoredNodesThatDiffer shows that nodes that were restored from different backups bootstrap no cluster, and log
// why.
func TestRestoredNodesThatDiffer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.start("n1", restored(t, "s"))
		w.start("n2", restored(t, "another"))
		w.start("n3")
		time.Sleep(time.Minute)
		for name, other := range map[string]string{"n1": "n2", "n2": "n1"} {
			text := w.lives[name].log.text()
			require.Contains(t, text, other+
				" was restored from another backup than this node, or with other flags: restore all nodes from one file with "+
				"the same flags, or one node alone")
			require.Contains(t, text, "n3 has an empty folder, and others were restored: restore one node, or all of them")
			require.Equal(t, 1, strings.Count(text, "waiting for"))
			require.Empty(t, w.lives[name].store.Identity().ClusterID)
		}
		require.Empty(t, w.lives["n3"].store.Identity().ClusterID)
		err := <-w.start("n1", func(c *Config) { c.Contacts = []string{"n2:1"} }).entered
		require.ErrorContains(t, err, "this node's folder was restored, and joins no cluster")
	})
}

// watchMembership runs WatchMembership until the node's process ends.
func (l *life) watchMembership() { l.ended.Go(func() { _ = l.WatchMembership(l.ctx) }) }

// TestAllNodesMoveAtOnce shows that nodes whose addresses have all changed find each other by the initial cluster, and
// that each has the cluster commit its new address.
func TestAllNodesMoveAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		id := w.requireEntered(w.start("n1"), w.start("n2"), w.start("n3"))
		var agreed atomic.Pointer[members.Configuration]
		first := members.NewConfiguration(1, id.Founders...)
		agreed.Store(&first)
		moved := map[string]string{"n1": "n1:2", "n2": "n2:2", "n3": "n3:2"}
		move := func(c *Config) {
			self, addresses := c.Folder.Identity().ID, c.Addresses
			c.Addr, c.Initial = moved[c.Folder.Identity().Name], moved
			addresses.SetConfiguration(first)
			c.Committed = func() members.Configuration { return *agreed.Load() }
			c.Led = func() bool { // a majority can be reached
				reached := 0
				for _, f := range id.Founders {
					if f.ID != self && addresses.Addr(f.ID) == moved[f.Name()] {
						reached++
					}
				}
				return reached > 0
			}
			c.Move = func(_ context.Context, addr string) error {
				next := members.NewConfiguration(agreed.Load().Index+1, agreed.Load().Members...)
				for i := range next.Members {
					if next.Members[i].ID == self {
						next.Members[i].Addr = addr
					}
				}
				agreed.Store(&next)
				return nil
			}
		}
		for _, name := range []string{"n1", "n2", "n3"} {
			w.kill(name)
		}
		for _, name := range []string{"n1", "n2", "n3"} {
			w.start(name, move).watchMembership()
		}
		time.Sleep(3 * time.Second)
		for _, m := range agreed.Load().Members {
			require.Equal(t, moved[m.Name()], m.Addr)
		}
		require.Equal(t, uint64(4), agreed.Load().Index, "each moves once")
	})
}

// TestRemovedNodeLearnsSo shows that a removed node learns of its removal from any node with a newer configuration, and
// not from a node with an older one.
func TestRemovedNodeLearnsSo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		id := w.requireEntered(w.start("n1"), w.start("n2"), w.start("n3"))
		three := w.lives["n3"].store.Identity().ID
		knows := func(index uint64, without string) func(*Config) {
			conf := members.Configuration{Index: index}
			for _, m := range id.Founders {
				if m.ID != without {
					conf.Members = append(conf.Members, m)
				}
			}
			return func(c *Config) {
				c.Committed = func() members.Configuration { return conf }
				c.Led = func() bool { return false }
			}
		}
		removed := make(chan struct{}, 10)
		w.start("n1", knows(4, three))
		w.start("n2", knows(5, ""))
		w.start("n3", knows(5, ""), func(c *Config) { c.Removed = func() { removed <- struct{}{} } }).watchMembership()
		time.Sleep(time.Minute)
		require.Empty(t, removed, "n1 is behind")
		w.start("n1", knows(6, three))
		time.Sleep(checkInterval + leaderlessTimeout)
		require.NotEmpty(t, removed)
		require.Contains(t, w.lives["n3"].log.text(),
			`msg="this node was removed from the cluster" told_by=n1 configuration=6`)
	})
}

// TestRemovedNodeStartedAgain shows that a node that joined, was killed and removed learns of its removal, although the
// latest configuration that it knows to be committed is from before it joined.
func TestRemovedNodeStartedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		id := w.requireEntered(w.start("n1"), w.start("n2"), w.start("n3"))
		first := members.NewConfiguration(1, id.Founders...)
		knows := func(index uint64) func(*Config) {
			return func(c *Config) {
				c.Committed = func() members.Configuration { return members.NewConfiguration(index, id.Founders...) }
			}
		}
		w.start("n1", knows(4))
		removed := make(chan struct{}, 100)
		four := w.start("n4", func(c *Config) {
			require.NoError(t, c.Folder.SetIdentity(func(own *store.Identity) { own.ClusterID = id.ClusterID }))
			self := members.Member{ID: c.Folder.Identity().ID, Addr: "n4:1"}
			c.Initial = nil
			c.Committed = func() members.Configuration { return first }
			c.Newest = func() members.Configuration {
				return members.NewConfiguration(5, append(slices.Clip(id.Founders), self)...)
			}
			c.Led, c.Removed = func() bool { return false }, func() { removed <- struct{}{} }
		})
		require.NoError(t, <-four.entered)
		four.watchMembership()
		time.Sleep(time.Minute)
		require.Empty(t, removed, "n1 is behind")
		w.start("n1", knows(6))
		time.Sleep(checkInterval + leaderlessTimeout)
		require.NotEmpty(t, removed)
	})
}

// TestNodeRemovedBeforeItKnew shows that a node that was removed before it got the entry that added it learns of its
// removal, by the index that the cluster returned when the node joined.
func TestNodeRemovedBeforeItKnew(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one := w.requireEntered(w.start("n1", alone))
		first := members.NewConfiguration(1, one.Founders...)
		knows := func(index uint64) func(*Config) {
			return func(c *Config) {
				c.Committed = func() members.Configuration { return members.NewConfiguration(index, one.Founders...) }
			}
		}
		removed := make(chan struct{}, 100)
		before := func(c *Config) {
			c.Committed, c.Newest = func() members.Configuration { return first }, func() members.Configuration { return first }
			c.Led, c.Removed = func() bool { return false }, func() { removed <- struct{}{} }
		}
		w.start("n1", alone, knows(joinedAt-1))
		four := w.start("n4", joins(func(string, members.Member) (string, error) { return "", nil }), before)
		require.NoError(t, <-four.entered)
		four.watchMembership()
		time.Sleep(time.Minute)
		require.Empty(t, removed, "n1 is behind")
		w.start("n1", alone, knows(joinedAt+1))
		time.Sleep(checkInterval + leaderlessTimeout)
		require.NotEmpty(t, removed)

		// The node learns it also after a restart, unless the cluster returned no index.
		for _, told := range []bool{true, false} {
			again := w.start("n4", before, func(c *Config) {
				if !told {
					require.NoError(t, c.Folder.SetIdentity(func(own *store.Identity) { own.JoinedAt = 0 }))
				}
			})
			require.NoError(t, <-again.entered)
			for len(removed) > 0 {
				<-removed
			}
			again.watchMembership()
			time.Sleep(checkInterval + leaderlessTimeout)
			require.Equal(t, told, len(removed) > 0)
		}
	})
}

// TestNodeAsksForItsVote shows that a node asks for a vote until it has one, and not again after an administrator has
// taken the vote.
func TestNodeAsksForItsVote(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var voter atomic.Bool
		var asked atomic.Int64
		w.requireEntered(w.start("n1", alone))
		one := w.start("n1", alone, func(c *Config) {
			id := c.Folder.Identity().ID
			require.NoError(t, c.Folder.SetIdentity(func(id *store.Identity) { id.Votes = true }))
			c.Incarnation = nil // nobody is there to admit it
			c.Committed = func() members.Configuration {
				return members.NewConfiguration(7, members.Member{ID: id, Addr: "n1:1", Voter: voter.Load()})
			}
			c.Promote = func(context.Context) error {
				if asked.Add(1) == 3 {
					voter.Store(true)
				}
				return errors.New("lags")
			}
		})
		one.watchMembership()
		time.Sleep(time.Minute)
		require.EqualValues(t, 3, asked.Load())
		require.False(t, one.store.Identity().Votes)
		voter.Store(false) // an administrator takes it
		time.Sleep(time.Minute)
		require.EqualValues(t, 3, asked.Load())
	})
}

func TestCheckAddr(t *testing.T) {
	for addr, ok := range map[string]bool{
		"10.0.0.1:7379": true, "[::1]:1": true, "host.domain:7379": true, "": false, "host": false, ":7379": false,
		"0.0.0.0:1": false, "[::]:1": false, "host:": false,
	} {
		require.Equal(t, ok, CheckAddr(addr) == nil, addr)
	}
}
