package lua

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestCacheCompilesOnce(t *testing.T) {
	var c Cache
	source := "return " + strings.Repeat("1+", 1000) + "1"
	require.False(t, c.Has(source))
	var programs [8]*Program
	var all sync.WaitGroup
	for i := range programs {
		all.Go(func() {
			var err error
			programs[i], err = c.Compile(source)
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.True(t, c.Has(source))
	for _, p := range programs {
		require.Same(t, programs[0], p)
	}
	require.Equal(t, source, programs[0].Source())

	for range 2 {
		_, err := c.Compile("return (")
		_, want := Compile("return (", DefaultLimits())
		require.Equal(t, want, err)
		require.False(t, c.Has("return ("))
	}
	require.Len(t, c.recent, 1)
	require.Equal(t, cachedEach+len(source), c.bytes)
}

// TestCacheSharesNothing: a source is a part of a log entry, whose memory is used again.
func TestCacheSharesNothing(t *testing.T) {
	var c Cache
	entry := []byte("return 'a'")
	p, err := c.Compile(unsafe.String(&entry[0], len(entry)))
	require.NoError(t, err)
	copy(entry, "return 'b'")
	require.Equal(t, "return 'a'", p.Source())
	require.True(t, c.Has("return 'a'"))
	require.False(t, c.Has("return 'b'"))
	reply, err := NewRunner().Run(p, &Env{})
	require.NoError(t, err)
	require.Equal(t, "a", reply.Str)
}

// TestCacheIsBounded: a source in use stays, however many others are compiled.
func TestCacheIsBounded(t *testing.T) {
	var c Cache
	used, err := c.Compile("return 'used'")
	require.NoError(t, err)
	for i := range 5000 {
		_, err := c.Compile(fmt.Sprintf("return %d --%s", i, strings.Repeat("x", 700)))
		require.NoError(t, err)
		again, err := c.Compile("return 'used'")
		require.NoError(t, err)
		require.Same(t, used, again)
		require.LessOrEqual(t, c.bytes, cachedBytes)
		sum := 0
		for source := range c.recent {
			sum += cachedEach + len(source)
		}
		require.Equal(t, sum, c.bytes)
	}
	require.Greater(t, len(c.former), 500)
	require.False(t, c.Has("return 0 --"+strings.Repeat("x", 700)))

	long := func(i int) string {
		return fmt.Sprintf("return %d --%s", i, strings.Repeat("x", DefaultLimits().SourceBytes-100))
	}
	for i := range 3 {
		_, err := c.Compile(long(i))
		require.NoError(t, err)
	}
	require.Len(t, c.recent, 1)
	require.Len(t, c.former, 1)
	require.True(t, c.Has(long(2)) && c.Has(long(1)) && !c.Has(long(0)))
}
