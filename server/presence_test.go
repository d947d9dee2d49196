package server_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/servertest"
)

// presenceLock is a lock as portalocker takes it: who has subscribed to a channel, and then counts one subscriber,
// holds it for as long as its connection lasts.
type presenceLock struct {
	c *servertest.Cluster

	mu      sync.Mutex
	holders map[*servertest.Client]bool
	grants  int
	twice   string // what two holders saw
}

// try subscribes on a node, counts on any node, and holds the lock for a while if it is alone.
func (l *presenceLock) try(rng *rand.Rand) {
	sub := l.c.Client(l.c.Nodes()[rng.IntN(3)], protocol.RESP2)
	count := l.c.Client(l.c.Nodes()[rng.IntN(3)], protocol.RESP2)
	defer sub.Close()
	defer count.Close()
	if v, err := sub.Do("subscribe", "door"); err != nil || v.IsError() {
		return
	}
	v, err := count.Do("pubsub", "numsub", "door")
	if err != nil || v.IsError() || v.Elems[1].Num != 1 || !sub.Connected() {
		return
	}
	l.mu.Lock()
	l.grants++
	for other := range l.holders { // unordered: each is looked at
		if other.Connected() {
			l.twice = fmt.Sprintf("%v: at %s while at %s, by the count of %s", time.Now(), sub.Node.Name,
				other.Node.Name, count.Node.Name)
		}
	}
	l.holders[sub] = true
	l.mu.Unlock()
	for range rng.IntN(12) {
		time.Sleep(time.Second)
	}
	l.mu.Lock()
	delete(l.holders, sub)
	l.mu.Unlock()
}

// TestPresenceLock: clients on all nodes take a lock by being a channel's only subscriber, while nodes are cut off,
// crash, stop and lead. No two have it at a time, also when one is connected to a node that the others cannot reach.
func TestPresenceLock(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &presenceLock{c: servertest.New(t, servertest.Options{}), holders: make(map[*servertest.Client]bool)}
				rng, done := rand.New(rand.NewPCG(seed, 0)), make(chan struct{})
				var all sync.WaitGroup
				for i := range uint64(3) {
					all.Go(func() {
						rng := rand.New(rand.NewPCG(seed, i+1))
						for {
							select {
							case <-done:
								return
							case <-time.After(time.Duration(rng.IntN(500)) * time.Millisecond):
								l.try(rng)
							}
						}
					})
				}
				for range 12 {
					n := l.c.Nodes()[rng.IntN(3)]
					away := time.Duration(rng.IntN(20)) * time.Second
					switch rng.IntN(5) {
					case 0, 1:
						l.c.Net.Partition([]string{n.Name}, l.c.Names(n.Name))
						time.Sleep(away)
						l.c.Net.Heal()
					case 2:
						n.Crash()
						time.Sleep(away)
						n.Start()
					case 3:
						_ = n.Stop()
						n.Start()
					case 4:
						_ = l.c.Leader().Transfer()
					}
					time.Sleep(time.Duration(rng.IntN(10)) * time.Second)
				}
				close(done)
				all.Wait()
				require.Empty(t, l.twice)
				require.Greater(t, l.grants, 2)
			})
		})
	}
}
