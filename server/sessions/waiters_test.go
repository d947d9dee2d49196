package sessions

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// cluster is a state that has waiters.
type cluster struct {
	down    atomic.Bool
	why     error // while it is down; nil: no leader
	waits   map[uint64]bool
	applied uint64
	asked   []string // the requests proposed
	batches int
	// subscribed are the arguments of SubscribeWaiting.
	subscribed []bool
	// meanwhile is called while the first request is under way.
	meanwhile func()
}

func (c *cluster) waiters() *waitersAlone {
	return alone(Cluster{
		Propose: func(body []byte, count int) error {
			if c.down.Load() {
				return cmp.Or(c.why, error(protocol.ErrNoLeader))
			}
			if f := c.meanwhile; f != nil {
				c.meanwhile = nil
				f()
			}
			c.batches++
			for rest := string(body); rest != ""; count-- {
				var r protocol.Request
				var err error
				if rest, err = protocol.NextRequest(rest, &r); err != nil {
					return err
				}
				c.asked = append(c.asked, r.Args...)
			}
			if count != 0 {
				return errors.New("another number of requests")
			}
			return nil
		},
		Waits:            func(ticket uint64) bool { return c.waits[ticket] },
		Applied:          func(number uint64) bool { return number <= c.applied },
		SubscribeWaiting: func(yes bool) { c.subscribed = append(c.subscribed, yes) },
	})
}

// waitersAlone are clients that wait. No connection has a session.
type waitersAlone struct {
	*Waiters
	clients *Clients
}

func alone(c Cluster) *waitersAlone {
	all := New(c)
	return &waitersAlone{all.Waiters, all}
}

func (w *waitersAlone) Run(ctx context.Context) error { return w.clients.Run(ctx) }

func (w *waitersAlone) Drained(ctx context.Context) { w.clients.Drained(ctx) }

// told collects replies.
type told []string

func (t *told) give(v protocol.Value) { *t = append(*t, v.Str) }

func TestWoken(t *testing.T) {
	var c cluster
	var told told
	r := c.waiters()
	early, late, never := r.Enter(1, told.give), r.Enter(1, told.give), r.Enter(1, told.give)
	require.True(t, r.Woken(early, protocol.Simple("before Execute returned")))
	r.Parked(early, 1)
	r.Parked(late, 2)
	require.True(t, r.Woken(late, protocol.Simple("later")))
	require.False(t, r.Woken(late, protocol.Simple("twice")))
	require.True(t, r.Forget(never))
	require.False(t, r.Forget(late), "told already")
	require.False(t, r.Woken(never, protocol.Simple("served at once")))
	require.EqualValues(t, []string{"before Execute returned", "later"}, told)
	require.Zero(t, r.Len())
	require.Equal(t, []bool{true}, c.subscribed)
	require.False(t, r.UnsubscribeIdle())
	require.False(t, r.UnsubscribeIdle())
	require.Equal(t, []bool{true, false}, c.subscribed)
}

// TestUnsubscribe: the result of UnsubscribeIdle and the last argument of SubscribeWaiting are the same, so that the
// next client subscribes again.
func TestUnsubscribe(t *testing.T) {
	var c cluster
	var told told
	r := c.waiters()
	require.False(t, r.UnsubscribeIdle())
	for range 2 {
		first := r.Enter(1, told.give)
		require.True(t, r.UnsubscribeIdle())
		second := r.Enter(1, told.give)
		r.Forget(first)
		require.True(t, r.UnsubscribeIdle())
		r.Forget(second)
		r.Forget(r.Enter(1, told.give)) // came and went since the last look
		require.False(t, r.UnsubscribeIdle())
	}
	require.Equal(t, []bool{true, false, true, false}, c.subscribed)
}

// TestSnapshot: a snapshot may stand for the entry that woke a client. The client is told that the outcome
// is uncertain; a client that the snapshot has waits on, and so does a client whose entry comes later.
func TestSnapshot(t *testing.T) {
	var lost, waits, later, after told
	c := cluster{waits: map[uint64]bool{2: true}}
	r := c.waiters()
	for i, told := range []*told{&lost, &waits, &later} {
		r.Parked(r.Enter(1, told.give), uint64(i+1))
	}
	under := r.Enter(1, after.give)
	c.applied = 2
	r.clients.Restored(func(func(int64, uint64, int64)) {})
	require.EqualValues(t, []string{protocol.ErrUncertain.Error()}, lost)
	require.Empty(t, waits)
	require.Empty(t, later)

	// The leader's word that a client was parked may come after the snapshot.
	require.Empty(t, after)
	c.applied = 4
	r.Parked(under, 4)
	require.EqualValues(t, []string{protocol.ErrUncertain.Error()}, after)
}

