package raftnode

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A leader that did not look for a while, because it was frozen, say, gives its followers their time again.
func TestProgressAfterAPause(t *testing.T) {
	start := time.Now()
	tests := map[string]struct {
		looks []time.Duration // since start; the follower lacks an entry at each
		told  bool
	}{
		"looks each second": {[]time.Duration{0, 1, 2, 3}, true},
		"none for a while":  {[]time.Duration{0, 1, 10}, false},
		"and then again":    {[]time.Duration{0, 1, 10, 11, 12, 13}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &progress{}
			var told []Event
			for _, at := range test.looks {
				now := start.Add(at * time.Second)
				p.begin(7, now)
				if e := p.judge("n2", 5, 6, now); e != nil {
					told = append(told, e)
				}
			}
			require.Equal(t, test.told, len(told) == 1)
			_, shown := p.stalled("n2", 7)
			require.Equal(t, test.told, shown)
			_, shown = p.stalled("n2", 8)
			require.False(t, shown)
		})
	}
	// What was told stays so over a pause, until the follower moves.
	p := &progress{}
	for _, at := range []time.Duration{0, 2, 4, 60} {
		p.begin(7, start.Add(at*time.Second))
		p.judge("n2", 5, 6, start.Add(at*time.Second))
	}
	require.Equal(t, FollowerMoves{ID: "n2", Name: "n2", LogIndex: 6, After: time.Minute},
		p.judge("n2", 6, 6, start.Add(time.Minute)))
}
