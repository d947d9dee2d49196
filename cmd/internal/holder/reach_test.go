package holder_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/holder"
	"github.com/holdfast/holdfast/cmd/internal/holder/holdertest"
)

// door listens, and counts the connections, which answer gets.
func door(t *testing.T, answer func(number int64, nc net.Conn)) (addr string, knocks *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	knocks = new(atomic.Int64)
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { nc.Close() })
			go answer(knocks.Add(1), nc)
		}
	}()
	return l.Addr().String(), knocks
}

func locking(wait time.Duration, addrs ...string) *holder.Holder {
	return holder.New(&holder.Servers{Addrs: addrs}, holder.Lock{Name: "job", Owner: "a", TTL: ttl, Wait: wait})
}

// TestNobodyAtFirst: the time to wait is also for a cluster that is not there yet.
func TestNobodyAtFirst(t *testing.T) {
	t.Parallel()
	for what, wait := range map[string]time.Duration{"for long": time.Hour, "for ever": -1} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := holdertest.Start(t, 1)
			addr, _ := door(t, func(number int64, nc net.Conn) {
				if number < 4 {
					nc.Close()
					return
				}
				node, err := net.Dial("tcp", c.Addrs()[0])
				if err != nil {
					nc.Close()
					return
				}
				go func() { _, _ = io.Copy(node, nc); node.Close() }()
				_, _ = io.Copy(nc, node)
				nc.Close()
			})
			h := locking(wait, addr)
			t.Cleanup(h.Close)
			require.NoError(t, h.Acquire(t.Context()))
		})
	}
}

// TestOneRound: without a time to wait each node is tried once, and the error says of each why not.
func TestOneRound(t *testing.T) {
	t.Parallel()
	shut := func(_ int64, nc net.Conn) { nc.Close() }
	first, one := door(t, shut)
	second, two := door(t, shut)
	err := locking(0, first, second).Acquire(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, holder.ErrNotGranted)
	require.ErrorContains(t, err, first)
	require.ErrorContains(t, err, second)
	require.EqualValues(t, 2, one.Load(), "once more, to see whether the port speaks TLS")
	require.EqualValues(t, 2, two.Load())
}

// TestSilentNode: a node that accepts and says nothing is left for the next one, also by an exchange that may take
// long.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	silent, _ := door(t, func(int64, net.Conn) {})
	servers := &holder.Servers{Addrs: []string{silent, holdertest.Start(t, 1).Addrs()[0]}}
	c, err := servers.DialAny(t.Context(), time.Hour)
	require.NoError(t, err)
	c.Close()

	servers.Addrs[1], _ = door(t, func(_ int64, nc net.Conn) { nc.Close() })
	_, err = servers.DialAny(t.Context(), time.Hour)
	require.ErrorContains(t, err, silent+": the node does not answer; "+servers.Addrs[1]+": ")
}

// TestAnotherNodeForAPassingRefusal: what a node refuses for the moment, or for itself alone, the next node may take.
func TestAnotherNodeForAPassingRefusal(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"ERR max number of clients reached", "CLUSTERDOWN No leader is known", "LOADING the node is starting",
		"MASTERDOWN no link", "TRYAGAIN later",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			c := holdertest.Start(t, 1)
			refuses, knocks := door(t, func(_ int64, nc net.Conn) {
				_, _ = bufio.NewReader(nc).ReadString('\n') // the client has begun to speak
				_, _ = io.WriteString(nc, "-"+text+"\r\n")
			})
			h := locking(0, refuses, c.Addrs()[0])
			t.Cleanup(h.Close)
			require.NoError(t, h.Acquire(t.Context()))
			require.EqualValues(t, 1, knocks.Load())
		})
	}
}

// TestTheWaitIsTheBound: nodes that accept and say nothing do not make it longer.
func TestTheWaitIsTheBound(t *testing.T) {
	t.Parallel()
	first, _ := door(t, func(int64, net.Conn) {})
	second, late := door(t, func(int64, net.Conn) {})
	require.ErrorIs(t, locking(time.Millisecond, first, second).Acquire(t.Context()), holder.ErrNotGranted)
	require.Zero(t, late.Load(), "a node was asked when the wait was over")
}

// TestReasonOfTheEnd: who writes to a connection that the node has ended hears what the node said.
func TestReasonOfTheEnd(t *testing.T) {
	t.Parallel()
	speak, ended := make(chan struct{}), make(chan struct{})
	addr, _ := door(t, func(_ int64, nc net.Conn) {
		in := bufio.NewReader(nc)
		for range 5 { // HELLO 3 SETNAME … as RESP, up to its last lines
			_, _ = in.ReadString('\n')
		}
		_, _ = io.WriteString(nc, "+OK\r\n")
		<-speak
		_, _ = io.WriteString(nc, "nonsense\r\n")
		_, _ = io.Copy(io.Discard, in) // until the client has closed
		close(ended)
	})
	c, err := (&holder.Servers{}).Dial(t.Context(), addr, time.Minute)
	require.NoError(t, err)
	defer c.Close()
	close(speak)
	<-ended
	_, err = c.Do(context.Background(), "PING")
	require.Error(t, err)
	require.NotErrorIs(t, err, net.ErrClosed)
	require.ErrorContains(t, err, "nonsense")
}
