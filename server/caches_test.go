package server_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/servertest"
)

// staleness is how much older than an acknowledged write a cached value may be: a node that is cut off
// needs that long to know.
const staleness = 2500 * time.Millisecond

// written is what writers know of the keys: each key has one writer, whose values grow.
type written struct {
	mu    sync.Mutex
	acked map[string][]ack
}

// ack says that a value was acknowledged.
type ack struct {
	value int
	at    time.Time
}

func (w *written) ack(key string, value int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked[key] = append(w.acked[key], ack{value, time.Now()})
}

// least is the newest value that was acknowledged by then.
func (w *written) least(key string, by time.Time) (value int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.acked[key] {
		if !a.at.After(by) {
			value = a.value
		}
	}
	return value
}

// cache is a client that keeps what it reads until told otherwise.
type cache struct {
	t       *testing.T
	conn    *servertest.Client
	options []string
	values  map[string]int
	hits    int
}

// hear drops what the node says.
func (c *cache) hear(v protocol.Value) {
	require.Equal(c.t, "invalidate", v.Elems[0].Str)
	if v.Elems[1].IsNull() {
		clear(c.values)
	}
	for _, key := range v.Elems[1].Elems {
		delete(c.values, key.Str)
	}
}

// ask sends a command and hears messages until the reply is there. A lost connection empties the cache.
func (c *cache) ask(words ...string) (protocol.Value, bool) {
	err := c.conn.Send(words)
	for err == nil {
		var v protocol.Value
		if v, err = c.conn.Receive(); err != nil {
			break
		}
		if v.Kind != protocol.KindPush {
			return v, true
		}
		c.hear(v)
	}
	c.conn.Close()
	clear(c.values)
	return protocol.Value{}, false
}

// read reads a key, from the cache if it is there.
func (c *cache) read(key string, way int) (value int, known bool) {
	if !c.conn.Connected() {
		clear(c.values)
		v, ok := c.ask(append([]string{"client", "tracking", "on"}, c.options...)...)
		if !ok || v.IsError() {
			c.conn.Close()
			return 0, false
		}
	}
	heard, lost := c.conn.Heard()
	for _, v := range heard {
		c.hear(v)
	}
	if lost {
		clear(c.values)
		return 0, false
	}
	if value, cached := c.values[key]; cached {
		c.hits++
		return value, true
	}
	reads := [][]string{
		{"get", key},
		{"eval", "return redis.call('get', ARGV[1])", "0", key},
		{"eval_ro", "return redis.call('get', ARGV[1])", "0", key},
	}
	v, ok := c.ask(reads[way]...)
	if !ok || v.IsError() {
		return 0, false
	}
	value, _ = strconv.Atoi(v.Str)
	c.values[key] = value
	return value, true
}

// TestCachesAreNotOlderThanWrites: each node has clients with caches, while keys are written on other
// nodes, leaders change, nodes are cut off, crash, and install snapshots. No cached value is older than an
// acknowledged write, but for the time in which a node notices that it is cut off. When nothing is written
// any more, all caches are right.
func TestCachesAreNotOlderThanWrites(t *testing.T) {
	protocoltest.SkipShort(t, "a long simulation")
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playCaches(t, seed) })
		})
	}
}

func playCaches(t *testing.T, seed uint64) {
	c := servertest.New(t, servertest.Options{
		Logs: slog.New(slog.DiscardHandler),
		Tune: func(conf *server.Config) { conf.SnapshotThreshold, conf.TrailingLogs = 64, 16 },
	})
	w := &written{acked: make(map[string][]ack)}
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	caches := make([]*cache, 6)
	for i := range 3 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		writers.Go(func() { write(c, w, i, rng, stop) })
	}
	done := make(chan struct{})
	for i := range caches {
		caches[i] = &cache{t: t, conn: c.Client(c.Nodes()[i%3], 3), values: make(map[string]int)}
		if i == 5 {
			caches[i].options = []string{"bcast"}
		}
		rng := rand.New(rand.NewPCG(seed, uint64(10+i)))
		readers.Go(func() {
			for pause := true; pause; pause = sleepUnless(done, time.Duration(rng.Int64N(int64(30*time.Millisecond)))) {
				key := "k" + strconv.Itoa(rng.IntN(9))
				value, known := caches[i].read(key, rng.IntN(3))
				if least := w.least(key, time.Now().Add(-staleness)); known && value < least {
					t.Errorf("client %d has %s=%d, though %d was acknowledged long ago", i, key, value, least)
				}
			}
		})
	}
	cacheTrouble(c, rand.New(rand.NewPCG(seed, 99)))
	close(stop)
	writers.Wait()
	time.Sleep(10 * time.Second)
	close(done)
	readers.Wait()
	c.Settle()
	hits := 0
	for i, cache := range caches {
		for n := range 9 {
			key := "k" + strconv.Itoa(n)
			value, known := cache.read(key, 0)
			require.True(t, known)
			direct, err := c.Client(c.Leader(), 2).Do("get", key)
			require.NoError(t, err)
			require.Equal(t, direct.Str, strconv.Itoa(value), "client %d, %s", i, key)
		}
		hits += cache.hits
	}
	t.Logf("%d reads from caches", hits)
	require.Greater(t, hits, 1000)
}

// sleepUnless sleeps, and returns false if stop is closed.
func sleepUnless(stop <-chan struct{}, d time.Duration) bool {
	select {
	case <-stop:
		return false
	case <-time.After(d):
		return true
	}
}

// raise sets a key to a larger number. A write whose client has given up may be applied later.
const raise = "if tonumber(redis.call('get',KEYS[1]) or 0) < tonumber(ARGV[1]) then " +
	"redis.call('set',KEYS[1],ARGV[1]) end return 1"

// write writes the keys of a writer on any node.
func write(c *servertest.Cluster, w *written, id int, rng *rand.Rand, stop <-chan struct{}) {
	conns := make([]*servertest.Client, 3)
	for i := range conns {
		conns[i] = c.Client(c.Nodes()[i], 2)
	}
	for value := 1; sleepUnless(stop, time.Duration(rng.Int64N(int64(60*time.Millisecond)))); value++ {
		key := "k" + strconv.Itoa(3*rng.IntN(3)+id)
		conn := conns[rng.IntN(3)]
		v, err := conn.Do("eval", raise, "1", key, strconv.Itoa(value))
		if err != nil {
			conn.Close()
		} else if !v.IsError() {
			w.ack(key, value)
		}
	}
}

// cacheTrouble happens to nodes one after the other.
func cacheTrouble(c *servertest.Cluster, rng *rand.Rand) {
	for range 6 {
		n := c.Nodes()[rng.IntN(3)]
		switch rng.IntN(4) {
		case 0:
			c.Net.Partition([]string{n.Name}, c.Names(n.Name))
			time.Sleep(time.Duration(rng.Int64N(int64(8 * time.Second))))
			c.Net.Heal()
		case 1:
			n.Crash()
			time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Second))))
			n.Start()
		case 2:
			_ = c.Leader().Transfer()
		case 3:
			to := c.Nodes()[rng.IntN(3)]
			c.Net.Delay(n.Name, to.Name, time.Duration(rng.Int64N(int64(100*time.Millisecond))))
		}
		time.Sleep(3 * time.Second)
	}
	for _, n := range c.Nodes() {
		for _, to := range c.Nodes() {
			c.Net.Delay(n.Name, to.Name, 0)
		}
	}
}