// TestLeave: who leaves is taken out of the queues, together, also after a time without a leader.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cluster
		c.down.Store(true)
		var told told
		r := c.waiters()
		first, second, third := r.Enter(1, told.give), r.Enter(1, told.give), r.Enter(1, told.give)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		r.Leave(second)
		r.Leave(second)
		synctest.Wait()
		r.Leave(first)
		require.False(t, r.Woken(first, protocol.Simple("behind the client's back")))
		require.False(t, r.Woken(first, protocol.Simple("twice")))
		require.EqualValues(t, []string{"behind the client's back"}, told)
		told = nil
		time.Sleep(time.Minute)
		require.Empty(t, c.asked)
		c.down.Store(false)
		r.Drained(t.Context())
		require.Equal(t, []string{"unblock", "gone", "2", "1"}, c.asked)
		require.False(t, r.Woken(second, protocol.OK), "the cluster has forgotten the client")
		require.Empty(t, told)

		r.DropPreviousIncarnations()
		synctest.Wait()
		require.Equal(t, []string{"unblock", "gone"}, c.asked[4:])

		// A node that is cut off tells all that were parked, but not those under way.
		r.Parked(third, 9)
		c.waits = map[uint64]bool{third: true}
		fourth := r.Enter(1, told.give)
		r.LeaveAll(protocol.Simple("cut off"))
		require.EqualValues(t, []string{"cut off"}, told)
		synctest.Wait()
		require.Equal(t, []string{"unblock", "gone", "3"}, c.asked[6:])
		require.False(t, r.Woken(third, protocol.Simple("twice")))
		require.EqualValues(t, []string{"cut off"}, told)
		require.True(t, r.Woken(fourth, protocol.OK))
		require.Zero(t, r.Len())

		stop()
		require.NoError(t, <-done)
		c.down.Store(true)
		r.Leave(r.Enter(1, told.give))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.Drained(short)
	})
}

// TestLeaveMany: who leaves while others are asked for is not forgotten.
func TestLeaveMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cluster
		var told told
		r := c.waiters()
		leave := func(n int) {
			for range n {
				r.Leave(r.Enter(1, told.give))
			}
		}
		c.meanwhile = func() { leave(maxLeaving) }
		leave(maxLeaving + 1)
		go r.Run(t.Context())
		r.Drained(t.Context())
		synctest.Wait()
		words := map[string]int{}
		for _, word := range c.asked {
			words[word]++
		}
		require.Len(t, words, 2*maxLeaving+1+2)
		require.Equal(t, words["unblock"], words["gone"])
	})
}

// TestLeaveManyPlaces: a request takes a bounded number of places, and one client at least.
func TestLeaveManyPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster{}
		c.down.Store(true)
		r := c.waiters()
		const most = maxLeavingPlaces
		for _, places := range []int{most / 2, most / 2, 1, most - 1, most + 1, 1, most} {
			ticket := r.Enter(places, func(protocol.Value) {})
			if places == 1 {
				r.Parked(ticket, 1) // leaves by LeaveAll
			} else {
				r.Leave(ticket)
			}
		}
		r.LeaveAll(protocol.OK)
		go r.Run(t.Context())
		c.down.Store(false)
		r.Drained(t.Context())
		require.Regexp(t, "^unblock gone 1 2 unblock gone 4 unblock gone 5 unblock gone 7 unblock gone [36] [36]$",
			strings.Join(c.asked, " "))
	})
}

// TestGiveBack: locks are given back, together, also after a time without a leader.
func TestGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cluster
		c.down.Store(true)
		r := c.waiters()
		go r.Run(t.Context())
		r.GiveBack(protocol.Hold{Key: "k", Owner: "me", Fence: 7, Conn: 3}, protocol.Hold{
			Key: "l", Owner: "me", Fence: 7,
			Conn: 3,
		})
		time.Sleep(time.Minute)
		require.Empty(t, c.asked)
		c.down.Store(false)
		r.Drained(t.Context())
		require.Equal(t, []string{"return-grant", "k", "me", "7", "3", "return-grant", "l", "me", "7", "3"},
			c.asked)
		r.Drained(t.Context())
		d := r.departures
		d.mu.Lock()
		defer d.mu.Unlock()
		require.Nil(t, d.holds, "a crowd's memory is given back")
		require.Nil(t, d.waiters)
	})
}

