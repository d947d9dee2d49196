package store

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/incarnation"
)

// TestLineage: a start that was not proved is remembered until one is, and others are forgotten.
func TestLineage(t *testing.T) {
	c := config(memoryDir(t), KindWAL)
	var all []uint64
	open := func(length int) *Store {
		s := mustOpen(t, c)
		require.Len(t, s.Lineage, length)
		require.NotContains(t, all, s.Lineage.Current())
		all = append(all, s.Lineage.Current())
		require.Equal(t, uint64(len(all)), s.Lineage.Current()>>32)
		require.Equal(t, all[len(all)-length:], []uint64(s.Lineage))
		return s
	}
	require.NoError(t, open(1).Close())
	s := open(2)
	require.NoError(t, s.Proved())
	require.NoError(t, s.Close())
	require.NoError(t, open(2).Close())
	s = open(3)
	require.NoError(t, s.Proved())
	require.NoError(t, s.Close())
	require.NoError(t, open(2).Close())
}

// TestLineageOfOtherReleases: a release that counts its starts leaves a count alone, and goes on from an incarnation.
func TestLineageOfOtherReleases(t *testing.T) {
	c := config(memoryDir(t), KindWAL)
	count := func(change func(uint64) uint64, forget bool) (counted uint64) {
		s := mustOpen(t, c)
		counted = change(s.Lineage.Current())
		require.NoError(t, s.Stable.SetUint64([]byte(keyEpoch), counted))
		if forget {
			require.NoError(t, s.Stable.Set([]byte(keyLineage), nil))
		}
		require.NoError(t, s.Close())
		return counted
	}
	count(func(uint64) uint64 { return 7 }, true)
	s := mustOpen(t, c)
	require.Equal(t, incarnation.Lineage{7, s.Lineage.Current()}, s.Lineage)
	require.NoError(t, s.Proved())
	known := s.Lineage.Current()
	require.NoError(t, s.Close())
	counted := count(func(now uint64) uint64 { return now + 1 }, false)
	s = mustOpen(t, c)
	require.True(t, s.Lineage.Follows(known), "what a member knows of before")
	require.True(t, s.Lineage.Follows(counted))
	require.True(t, s.Lineage.Follows(counted-1), "a start of that release which the log knows")
	require.Greater(t, s.Lineage.Current()>>32, counted>>32)
	require.NoError(t, s.Close())
}

// TestCrashWhileLineageIsWritten: the lineage is there first.
func TestCrashWhileLineageIsWritten(t *testing.T) {
	c := config(memoryDir(t), KindWAL)
	s := mustOpen(t, c)
	require.NoError(t, s.Proved())
	before := s.Lineage.Current()
	next := incarnation.Lineage{before}.Start(5)
	require.NoError(t, s.Stable.Set([]byte(keyLineage), next.Append(nil)))
	require.NoError(t, s.Close())
	s = mustOpen(t, c)
	require.Equal(t, next, slices.Delete(slices.Clone(s.Lineage), 2, 3))
	require.NoError(t, s.Close())
}
