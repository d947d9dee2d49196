package zset

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The words were tried with redis-server 7.0.15.
func TestParseScore(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]float64{
		"1": 1, "-1.5": -1.5, "+2": 2, "1.": 1, ".5": 0.5, "1e5": 1e5, "1E-5": 1e-5, "inf": math.Inf(1),
		"-Infinity": math.Inf(-1), "+INF": math.Inf(1),
		"0x10": 16, "0X1.8": 1.5, "0x1p3": 8, "-0x.8p1": -1, "4e-324": 5e-324, "0e99999999999": 0, "0x0p-99999": 0,
		"00001":            1,
		"9007199254740993": 9007199254740992, "1e-320": 1e-320,
	} {
		got, ok := parseScore(word)
		require.True(t, ok, word)
		require.Equal(t, want, got, word)
	}
	for _, word := range []string{
		"", " 1", "1 ", ".", "1e", "1e+", "0x", "0x.", "0x.8p", "1_0", "nan", "-nan", "nan(1)", "1e400", "-1e400", "1e-400",
		"0x1p-2000", "--1", "+-1",
		"1\x00", "infinit", "0b1", "x", "e5", "1..2",
	} {
		_, ok := parseScore(word)
		require.False(t, ok, word)
	}
	for word, want := range map[string]scoreRange{
		"": {}, " 1": {low: 1}, "(1": {low: 1, lowOpen: true}, "(": {lowOpen: true}, "1\x00x": {low: 1},
		"1e400": {low: math.Inf(1)}, "1e-400": {},
	} {
		r, ok := parseScoreRange(word, "0")
		require.True(t, ok, word)
		require.Equal(t, want, r, word)
	}
	for _, word := range []string{" ", "1 ", "((1", "nan", "x", "(x"} {
		_, ok := parseScoreRange("0", word)
		require.False(t, ok, word)
	}
}