// TestLeaveAtOnce: all that a connection leaves behind goes with one batch, the places in queues first.
func TestLeaveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cluster
		c.down.Store(true)
		r := c.waiters()
		r.clients.departures.addConn(3)
		r.GiveBack(protocol.Hold{Key: "k", Owner: "me", Fence: 7, Conn: 3})
		r.Leave(r.Enter(1, func(protocol.Value) {}))
		c.down.Store(false)
		go r.Run(t.Context())
		r.Drained(t.Context())
		require.Equal(t, "unblock gone 1 return-grant k me 7 3 end-connections 3", strings.Join(c.asked, " "))
		require.Equal(t, 1, c.batches)
	})
}

// TestDrainedWithoutLeader: a node that stops does not wait for a leader that does not come.
func TestDrainedWithoutLeader(t *testing.T) {
	for _, why := range []error{protocol.ErrNoLeader, protocol.ErrUncertain} {
		synctest.Test(t, func(t *testing.T) {
			c := cluster{why: why}
			c.down.Store(true)
			r := c.waiters()
			go r.Run(t.Context())
			r.GiveBack(protocol.Hold{Key: "k", Owner: "me", Fence: 7, Conn: 3})
			synctest.Wait()
			start := time.Now()
			r.Drained(t.Context())
			require.LessOrEqual(t, time.Since(start), leaveRetryInterval)
			c.down.Store(false)
			r.Drained(t.Context())
			require.Contains(t, c.asked, "return-grant")
		})
	}
}

// TestDrainedDuringATry: a try that is under way when a wait begins says nothing of the leader that there is now.
func TestDrainedDuringATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := alone(Cluster{Propose: func([]byte, int) error {
			time.Sleep(time.Second)
			if tries++; tries == 1 {
				return protocol.ErrNoLeader
			}
			return nil
		}})
		go r.Run(t.Context())
		r.GiveBack(protocol.Hold{Key: "k"})
		time.Sleep(time.Second / 2)
		r.Drained(t.Context())
		require.Empty(t, r.departures.holds)
	})
}

// TestParkedTooLate: who has left is told nothing of a batch that parked the client.
func TestParkedTooLate(t *testing.T) {
	var told told
	c := cluster{applied: 5}
	r := c.waiters()
	r.stateRestored()
	ticket := r.Enter(1, told.give)
	r.Leave(ticket)
	r.Parked(ticket, 5)
	require.Empty(t, told)
	require.Zero(t, r.Len())
}

// TestTogether: clients come and go while the cluster refuses some requests; the race detector looks on.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		r := alone(Cluster{
			Propose: func([]byte, int) error {
				time.Sleep(time.Millisecond)
				return []error{nil, errors.New("too many"), protocol.ErrNoLeader}[requests.Add(1)%3]
			},
			Waits: func(uint64) bool { return false }, Applied: func(uint64) bool {
				return true
			}, SubscribeWaiting: func(bool) {},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for n := range 40 {
					ticket := r.Enter(1, func(protocol.Value) {})
					r.Parked(ticket, uint64(n+1))
					switch (n + i) % 5 {
					case 0:
						r.Leave(ticket)
						r.Woken(ticket, protocol.OK)
					case 1:
						r.Woken(ticket, protocol.OK)
					case 2:
						r.GiveBack(protocol.Hold{Key: "k"})
						r.stateRestored()
					case 3:
						r.LeaveAll(protocol.OK)
						r.DropPreviousIncarnations()
					default:
						r.Forget(ticket)
						r.Drained(ctx)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		all.Wait()
		r.LeaveAll(protocol.OK)
		time.Sleep(time.Minute)
		r.Drained(ctx)
		require.Zero(t, r.Len())
		cancel()
		require.NoError(t, <-ended)
	})
}

// TestDrainedWaits: for the request that is under way, and for all smaller ones that a request too large is cut into.
func TestDrainedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		largest := 0
		r := alone(Cluster{
			Propose: func(body []byte, count int) error {
				time.Sleep(time.Second)
				if count > 100 {
					return errors.New("too many requests")
				}
				largest = max(largest, count)
				return nil
			},
			SubscribeWaiting: func(bool) {},
		})
		for range 1000 {
			r.GiveBack(protocol.Hold{Key: "k"})
		}
		go r.Run(t.Context())
		begun := time.Now()
		var another sync.WaitGroup
		another.Go(func() { r.Drained(t.Context()) })
		r.Drained(t.Context())
		another.Wait()
		require.Empty(t, r.departures.holds)
		require.Greater(t, time.Since(begun), 10*time.Second)
		require.Greater(t, largest, 50)
	})
}
