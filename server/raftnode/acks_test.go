package raftnode

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
)

// acksOf returns the acknowledgements of a cluster of voters. The first voter leads.
func acksOf(ids ...string) *acks {
	a := newAcks(ids[0], time.Minute)
	a.reconfigure(viewOf(ids[0], ids[1:]...))
	return a
}

// viewOf returns a configuration as the voter self sees it. Others that begin with '-' have no vote.
func viewOf(self string, others ...string) *view {
	all := []members.Member{{ID: self, Voter: true}}
	for _, id := range others {
		id, without := strings.CutPrefix(id, "-")
		all = append(all, members.Member{ID: id, Voter: !without})
	}
	return newConfigurations(self).see(members.NewConfiguration(1, all...))
}

// TestOldAcknowledgementsConfirmNothing: an acknowledgement counts for a round only if its request was sent after the
// round began, and in the same term. Raft's own check accepts earlier requests.
func TestOldAcknowledgementsConfirmNothing(t *testing.T) {
	a := acksOf("n1", "n2", "n3")
	before := a.currentRound()
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
	a.note("n2", 6, a.currentRound(), 0)
	require.False(t, confirmed(), "of a former term")
	a.note("stranger", 7, a.currentRound(), 0)
	require.False(t, confirmed(), "of a stranger")
	a.note("n3", 8, a.currentRound(), 0)
	require.False(t, confirmed(), "of a later term")
	since := time.Now()
	a.note("n2", 7, a.currentRound(), 0)
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
	_, ok = heard("stranger", 7)
	require.False(t, ok)
	_, ok = a.heardSince("n2", 7, since)
	require.True(t, ok)
	_, ok = a.heardSince("n2", 7, time.Now().Add(time.Hour))
	require.False(t, ok, "no acknowledgement since then")
	a.endWait(round)
	require.Empty(t, a.waiters)
}

// TestRoundTripOfThoseThatAnswer: the round trip to a majority counts only members that have answered heartbeats, and
// recently.
func TestRoundTripOfThoseThatAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const near, far = time.Millisecond, 80 * time.Millisecond
		a := acksOf("n1", "n2", "n3")
		takes := func(id raft.ServerID, d time.Duration) {
			for range tripTimes {
				a.noteRoundTrip(id, d)
			}
		}
		takes("n3", far)
		require.EqualValues(t, far, a.quorum.Load())
		takes("n2", near)
		require.EqualValues(t, near, a.quorum.Load())
		time.Sleep(a.recent)
		a.noteRoundTrip("n3", far)
		require.EqualValues(t, far, a.quorum.Load(), "n2 is silent")
		a.noteRoundTrip("n2", near)
		require.EqualValues(t, near, a.quorum.Load())
		a.reconfigure(viewOf("n1", "-n2", "n3"))
		require.EqualValues(t, far, a.quorum.Load(), "n2 has no vote any more")
		a.reconfigure(viewOf("n1", "n2", "n3", "n4", "n5"))
		require.EqualValues(t, far, a.quorum.Load(), "n3 completes a majority of five")
		a.reconfigure(viewOf("n1", "n2", "n4", "n5"))
		require.Zero(t, a.quorum.Load(), "too few are known")
	})
}

func TestFiveNodesNeedTwoAcknowledgements(t *testing.T) {
	a := acksOf("n1", "n2", "n3", "n4", "n5")
	round := a.beginRound(1)
	a.note("n2", 1, a.currentRound(), 0)
	a.note("n2", 1, a.currentRound(), 0)
	require.Len(t, a.waiters, 1)
	a.note("n5", 1, a.currentRound(), 0)
	<-round.done
}

func TestMatchOfAFormerTermDoesNotCount(t *testing.T) {
	a := acksOf("n1", "n2", "n3")
	a.note("n2", 6, a.currentRound(), 9)
	require.Zero(t, a.endWait(a.awaitMatch(7, 5, 1)))
	a.note("n2", 7, a.currentRound(), 4)
	require.Zero(t, a.endWait(a.awaitMatch(7, 5, 1)), "entries of an earlier term may have been replaced")
	a.note("n2", 7, a.currentRound(), 5)
	require.Equal(t, 1, a.endWait(a.awaitMatch(7, 5, 1)))
	first, second := a.awaitMatch(7, 6, 1), a.awaitMatch(7, 7, 1)
	require.Equal(t, []*Acknowledgement{first, second}, a.waiters)
	require.Zero(t, a.endWait(first))
	require.Equal(t, []*Acknowledgement{second}, a.waiters)
	require.False(t, a.hasPeer("n1"), "the node itself acknowledges nothing")
}

