package fsm

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// listed is what stands in a calendar, in order.
func listed(c *calendar) (all []due) {
	for _, ch := range c.chapters {
		for i := range ch.pages {
			all = append(all, ch.pages[i].dues[:ch.pages[i].n]...)
		}
	}
	return all
}

// checkCalendar checks the invariants of a calendar.
func checkCalendar(c *calendar) error {
	var lows []due
	count := 0
	for _, ch := range c.chapters {
		inChapter, bytes := 0, int64(0)
		for i := range ch.pages {
			p := &ch.pages[i]
			if p.n == 0 {
				return fmt.Errorf("page %d of %d is empty", i, len(ch.pages))
			}
			if p.dues[0].before(p.low) {
				return fmt.Errorf("a page begins with %v before its low, %v", p.dues[0], p.low)
			}
			if n := len(lows); n > 0 && p.low.before(lows[n-1]) {
				return fmt.Errorf("pages are out of order")
			}
			lows = append(lows, p.low)
			inChapter += p.n
			bytes += p.bytes
			if sum := sumDues(p.dues[:p.n]); sum != p.bytes {
				return fmt.Errorf("a page of %d bytes is counted as %d", sum, p.bytes)
			}
		}
		if bytes != ch.bytes {
			return fmt.Errorf("a chapter of %d bytes is counted as %d", bytes, ch.bytes)
		}
		if inChapter == 0 || inChapter != ch.count {
			return fmt.Errorf("a chapter of %d is counted as %d", inChapter, ch.count)
		}
		count += inChapter
	}
	if count != c.count {
		return fmt.Errorf("%d dues are counted as %d", count, c.count)
	}
	if !slices.IsSortedFunc(listed(c), due.compare) {
		return fmt.Errorf("dues are out of order")
	}
	return nil
}

// exerciseCalendar runs steps over a calendar and over a sorted slice. Instants lie
// within width of a clock that goes on.
func exerciseCalendar(t *testing.T, steps []byte, width, hashes int64) {
	var c calendar
	var m []due
	state := uint64(1)
	for i, step := range steps {
		state = state*6364136223846793005 + uint64(step)*1442695040888963407 + 1
		clock := int64(i / 16)
		d := due{clock - 10 + int64(state>>33)%width, state >> 20 % uint64(hashes)}
		at, _ := slices.BinarySearchFunc(m, d, due.compare)
		switch {
		case step < 120:
			c.add(d)
			m = slices.Insert(m, at, d)
		case step < 230 && len(m) > 0:
			at %= len(m)
			c.remove(m[at])
			m = slices.Delete(m, at, at+1)
		case step < 240:
			first, _ := slices.BinarySearchFunc(m, due{d.deadlineMillis, 0}, due.compare)
			require.Equal(t, first, c.before(d.deadlineMillis))
			require.Equal(t, sumDues(m[:first]), c.bytesBefore(d.deadlineMillis))
			next, ok := c.next(d.deadlineMillis)
			require.Equal(t, first < len(m), ok)
			if ok {
				require.Equal(t, m[first].deadlineMillis, next)
			}
		case step < 250 && i%64 == 0:
			require.NoError(t, checkCalendar(&c))
		case step == 255 && i%64 == 0:
			first, _ := slices.BinarySearchFunc(m, due{clock, 0}, due.compare)
			c.dropBefore(clock)
			m = slices.Delete(m, 0, first)
		}
		require.Equal(t, len(m), c.len())
		first, ok := c.first()
		require.Equal(t, len(m) > 0, ok)
		if ok {
			require.Equal(t, m[0], first)
		}
	}
	require.NoError(t, checkCalendar(&c))
	require.True(t, slices.Equal(m, listed(&c)))
}

func TestCalendarModel(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for _, width := range []int64{1, 30, 100_000} {
		for _, hashes := range []int64{1, 3, 1 << 40} {
			steps := make([]byte, 30_000)
			for j := range steps {
				steps[j] = byte(rng.Intn(256))
				if j/10_000%2 == 0 && rng.Intn(2) == 0 {
					steps[j] = 0 // grow, then shrink
				}
			}
			t.Run(fmt.Sprint(width, "-", hashes), func(t *testing.T) { exerciseCalendar(t, steps, width, hashes) })
		}
	}
}

func FuzzCalendar(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\xe6\x80\xff"), uint16(10), uint16(2))
	f.Fuzz(func(t *testing.T, steps []byte, width, hashes uint16) {
		exerciseCalendar(t, steps, int64(width)+1, int64(hashes)+1)
	})
}

// TestCalendarOfManyChapters: enough for several chapters, filled and emptied from all sides.
func TestCalendarOfManyChapters(t *testing.T) {
	const n = 150_000
	rng := rand.New(rand.NewSource(1))
	for _, order := range []string{"up", "down", "any"} {
		instants := rng.Perm(n)
		switch order {
		case "up":
			slices.Sort(instants)
		case "down":
			slices.Sort(instants)
			slices.Reverse(instants)
		}
		var c calendar
		for _, i := range instants {
			c.add(due{int64(i), uint64(i)})
		}
		require.NoError(t, checkCalendar(&c))
		require.Greater(t, len(c.chapters), 3)
		require.Equal(t, n/2, c.before(n/2))
		for _, ch := range c.chapters {
			first := ch.pages[0].dues[0].deadlineMillis
			next, ok := c.next(first) // what is just before stands in the chapter before
			require.True(t, ok)
			require.Equal(t, first, next)
		}
		for at, i := range rng.Perm(n) {
			if at%20 != 0 {
				c.remove(due{int64(i), uint64(i)})
			}
		}
		require.NoError(t, checkCalendar(&c))
		require.Equal(t, n/20, c.len())
		c.dropBefore(n)
		require.Zero(t, c.len())
		require.Empty(t, c.chapters)
	}
}
