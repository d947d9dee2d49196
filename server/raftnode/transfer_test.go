package raftnode

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// dials records the nodes to which raft connects.
type dials struct {
	*pipes
	to []string
}

func (d *dials) Dial(to raft.ServerAddress, within time.Duration) (net.Conn, error) {
	d.to = append(d.to, string(to))
	return d.pipes.Dial(to, within)
}

// nominees has all nominations by n answered with answer, until end is called. nominated records the nominated nodes.
func nominees(t *testing.T, n *single, answer error) (nominated *dials, end func()) {
	require.NoError(t, n.transport.inner.Close())
	there := newPipes(nil)
	other := raft.NewNetworkTransport(there, 1, time.Minute, io.Discard)
	nominated = &dials{pipes: newPipes(there)}
	n.transport.inner = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: provider{}, Stream: nominated, Timeout: time.Minute,
	})
	go func() {
		for {
			select {
			case rpc := <-other.Consumer():
				rpc.Respond(&raft.TimeoutNowResponse{}, answer)
			case <-n.stopped:
				return
			}
		}
	}()
	return nominated, func() {
		n.transport.inner.CloseStreams()
		require.NoError(t, other.Close())
	}
}

// TestTransfers: the named voter, or the voter with the longest log, is nominated once it has the whole log.
func TestTransfers(t *testing.T) {
	const soon, election = 300 * time.Millisecond, time.Second
	const n2, n3 = "n2@cafe", "n3@cafe"
	for name, c := range map[string]struct {
		id             string
		n2, n3         uint64 // entries of the log that they lack
		gets           string // the voter that has the whole log soon
		stale          bool   // their acknowledgements are of the term before
		lost, canceled bool   // the leadership, or the transfer, soon
		answer         error  // to the nomination; nil accepts it
		nominated      string
		took           time.Duration
		err            string
	}{
		"any, of different logs": {n2: 1, answer: errNoVote, nominated: n3, err: "nominate n3: " + errNoVote.Error()},
		"any, of equal logs":     {answer: errNoVote, nominated: n2, err: "nominate n2: "},
		"the one that is named":  {id: n3, answer: errNoVote, nominated: n3, err: "nominate n3: "},
		"its log grows":          {id: n2, n2: 1, gets: n2, answer: errNoVote, nominated: n2, took: soon, err: "nominate"},
		"another's log grows":    {id: n2, n2: 1, n3: 1, gets: n3, took: election, err: "n2 has the log up to 1 of 2"},
		"its log is of a former term": {
			id: n2, stale: true, took: election, err: "n2 has the log up to 0 of 2",
		},
		"lost before the log grows":     {id: n2, n2: 1, lost: true, took: soon},
		"canceled before the log grows": {id: n2, n2: 1, canceled: true, took: soon, err: context.Canceled.Error()},
		"elected":                       {nominated: n2, lost: true, took: soon},
		"not elected":                   {nominated: n2, took: 2 * election},
		"canceled while it stands":      {nominated: n2, canceled: true, took: soon, err: context.Canceled.Error()},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := openSingle(t)
			n.start()
			n.configurations.appended([]*raft.Log{configurationAt(9, "n1", n2, n3)})
			nominated, end := nominees(t, n, c.answer)
			defer end()
			term := n.Term()
			require.Equal(t, uint64(2), n.Last())
			said := term
			if c.stale {
				said--
			}
			n.acks.note(n2, said, 0, n.Last()-c.n2)
			n.acks.note(n3, said, 0, n.Last()-c.n3)
			ended := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(soon, func() {
				switch {
				case c.lost:
					close(ended)
				case c.canceled:
					cancel()
				case c.gets != "":
					n.acks.note(raft.ServerID(c.gets), term, 0, n.Last())
				}
			})
			began := time.Now()
			err := n.TransferTo(ctx, c.id, ended)
			require.Equal(t, c.took, time.Since(began), name)
			if c.err == "" {
				require.NoError(t, err, name)
			} else {
				require.ErrorContains(t, err, c.err, name)
			}
			synctest.Wait()
			if c.nominated == "" {
				require.Empty(t, nominated.to, name)
			} else {
				require.Equal(t, []string{c.nominated}, nominated.to, name)
			}
			require.Empty(t, n.changing)
			require.Empty(t, n.acks.waiters)
			time.Sleep(election)
		})
	}
}

// TestGivingUpInTurn: the next voter is asked after two election timeouts. After the leadership has ended, none is
// asked.
func TestGivingUpInTurn(t *testing.T) {
	for _, c := range []struct {
		lost, took time.Duration
		nominated  []string
	}{
		{time.Second, time.Second, []string{"n3"}},
		{3 * time.Second, 3 * time.Second, []string{"n3", "n2"}},
		{time.Minute, 4 * time.Second, []string{"n3", "n2"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := openSingle(t)
			n.start()
			n.configurations.appended([]*raft.Log{configurationAt(9, "n1", "n2", "n3")})
			nominated, end := nominees(t, n, nil)
			defer end()
			n.acks.note("n3", 7, 0, 9)
			ended := make(chan struct{})
			time.AfterFunc(c.lost, func() { close(ended) })
			began := time.Now()
			require.Equal(t, c.nominated, n.GiveUp(7, ended))
			require.Equal(t, c.took, time.Since(began))
			synctest.Wait()
			require.Equal(t, c.nominated, nominated.to)
		})
	}
}

// TestTransferByAFollower: a follower has no leadership to transfer, and does nothing.
func TestTransferByAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		began := time.Now()
		require.NoError(t, n.TransferTo(t.Context(), "", nil))
		require.Zero(t, time.Since(began))
	})
}