func (w *Acknowledgement) isDone() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// TestOnlyVotersAreCounted: a member without a vote confirms no round, and counts for no WAIT.
func TestOnlyVotersAreCounted(t *testing.T) {
	a := acksOf("n1", "n2", "n3", "-n4", "-n5")
	round, match := a.beginRound(7), a.awaitMatch(7, 5, 4)
	for _, id := range []raft.ServerID{"n4", "n5"} {
		a.note(id, 7, a.currentRound(), 5)
	}
	require.False(t, round.isDone())
	require.Zero(t, a.endWait(match))
	match = a.awaitMatch(7, 5, 4)
	a.note("n2", 7, a.currentRound(), 5)
	require.True(t, round.isDone())
	require.False(t, round.Moved())
	require.False(t, match.isDone())
	a.note("n3", 7, a.currentRound(), 5)
	require.True(t, match.isDone(), "all voters")
}

// TestRoundMovesWithTheMembers: a round belongs to one configuration. A change of the members ends it without a
// confirmation.
func TestRoundMovesWithTheMembers(t *testing.T) {
	a := acksOf("n1", "n2", "n3")
	for _, next := range []*view{
		viewOf("n1", "n2", "n3", "n4"), viewOf("n1", "n2", "n3", "n4", "n5"), viewOf("n1", "n2"),
		viewOf("n1"),
	} {
		round, match := a.beginRound(7), a.awaitMatch(7, 1, 1)
		require.False(t, round.isDone())
		a.reconfigure(next)
		require.True(t, round.isDone())
		require.True(t, round.Moved())
		require.Equal(t, next.otherVoters == 0, match.isDone(), "a lone voter waits for no acknowledgement")
		require.False(t, match.Moved())
		a.endWait(round)
		a.endWait(match)
	}
	require.Empty(t, a.waiters)
	round := a.beginRound(7)
	require.True(t, round.isDone(), "a lone voter")
	require.False(t, round.Moved())
	a.reconfigure(viewOf("n1", "n2", "n3"))
	round = a.beginRound(7)
	require.False(t, round.isDone(), "the smallest majority so far does not count")
	a.endWait(round)
}

// TestAcknowledgementsOfMembersThatComeAndGo: what a member acknowledged before its removal does not count when it is
// added again. What it acknowledged without a vote counts when it gets one.
func TestAcknowledgementsOfMembersThatComeAndGo(t *testing.T) {
	a := acksOf("n1", "n2", "n3")
	a.note("n2", 7, a.currentRound(), 5)
	a.reconfigure(viewOf("n1", "n3"))
	a.note("n2", 7, a.currentRound(), 9)
	a.reconfigure(viewOf("n1", "-n2", "n3"))
	require.Zero(t, a.matches(7)["n2"])
	a.note("n2", 7, a.currentRound(), 4)
	require.Zero(t, a.endWait(a.awaitMatch(7, 4, 1)))
	a.reconfigure(viewOf("n1", "n2", "n3"))
	require.Equal(t, 1, a.endWait(a.awaitMatch(7, 4, 1)))
}

// TestShortenedLogIsForgotten: a member's log has become shorter. Its acknowledgements do not count any more, and it is
// reported once, although several answers show it. Its later acknowledgements count again.
func TestShortenedLogIsForgotten(t *testing.T) {
	a := acksOf("n1", "n2", "n3")
	require.Zero(t, a.matchOf("n2", 7))
	a.note("n2", 7, 0, 5)
	a.noteNotified("n2", 7, 5)
	require.Equal(t, uint64(5), a.matchOf("n2", 7))
	require.Zero(t, a.matchOf("n2", 8), "of another term nothing is known")
	require.Zero(t, a.matchOf("stranger", 7))
	a.noteNotified("stranger", 7, 5)
	a.note("n2", 7, 0, 6)
	a.noteNotified("n2", 6, 6)
	require.Zero(t, a.unnotified("n2", 8, 9))
	require.Equal(t, uint64(6), a.unnotified("n2", 7, 9), "what was sent in another term says nothing")
	a.noteNotified("n2", 7, 6)
	require.Zero(t, a.unnotified("n2", 7, 9))
	require.Nil(t, a.noteShortened("n2", 8, 5, 3))
	require.Nil(t, a.noteShortened("stranger", 7, 5, 3))
	require.Equal(t, LogShortened{ID: "n2", Name: "n2", LogIndex: 3, Acknowledged: 6}, a.noteShortened("n2", 7, 5, 3))
	require.Nil(t, a.noteShortened("n2", 7, 5, 3), "the shortened log was reported")
	require.Zero(t, a.matchOf("n2", 7))
	wait := a.awaitMatch(7, 4, 1)
	select {
	case <-wait.Done():
		require.Fail(t, "it counts")
	default:
	}
	a.note("n2", 7, 0, 4)
	<-wait.Done()
	require.Nil(t, a.noteShortened("n2", 7, 5, 3), "an answer of before")
	require.Equal(t, uint64(4), a.unnotified("n2", 7, 5), "the follower has lost its commit notification")
}
