package raftnode

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// TestTransfers: the voter that was named, or the one with the longest log, is nominated when it has the whole log.
func TestTransfers(t *testing.T) {
	const soon, election = 300 * time.Millisecond, time.Second
	for name, c := range map[string]struct {
		id             string
		n2, n3         uint64 // how much of the log they lack
		gets           string // has the whole log soon
		stale          bool   // what they have was said in the term before
		lost, canceled bool   // soon
		answer         error  // to the nomination; nil: it is taken
		nominated      bool
		took           time.Duration
		err            string
	}{
		"any, of different logs": {n2: 1, answer: errNoVote, nominated: true, err: "nominate n3: "},
		"any, of equal logs":     {answer: errNoVote, nominated: true, err: "nominate n2: "},
		"the one that is named":  {id: "n3", answer: errNoVote, nominated: true, err: "nominate n3: " + errNoVote.Error()},
		"its log grows":          {id: "n2", n2: 1, gets: "n2", answer: errNoVote, nominated: true, took: soon, err: "nominate n2: "},
		"another's log grows":    {id: "n2", n2: 1, n3: 1, gets: "n3", took: election, err: "n2 has the log up to 1 of 2"},
		"its log is of a former term": {
			id: "n2", stale: true, took: election, err: "n2 has the log up to 0 of 2",
		},
		"lost before the log grows":     {id: "n2", n2: 1, lost: true, took: soon},
		"canceled before the log grows": {id: "n2", n2: 1, canceled: true, took: soon, err: context.Canceled.Error()},
		"elected":                       {nominated: true, lost: true, took: soon},
		"not elected":                   {nominated: true, took: 2 * election},
		"canceled while it stands":      {nominated: true, canceled: true, took: soon, err: context.Canceled.Error()},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := openSingle(t)
			n.start()
			n.configurations.appended([]*raft.Log{configurationAt(9, "n1", "n2", "n3")})
			there := newPipes(nil)
			other := raft.NewNetworkTransport(there, 1, time.Minute, io.Discard)
			require.NoError(t, n.transport.inner.Close())
			n.transport.inner = raft.NewNetworkTransport(newPipes(there), 1, time.Minute, io.Discard)
			nominated := false
			go func() {
				for {
					select {
					case rpc := <-other.Consumer():
						nominated = true
						rpc.Respond(&raft.TimeoutNowResponse{}, c.answer)
					case <-n.stopped:
						return
					}
				}
			}()
			term := n.Term()
			require.Equal(t, uint64(2), n.Last())
			said := term
			if c.stale {
				said--
			}
			n.acks.note("n2", said, 0, n.Last()-c.n2)
			n.acks.note("n3", said, 0, n.Last()-c.n3)
			gone := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(soon, func() {
				switch {
				case c.lost:
					close(gone)
				case c.canceled:
					cancel()
				case c.gets != "":
					n.acks.note(raft.ServerID(c.gets), term, 0, n.Last())
				}
			})
			began := time.Now()
			err := n.TransferTo(ctx, c.id, gone)
			require.Equal(t, c.took, time.Since(began), name)
			if c.err == "" {
				require.NoError(t, err, name)
			} else {
				require.ErrorContains(t, err, c.err, name)
			}
			synctest.Wait()
			require.Equal(t, c.nominated, nominated, name)
			require.Empty(t, n.changing)
			require.Empty(t, n.acks.waiters)
			time.Sleep(election)
			n.transport.inner.CloseStreams()
			require.NoError(t, other.Close())
		})
	}
}
