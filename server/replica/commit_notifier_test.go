package replica_test

import (
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// hearing records the messages that each node has received, and when.
type hearing struct {
	mu    sync.Mutex
	lives map[*[]heard]string // by the messages of a process: its node's name
	on    func(node, payload string)
}

type heard struct {
	payload string
	at      time.Time
}

// newSubscribedCluster starts a cluster whose nodes record their messages in h. The nodes learn of commits only from
// later entries and commit notifications. A packet between nodes takes hop.
func newSubscribedCluster(t *testing.T, h *hearing, hop time.Duration,
	configure func(*replica.Config),
) *replicatest.Cluster {
	h.lives = map[*[]heard]string{}
	c := replicatest.New(t, replicatest.Options{Configure: func(c *replica.Config) {
		c.CommitTimeout = time.Minute
		all := new([]heard)
		h.mu.Lock()
		h.lives[all] = c.ID
		h.mu.Unlock()
		c.OnStateEvents = func(events []event.Event) { h.hear(c.ID, all, events) }
		if configure != nil {
			configure(c)
		}
	}})
	for _, from := range c.Names() {
		for _, to := range c.Names() {
			c.Net.Delay(from, to, hop)
		}
	}
	return c
}

func (h *hearing) hear(node string, all *[]heard, events []event.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range events {
		*all = append(*all, heard{events[i].Payload, time.Now()})
		if h.on != nil {
			h.on(node, events[i].Payload)
		}
	}
}

// last returns the newest message that any process of the node has received.
func (h *hearing) last(node string) (last heard) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for all, name := range h.lives { // unordered: a maximum
		if n := len(*all); name == node && n > 0 && (*all)[n-1].at.After(last.at) {
			last = (*all)[n-1]
		}
	}
	return last
}

func subscribe(nodes ...*replicatest.Node) {
	for _, n := range nodes {
		n.Replica().Listen(event.InMessages)
	}
	time.Sleep(time.Second) // until the leader has the subscriptions
}

// warm has connections made, so that later entries and heartbeats wait for no dial.
func warm(c *replicatest.Cluster) {
	for range 100 {
		c.Leader().Do("SET", "k", "v")
	}
	time.Sleep(time.Second)
}

const hop = 5 * time.Millisecond

// TestSubscribedFollowersLearnOfCommitsAtOnce: a subscribed follower learns of a commit one hop after the leader has
// answered its client. The leader sends no notification to other followers.
func TestSubscribedFollowersLearnOfCommitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		c := newSubscribedCluster(t, &h, hop, nil)
		leader := c.Leader()
		listener, deaf := c.Followers()[0], c.Followers()[1]
		subscribe(listener)
		warm(c)
		c.Net.Delay(deaf.Name, leader.Name, 3*hop) // the listener's acknowledgement completes the majority
		for i := range 20 {
			payload := fmt.Sprint(i)
			require.Equal(t, protocol.KindInteger, leader.Do("PUBLISH", "ch", payload).Kind)
			answered := time.Now()
			time.Sleep(hop)
			synctest.Wait()
			require.Equal(t, payload, h.last(listener.Name).payload)
			require.False(t, h.last(listener.Name).at.After(answered.Add(hop)))
			require.Less(t, deaf.Replica().Status().Applied, leader.Replica().Status().Applied)
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
		// When the leader's reply reaches a follower's client, the notification has reached the subscribed follower.
		require.Equal(t, protocol.KindInteger, deaf.Do("PUBLISH", "ch", "of a follower").Kind)
		synctest.Wait()
		require.Equal(t, "of a follower", h.last(listener.Name).payload)

		// Waiting clients are another reason to subscribe.
		listener.Replica().SubscribeCommits(true)
		listener.Replica().Listen(0)
		time.Sleep(time.Second)
		leader.Do("SET", "k", "v")
		time.Sleep(time.Second)
		require.Equal(t, leader.Replica().Status().Applied, listener.Replica().Status().Applied)

		listener.Replica().SubscribeCommits(false)
		time.Sleep(time.Second)
		leader.Do("SET", "k", "v")
		time.Sleep(time.Second)
		require.Less(t, listener.Replica().Status().Applied, leader.Replica().Status().Applied)
	})
}

// TestSlowFollowerLearnsOfCommitsWithItsLog: the leader notifies a follower with a slower disk or link than the
// majority's as soon as that follower has acknowledged the entry.
func TestSlowFollowerLearnsOfCommitsWithItsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		c := newSubscribedCluster(t, &h, hop, nil)
		leader, slow := c.Leader(), c.Followers()[1]
		subscribe(slow)
		warm(c)
		const far = 40 * time.Millisecond
		c.Net.Delay(leader.Name, slow.Name, far)
		leader.Do("PUBLISH", "ch", "x")
		time.Sleep(far + hop + far - 2*hop)
		synctest.Wait()
		require.Equal(t, "x", h.last(slow.Name).payload)
	})
}

