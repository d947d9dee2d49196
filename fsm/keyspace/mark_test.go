package keyspace

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func remarked(it Item, first, second Mark) Item {
	it = it.WithMark(first)
	return it.WithMark(second)
}

// TestMarks: a mark comes back beside key and value, over all lengths of the head, and shows in nothing else.
func TestMarks(t *testing.T) {
	marks := []Mark{
		{},
		{SinceMillis: 1, LeaseMillis: 30_000, Incarnation: 3, Conn: 12_345, Renewals: 200},
		{
			SinceMillis: math.MinInt64, LeaseMillis: math.MaxInt64, Incarnation: math.MaxUint64, Conn: math.MaxUint64,
			Renewals: math.MaxUint64,
		},
	}
	for _, n := range []int{0, 1, 31, 32, 4096} {
		key := strings.Repeat("k", n)
		for _, value := range []string{"", "v", "value\x00\xff"} {
			plain := NewItem(Hash(key), key, value, 7, EncodingAuto)
			require.False(t, plain.IsMarked())
			_, ok := plain.Mark()
			require.False(t, ok)
			for _, m := range marks {
				for _, it := range []Item{NewMarked(Hash(key), key, value, 7, m), plain.WithMark(m), remarked(plain, marks[1], m)} {
					got, ok := it.Mark()
					require.True(t, ok)
					require.Equal(t, m, got)
					require.Equal(t, key, it.Key())
					require.Equal(t, value, it.Value())
					require.Equal(t, EncodingAuto, it.Encoding())
					require.Greater(t, it.contentLen(), len(key)+len(value), "the mark counts")
				}
			}
		}
	}
	hash := NewCollection(Hash("k"), "k", &pile{5}, 7, 3)
	marked := hash.WithMark(marks[1])
	require.True(t, marked.Shares(&hash))
	require.Equal(t, "k", marked.Key())
	next := marked.With(&pile{6}, 4)
	require.True(t, next.IsMarked(), "the mark stays while the collection changes")
	copied := marked.Copied(Hash("l"), "l", 4)
	require.False(t, copied.IsMarked())
	var none Item
	require.False(t, none.IsMarked())
	require.Empty(t, none.Key()+none.Value())
	require.Zero(t, none.contentLen())
}
