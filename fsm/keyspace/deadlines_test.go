package keyspace

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// exerciseDeadlines runs steps over a deadlineIndex and over a sorted slice. Instants lie
// within width of a clock that goes on.
func exerciseDeadlines(t *testing.T, steps []byte, width, hashes int64) {
	var c deadlineIndex
	var m []deadline
	state := uint64(1)
	for i, step := range steps {
		state = state*6364136223846793005 + uint64(step)*1442695040888963407 + 1
		clock := int64(i / 16)
		d := deadline{clock - 10 + int64(state>>33)%width, state >> 20 % uint64(hashes)}
		at, _ := slices.BinarySearchFunc(m, d, compareDeadlines)
		switch {
		case step < 120:
			c.add(d)
			m = slices.Insert(m, at, d)
		case step < 230 && len(m) > 0:
			at %= len(m)
			c.remove(m[at])
			m = slices.Delete(m, at, at+1)
		case step < 240:
			first, _ := slices.BinarySearchFunc(m, deadline{d.millis, 0}, compareDeadlines)
			require.Equal(t, first, c.before(d.millis))
			require.Equal(t, sumBytes(m[:first]), c.bytesBefore(d.millis))
			next, ok := c.next(d.millis)
			require.Equal(t, first < len(m), ok)
			if ok {
				require.Equal(t, m[first].millis, next)
			}
		case step < 250 && i%64 == 0:
			require.NoError(t, verifyDeadlines(&c))
		case step == 255 && i%64 == 0:
			first, _ := slices.BinarySearchFunc(m, deadline{clock, 0}, compareDeadlines)
			c.dropBefore(clock)
			m = slices.Delete(m, 0, first)
		}
		require.Equal(t, len(m), c.count)
		first, ok := c.first()
		require.Equal(t, len(m) > 0, ok)
		if ok {
			require.Equal(t, m[0], first)
		}
	}
	require.NoError(t, verifyDeadlines(&c))
	require.True(t, slices.Equal(m, listed(&c)))
}

func TestDeadlineIndexModel(t *testing.T) {
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
			t.Run(fmt.Sprint(width, "-", hashes), func(t *testing.T) { exerciseDeadlines(t, steps, width, hashes) })
		}
	}
}

func FuzzDeadlineIndex(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\xe6\x80\xff"), uint16(10), uint16(2))
	f.Fuzz(func(t *testing.T, steps []byte, width, hashes uint16) {
		exerciseDeadlines(t, steps, int64(width)+1, int64(hashes)+1)
	})
}

// TestDeadlinesOfManyChunks: enough for several chunks, filled and emptied from all sides.
func TestDeadlinesOfManyChunks(t *testing.T) {
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
		var c deadlineIndex
		for _, i := range instants {
			c.add(deadline{int64(i), uint64(i)})
		}
		require.NoError(t, verifyDeadlines(&c))
		require.Greater(t, len(c.chunks), 3)
		chunks, perBlock := 20, blockSize/2
		switch order {
		case "up": // which is how most come
			chunks, perBlock = 8, blockSize*3/4
		case "any":
			chunks, perBlock = 12, blockSize*2/3
		}
		require.LessOrEqual(t, len(c.chunks), chunks)
		require.LessOrEqual(t, blocksOf(t, &c), n/perBlock)
		require.Equal(t, n/2, c.before(n/2))
		require.Equal(t, sumBytes(listed(&c)[:n/2]), c.bytesBefore(n/2))
		for _, ch := range c.chunks {
			first := ch.blocks[0].deadlines[0].millis
			next, ok := c.next(first) // what is just before stands in the chunk before
			require.True(t, ok)
			require.Equal(t, first, next)
		}
		for at, i := range rng.Perm(n) {
			if at%20 != 0 {
				c.remove(deadline{int64(i), uint64(i)})
			}
		}
		require.NoError(t, verifyDeadlines(&c))
		require.Equal(t, n/20, c.count)
		require.LessOrEqual(t, len(c.chunks), 2)
		require.LessOrEqual(t, blocksOf(t, &c), c.count/(blockSize/4))
		c.dropBefore(n)
		require.Zero(t, c.count)
		require.Empty(t, c.chunks)
	}
}

// TestEqualDeadlinesOfManyChunks: one of many that are equal is found before later ones, in whichever chunk it stands.
func TestEqualDeadlinesOfManyChunks(t *testing.T) {
	const n, later = 40_000, 10
	var c deadlineIndex
	for i := range n + later {
		c.add(deadline{int64(i / n), 7})
	}
	require.Greater(t, len(c.chunks), 1)
	for range n {
		c.remove(deadline{0, 7})
	}
	require.NoError(t, verifyDeadlines(&c))
	require.Equal(t, later, c.count)
}

// TestShortChunkBesideLong: a chunk is joined with its neighbour only if both are short.
func TestShortChunkBesideLong(t *testing.T) {
	var c deadlineIndex
	for n := int64(0); len(c.chunks) < 3; n++ {
		c.add(deadline{n, 0})
	}
	for len(c.chunks[0].blocks) > 1 {
		first, _ := c.first()
		c.remove(first)
		require.Len(t, c.chunks, 3)
	}
	for len(c.chunks[2].blocks) > 1 {
		last := &c.chunks[2].blocks[len(c.chunks[2].blocks)-1]
		c.remove(last.deadlines[last.n-1])
		require.Len(t, c.chunks, 3)
	}
	require.NoError(t, verifyDeadlines(&c))
}

// blocksOf counts blocks. A chunk keeps nothing alive of what it has given away.
func blocksOf(t *testing.T, c *deadlineIndex) (n int) {
	for _, ch := range c.chunks {
		require.LessOrEqual(t, len(ch.blocks), chunkBlocks)
		n += len(ch.blocks)
		for _, b := range ch.blocks[len(ch.blocks):cap(ch.blocks)] {
			require.Nil(t, b.deadlines)
		}
	}
	return n
}
