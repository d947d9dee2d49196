package frontend

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/holdfast/holdfast/protocol"
	"github.com/stretchr/testify/require"
)

// queue sends about size bytes of commands in a transaction, which the server keeps.
func (c *testClient) queue(size int) {
	c.send(command("MULTI"))
	set := command("SET", "k", strings.Repeat("x", 16<<10))
	for range size / len(set) {
		c.send(set)
	}
	settle()
}

// TestGreediestIsCutOff shows that when the memory of all clients exceeds the limit, the client with the most memory is
// evicted. A client with NO-EVICT is evicted only beyond twice the limit, if there is no other.
func TestGreediestIsCutOff(t *testing.T) {
	for _, test := range []struct {
		name  string
		spare bool // clients 1 and 3 have sent CLIENT NO-EVICT
		more  int  // bytes that client 3 holds
		left  []bool
	}{
		{"the greediest", false, 0, []bool{true, false, true, true}},
		{"but one that is to be spared", true, 0, []bool{true, true, false, true}},
		{"even that one, when nothing else helps", true, 9 << 20, []bool{false, true, false, false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, Config{Memory: Memory{MaxMemoryClientsBytes: 6 << 20}}, func(t *testing.T, s *testServer) {
				clients := []*testClient{s.dial(), s.dial(), s.dial(), s.dial()}
				if test.spare {
					for _, c := range append(clients[1:2:2], clients[3]) {
						c.send(command("CLIENT", "NO-EVICT", "ON"))
					}
				}
				clients[0].queue(1 << 20)
				clients[1].queue(4 << 20)
				clients[2].queue(3 << 20)
				if test.more > 0 {
					clients[3].queue(test.more)
				}
				for i, left := range test.left {
					_, closed := clients[i].take()
					require.Equal(t, left, !closed, "client %d", i)
				}
				require.Equal(t, s.clientCount(), 4-int(s.metrics.Evicted.Load()))
				for _, c := range clients {
					c.nc.Close()
				}
				settle()
				require.Zero(t, s.memory.total.Load())
			})
		})
	}
}

// TestSparedClientsRaiseNoLimit shows that the limit applies again after the memory exceeded it, with no client to
// evict, and was then freed.
func TestSparedClientsRaiseNoLimit(t *testing.T) {
	inBubble(t, Config{Memory: Memory{MaxMemoryClientsBytes: 4 << 20}}, func(t *testing.T, s *testServer) {
		spared, next := s.dial(), s.dial()
		spared.send(command("CLIENT", "NO-EVICT", "ON"))
		spared.queue(6 << 20)
		require.NotZero(t, s.memory.retryFrom.Load())
		spared.deliver(command("DISCARD"))
		require.Less(t, s.memory.total.Load(), int64(1<<20))
		next.queue(5 << 20)
		_, closed := next.take()
		require.True(t, closed)
	})
}

// TestAllThatAClientHoldsCounts shows that all memory of a client counts: input, a transaction, watched keys, running
// commands and unread replies. A client with much memory is evicted, and one with little is not.
func TestAllThatAClientHoldsCounts(t *testing.T) {
	big := strings.Repeat("x", 3<<20)
	key := strings.Repeat("k", 60_000)
	var watches []byte
	for i := range 60 {
		watches = append(watches, command("WATCH", strconv.Itoa(i)+key)...)
	}
	for _, test := range []struct {
		name  string
		send  []byte
		limit int
		reply protocol.Value
		// reads is set if the client reads its replies.
		reads bool
		// gated is set if the cluster does not reply.
		gated bool
	}{
		{name: "half a command", send: command("SET", "k", big)[:len(big)], limit: 2 << 20, reads: true},
		{
			name: "half a command of many short words", send: []byte("*65535\r\n" + strings.Repeat("$0\r\n\r\n", 65_534)),
			limit: 1 << 20, reads: true,
		},
		{name: "a line without an end", send: []byte(strings.Repeat("x", 60<<10)), limit: 60 << 10, reads: true},
		{name: "a transaction", send: append(command("MULTI"), command("SET", "k", big)...), limit: 2 << 20, reads: true},
		{name: "watched keys", send: watches, limit: 3 << 20, reads: true},
		{name: "a command under way", send: command("SET", "k", big), limit: 5 << 20, reads: true, gated: true},
		{name: "replies that are not read", send: command("GET", "k"), limit: 2 << 20, reply: protocol.Bulk(big)},
		{
			name: "many small elements that are not read", send: command("LRANGE", "l", "0", "-1"), limit: 2 << 20,
			reply: protocol.Array(make([]protocol.Value, 60_000)...),
		},
		{name: "what the node itself answers", send: command("COMMAND", "DOCS"), limit: 500 << 10},
		{name: "what is sent behind replies that are not read", send: append(command("PING"),
			bytes.Repeat(command("PING", key), 50)...), limit: 2 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCluster()
				if test.gated {
					cl.gate = make(chan struct{})
				}
				s := startOver(t, Config{Memory: Memory{MaxMemoryClientsBytes: test.limit}}, &canned{cl, test.reply},
					newMemListener())
				good, bad := s.dial(), s.silent()
				if test.reads {
					go (&testClient{t: t, nc: bad}).readAll()
				}
				ended := make(chan error, 1)
				go func() {
					_, err := bad.Write(test.send)
					ended <- err
				}()
				time.Sleep(time.Second)
				synctest.Wait()
				<-ended
				require.Equal(t, uint64(1), s.metrics.Evicted.Load())
				cl.set(func() {
					if cl.gate != nil {
						close(cl.gate)
					}
				})
				settle()
				require.Equal(t, 1, s.clientCount())
				good.deliver(command("PING"))
				got, closed := good.take()
				require.Equal(t, "+PONG\r\n", got)
				require.False(t, closed)
				require.Equal(t, int64(connBytes), s.memory.total.Load())
			})
		})
	}
}

