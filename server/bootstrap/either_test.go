package bootstrap

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// both gives a node contacts besides its initial cluster. asked gets the clusters that the node asks to join.
func both(asked *[]string, contacts ...string) func(*Config) {
	var mu sync.Mutex
	return func(c *Config) {
		c.Contacts = contacts
		c.Join = func(_ context.Context, _, cluster string, _ members.Member) (uint64, string, error) {
			mu.Lock()
			defer mu.Unlock()
			*asked = append(*asked, cluster)
			return 0, "", nil
		}
	}
}

// within returns the result of EnterCluster, which must return in time.
func (l *life) within(t *testing.T, d time.Duration) error {
	t.Helper()
	select {
	case err := <-l.entered:
		return err
	case <-time.After(d):
		require.FailNow(t, "it waits", l.log.text())
		return nil
	}
}

// TestContactsInAllFlags shows that nodes that all have an initial cluster and contacts bootstrap one cluster.
func TestContactsInAllFlags(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var asked []string
		flags := both(&asked, "n1:1", "n2:1", "n3:1")
		w.requireEntered(w.start("n1", flags), w.start("n2", flags), w.start("n3", flags))
		require.Empty(t, asked)
	})
}

// TestEmptiedNodeWithContactsJoins shows that a founder whose folder was emptied joins its cluster if it has contacts,
// even if it finds the cluster only by its initial cluster, or only by the contacts.
func TestEmptiedNodeWithContactsJoins(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		id := w.requireEntered(w.start("n1"), w.start("n2"), w.start("n3"))
		stale := func(c *Config) { c.Initial = map[string]string{"n1": "n1:9", "n2": "n2:1", "n3": "n3:9"} }
		for _, flags := range [][]func(*Config){{both(new([]string), "n8:1")}, {both(new([]string), "n1:1"), stale}} {
			w.wipe("n2")
			two := w.start("n2", flags...)
			require.NoError(t, two.within(t, time.Minute))
			require.Equal(t, store.Identity{Name: "n2", ID: two.store.Identity().ID, ClusterID: id.ClusterID, Votes: true},
				two.store.Identity())
		}
	})
}

// TestNodeWithContactsFoundsNotAlone shows that a node with contacts waits to join them, even if it is alone in its
// initial cluster.
func TestNodeWithContactsFoundsNotAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var asked []string
		five := w.start("n5", alone, both(&asked, "n1:1"))
		time.Sleep(10 * time.Second)
		require.False(t, five.Alone())
		require.Empty(t, five.store.Identity().ClusterID)
		one := w.start("n1", alone)
		require.NoError(t, one.within(t, time.Minute))
		require.NoError(t, five.within(t, time.Minute))
		require.Equal(t, []string{one.store.Identity().ClusterID}, asked)
	})
}

// TestContactThatIsDown shows that no cluster is bootstrapped while a contact is down, since it may be a member of one.
// The nodes join its cluster, or bootstrap one if the contact has none.
func TestContactThatIsDown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var asked []string
		flags := both(&asked, "n9:1")
		lives := []*life{w.start("n1", flags), w.start("n2", flags), w.start("n3", flags)}
		time.Sleep(10 * time.Second)
		require.Equal(t, "waiting for nodes of the initial cluster: n9:1 of --join", lives[0].Waiting())
		nine := w.start("n9", alone)
		require.NoError(t, nine.within(t, time.Minute))
		cluster := nine.store.Identity().ClusterID
		for _, l := range lives {
			require.NoError(t, l.within(t, time.Minute))
		}
		require.Equal(t, []string{cluster, cluster, cluster}, asked)

		w = newWorld(t)
		fresh := w.start("n9", both(&asked, "n8:1"), func(c *Config) { c.Initial = nil })
		id := w.requireEntered(w.start("n1", flags), w.start("n2", flags), w.start("n3", flags))
		require.Len(t, id.Founders, 3, "n9 is none of them")
		require.Empty(t, fresh.store.Identity().Founders)
	})
}

// TestFounderThatWaitsIsHeard shows that the other nodes report which nodes the founder waits for.
func TestFounderThatWaitsIsHeard(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.net.Cut("n1", "n3")
		w.net.Cut("n3", "n1")
		one, two := w.start("n1"), w.start("n2")
		w.start("n3")
		time.Sleep(30 * time.Second)
		require.Equal(t, "waiting for nodes of the initial cluster: n3", one.Waiting())
		require.Equal(t,
			"waiting for nodes of the initial cluster: n1 to found it (waiting for nodes of the initial cluster: n3)",
			two.Waiting())
		require.Contains(t, two.log.text(), two.Waiting())
	})
}

// TestKilledWhileJoiningARestoredNode shows that a node without contacts that was killed while it joined a restored
// node continues by its initial cluster.
func TestKilledWhileJoiningARestoredNode(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		two := w.start("n2", func(c *Config) {
			require.NoError(t, c.Folder.SetIdentity(func(id *store.Identity) { id.ClusterID, id.Restored = "c7", true }))
		})
		require.NoError(t, two.within(t, time.Minute))
		var asked []string
		taken := both(&asked)
		one := w.start("n1", taken, func(c *Config) { c.Folder.(*folder).left = 2 })
		require.ErrorIs(t, one.within(t, time.Minute), errKilled)
		one = w.start("n1", taken)
		require.NoError(t, one.within(t, time.Minute))
		require.Equal(t, []string{"c7", "c7"}, asked)
		require.False(t, one.store.Identity().Joins)
	})
}

// TestIntroductionIsOfItsNode shows that an introduction must have the ID that its node has proved, and that only the
// address of a node of the same cluster is recorded.
func TestIntroductionIsOfItsNode(t *testing.T) {
	other := Introduction{ID: "b", Addr: "host:1", Cluster: "c1"}
	require.NoError(t, other.check("b"))
	require.Error(t, other.check("a"))

	for _, c := range []struct{ own, others, addr string }{
		{"c1", "c1", "host:1"},
		{"c1", "c2", ""},
		{"c1", "", ""},
		{"", "", ""},
	} {
		n := &Node{config: Config{Addresses: &members.Addresses{}}}
		other.Cluster = c.others
		n.learn(c.own, other)
		require.Equal(t, c.addr, n.config.Addresses.Addr("b"), c)
	}
}
