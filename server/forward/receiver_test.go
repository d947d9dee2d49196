package forward

import (
	"context"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// Replies to a node's former life are not for the present one.
func TestLinkIsOfOneLife(t *testing.T) {
	q := NewReceiver(ReceiverConfig{})
	p := &Peer{origin: protocol.Origin{Node: "n2", Epoch: 2}}
	q.peers["n2"] = p
	require.Nil(t, q.Peer(protocol.Origin{Node: "n2", Epoch: 1}))
	require.Same(t, p, q.Peer(protocol.Origin{Node: "n2", Epoch: 2}))
}

// What followers had queued when a leadership ended takes no room of the next one.
func TestInboxIsEmptyWhenItOpens(t *testing.T) {
	q := NewReceiver(ReceiverConfig{Hears: func(string, bool) {}, QueueBytes: 10, Wake: make(chan struct{}, 1)})
	for term := range uint64(3) {
		q.Open(term + 1)
		conn, other := net.Pipe()
		p := &Peer{origin: protocol.Origin{Node: "n2"}, conn: conn}
		require.True(t, q.admit(p))
		require.Zero(t, q.bytes)
		require.NoError(t, q.put(p, []Batch{{Body: make([]byte, 20)}}))
		q.Shut()
		require.NoError(t, other.Close())
	}
}

// A link whose queue is full waits until the leader takes something, or the leadership ends.
func TestFullQueueIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewReceiver(ReceiverConfig{Hears: func(string, bool) {}, QueueBytes: 10, Wake: make(chan struct{}, 1)})
		q.Open(1)
		conn, other := net.Pipe()
		defer other.Close()
		p := &Peer{origin: protocol.Origin{Node: "n2"}, conn: conn}
		require.True(t, q.admit(p))
		put := func() <-chan error {
			ended := make(chan error, 1)
			go func() { ended <- q.put(p, []Batch{{Body: make([]byte, 20)}}) }()
			synctest.Wait()
			return ended
		}
		require.NoError(t, <-put())
		second := put()
		require.Empty(t, second)
		q.Take(1, math.MaxUint64, func(*Batch) bool { return true })
		require.NoError(t, <-second)
		third := put()
		require.Empty(t, third)
		q.Shut()
		require.ErrorIs(t, <-third, net.ErrClosed)
	})
}

// A WAIT that is over makes room for another.
func TestWaitsOfALinkDoNotAddUp(t *testing.T) {
	p := newPeer(&ReceiverConfig{ReplyBytes: 1 << 20, Wait: func(context.Context, int, time.Duration) int { return 1 }}, nil, greeting{})
	for number := range uint64(3) {
		p.wait(t.Context(), number, 1, 0)
		p.parts.Wait()
		require.Zero(t, p.waits)
	}
}
