package raftnode

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An acknowledgement does not count for a round when its request was sent before the round began,
// or in another term. raft's own check accepts earlier requests.
func TestOldAcknowledgementsConfirmNothing(t *testing.T) {
	a := newAcks(&Config{Name: "n1", InitialCluster: map[string]string{"n1": "", "n2": "", "n3": ""}})
	before := a.sending()
	round := a.beginRound(7)
	confirmed := func() bool {
		select {
		case <-round.done:
			return true
		default:
			return false
		}
	}
	a.note("n2", 7, before, 5)
	require.False(t, confirmed(), "sent before")
	a.note("n2", 6, a.sending(), 0)
	require.False(t, confirmed(), "of a former term")
	a.note("nobody", 7, a.sending(), 0)
	require.False(t, confirmed(), "of a stranger")
	a.note("n2", 7, a.sending(), 0)
	require.True(t, confirmed())
	heard := func(peer string, term uint64) (match uint64, ok bool) {
		ack, ok := a.heardSince(peer, term, time.Time{})
		return ack.match, ok
	}
	match, ok := heard("n2", 7)
	require.True(t, ok)
	require.Equal(t, uint64(5), match)
	_, ok = heard("n2", 8)
	require.False(t, ok)
	_, ok = heard("n3", 7)
	require.False(t, ok)
	a.forget(round)
	require.Empty(t, a.waiters)
}

func TestFiveNodesNeedTwoAcknowledgements(t *testing.T) {
	a := newAcks(&Config{Name: "n1", InitialCluster: map[string]string{"n1": "", "n2": "", "n3": "", "n4": "", "n5": ""}})
	round := a.beginRound(1)
	a.note("n2", 1, a.sending(), 0)
	a.note("n2", 1, a.sending(), 0)
	require.Len(t, a.waiters, 1)
	a.note("n5", 1, a.sending(), 0)
	<-round.done
}

func TestMatchOfAFormerTermDoesNotCount(t *testing.T) {
	a := newAcks(&Config{Name: "n1", InitialCluster: map[string]string{"n1": "", "n2": "", "n3": ""}})
	a.note("n2", 6, a.sending(), 9)
	require.Zero(t, a.forget(a.awaitMatch(7, 5, 1)))
	a.note("n2", 7, a.sending(), 4)
	require.Zero(t, a.forget(a.awaitMatch(7, 5, 1)), "what it had agreed with another leader on may be gone")
	a.note("n2", 7, a.sending(), 5)
	require.Equal(t, 1, a.forget(a.awaitMatch(7, 5, 1)))
}
