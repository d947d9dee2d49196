package membership

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/peer/peertest"
)

// node is a peer port with a server and a client.
type node struct {
	*Client
	server *Server
}

// start runs a node at port 1 of the host of its name; cluster "": it belongs to none.
func start(t *testing.T, n *peertest.Network, id, cluster string, handle func(*Server)) *node {
	t.Helper()
	l, err := n.Listen(id + ":1")
	require.NoError(t, err)
	b := &members.Book{}
	for _, other := range []string{"n1", "n2", "n3"} {
		b.Hint(other, other+":1")
	}
	mux, err := peer.New(peer.Config{
		Listener: l, Dial: n.Dial(id + ":1"), ID: id, ClusterID: func() string { return cluster }, Book: b, Secrets: func() [][]byte { return [][]byte{[]byte("s")} },
	})
	require.NoError(t, err)
	layer := mux.Layer(peer.KindMember)
	s := NewServer(layer, slog.New(slog.DiscardHandler))
	if handle != nil {
		handle(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- mux.Run(ctx) }()
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
	return &node{NewClient(layer), s}
}

type question struct {
	Text string `json:"text"`
}

func echo(s *Server) {
	HandleAny(s, "echo", func(_ context.Context, from Asker, q question) (question, error) {
		return question{from.ID + " says " + q.Text}, nil
	})
	Handle(s, "inside", func(context.Context, Asker, question) (question, error) { return question{"yes"}, nil })
	HandleAny(s, "fail", func(context.Context, Asker, question) (question, error) {
		return question{}, errors.New("not\ntoday")
	})
	HandleAny(s, "long", func(context.Context, Asker, question) (question, error) {
		return question{strings.Repeat("x", maxMessage)}, nil
	})
}

func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := peertest.New()
		one := start(t, net, "n1", "c1", nil)
		_ = start(t, net, "n2", "c1", echo)
		fresh := start(t, net, "n3", "", nil)
		got, err := Ask[question](t.Context(), one.Client, "n2", "echo", question{"x"})
		require.NoError(t, err)
		require.Equal(t, "n1 says x", got.Text)
		got, id, err := AskAt[question](t.Context(), fresh.Client, "n2:1", "echo", question{"x"})
		require.NoError(t, err)
		require.Equal(t, "n3 says x", got.Text)
		require.Equal(t, "n2", id)

		_, err = Ask[question](t.Context(), one.Client, "n2", "inside", question{})
		require.NoError(t, err)
		_, _, err = AskAt[question](t.Context(), fresh.Client, "n2:1", "inside", question{})
		require.EqualError(t, err, "only nodes of the cluster may ask that")
		_, err = Ask[question](t.Context(), one.Client, "n2", "fail", question{})
		require.Equal(t, &RemoteError{Text: "not today"}, err)
		_, err = Ask[question](t.Context(), one.Client, "n2", "nonsense", question{})
		var remote *RemoteError
		require.ErrorAs(t, err, &remote)
		require.True(t, remote.Unknown)
		_, err = Ask[question](t.Context(), one.Client, "n2", "long", question{})
		require.EqualError(t, err, "the answer is too long")
		_, err = Ask[question](t.Context(), one.Client, "n2", "echo", question{strings.Repeat("x", maxMessage)})
		require.ErrorIs(t, err, errTooLong)
		_, err = Ask[question](t.Context(), one.Client, "n2", "echo", 7)
		require.ErrorContains(t, err, "malformed request")
		synctest.Wait()
		require.Zero(t, net.Connections(), "each exchange has a connection of its own, and closes it")
	})
}

// TestHandlerEndsWithTheAsker, and the asker's patience with its context.
func TestHandlerEndsWithTheAsker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := peertest.New()
		ended := make(chan error, 1)
		one := start(t, net, "n1", "c1", nil)
		_ = start(t, net, "n2", "c1", func(s *Server) {
			Handle(s, "wait", func(ctx context.Context, _ Asker, _ question) (question, error) {
				<-ctx.Done()
				ended <- ctx.Err()
				return question{}, ctx.Err()
			})
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begun := time.Now()
		_, err := Ask[question](ctx, one.Client, "n2", "wait", question{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour, time.Since(begun))
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

// TestRequestsAreBounded: of one node, in size and in time.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := peertest.New()
		one := start(t, network, "n1", "c1", nil)
		two := start(t, network, "n2", "c1", echo)
		two.server.busy["n1"], two.server.all = maxOfNode, maxOfNode
		_, err := Ask[question](t.Context(), one.Client, "n2", "echo", question{})
		require.EqualError(t, err, "too many requests about members at a time")
		two.server.busy["n1"], two.server.all = 0, maxRequests
		_, err = Ask[question](t.Context(), one.Client, "n2", "echo", question{})
		require.EqualError(t, err, "too many requests about members at a time")
		two.server.all = maxRequests - 1
		_, err = Ask[question](t.Context(), one.Client, "n2", "echo", question{})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, maxRequests-1, two.server.all)
		require.Empty(t, two.server.busy)

		silent, err := one.dialer.DialContext(t.Context(), "n2")
		require.NoError(t, err)
		begun := time.Now()
		_, err = silent.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, messageWithin, time.Since(begun))
		large, err := one.dialer.DialContext(t.Context(), "n2")
		require.NoError(t, err)
		_, err = large.Write([]byte{0, 1, 0, 1}) // 64 KiB and a byte are announced
		require.NoError(t, err)
		_, err = large.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

// FuzzRead: no bytes of another node make read panic, or take more room than a message may.
func FuzzRead(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x1b{\"op\":\"echo\",\"body\":{\"a\":1}}"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var q request
		if read(bufio.NewReader(strings.NewReader(string(b))), &q) == nil {
			require.LessOrEqual(t, len(q.Body), maxMessage)
		}
		require.LessOrEqual(t, len(line(string(b))), 2*maxText)
	})
}

var (
	_ Dialer       = (*peer.Layer)(nil)
	_ net.Listener = (*peer.Layer)(nil)
)