// TestLargeCommandsWaitForMemory shows that while running commands fill the memory, the server stops reading other
// large commands, serves small ones, and evicts nobody.
func TestLargeCommandsWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster()
		cl.gate = make(chan struct{})
		const limit = 8 << 20
		s := startOver(t, Config{Memory: Memory{MaxMemoryClientsBytes: limit}}, &canned{cl, protocol.OK}, newMemListener())
		small := s.dial()
		var clients []*testClient
		for range 10 {
			c := s.dial()
			clients = append(clients, c)
			go c.send(command("SET", "k", strings.Repeat("x", 2<<20)))
		}
		time.Sleep(10 * time.Second) // the cluster does not reply
		settle()
		require.LessOrEqual(t, s.memory.total.Load(), int64(limit))
		require.Equal(t, int64(2*2<<20), s.memory.pinned.Load()&^(1<<20-1), "two are being executed")
		small.deliver(command("PING"))
		got, _ := small.take()
		require.Equal(t, "+PONG\r\n", got)
		close(cl.gate)
		time.Sleep(10 * time.Second)
		settle()
		for i, c := range clients {
			got, closed := c.take()
			require.Equal(t, "+OK\r\n", got, "client %d", i)
			require.False(t, closed)
		}
		require.Zero(t, s.metrics.Evicted.Load())
		require.Zero(t, s.memory.pinned.Load())
		require.Equal(t, int64(11*connBytes), s.memory.total.Load())
	})
}

// TestLargeCommandThatStops shows that a client that stops within a large command is evicted once another has waited
// for memory for GraceTimeout.
func TestLargeCommandThatStops(t *testing.T) {
	inBubble(t, Config{Memory: Memory{MaxMemoryClientsBytes: 5 << 20}}, func(t *testing.T, s *testServer) {
		set := command("SET", "k", strings.Repeat("x", 2<<20))
		stops, next := s.dial(), s.dial()
		stops.deliver(set[:len(set)/2])
		go next.send(set)
		time.Sleep(time.Second / 2)
		settle()
		require.Zero(t, s.metrics.Evicted.Load())
		time.Sleep(time.Second)
		settle()
		_, closed := stops.take()
		require.True(t, closed)
		got, closed := next.take()
		require.Equal(t, "+OK\r\n", got)
		require.False(t, closed)
	})
}

// TestExecutedCommandsAreNotEvicted shows that a client whose command is being executed is not evicted, since that
// would free no memory.
func TestExecutedCommandsAreNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster()
		cl.gate = make(chan struct{})
		s := startOver(t, Config{Memory: Memory{MaxMemoryClientsBytes: 10 << 20}}, &canned{cl, protocol.OK}, newMemListener())
		clients := []*testClient{s.dial(), s.dial(), s.dial()}
		clients[0].deliver(command("SET", "k", strings.Repeat("x", 4<<20)))
		clients[1].queue(3 << 20)
		clients[2].queue(4<<20 - 64<<10)
		for i, left := range []bool{true, true, false} {
			_, closed := clients[i].take()
			require.Equal(t, left, !closed, "client %d", i)
		}
		close(cl.gate)
		settle()
		got, _ := clients[0].take()
		require.Equal(t, "+OK\r\n", got)
	})
}

// TestEvictionOverTCP shows that a connection ends if its own read causes its eviction. Closing a socket waits for the
// callback that reads from it, so the callback must not close the socket.
func TestEvictionOverTCP(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := startOn(t, Config{Memory: Memory{MaxMemoryClientsBytes: 64 << 10}}, newCluster(), ln)
	nc, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer nc.Close()
	_, _ = nc.Write(command("SET", "k", strings.Repeat("x", 200<<10)))
	_, err = io.Copy(io.Discard, nc) // ends with the connection
	if err != nil {
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	require.Eventually(t, func() bool { return s.clientCount() == 0 }, 10*time.Second, time.Millisecond)
	require.Equal(t, uint64(1), s.metrics.Evicted.Load())
}

// TestIdleConnection shows that a conn fits the allocator's size class of 1,280 bytes. The next class is 1,408 bytes.
func TestIdleConnection(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(conn{}), uintptr(1280))
}
