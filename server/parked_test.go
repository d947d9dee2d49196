package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/servertest"
)

const (
	// parkedClients wait at once.
	parkedClients = 10_000
	// together is how many of them come at a time.
	together = 100
)

// TestParkedClientsCostLittle: ten thousand clients wait, on all nodes. Each costs the goroutine of its own
// connection and no other, some kilobytes, and no entry of the log while nothing happens. All are served.
func TestParkedClientsCostLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := servertest.New(t, servertest.Options{})
		pusher := c.Client(c.Leader(), 2)
		_, err := pusher.Do("ping")
		require.NoError(t, err)
		goroutines, heap := runtime.NumGoroutine(), heapBytes()
		conns := park(t, c, parkedClients)
		require.InDelta(t, parkedClients, runtime.NumGoroutine()-goroutines, 100)
		each := (heapBytes() - heap) / parkedClients
		t.Logf("a parked client takes %d bytes of the heap, with its connection in memory", each)
		require.Less(t, each, int64(16<<10))

		entries := c.Entries()
		time.Sleep(10 * time.Second)
		require.Equal(t, entries, c.Entries(), "nothing happens, and no entry says so")

		for from := 0; from < parkedClients; from += 1000 {
			words := []string{"rpush", "q"}
			for n := range 1000 {
				words = append(words, fmt.Sprint(from+n))
			}
			_, err := pusher.Do(words...)
			require.NoError(t, err)
		}
		got := make(map[int]bool)
		for n, conn := range conns {
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
			v, err := protocol.ReadValue(bufio.NewReaderSize(conn, 16))
			require.NoError(t, err)
			element, err := strconv.Atoi(v.Elems[1].Str)
			require.NoError(t, err)
			require.Equal(t, n/together, element/together, "those who came together are served together")
			got[element] = true
			conn.Close()
		}
		require.Len(t, got, parkedClients)
		synctest.Wait()
		require.InDelta(t, goroutines, runtime.NumGoroutine(), 100)
		require.Equal(t, int64(0), pusherLength(t, pusher))
	})
}

func pusherLength(t *testing.T, c *servertest.Client) int64 {
	v, err := c.Do("llen", "q")
	require.NoError(t, err)
	return v.Num
}

// park has clients of all nodes wait at the queue q, one after the other.
func park(t *testing.T, c *servertest.Cluster, count int) (conns []net.Conn) {
	for n := range count {
		conn, err := c.Net.Dial(fmt.Sprintf("parked%d:1", n))(context.Background(), c.Nodes()[n%3].Name+":6379")
		require.NoError(t, err)
		_, err = conn.Write(protocol.AppendCommand(nil, "blpop", "q", "0"))
		require.NoError(t, err)
		conns = append(conns, conn)
		if n%together == together-1 {
			time.Sleep(time.Second)
		}
	}
	time.Sleep(10 * time.Second)
	return conns
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
