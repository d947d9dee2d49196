package founding

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
)

// proved reports whether a process takes part.
func (l *life) proved() bool {
	synctest.Wait()
	select {
	case <-l.incarnation.Proved():
		return true
	default:
		return false
	}
}

// founded is a world with a cluster of n nodes that have been stopped, and what starts them again.
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
	id := w.requireSettled(lives...)
	for name := range initial { // likewise
		w.kill(name)
	}
	return w, func(name string) *life {
		l := w.start(name, first, func(c *Config) {
			c.Newest = func() members.Configuration { return members.NewConfiguration(1, id.Founders...) }
		})
		l.stay()
		return l
	}
}

// TestMajorityVouches: a node takes part as soon as a majority can, and no earlier.
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
				time.Sleep(stragglers + 2*mostPause)
			}
			for _, l := range lives {
				require.True(t, l.proved())
				require.Len(t, l.store.Lineage, 2)
			}
		})
	}
}

// TestStragglersAreHeard: the only member that knows of a later start is slow. A member that does not answer at all is
// waited for as long as stragglers are.
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
		require.LessOrEqual(t, time.Since(begun), stragglers+time.Millisecond)
	})
}
