package workload

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRotationGivesKeysUp(t *testing.T) {
	r := NewRotation("w", 1, 3, 2)
	var keys []string
	for range 7 {
		keys = append(keys, r.Key(0))
	}
	require.Equal(t, []string{"w:0:0", "w:0:0", "w:0:0", "w:0:1", "w:0:1", "w:0:1", "w:0:2"}, keys)
	r.Unknown(0)
	require.Equal(t, "w:0:2", r.Key(0))
	r.Unknown(0)
	require.Equal(t, "w:0:3", r.Key(0))
	require.Equal(t, []string{"w:0:0", "w:0:1", "w:0:2", "w:0:3"}, r.All())
}

func TestListInAString(t *testing.T) {
	list, err := parseList(element(3) + element(41))
	require.NoError(t, err)
	require.Equal(t, []int64{3, 41}, list)
	require.Len(t, element(3), elementWidth)
	list, err = parseList("")
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = parseList("x,")
	require.Error(t, err)
}

func TestClientsAreDealtOut(t *testing.T) {
	loads, err := Build("all", &Options{Concurrency: 30})
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, l := range loads {
		require.NotEqual(t, "unfencedset", l.Name)
		require.NotEqual(t, "onelock", l.Name)
		require.NotEmpty(t, l.clients)
		for _, c := range l.clients {
			require.False(t, seen[c])
			seen[c] = true
		}
	}
	require.Len(t, seen, 30)
	sum := 0
	for _, l := range loads {
		sum += builders[l.Name].share
	}
	for _, clients := range []int{2 * len(loads), sum} {
		loads, err = Build("all", &Options{Concurrency: clients})
		require.NoError(t, err)
		for _, l := range loads {
			want := 2
			if clients == sum {
				want = builders[l.Name].share
			}
			require.Len(t, l.clients, want, l.Name)
		}
	}
	_, err = Build("all", &Options{Concurrency: 7})
	require.ErrorContains(t, err, "too few")
	_, err = Build("register,rain", &Options{Concurrency: 3})
	require.ErrorContains(t, err, `no workload "rain"`)
}
