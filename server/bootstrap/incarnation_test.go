package bootstrap

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// proved reports whether the incarnation of the process is proved, so that it takes part.
func (l *life) proved() bool {
	synctest.Wait()
	select {
	case <-l.incarnation.Proved():
		return true
	default:
		return false
	}
}

// founded returns a world with a cluster of n nodes that have been stopped, and a function that starts them again.
func founded(t *testing.T, n int) (w *world, again func(name string) *life) {
	w = newWorld(t)
	initial := make(map[string]string)
	for i := range n {
		initial[fmt.Sprint("n", i+1)] = fmt.Sprint("n", i+1, ":1")
	}
	first := func(c *Config) { c.Initial = initial }
	var lives []*life
	for name := range initial { // unordered: they found together
		lives = append(lives, w.start(name, first))
	}
	id := w.requireEntered(lives...)
	for name := range initial { // likewise
		w.kill(name)
	}
	return w, func(name string) *life {
		l := w.start(name, first, func(c *Config) {
			c.Newest = func() members.Configuration { return members.NewConfiguration(1, id.Founders...) }
		})
		l.watchMembership()
		return l
	}
}

// TestMajorityVouches shows that a node takes part as soon as a majority of the voters is up, and no earlier.
func TestMajorityVouches(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		synctest.Test(t, func(t *testing.T) {
			_, again := founded(t, n)
			var lives []*life
			for i := range n {
				for _, l := range lives {
					require.Equal(t, i >= n/2+1, l.proved(), "%d of %d are there", i, n)
				}
				lives = append(lives, again(fmt.Sprint("n", i+1)))
				time.Sleep(stragglerTimeout + 2*maxPause)
			}
			for _, l := range lives {
				require.True(t, l.proved())
				require.Len(t, l.store.Lineage, 2)
			}
		})
	}
}

// TestStragglersAreHeard shows that after a majority has vouched, a node still waits for slow members, of which one may
// know a later incarnation. A member that does not answer delays it by stragglerTimeout at most.
func TestStragglersAreHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, again := founded(t, 3)
		old := w.disks["n1"].Copy()
		one := again("n1")
		three := again("n3")
		time.Sleep(time.Second)
		require.True(t, one.proved())
		require.True(t, three.proved())
		w.kill("n1")
		w.disks["n1"] = old
		w.net.Delay("n1", "n3", 100*time.Millisecond)
		again("n2")
		one = again("n1")
		time.Sleep(time.Second)
		require.False(t, one.proved(), "n2 vouches, and n3 does not")
		require.ErrorIs(t, <-one.superseded, incarnation.ErrSuperseded)

		w.kill("n3")
		w.net.Isolate("n3")
		begun := time.Now()
		four := again("n2")
		<-four.incarnation.Proved()
		require.LessOrEqual(t, time.Since(begun), stragglerTimeout+time.Millisecond)
	})
}

// TestStragglersAreWaitedForOnce shows that stragglerTimeout begins when a majority has vouched, and does not begin
// again with each later answer.
func TestStragglersAreWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, again := founded(t, 5)
		for _, name := range []string{"n2", "n3", "n4"} {
			again(name)
		}
		time.Sleep(time.Second)
		w.net.Isolate("n5")
		w.net.Delay("n1", "n4", 100*time.Millisecond)
		begun := time.Now()
		one := again("n1")
		<-one.incarnation.Proved()
		require.Equal(t, stragglerTimeout, time.Since(begun))
		by, _ := one.incarnation.Vouched()
		require.Len(t, by, 3, "n4's word came meanwhile")
	})
}

// TestWhoVouches shows that a node is confirmed by a majority of the voters, of which it may be one itself, or by a
// leader. Members without a vote do not count.
func TestWhoVouches(t *testing.T) {
	for name, row := range map[string]struct {
		voters  []string
		by      []string
		leads   bool
		missing []string
		enough  bool
	}{
		"nobody": {voters: []string{"self", "b", "c"}, missing: []string{"b", "c"}},
		"one of three": {
			voters: []string{"self", "b", "c"}, by: []string{"b"}, missing: []string{"c"},
			enough: true,
		},
		"members without a vote": {
			voters: []string{"self", "b", "c"}, by: []string{"x", "y"},
			missing: []string{"b", "c"},
		},
		"a leader of five": {
			voters: []string{"self", "b", "c", "d", "e"}, by: []string{"c"}, leads: true,
			missing: []string{"b", "d", "e"}, enough: true,
		},
		"a node without a vote": {voters: []string{"b", "c", "d"}, by: []string{"c"}, missing: []string{"b", "d"}},
		"a node without a vote, by two": {
			voters: []string{"b", "c", "d"}, by: []string{"c", "d"}, missing: []string{"b"},
			enough: true,
		},
		"a node without a vote, by leader": {
			voters: []string{"b", "c", "d"}, by: []string{"c"}, leads: true,
			missing: []string{"b", "d"}, enough: true,
		},
		"no configuration, nobody": {missing: []string{"one"}},
		"no configuration":         {by: []string{"c"}, missing: []string{"one"}, enough: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				l := w.start("n1")
				w.kill("n1") // no other goroutine asks
				var all []members.Member
				for _, id := range row.voters {
					if id == "self" {
						id = l.store.Identity().ID
					}
					all = append(all, members.Member{ID: id, Voter: true})
				}
				for _, id := range []string{l.store.Identity().ID, "x", "y"} {
					if len(all) > 0 && !members.NewConfiguration(1, all...).Has(id) {
						all = append(all, members.Member{ID: id})
					}
				}
				l.config.Newest = func() members.Configuration { return members.NewConfiguration(1, all...) }
				for _, id := range row.by {
					l.incarnation.Vouch(id, row.leads)
				}
				missing, enough := l.isConfirmed()
				require.Equal(t, row.missing, missing)
				require.Equal(t, row.enough, enough)
			})
		})
	}
}

