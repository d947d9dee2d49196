package raftnode

import (
	"bufio"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// TestWhatIsAQuestion: AnswerProposal leaves frames of other kinds to its caller. An invalid question gets no answer.
func TestWhatIsAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		asking, answering := net.Pipe()
		defer asking.Close()
		for _, frame := range [][]byte{nil, {'f'}, {proposalKind + 1, proposalVersion}} {
			require.False(t, n.AnswerProposal(answering, frame))
		}
		require.True(t, n.AnswerProposal(answering, []byte{proposalKind}))
		answered := make(chan bool, 1)
		go func() {
			answered <- n.AnswerProposal(answering, proposal{candidate: candidate{id: "n2", length: 8}}.append(nil))
		}()
		frame, err := wire.Read(bufio.NewReader(asking), nil, wire.Short)
		require.NoError(t, err)
		require.True(t, isProposal(frame))
		require.True(t, <-answered)
	})
}

// TestStrangersAreNoSubscribers: a node that is no member cannot subscribe to commits.
func TestStrangersAreNoSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		n.SetCommitSubscriber("n9", true)
		n.commits.notify("n9")
		require.Len(t, *n.commits.peers.Load(), 2)
	})
}

// TestLeaderThatIsReached: a leader that was reached does not count as dead.
func TestLeaderThatIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		n.Refused("n2")
		require.Equal(t, "n2", n.failover.vacant().leader)
		n.Reached("n2")
		require.Zero(t, n.failover.vacant())
	})
}

// TestSubscribersAreWoken: an applied entry wakes the goroutines of subscribed followers, and no others.
func TestSubscribersAreWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		peers := *n.commits.peers.Load()
		peers["n2"].subscribed.Store(true)
		n.applier.applied()
		require.Len(t, peers["n2"].wake, 1)
		require.Empty(t, peers["n3"].wake)
	})
}

// TestTransferTime: the time is that of the entries that are not committed, up to the size of one request.
func TestTransferTime(t *testing.T) {
	for _, c := range []struct {
		sizes []int
		lost  uint64
		bytes int
	}{
		{[]int{}, 0, 0},
		{[]int{100, 200}, 0, 300},
		{[]int{100, strippedOver + 1, 200}, 0, strippedOver + 301},
		{[]int{100, strippedOver + 1, 200}, 3, 100},
		{[]int{appendGather, appendGather}, 0, appendGather},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := openSingle(t, "n2", "n3")
			store := raft.NewInmemStore()
			for i, size := range c.sizes {
				require.NoError(t, store.StoreLog(&raft.Log{Index: uint64(i + 1), Data: make([]byte, size)}))
			}
			before := n.log.store
			n.log.store = &forgetful{store, 0, c.lost}
			require.Equal(t, time.Duration(c.bytes)*time.Second/minBytesPerSecond, n.TransferTime())
			n.log.store = before
		})
	}
}

// forgetful is a log of which one read fails, as if the entry were deleted meanwhile.
type forgetful struct {
	*raft.InmemStore
	looks, lost uint64
}

func (f *forgetful) GetLog(index uint64, log *raft.Log) error {
	if f.looks++; f.looks == f.lost {
		return raft.ErrLogNotFound
	}
	return f.InmemStore.GetLog(index, log)
}
