package raftnode

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// TestProgressAfterAPause: a leader has not checked for a while, for example because it was frozen. Its followers get
// the whole time again.
func TestProgressAfterAPause(t *testing.T) {
	start := time.Now()
	tests := map[string]struct {
		looks    []time.Duration // since start; the follower lacks an entry at each
		reported bool
	}{
		"looks each second": {[]time.Duration{0, 1, 2, 3}, true},
		"and goes on":       {[]time.Duration{0, 1, 2, 3, 4, 5, 6, 7}, true},
		"none for a while":  {[]time.Duration{0, 1, 10}, false},
		"and then again":    {[]time.Duration{0, 1, 10, 11, 12, 13}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &progress{}
			var events []Event
			for _, at := range test.looks {
				now := start.Add(at * time.Second)
				p.begin(7, now)
				if e := p.judge("n2", 5, 6, now); e != nil {
					events = append(events, e)
				}
			}
			require.Equal(t, test.reported, len(events) == 1)
			_, shown := p.stalled("n2", 7)
			require.Equal(t, test.reported, shown)
			_, shown = p.stalled("n2", 8)
			require.False(t, shown)
		})
	}
	// A follower that was reported stays stalled over a pause, until its log grows.
	p := &progress{}
	for _, at := range []time.Duration{0, 2, 4, 60} {
		p.begin(7, start.Add(at*time.Second))
		p.judge("n2", 5, 6, start.Add(at*time.Second))
	}
	require.Equal(t, FollowerMoves{ID: "n2", Name: "n2", LogIndex: 6, After: time.Minute},
		p.judge("n2", 6, 6, start.Add(time.Minute)))
	require.Nil(t, p.judge("n2", 7, 7, start.Add(time.Minute)), "the progress is reported once")
}

// TestQuestionsBesideLooks: the race detector checks concurrent calls, such as those for other nodes' answers, for
// changes of the members, and of this node itself.
func TestQuestionsBesideLooks(t *testing.T) {
	p, a, c := newProgress(&Config{OnEvent: func(Event) {}}), acksOf("n1", "n2", "n3"), newConfigurations("n1")
	fresh := newConfigurations("n1") // of a node that has only snapshots
	c.appended([]*raft.Log{configurationAt(1, "n1", "n2", "n3")})
	f := newFastFailover(&Config{ID: "n1"}, c, &voterStub{}, nil)
	var all sync.WaitGroup
	for _, do := range []func(i uint64){
		func(i uint64) { p.check(1+i/50, 9, a) },
		func(i uint64) {
			for range 20 {
				p.stalled("n2", i)
			}
		},
		func(uint64) { // a member is added and removed
			p.check(1, 9, acksOf("n1", "n2"))
			p.check(1, 9, acksOf("n1"))
		},
		func(i uint64) {
			a.reconfigure(viewOf("n1", "n2"))
			a.reconfigure(viewOf("n1", "n2", "n3"))
		},
		func(i uint64) { a.note("n3", 1+i/50, a.currentRound(), i) },
		func(i uint64) { a.noteNotified("n3", 1+i/50, i) },
		func(i uint64) { a.noteShortened("n3", 1+i/50, a.matchOf("n3", 1+i/50), 0) },
		func(i uint64) { a.unnotified("n3", 1+i/50, i) },
		func(i uint64) { a.hasPeer("n3") },
		func(i uint64) { a.heardSince("n3", 1+i/50, time.Time{}) },
		func(i uint64) { a.endWait(a.beginRound(1 + i/50)) },
		func(i uint64) { a.endWait(a.awaitMatch(1+i/50, i, 1)) },
		func(i uint64) { // one of raft's goroutines
			c.appended([]*raft.Log{configurationAt(i+2, "n1", "n2")})
			c.truncated(i + 2)
			c.appended([]*raft.Log{configurationAt(i+2, "n1", "n3")})
		},
		func(i uint64) { c.reached(i) },
		func(i uint64) { fresh.installed(&raft.SnapshotMeta{Index: i, ConfigurationIndex: i}) },
		func(i uint64) { fresh.newestCommitted(i) },
		func(i uint64) {
			c.newestCommitted(i)
			c.following(i)
			c.view()
		},
		func(i uint64) { f.refused("n2") },
		func(i uint64) { f.reached("n2") },
		func(i uint64) { f.vacant() },
	} {
		all.Go(func() {
			for i := range uint64(200) {
				do(i)
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	require.Equal(t, uint64(201), c.view().Index)
	require.Empty(t, a.waiters)
}

// TestMembersThatGoAreForgotten: a member that is added again does not count as stalled for the time of its absence.
func TestMembersThatGoAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []Event
		p, a := newProgress(&Config{OnEvent: func(e Event) { events = append(events, e) }}), acksOf("n1", "n2", "n3")
		looks := func(seconds int) {
			for range seconds {
				a.note("n3", 7, a.currentRound(), 9)
				p.check(7, 9, a)
				time.Sleep(time.Second)
			}
		}
		looks(3)
		require.Empty(t, events)
		a.reconfigure(viewOf("n1", "n3"))
		looks(1)
		a.reconfigure(viewOf("n1", "n2", "n3"))
		looks(3)
		require.Empty(t, events)
		looks(1)
		require.Len(t, events, 1)
		require.Equal(t, "n2", events[0].(FollowerStalled).ID)
		a.reconfigure(viewOf("n1", "n3"))
		looks(1)
		require.Len(t, events, 1)
		_, shown := p.stalled("n2", 7)
		require.False(t, shown)
	})
}
