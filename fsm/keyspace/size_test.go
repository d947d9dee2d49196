package keyspace

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSizeClasses: what counts is at least what is there, and at most an eighth and 16 bytes more.
func TestSizeClasses(t *testing.T) {
	previous := sizeClass(0)
	for n := 0; n < 100<<20; n += 1 + n/50 {
		class := classOf(n)
		got := class.bytes() - itemBytes
		require.GreaterOrEqual(t, got, int64(n))
		require.LessOrEqual(t, got, int64(n+n/8+sizeUnit), n)
		require.GreaterOrEqual(t, class, previous)
		previous = class
		if n > 0 {
			require.Equal(t, class, classOf(int(got)), "the largest of its class")
			require.Greater(t, classOf(int(got)+1), class)
		}
	}
}
