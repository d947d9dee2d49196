package peertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

const short = time.Second

// pair returns both ends of a connection from n1 to n2.
func pair(t *testing.T, n *Network) (dialed, accepted net.Conn) {
	t.Helper()
	l, err := n.Listen("n2:1")
	require.NoError(t, err)
	dialed, err = n.Dial("n1:1")(t.Context(), "n2:1")
	require.NoError(t, err)
	accepted, err = l.Accept()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return dialed, accepted
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := c.Write([]byte(text))
	require.NoError(t, err)
}

// receive reads exactly text within a second.
func receive(t *testing.T, c net.Conn, text string) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(short)))
	got := make([]byte, len(text))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

// silent requires that nothing arrives within a second.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(short)))
	begun := time.Now()
	n, err := c.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
	require.Equal(t, short, time.Since(begun))
}

func TestConnectionCarriesBytesBothWaysAndNamesItsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := pair(t, n)
		require.Equal(t, "n1:1", a.LocalAddr().String())
		require.Equal(t, "n2:1", a.RemoteAddr().String())
		require.Equal(t, "n1:1", b.RemoteAddr().String())
		send(t, a, "ping")
		receive(t, b, "ping")
		send(t, b, "pong")
		receive(t, a, "pong")
		require.Equal(t, 1, n.Connections())

		send(t, a, "last words")
		require.NoError(t, a.Close())
		receive(t, b, "last words")
		_, err := b.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		_, err = b.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
		require.NoError(t, b.Close())
		require.Zero(t, n.Connections())

		_, err = a.Read(nil)
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = a.Write(nil)
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, a.Close(), net.ErrClosed)
		require.ErrorIs(t, a.SetDeadline(time.Now()), net.ErrClosed)
	})
}

func TestListenAndDialFailAsOnARealNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		l, err := n.Listen("n2:1")
		require.NoError(t, err)
		_, err = n.Listen("n2:1")
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		_, err = n.Dial("n1")(t.Context(), "n2:2")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)

		waiting, err := n.Dial("n1")(t.Context(), "n2:1")
		require.NoError(t, err)
		go func() { _ = l.Close() }()
		for {
			if _, err = l.Accept(); err != nil {
				break
			}
		}
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, l.Close(), net.ErrClosed)
		_ = waiting.Close()
		_, err = n.Listen("n2:1")
		require.NoError(t, err, "the address is free again")
	})
}

func TestWriterBlocksWhenBuffersAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, New())
		require.NoError(t, a.SetWriteDeadline(time.Now().Add(short)))
		n, err := a.Write(make([]byte, 2*streamLimit))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, streamLimit, n)

		require.NoError(t, a.SetWriteDeadline(time.Time{}))
		done := make(chan error)
		go func() {
			_, err := a.Write([]byte("one more"))
			done <- err
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("wrote into a full buffer")
		default:
		}
		_, err = io.ReadFull(b, make([]byte, 8))
		require.NoError(t, err)
		require.NoError(t, <-done)
	})
}

func TestDeadlineSetLaterEndsAReadThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := pair(t, New())
		done := make(chan error)
		go func() {
			_, err := a.Read(make([]byte, 1))
			done <- err
		}()
		synctest.Wait()
		require.NoError(t, a.SetReadDeadline(time.Now()))
		require.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
		go func() {
			_, err := a.Read(make([]byte, 1))
			done <- err
		}()
		require.ErrorIs(t, <-done, os.ErrDeadlineExceeded, "a passed deadline stays")
		require.NoError(t, a.SetReadDeadline(time.Time{}))
		go func() {
			_, err := a.Read(make([]byte, 1))
			done <- err
		}()
		synctest.Wait()
		require.NoError(t, a.Close())
		require.ErrorIs(t, <-done, net.ErrClosed)
	})
}

func TestCutGoesOneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := pair(t, n)
		send(t, a, "before ")
		n.Cut("n1:1", "n2:1")
		send(t, a, "during ")
		receive(t, b, "before ")
		silent(t, b)
		send(t, b, "back")
		receive(t, a, "back")

		n.Mend("n1", "n2")
		receive(t, b, "during ")
	})
}

func TestPartitionIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := pair(t, n)
		l, err := n.Listen("n3:1")
		require.NoError(t, err)
		n.Partition([]string{"n1"}, []string{"n2", "n3"})
		require.NoError(t, a.Close(), "the other end does not hear of it")
		silent(t, b)
		send(t, b, "into the void")

		ctx, cancel := context.WithTimeout(t.Context(), short)
		defer cancel()
		begun := time.Now()
		_, err = n.Dial("n1")(ctx, "n3:1")
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, short, time.Since(begun))
		_, err = n.Dial("n2")(t.Context(), "n3:1")
		require.NoError(t, err, "nodes of one group reach each other")

		dialed := make(chan error)
		go func() {
			_, err := n.Dial("n1")(context.Background(), "n3:1")
			dialed <- err
		}()
		synctest.Wait()
		n.Heal()
		require.NoError(t, <-dialed, "a dial that waited goes through")
		require.NoError(t, b.SetReadDeadline(time.Time{}))
		_, err = b.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		_ = l.Close()
	})
}

func TestDialCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		n.Isolate("n1")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := n.Dial("n1")(ctx, "n2:1")
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestIsolateAlsoMeetsThoseWhoComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := pair(t, n)
		n.Isolate("n2")
		send(t, a, "x")
		silent(t, b)
		own, err := n.Listen("n2:9")
		require.NoError(t, err)
		_, err = n.Dial("n2")(t.Context(), "n2:9")
		require.NoError(t, err, "a node always reaches itself")
		_ = own.Close()
		ctx, cancel := context.WithTimeout(t.Context(), short)
		defer cancel()
		_, err = n.Dial("n7")(ctx, "n2:9")
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		n.Rejoin("n2")
		receive(t, b, "x")
	})
}

func TestDelayKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := pair(t, n)
		n.Delay("n1", "n2", 300*time.Millisecond)
		begun := time.Now()
		send(t, a, "slow ")
		n.Delay("n1", "n2", 0)
		send(t, a, "quick")
		receive(t, b, "slow quick")
		require.Equal(t, 300*time.Millisecond, time.Since(begun))

		n.Delay("n1", "n2", 300*time.Millisecond)
		n.Delay("n2", "n1", 100*time.Millisecond)
		l, err := n.Listen("n2:2")
		require.NoError(t, err)
		begun = time.Now()
		_, err = n.Dial("n1")(t.Context(), "n2:2")
		require.NoError(t, err)
		require.Equal(t, 400*time.Millisecond, time.Since(begun), "a dial is one round trip")
		_ = l.Close()
	})
}

func TestLimitIsBytesPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := pair(t, n)
		n.Limit("n1", "n2", 100_000)
		begun := time.Now()
		go func() {
			_, _ = a.Write(make([]byte, 300_000))
			_, _ = a.Write([]byte("end"))
		}()
		_, err := io.ReadFull(b, make([]byte, 50_000))
		require.NoError(t, err)
		require.Equal(t, 500*time.Millisecond, time.Since(begun), "what is under way arrives bit by bit")
		_, err = io.ReadFull(b, make([]byte, 250_000))
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(begun))
		n.Limit("n1", "n2", 0)
		receive(t, b, "end")
		send(t, b, "the way back has no limit")
		receive(t, a, "the way back has no limit")
	})
}

func TestCrashResetsWhoCanHearIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := pair(t, n)
		l, err := n.Listen("n2:5")
		require.NoError(t, err)
		n.Isolate("n2")
		n.Crash("n2")
		_, err = l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = b.Read(make([]byte, 1))
		require.Error(t, err, "the crashed end is dead at once")
		_, err = b.Write([]byte("x"))
		require.Error(t, err)
		silent(t, a)
		send(t, a, "unheard")

		n.Heal()
		require.NoError(t, a.SetDeadline(time.Time{}))
		_, err = a.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = a.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_ = a.Close()
		_ = b.Close()
		require.Zero(t, n.Connections())
		_, err = n.Dial("n1")(t.Context(), "n2:5")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
}

func TestBreakEndsConnectionsAtBothEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := pair(t, n)
		done := make(chan error)
		go func() {
			_, err := a.Read(make([]byte, 1))
			done <- err
		}()
		synctest.Wait()
		n.Break("n2", "n1")
		require.ErrorIs(t, <-done, syscall.ECONNRESET)
		_, err := b.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

// TestBytesSurviveTheScheduler sends a megabyte in pieces of random sizes, in real time, while the network is cut,
// delayed and healed. All bytes must arrive, in order.
func TestBytesSurviveTheScheduler(t *testing.T) {
	n := New()
	a, b := pair(t, n)
	rng := rand.New(rand.NewPCG(1, 2))
	sent := make([]byte, 1<<20)
	for i := range sent {
		sent[i] = byte(rng.Uint32())
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for rest := sent; len(rest) > 0; {
			k := min(len(rest), 1+rng.IntN(20000))
			if _, err := a.Write(rest[:k]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[k:]
		}
		_ = a.Close()
	})
	wg.Go(func() {
		for range 200 {
			n.Cut("n1", "n2")
			n.Delay("n1", "n2", time.Microsecond)
			n.Heal()
		}
	})
	var got bytes.Buffer
	_, err := io.Copy(&got, b)
	require.NoError(t, err)
	wg.Wait()
	require.Equal(t, sha256.Sum256(sent), sha256.Sum256(got.Bytes()))
}

// layer is the least that raft's own transport needs to dial and accept.
type layer struct {
	net.Listener
	dial func(context.Context, string) (net.Conn, error)
}

func (l layer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.dial(ctx, string(addr))
}

// TestRaftTransportTimesOutInAPartition shows that raft's own transport over this network times out in a partition, on
// an existing connection and on a new one, and works again afterwards.
func TestRaftTransportTimesOutInAPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		transport := func(addr string) *raft.NetworkTransport {
			l, err := n.Listen(addr)
			require.NoError(t, err)
			return raft.NewNetworkTransport(layer{l, n.Dial(addr)}, 2, short, io.Discard)
		}
		one, two := transport("n1:1"), transport("n2:1")
		defer func() { _ = one.Close(); _ = two.Close(); n.Crash("n1"); n.Crash("n2") }()
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for {
				select {
				case rpc := <-two.Consumer():
					rpc.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
				case <-stop:
					return
				}
			}
		}()
		ask := func(term uint64) error {
			var reply raft.RequestVoteResponse
			err := one.RequestVote("n2", "n2:1", &raft.RequestVoteRequest{Term: term}, &reply)
			if err == nil && !reply.Granted {
				return errors.New("wrong reply")
			}
			return err
		}
		require.NoError(t, ask(1))
		n.Partition([]string{"n1"}, []string{"n2"})
		begun := time.Now()
		require.ErrorContains(t, ask(2), "i/o timeout", "over the connection from before")
		require.ErrorContains(t, ask(3), "i/o timeout", "over a new one")
		require.Equal(t, 2*short, time.Since(begun))
		n.Heal()
		require.NoError(t, ask(9))
	})
}
