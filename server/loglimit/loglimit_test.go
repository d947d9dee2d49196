package loglimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLimit: a burst, then a line at a time, each with how many there were not since the last.
func TestLimit(t *testing.T) {
	now := time.Unix(1000, 0)
	l := Limit{Burst: 3, Every: time.Second}
	lines := func(tries int) (admitted int, silent []int) {
		for range tries {
			if n, ok := l.Admit(now); ok {
				admitted++
				silent = append(silent, n)
			}
		}
		return admitted, silent
	}
	admitted, silent := lines(10)
	require.Equal(t, 3, admitted)
	require.Equal(t, []int{0, 0, 0}, silent)
	now = now.Add(time.Second - 1)
	admitted, _ = lines(1)
	require.Zero(t, admitted)
	now = now.Add(1)
	admitted, silent = lines(5)
	require.Equal(t, 1, admitted)
	require.Equal(t, []int{8}, silent)
	now = now.Add(time.Hour)
	admitted, silent = lines(5)
	require.Equal(t, 3, admitted, "a long silence saves no more than a burst")
	require.Equal(t, []int{4, 0, 0}, silent)
}

// TestLimitOfOne: a line in each span.
func TestLimitOfOne(t *testing.T) {
	now := time.Unix(1000, 0)
	l := Limit{Burst: 1, Every: time.Second}
	for i := range 10 {
		_, ok := l.Admit(now)
		require.Equal(t, i%2 == 0, ok)
		now = now.Add(time.Second / 2)
	}
}
