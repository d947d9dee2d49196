package server

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFitClients: room is kept for as many members as there may be, 32, however many there are at the start.
func TestFitClients(t *testing.T) {
	for _, test := range []struct {
		wanted  int
		limit   uint64
		want    int
		refused string
	}{
		{10_000, math.MaxUint64, 10_000, ""},
		{10_000, 10_720, 10_000, ""},
		{10_000, 10_719, 9_999, ""},
		{10_000, 1440, 720, ""},
		{10_000, 1024, 512, ""},
		{10_000, 256, 128, ""},
		{100, 256, 100, ""},
		{10_000, 64, 32, ""},
		{
			10_000, 63, 0,
			"the limit of open files is 63, which is not enough: raise it (ulimit -n) to at least 64, better 10720",
		},
	} {
		got, err := fitClients(test.wanted, 32, test.limit)
		if test.refused != "" {
			require.EqualError(t, err, test.refused)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, test.want, got, "%+v", test)
	}
}