// TestFollowersHearThoughTheLeadersDiskIsSlow: the followers acknowledge an entry long before the leader's own disk has
// it. They get the notification one hop after the leader has answered its client.
func TestFollowersHearThoughTheLeadersDiskIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		c := newSubscribedCluster(t, &h, hop, nil)
		leader := c.Leader()
		subscribe(c.Followers()...)
		warm(c)
		leader.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Delay: 8 * hop})
		for i := range 5 {
			payload := fmt.Sprint(i)
			require.Equal(t, protocol.KindInteger, leader.Do("PUBLISH", "ch", payload).Kind)
			time.Sleep(hop)
			synctest.Wait()
			for _, f := range c.Followers() {
				require.Equal(t, payload, h.last(f.Name).payload, f.Name)
			}
		}
	})
}

// TestNextLeaderKnowsTheSubscribers: a follower subscribes again when it has made a link to the next leader.
func TestNextLeaderKnowsTheSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		c := newSubscribedCluster(t, &h, hop, nil)
		subscribe(c.Nodes()...)
		for i := range 4 {
			old := c.Leader()
			if i%2 == 0 {
				require.NoError(t, old.Replica().TransferLeadership(t.Context(), ""))
			} else {
				old.Crash()
			}
			leader := c.Leader()
			warm(c)
			payload := fmt.Sprint(i)
			leader.Do("PUBLISH", "ch", payload)
			time.Sleep(hop)
			synctest.Wait()
			for _, n := range c.Nodes() {
				if n != old || i%2 == 0 {
					require.Equal(t, payload, h.last(n.Name).payload, n.Name)
				}
			}
			if i%2 == 1 {
				old.Start()
				subscribe(old)
			}
		}
	})
}

// TestCommitNotificationOfADeposedLeader: a notification that arrives when another node leads has no effect.
func TestCommitNotificationOfADeposedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		c := newSubscribedCluster(t, &h, 0, nil)
		old := c.Leader()
		held, next := c.Followers()[0], c.Followers()[1]
		subscribe(c.Nodes()...)
		warm(c)
		h.on = func(node, payload string) {
			if node == old.Name {
				c.Net.Delay(old.Name, held.Name, 20*time.Second) // after the acknowledgement, before the notification
			}
		}
		c.Net.Delay(next.Name, old.Name, hop) // the held node's acknowledgement completes the majority
		// The notification may be sent at the acknowledgement, before this leader applies the entry and the delay is
		// set. Then try again.
		for i := 0; ; i++ {
			payload := fmt.Sprint(i)
			old.Do("PUBLISH", "ch", payload)
			time.Sleep(hop)
			if synctest.Wait(); h.last(held.Name).payload != payload {
				break
			}
			c.Net.Delay(old.Name, held.Name, 0)
			require.Less(t, i, 100)
		}
		c.Net.Cut(old.Name, next.Name)
		time.Sleep(10 * time.Second)
		leader := c.Leader()
		require.NotEqual(t, old, leader)
		require.Equal(t, protocol.KindInteger, leader.Do("PUBLISH", "ch", "new").Kind)
		term := leader.Replica().Status().Term
		time.Sleep(20 * time.Second)
		require.Equal(t, "new", h.last(held.Name).payload)
		require.Equal(t, term, leader.Replica().Status().Term)
		require.Equal(t, leader, c.Leader())
		c.Net.Heal()
		c.Settle()
		sameOrder(t, &h)
	})
}

// TestCommitNotificationsOverFaults: leaders change, links are cut, and the ends of logs differ, while all nodes are
// subscribed. No node receives a message twice, or in another order than the others, and the states stay equal.
func TestCommitNotificationsOverFaults(t *testing.T) {
	for seed := range int64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h hearing
				c := newSubscribedCluster(t, &h, time.Millisecond, func(c *replica.Config) {
					c.CommandTimeout, c.CommitTimeout = 300*time.Millisecond, replica.DefaultCommitTimeout
				})
				rng := rand.New(rand.NewSource(seed))
				for i := range 40 {
					subscribe(c.Nodes()...)
					switch n := c.Nodes()[rng.Intn(3)]; rng.Intn(6) {
					case 0:
						c.Net.Isolate(n.Name)
					case 1:
						c.Net.Cut(n.Name, c.Nodes()[rng.Intn(3)].Name)
					case 2:
						n.Crash()
						n.Start()
						n.Replica().Listen(event.InMessages)
					case 3:
						c.Net.Heal()
					}
					var clients sync.WaitGroup
					for j, n := range c.Nodes() {
						clients.Go(func() { n.Do("PUBLISH", "ch", fmt.Sprint(i, "-", j)) })
					}
					clients.Wait()
				}
				c.Net.Heal()
				c.Settle()
				sameOrder(t, &h)
			})
		})
	}
}

// sameOrder requires that the processes of all nodes have received their messages in one order, without repetition. A
// process may lack messages.
func sameOrder(t *testing.T, h *hearing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var sequences [][]string
	for all := range h.lives { // unordered: each is compared with each
		var payloads []string
		for _, m := range *all {
			require.NotContains(t, payloads, m.payload)
			payloads = append(payloads, m.payload)
		}
		sequences = append(sequences, payloads)
	}
	for _, a := range sequences {
		for _, b := range sequences {
			common := slices.DeleteFunc(slices.Clone(a), func(p string) bool { return !slices.Contains(b, p) })
			other := slices.DeleteFunc(slices.Clone(b), func(p string) bool { return !slices.Contains(a, p) })
			require.True(t, slices.Equal(common, other), "%v and %v", common, other)
		}
	}
}
