package server

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFitClients(t *testing.T) {
	for _, test := range []struct {
		wanted, nodes int
		limit         uint64
		want          int
		refused       string
	}{
		{10_000, 3, math.MaxUint64, 10_000, ""},
		{10_000, 3, 10_256, 10_000, ""},
		{10_000, 3, 10_255, 9_999, ""},
		{10_000, 5, 10_255, 9_967, ""},
		{10_000, 3, 1024, 768, ""},
		{10_000, 3, 256, 128, ""},
		{100, 3, 256, 100, ""},
		{10_000, 1, 64, 32, ""},
		{10_000, 3, 63, 0, "the limit of open files is 63, which is not enough: raise it (ulimit -n) to at least 64, better 10256"},
	} {
		got, err := fitClients(test.wanted, test.nodes, 32, test.limit)
		if test.refused != "" {
			require.EqualError(t, err, test.refused)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, test.want, got, "%+v", test)
	}
}
