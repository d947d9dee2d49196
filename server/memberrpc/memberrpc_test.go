package memberrpc

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/peer/peertest"
)

// node has a client and a server on a peer port.
type node struct {
	*Client
	server *Server
}

// firstLife returns the registry of a node at its first start.
func firstLife() *incarnation.Registry {
	return incarnation.New(incarnation.Config{Lineage: incarnation.Lineage(nil).Start(1), Stable: raft.NewInmemStore()})
}

// start runs a node at port 1 of the host of its name. With the cluster "" the node belongs to none.
func start(t *testing.T, n *peertest.Network, id, cluster string, handle func(*Server)) *node {
	t.Helper()
	l, err := n.Listen(id + ":1")
	require.NoError(t, err)
	b := &members.Addresses{}
	for _, other := range []string{"n1", "n2", "n3"} {
		b.Hint(other, other+":1")
	}
	mux, err := peer.New(peer.Config{
		Listener: l, Dial: n.Dial(id + ":1"), ID: id, ClusterID: func() string { return cluster }, Addresses: b,
		Secrets: func() [][]byte { return [][]byte{[]byte("s")} }, Incarnations: firstLife(),
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
	HandleAny(s, "echo", func(_ context.Context, from Caller, q question) (question, error) {
		return question{from.ID + " says " + q.Text}, nil
	})
	Handle(s, "inside", func(context.Context, Caller, question) (question, error) { return question{"yes"}, nil })
	HandleAny(s, "fail", func(context.Context, Caller, question) (question, error) {
		return question{}, errors.New("not\ntoday")
	})
	HandleAny(s, "long", func(context.Context, Caller, question) (question, error) {
		return question{strings.Repeat("x", maxMessage)}, nil
	})
}

func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := peertest.New()
		one := start(t, net, "n1", "c1", nil)
		_ = start(t, net, "n2", "c1", echo)
		fresh := start(t, net, "n3", "", nil)
		got, err := Call[question](t.Context(), one.Client, "n2", "echo", question{"x"})
		require.NoError(t, err)
		require.Equal(t, "n1 says x", got.Text)
		got, id, err := CallAt[question](t.Context(), fresh.Client, "n2:1", "echo", question{"x"})
		require.NoError(t, err)
		require.Equal(t, "n3 says x", got.Text)
		require.Equal(t, "n2", id)

		_, err = Call[question](t.Context(), one.Client, "n2", "inside", question{})
		require.NoError(t, err)
		_, _, err = CallAt[question](t.Context(), fresh.Client, "n2:1", "inside", question{})
		require.EqualError(t, err, "only nodes of the cluster may ask that")
		_, err = Call[question](t.Context(), one.Client, "n2", "fail", question{})
		require.Equal(t, &RemoteError{Text: "not today"}, err)
		_, err = Call[question](t.Context(), one.Client, "n2", "nonsense", question{})
		var remote *RemoteError
		require.ErrorAs(t, err, &remote)
		require.True(t, remote.Unknown)
		_, err = Call[question](t.Context(), one.Client, "n2", "long", question{})
		require.EqualError(t, err, "the answer is too long")
		_, err = Call[question](t.Context(), one.Client, "n2", "echo", question{strings.Repeat("x", maxMessage)})
		require.ErrorIs(t, err, errTooLong)
		_, err = Call[question](t.Context(), one.Client, "n2", "echo", 7)
		require.ErrorContains(t, err, "malformed request")
		synctest.Wait()
		require.Zero(t, net.Connections(), "each exchange has a connection of its own, and closes it")
	})
}

