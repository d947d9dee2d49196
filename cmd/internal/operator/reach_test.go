package operator_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/clienttest"
	"github.com/holdfast/holdfast/cmd/internal/operator"
)

// door listens, and counts the connections, which answer gets.
func door(t *testing.T, answer func(number int64, nc net.Conn)) (addr string, knocks *atomic.Int64) {
	t.Helper()
	knocks = new(atomic.Int64)
	return clienttest.Listen(t, func(nc net.Conn) { answer(knocks.Add(1), nc) }), knocks
}

// TestClosedAtOnce: a port that ends each connection need not speak TLS; each node is tried, and the error says of each
// why not.
func TestClosedAtOnce(t *testing.T) {
	t.Parallel()
	shut := func(_ int64, nc net.Conn) { nc.Close() }
	first, one := door(t, shut)
	second, two := door(t, shut)
	_, err := (&operator.Servers{Addrs: []string{first, second}}).DialAny(t.Context(), time.Minute)
	require.ErrorContains(t, err, first)
	require.ErrorContains(t, err, second)
	require.NotErrorAs(t, err, new(*operator.Refusal))
	require.EqualValues(t, 2, one.Load(), "once more, to see whether the port speaks TLS")
	require.EqualValues(t, 2, two.Load())
}

// TestSilentNode: a node that accepts and says nothing is left for the next one, also by an exchange that may take
// long.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	silent, _ := door(t, func(int64, net.Conn) {})
	servers := &operator.Servers{Addrs: []string{silent, clienttest.Start(t, 1).Addrs()[0]}}
	c, err := servers.DialAny(t.Context(), time.Hour)
	require.NoError(t, err)
	c.Close()

	servers.Addrs[1], _ = door(t, func(_ int64, nc net.Conn) { nc.Close() })
	_, err = servers.DialAny(t.Context(), time.Hour)
	require.ErrorContains(t, err, silent+": the node does not answer; "+servers.Addrs[1]+": ")
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
	c, err := (&operator.Servers{}).Dial(t.Context(), addr, time.Minute)
	require.NoError(t, err)
	defer c.Close()
	close(speak)
	<-ended
	_, err = c.Do(context.Background(), "PING")
	require.Error(t, err)
	require.NotErrorIs(t, err, net.ErrClosed)
	require.ErrorContains(t, err, "nonsense")
}

// TestRepliesBeforeTheEnd: replies count also when the connection has ended since.
func TestRepliesBeforeTheEnd(t *testing.T) {
	t.Parallel()
	addr, _ := door(t, func(_ int64, nc net.Conn) {
		defer nc.Close()
		in := bufio.NewReader(nc)
		for read, line := 0, ""; read < operator.MaxPipeline; {
			switch line, _ = in.ReadString('\n'); line {
			case "HELLO\r\n":
				_, _ = io.WriteString(nc, "+OK\r\n")
			case "PING\r\n":
				read++
			}
		}
		_, _ = io.WriteString(nc, strings.Repeat("+PONG\r\n", operator.MaxPipeline))
	})
	c, err := (&operator.Servers{}).Dial(t.Context(), addr, time.Minute)
	require.NoError(t, err)
	defer c.Close()
	vs, err := c.Pipeline(t.Context(), slices.Repeat([][]string{{"PING"}}, operator.MaxPipeline)...)
	require.NoError(t, err)
	require.Len(t, vs, operator.MaxPipeline)
}

// TestErrorOf: a server that lacks Holdfast's words is named as no Holdfast; a word of a later version is explained by
// the node itself.
func TestErrorOf(t *testing.T) {
	t.Parallel()
	const later = "ERR unknown command 'lock.next': it comes with version 2 of the cluster, which has version 1"
	for reply, want := range map[string]string{
		"ERR unknown command 'LOCK.LIST', with args beginning with: 'COUNT' '10' ": "ERR unknown command 'LOCK.LIST': " +
			"this server is no Holdfast: see --server",
		"ERR unknown command `RAFT.STATUS`": "ERR unknown command `RAFT.STATUS`: this server is no Holdfast: see --server",
		"ERR unknown command 'GETEX', with args beginning with: 'a.b' ": "ERR unknown command 'GETEX', with args " +
			"beginning with: 'a.b' ",
		later: later, "NOPERM no": "NOPERM no",
	} {
		require.Equal(t, &operator.Refusal{Text: want}, operator.ErrorOf(reply))
	}
	require.NotErrorAs(t, operator.ErrorOf("TRYAGAIN later"), new(*operator.Refusal))
}
