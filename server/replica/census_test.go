package replica

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/members"
)

// censusOf returns the census of a leader that knows no members, and the number of inquiries that it has sent to nodes.
func censusOf(confirm func(deadline time.Time) error) (c *census, inquiries *int) {
	inquiries = new(int)
	c = newCensus(censusConfig{
		self: protocol.Incarnation{Node: "n1"}, serving: &atomic.Pointer[leaderTerm]{}, confirm: confirm,
		configuration: func() members.Configuration { return members.Configuration{} },
		report:        func(string) protocol.Value { return protocol.Integer(0) },
		inquire: func(context.Context, string, string) (protocol.Value, error) {
			*inquiries++
			return protocol.Integer(1), nil
		},
	})
	c.serving.Store(&leaderTerm{since: time.Now()})
	return c, inquiries
}

// TestCensusOfAFormerLeader: a deposed leader that does not know it yet answers no question, since nodes may have
// renewed their leases with the next leader. It renews no lease either, since the next leader counts leases from its
// own election.
func TestCensusOfAFormerLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replaced := errors.New("another leads")
		var lost error
		c, inquiries := censusOf(func(deadline time.Time) error {
			require.Equal(t, time.Minute, time.Until(deadline))
			return lost
		})
		n2 := protocol.Incarnation{Node: "n2", Epoch: 1}
		_, err := c.ask(n2, "", time.Now().Add(time.Minute))
		require.NoError(t, err)
		lost = replaced
		for _, question := range []string{"", goodbye, "who"} {
			_, err := c.ask(n2, question, time.Now().Add(time.Minute))
			require.ErrorIs(t, err, replaced, "%q", question)
		}
		require.Zero(t, *inquiries)
	})
}

// TestCensusJudgesByItsBeginning: the leadership check confirms the leases that the leader knew when the check began. A
// lease that expires during the check counts, and its node is asked.
func TestCensusJudgesByItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var check time.Duration
		c, inquiries := censusOf(func(time.Time) error {
			time.Sleep(check)
			return nil
		})
		n2 := protocol.Incarnation{Node: "n2", Epoch: 1}
		_, err := c.ask(n2, "", time.Now().Add(time.Minute))
		require.NoError(t, err)
		for i, want := range []int{1, 1} { // in the second row the lease expires before the check begins
			check = countedFor + time.Second
			answers, err := c.ask(protocol.Incarnation{Node: "n3"}, "who", time.Now().Add(time.Minute))
			require.NoError(t, err)
			require.Equal(t, want, *inquiries)
			require.Len(t, answers[0].Elems, 2-i)
		}
	})
}