// TestHandlerEndsWithTheCaller shows that Call returns when its context ends, and that the context of the handler then
// ends, too.
func TestHandlerEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := peertest.New()
		ended := make(chan error, 1)
		one := start(t, net, "n1", "c1", nil)
		_ = start(t, net, "n2", "c1", func(s *Server) {
			Handle(s, "wait", func(ctx context.Context, _ Caller, _ question) (question, error) {
				<-ctx.Done()
				ended <- ctx.Err()
				return question{}, ctx.Err()
			})
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begun := time.Now()
		_, err := Call[question](ctx, one.Client, "n2", "wait", question{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour, time.Since(begun))
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

// TestRequestsAreBounded shows that the requests of one node, and of all, are bounded in number, and each in size and
// time.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := peertest.New()
		one := start(t, network, "n1", "c1", nil)
		two := start(t, network, "n2", "c1", echo)
		two.server.busy["n1"], two.server.all = maxOfNode, maxOfNode
		_, err := Call[question](t.Context(), one.Client, "n2", "echo", question{})
		require.EqualError(t, err, "too many requests about members at a time")
		two.server.busy["n1"], two.server.all = 0, maxRequests
		_, err = Call[question](t.Context(), one.Client, "n2", "echo", question{})
		require.EqualError(t, err, "too many requests about members at a time")
		two.server.all = maxRequests - 1
		_, err = Call[question](t.Context(), one.Client, "n2", "echo", question{})
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
		_, err = large.Write([]byte{0, 1, 0, 1}) // a length of 64 KiB and one byte
		require.NoError(t, err)
		_, err = large.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

// FuzzRead shows that no bytes of another node make read panic, or use more memory than a message may.
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

// stream is a reader that closes a channel when it is closed.
type stream struct {
	io.Reader
	closed chan struct{}
}

func (s *stream) Close() error { close(s.closed); return nil }

// endless returns some bytes each second.
type endless struct{}

func (endless) Read(p []byte) (int, error) { time.Sleep(time.Second); return len(p), nil }

// TestStream shows that a stream arrives whole or ends with an error, and that at most maxStreams are sent at a time.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, sent := peertest.New(), make(chan *stream, 10)
		one := start(t, network, "n1", "c1", nil)
		two := start(t, network, "n2", "c1", func(s *Server) {
			echo(s)
			HandleStream(s, "stream", func(_ context.Context, from Caller, q question) (question, io.ReadCloser, error) {
				if q.Text == "" {
					return q, nil, errors.New("no text")
				}
				st := &stream{strings.NewReader(q.Text), make(chan struct{})}
				switch {
				case q.Text == "fail":
					st.Reader = io.MultiReader(st.Reader, iotest.ErrReader(errors.New("disk")))
				case q.Text == "endless":
					st.Reader = endless{}
				case len(q.Text) > 10:
					st.Reader = io.MultiReader(st.Reader, strings.NewReader(strings.Repeat("x", streamFrame-len(q.Text))), st.Reader)
				}
				sent <- st
				return question{"text of " + from.ID}, st, nil
			})
		})
		ask := func(ctx context.Context, text string) (question, io.ReadCloser, error) {
			return CallStreamAt[question](ctx, one.Client, "n2:1", "stream", question{text})
		}
		for _, text := range []string{"a", strings.Repeat("longer than ten", 100)} {
			answer, r, err := ask(t.Context(), text)
			require.NoError(t, err)
			require.Equal(t, "text of n1", answer.Text)
			got, err := io.ReadAll(r)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(string(got), text))
			require.Contains(t, []int{len(text), streamFrame}, len(got))
			require.NoError(t, r.Close())
			<-(<-sent).closed
		}
		_, r, err := ask(t.Context(), "fail")
		require.NoError(t, err)
		_, err = io.ReadAll(r)
		require.ErrorContains(t, err, "the stream is cut off: unexpected EOF")
		require.NoError(t, r.Close())
		<-(<-sent).closed
		_, _, err = ask(t.Context(), "")
		require.EqualError(t, err, "no text")
		_, _, err = CallStreamAt[question](t.Context(), one.Client, "n2:1", "nonsense", question{"a"})
		require.ErrorContains(t, err, "does not know")

		two.server.streams = maxStreams
		_, _, err = ask(t.Context(), "a")
		require.EqualError(t, err, "too many requests about members at a time")
		_, err = Call[question](t.Context(), one.Client, "n2", "echo", question{"x"})
		require.NoError(t, err, "other requests have room")
		two.server.streams = 0
		ctx, cancel := context.WithCancel(t.Context())
		_, r, err = ask(ctx, "endless")
		require.NoError(t, err)
		cancel()
		synctest.Wait()
		_, err = io.ReadAll(r)
		require.Error(t, err)
		<-(<-sent).closed
		synctest.Wait()
		require.Zero(t, two.server.streams)
		require.Zero(t, two.server.all)
		require.Zero(t, network.Connections())
	})
}

// TestReceivedStream shows that a stream ends without an error only if its checksum is right.
func TestReceivedStream(t *testing.T) {
	sum := func(text string) string {
		return string(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 4}, crc32.Checksum([]byte(text), castagnoli)))
	}
	const abc = "\x00\x00\x00\x03abc"
	for sent, want := range map[string]string{
		abc + "\x00\x00\x00\x00" + sum("abc"):                   "",
		"\x00\x00\x00\x00" + sum(""):                            "",
		abc + abc + "\x00\x00\x00\x00" + sum("abc"):             "its checksum is another",
		abc + "\x00\x00\x00\x00" + sum("abd"):                   "its checksum is another",
		abc + "\x00\x00\x00\x00\x00\x00\x00\x00":                "its checksum is another",
		abc + "\x00\x00\x00\x00" + sum("abc")[:7]:               "cut off",
		abc + "\x00\x00\x00\x00":                                "cut off",
		abc:                                                     "cut off",
		abc[:6]:                                                 "cut off",
		"\x00\x04\x00\x01" + strings.Repeat("x", streamFrame+1): "corrupt frame",
	} {
		here, there := net.Pipe()
		go func() {
			_, _ = there.Write([]byte(sent))
			_ = there.Close()
		}()
		r := &received{conn: here, from: bufio.NewReader(here), stop: func() bool { return true }, sum: crc32.New(castagnoli)}
		_, err := io.ReadAll(r)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want, "%q", sent[:min(len(sent), 30)])
		}
		require.NoError(t, r.Close())
	}
}

// TestSilentStream shows that a stream ends with an error if nothing arrives for flowWithin.
func TestSilentStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		r, begun := &received{
			conn: here, from: bufio.NewReader(&flowing{Conn: here, begun: true}), stop: func() bool { return true },
			sum: crc32.New(castagnoli),
		}, time.Now()
		_, err := io.ReadAll(r)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, flowWithin, time.Since(begun))
		require.NoError(t, r.Close())
	})
}
