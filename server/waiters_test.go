package server_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/servertest"
)

// waiter is a client that waits at the queue q.
type waiter struct {
	conn *servertest.Client
	id   string // CLIENT ID
	name string
}

// line is clients that wait at a queue, on all nodes, in the order in which they came.
type line struct {
	t       *testing.T
	c       *servertest.Cluster
	rng     *rand.Rand
	waiting []*waiter
	left    []string // elements that nobody waits for
	count   int      // clients and elements so far
}

// TestWaitersStandInLine: clients wait at a queue, on all nodes. They come and go, while leaders change, nodes crash,
// are cut off and install snapshots. Each element goes to the client that has waited the longest, to it alone, and
// nobody waits beside an element.
func TestWaitersStandInLine(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := servertest.New(t, servertest.Options{Tune: func(conf *server.Config) {
					conf.SnapshotThreshold, conf.TrailingLogs = 1<<20, 8
				}})
				l := &line{t: t, c: c, rng: rand.New(rand.NewPCG(seed, 0))}
				for range 6 {
					for range 1 + l.rng.IntN(5) {
						l.come()
					}
					l.leave()
					l.trouble()
					for range l.rng.IntN(len(l.waiting) + 2) {
						l.push()
					}
				}
				for len(l.waiting) > 0 {
					l.push()
				}
				c.Settle()
			})
		})
	}
}

func (l *line) node() *servertest.Node { return l.c.Nodes()[l.rng.IntN(3)] }

// come has one more client wait. If an element is left the client gets it at once.
func (l *line) come() {
	l.count++
	w := &waiter{conn: l.c.Client(l.node(), 2+l.rng.IntN(2)), name: fmt.Sprint("client ", l.count)}
	v, err := w.conn.Do("client", "id")
	require.NoError(l.t, err)
	w.id = strconv.FormatInt(v.Num, 10)
	require.NoError(l.t, w.conn.Send([][]string{
		{"blpop", "q", "0"},
		{"blmove", "q", "done", "left", "right", "0"},
		{"blmpop", "0", "2", "none", "q", "left"},
		{"blpop", "none", "q", "1000000"},
	}[l.rng.IntN(4)]))
	time.Sleep(time.Second)
	if len(l.left) > 0 {
		l.requireServed(w, l.left[0])
		l.left = l.left[1:]
		return
	}
	l.requireNews(w, false)
	l.waiting = append(l.waiting, w)
}

// leave has some clients leave: they hang up, or another client has them leave.
func (l *line) leave() {
	for i := len(l.waiting) - 1; i >= 0; i-- {
		w := l.waiting[i]
		switch l.rng.IntN(8) {
		case 0:
			w.conn.Close()
		case 1:
			v, err := l.c.Client(l.node(), 2).Do("client", "unblock", w.id, []string{"timeout", "error"}[l.rng.IntN(2)])
			require.NoError(l.t, err)
			require.Equal(l.t, protocol.Integer(1), v)
			time.Sleep(time.Second)
			l.requireNews(w, true)
		default:
			continue
		}
		l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
	}
	time.Sleep(time.Second)
}

// trouble is one trouble, and the time until all is well again. Clients that were connected to a node that ended
// are gone; a client that was told that the outcome is uncertain does not wait any more.
func (l *line) trouble() {
	n := l.node()
	others := l.c.Names(n.Name)
	away := time.Duration(l.rng.IntN(15)) * time.Second
	switch l.rng.IntN(6) {
	case 0:
		n = l.c.Leader()
		fallthrough
	case 1:
		n.Crash()
		time.Sleep(away)
		n.Start()
	case 2:
		_ = n.Stop()
		n.Start()
	case 3:
		_ = l.c.Leader().Transfer()
	case 4:
		l.c.Net.Partition([]string{n.Name}, others)
		time.Sleep(away)
		l.c.Net.Heal()
	case 5: // n gets a snapshot for the entries that it missed
		l.c.Net.Partition([]string{n.Name}, others)
		time.Sleep(3 * time.Second)
		for range 20 {
			_, err := l.c.Client(l.c.Node(others[0]), 2).Do("set", "k", "v")
			require.NoError(l.t, err)
		}
		for _, name := range others {
			require.NoError(l.t, l.c.Node(name).Replica().TakeSnapshot())
		}
		l.c.Net.Heal()
	}
	l.c.Leader()
	time.Sleep(5 * time.Second)
	l.c.Settle()
	still := l.waiting[:0]
	for _, w := range l.waiting {
		heard, lost := w.conn.Heard()
		for _, v := range heard {
			require.True(l.t, v.IsError(), "%s was told %v while nobody pushed", w.name, v)
		}
		if !lost && len(heard) == 0 {
			still = append(still, w)
		}
	}
	l.waiting = still
}

// push pushes an element, which goes to the first client.
func (l *line) push() {
	l.count++
	element := fmt.Sprint("element ", l.count)
	push := []string{"rpush", "q", element}
	if l.rng.IntN(2) == 0 {
		push = []string{"eval", "return redis.call('rpush',KEYS[1],ARGV[1])", "1", "q", element}
	}
	_, err := l.c.Client(l.node(), 2).Do(push...)
	require.NoError(l.t, err)
	time.Sleep(time.Second)
	if len(l.waiting) == 0 {
		l.left = append(l.left, element)
		return
	}
	l.requireServed(l.waiting[0], element)
	l.waiting = l.waiting[1:]
	for _, w := range l.waiting {
		l.requireNews(w, false)
	}
}

// requireServed requires that a client got an element, and nothing else. The client leaves.
func (l *line) requireServed(w *waiter, element string) {
	heard, _ := w.conn.Heard()
	require.Len(l.t, heard, 1, "%s, %s", w.name, element)
	v := heard[0]
	for len(v.Elems) > 0 {
		v = v.Elems[len(v.Elems)-1]
	}
	require.Equal(l.t, element, v.Str, w.name)
	w.conn.Close()
}

func (l *line) requireNews(w *waiter, news bool) {
	heard, lost := w.conn.Heard()
	require.False(l.t, lost, w.name)
	require.Equal(l.t, news, len(heard) > 0, "%s was told %v", w.name, heard)
}

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