// TestVotersChangedMeanwhile shows who confirms n3 after n4 has taken the place of n1 while n3 was away. Any two of n2,
// n3 and n4 are a majority, even if no node knows that the change is committed. A node that knows of the change does
// not count n1, which has no vote any more.
func TestVotersChangedMeanwhile(t *testing.T) {
	for name, row := range map[string]struct {
		before, after []string
		knows, proved bool // knows: n3 has the change in its log
	}{
		"alone":                                 {proved: false},
		"a new voter was there":                 {before: []string{"n4"}, proved: true},
		"a new voter comes":                     {after: []string{"n4"}, proved: true},
		"a former voter":                        {before: []string{"n1"}, proved: true},
		"a former voter that knows less":        {before: []string{"n1"}, knows: true, proved: false},
		"one that knows of more":                {before: []string{"n5"}, proved: false},
		"one that knows of more, and its voter": {before: []string{"n4", "n5"}, proved: true},
	} {
		for _, committed := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", committed=", committed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, _ := founded(t, 5)
					ids := make(map[string]string)
					for name, disk := range w.disks { // unordered
						s, err := disk.Open(store.Config{Name: name})
						require.NoError(t, err)
						ids[name] = s.Identity().ID
						require.NoError(t, s.Close())
					}
					again := func(name string) *life {
						voters := map[string]bool{"n2": true, "n3": true, "n4": true}
						index := uint64(9)
						if name == "n1" || name == "n3" && !row.knows {
							voters, index = map[string]bool{"n1": true, "n2": true, "n3": true}, 1
						}
						var all []members.Member
						for name := range w.disks { // sorted by NewConfiguration
							if voters[name] || name == "n5" && index > 1 {
								all = append(all, members.Member{ID: ids[name], Addr: name + ":1", Voter: voters[name]})
							}
						}
						l := w.start(name, func(c *Config) {
							c.Initial = cluster3
							conf := func() members.Configuration { return members.NewConfiguration(index, all...) }
							if c.Newest = conf; committed {
								c.Committed = conf
							}
							c.Led, c.Removed = func() bool { return false }, func() {}
						})
						l.watchMembership()
						return l
					}
					for _, name := range row.before {
						again(name)
					}
					time.Sleep(time.Second)
					three := again("n3")
					for _, name := range row.after {
						time.Sleep(time.Second)
						again(name)
					}
					time.Sleep(2 * leaderlessTimeout)
					require.Equal(t, row.proved, three.proved())
				})
			})
		}
	}
}

// TestNewestConfigurationIsThatOfTheNewestLog shows that the configuration in the log with the later last term is the
// newer one, since a change in a log of an older term was not committed. If a member of an earlier release reports no
// term, the index decides.
func TestNewestConfigurationIsThatOfTheNewestLog(t *testing.T) {
	type log struct{ index, lastTerm uint64 }
	for _, row := range []struct{ older, newer log }{
		{log{4, 2}, log{5, 2}},
		{log{5, 2}, log{4, 3}},
		{log{4, 2}, log{5, 0}},
		{log{4, 0}, log{5, 2}},
		{log{0, 0}, log{1, 1}},
	} {
		older := inLog{members.NewConfiguration(row.older.index), row.older.lastTerm}
		newer := inLog{members.NewConfiguration(row.newer.index), row.newer.lastTerm}
		require.Equal(t, newer, newerOf(older, newer))
		require.Equal(t, newer, newerOf(newer, older))
		require.Equal(t, newer, newerOf(newer, newer))
	}
}

// TestMembersOfThoseMetAreMet shows that a node that knows one address meets all members.
func TestMembersOfThoseMetAreMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, again := founded(t, 3)
		one, two, three := again("n1"), again("n2"), again("n3")
		met := one.exchangeIdentities(t.Context(), []string{"n2:1"})
		require.Len(t, met, 2)
		require.Equal(t, two.store.Identity().ID, met[0].ID)
		require.Equal(t, uint64(1), met[0].LastTerm)
		require.Equal(t, three.store.Identity().ID, met[1].ID)
		met = one.exchangeIdentities(t.Context(), []string{"n3:1", "n2:1"})
		require.Len(t, met, 2)
		require.Equal(t, three.store.Identity().ID, met[0].ID)
	})
}
