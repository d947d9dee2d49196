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

// cluster is a state with waiters, which records what is proposed.
type cluster struct {
	failing  atomic.Bool
	err      error           // of a failing proposal; nil: no leader
	waiting  map[uint64]bool // by ticket
	applied  uint64
	proposed []string // the words of the proposed requests
	batches  int
	// subscribed has the arguments of SubscribeWaiting.
	subscribed []bool
	// onPropose is called once, during the next proposal.
	onPropose func()
}

func (c *cluster) waiters() *testWaiters {
	return newWaiters(Cluster{
		Propose: func(body []byte, count int) error {
			if c.failing.Load() {
				return cmp.Or(c.err, error(protocol.ErrNoLeader))
			}
			if f := c.onPropose; f != nil {
				c.onPropose = nil
				f()
			}
			c.batches++
			for rest := string(body); rest != ""; count-- {
				var r protocol.Request
				var err error
				if rest, err = protocol.NextRequest(rest, &r); err != nil {
					return err
				}
				c.proposed = append(c.proposed, r.Args...)
			}
			if count != 0 {
				return errors.New("another number of requests")
			}
			return nil
		},
		Waits:            func(ticket uint64) bool { return c.waiting[ticket] },
		Applied:          func(number uint64) bool { return number <= c.applied },
		SubscribeWaiting: func(yes bool) { c.subscribed = append(c.subscribed, yes) },
	})
}

// testWaiters has clients that wait, and no connection with a session.
type testWaiters struct {
	*Waiters
	clients *Clients
}

func newWaiters(c Cluster) *testWaiters {
	all := New(c)
	return &testWaiters{all.Waiters, all}
}

func (w *testWaiters) Run(ctx context.Context) error { return w.clients.Run(ctx) }

func (w *testWaiters) Drained(ctx context.Context) { w.clients.Drained(ctx) }

// replies collects the replies to a client.
type replies []string

func (r *replies) add(v protocol.Value) { *r = append(*r, v.Str) }

func TestWoken(t *testing.T) {
	var c cluster
	var got replies
	r := c.waiters()
	beforeParked, afterParked, notParked := r.Enter(1, got.add), r.Enter(1, got.add), r.Enter(1, got.add)
	require.True(t, r.Woken(beforeParked, protocol.Simple("before Execute returned")))
	r.Parked(beforeParked, 1)
	r.Parked(afterParked, 2)
	require.True(t, r.Woken(afterParked, protocol.Simple("later")))
	require.False(t, r.Woken(afterParked, protocol.Simple("twice")))
	require.True(t, r.Forget(notParked))
	require.False(t, r.Forget(afterParked), "it has its reply")
	require.False(t, r.Woken(notParked, protocol.Simple("served at once")))
	require.EqualValues(t, []string{"before Execute returned", "later"}, got)
	require.Zero(t, r.Len())
	require.Equal(t, []bool{true}, c.subscribed)
	require.False(t, r.UnsubscribeIdle())
	require.False(t, r.UnsubscribeIdle())
	require.Equal(t, []bool{true, false}, c.subscribed)
}

// TestUnsubscribe: UnsubscribeIdle returns the last argument of SubscribeWaiting. So the next client subscribes again.
func TestUnsubscribe(t *testing.T) {
	var c cluster
	var got replies
	r := c.waiters()
	require.False(t, r.UnsubscribeIdle())
	for range 2 {
		first := r.Enter(1, got.add)
		require.True(t, r.UnsubscribeIdle())
		second := r.Enter(1, got.add)
		r.Forget(first)
		require.True(t, r.UnsubscribeIdle())
		r.Forget(second)
		r.Forget(r.Enter(1, got.add)) // since the last call it entered and left
		require.False(t, r.UnsubscribeIdle())
	}
	require.Equal(t, []bool{true, false, true, false}, c.subscribed)
}

// TestSnapshot: a snapshot may replace the entry that served a client. The client then gets ErrUncertain. A client that
// waits in the snapshot's state, or whose entry comes after the snapshot, continues to wait.
func TestSnapshot(t *testing.T) {
	var lost, kept, later, unparked replies
	c := cluster{waiting: map[uint64]bool{2: true}}
	r := c.waiters()
	for i, got := range []*replies{&lost, &kept, &later} {
		r.Parked(r.Enter(1, got.add), uint64(i+1))
	}
	ticket := r.Enter(1, unparked.add)
	c.applied = 2
	r.clients.Restored(func(func(int64, uint64, int64)) {})
	require.EqualValues(t, []string{protocol.ErrUncertain.Error()}, lost)
	require.Empty(t, kept)
	require.Empty(t, later)

	// The leader's reply that a client was parked may arrive after the snapshot.
	require.Empty(t, unparked)
	c.applied = 4
	r.Parked(ticket, 4)
	require.EqualValues(t, []string{protocol.ErrUncertain.Error()}, unparked)
}

// TestLeave: the waiters of clients that leave are removed from their queues by one request, also after a time without
// a leader.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cluster
		c.failing.Store(true)
		var got replies
		r := c.waiters()
		first, second, third := r.Enter(1, got.add), r.Enter(1, got.add), r.Enter(1, got.add)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		r.Leave(second)
		r.Leave(second)
		synctest.Wait()
		r.Leave(first)
		require.False(t, r.Woken(first, protocol.Simple("behind the client's back")))
		require.False(t, r.Woken(first, protocol.Simple("twice")))
		require.EqualValues(t, []string{"behind the client's back"}, got)
		got = nil
		time.Sleep(time.Minute)
		require.Empty(t, c.proposed)
		c.failing.Store(false)
		r.Drained(t.Context())
		require.Equal(t, []string{"unblock", "gone", "2", "1"}, c.proposed)
		require.False(t, r.Woken(second, protocol.OK), "the cluster has forgotten the client")
		require.Empty(t, got)

		r.DropPreviousIncarnations()
		synctest.Wait()
		require.Equal(t, []string{"unblock", "gone"}, c.proposed[4:])

		// A node that is cut off replies to all parked clients, but not to those whose command is in flight.
		r.Parked(third, 9)
		c.waiting = map[uint64]bool{third: true}
		fourth := r.Enter(1, got.add)
		r.LeaveAll(protocol.Simple("cut off"))
		require.EqualValues(t, []string{"cut off"}, got)
		synctest.Wait()
		require.Equal(t, []string{"unblock", "gone", "3"}, c.proposed[6:])
		require.False(t, r.Woken(third, protocol.Simple("twice")))
		require.EqualValues(t, []string{"cut off"}, got)
		require.True(t, r.Woken(fourth, protocol.OK))
		require.Zero(t, r.Len())

		stop()
		require.NoError(t, <-done)
		c.failing.Store(true)
		r.Leave(r.Enter(1, got.add))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.Drained(short)
	})
}

// TestLeaveMany: clients that leave while a request is in flight get into the next request.
func TestLeaveMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cluster
		var got replies
		r := c.waiters()
		leave := func(n int) {
			for range n {
				r.Leave(r.Enter(1, got.add))
			}
		}
		c.onPropose = func() { leave(maxLeaving) }
		leave(maxLeaving + 1)
		go r.Run(t.Context())
		r.Drained(t.Context())
		synctest.Wait()
		words := map[string]int{}
		for _, word := range c.proposed {
			words[word]++
		}
		require.Len(t, words, 2*maxLeaving+1+2)
		require.Equal(t, words["unblock"], words["gone"])
	})
}

// TestLeaveManyPlaces: a request removes a bounded number of places, and at least one client.
func TestLeaveManyPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster{}
		c.failing.Store(true)
		r := c.waiters()
		const most = maxLeavingPlaces
		for _, places := range []int{most / 2, most / 2, 1, most - 1, most + 1, 1, most} {
			ticket := r.Enter(places, func(protocol.Value) {})
			if places == 1 {
				r.Parked(ticket, 1) // it leaves by LeaveAll
			} else {
				r.Leave(ticket)
			}
		}
		r.LeaveAll(protocol.OK)
		go r.Run(t.Context())
		c.failing.Store(false)
		r.Drained(t.Context())
		require.Regexp(t, "^unblock gone 1 2 unblock gone 4 unblock gone 5 unblock gone 7 unblock gone [36] [36]$",
			strings.Join(c.proposed, " "))
	})
}

// TestGiveBack: locks are returned by one batch, also after a time without a leader.
func TestGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cluster
		c.failing.Store(true)
		r := c.waiters()
		go r.Run(t.Context())
		r.GiveBack(protocol.Hold{Key: "k", Owner: "me", Fence: 7, Conn: 3}, protocol.Hold{
			Key: "l", Owner: "me", Fence: 7,
			Conn: 3,
		})
		time.Sleep(time.Minute)
		require.Empty(t, c.proposed)
		c.failing.Store(false)
		r.Drained(t.Context())
		require.Equal(t, []string{"return-grant", "k", "me", "7", "3", "return-grant", "l", "me", "7", "3"},
			c.proposed)
		r.Drained(t.Context())
		d := r.departures
		d.mu.Lock()
		defer d.mu.Unlock()
		require.Nil(t, d.holds, "a crowd's memory is given back")
		require.Nil(t, d.waiters)
	})
}

// TestLeaveAtOnce: all departures of a connection go into one batch, the places in queues first.
func TestLeaveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cluster
		c.failing.Store(true)
		r := c.waiters()
		r.clients.departures.addConn(3)
		r.GiveBack(protocol.Hold{Key: "k", Owner: "me", Fence: 7, Conn: 3})
		r.Leave(r.Enter(1, func(protocol.Value) {}))
		c.failing.Store(false)
		go r.Run(t.Context())
		r.Drained(t.Context())
		require.Equal(t, "unblock gone 1 return-grant k me 7 3 end-connections 3", strings.Join(c.proposed, " "))
		require.Equal(t, 1, c.batches)
	})
}

// TestDrainedWithoutLeader: Drained does not wait for a leader that does not come.
func TestDrainedWithoutLeader(t *testing.T) {
	for _, err := range []error{protocol.ErrNoLeader, protocol.ErrUncertain} {
		synctest.Test(t, func(t *testing.T) {
			c := cluster{err: err}
			c.failing.Store(true)
			r := c.waiters()
			go r.Run(t.Context())
			r.GiveBack(protocol.Hold{Key: "k", Owner: "me", Fence: 7, Conn: 3})
			synctest.Wait()
			start := time.Now()
			r.Drained(t.Context())
			require.LessOrEqual(t, time.Since(start), leaveRetryInterval)
			c.failing.Store(false)
			r.Drained(t.Context())
			require.Contains(t, c.proposed, "return-grant")
		})
	}
}

// TestDrainedDuringATry: an attempt that fails for lack of a leader does not end a wait that began during the attempt.
func TestDrainedDuringATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := newWaiters(Cluster{Propose: func([]byte, int) error {
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

// TestParkedTooLate: a client that has left gets no reply when Parked is called for it.
func TestParkedTooLate(t *testing.T) {
	var got replies
	c := cluster{applied: 5}
	r := c.waiters()
	r.stateRestored()
	ticket := r.Enter(1, got.add)
	r.Leave(ticket)
	r.Parked(ticket, 5)
	require.Empty(t, got)
	require.Zero(t, r.Len())
}

// TestTogether: clients enter and leave while the cluster refuses some requests. The race detector finds missing locks.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		r := newWaiters(Cluster{
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

// TestDrainedWaits: Drained waits for the request in flight, and for all smaller requests into which a too large one is
// split.
func TestDrainedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		largest := 0
		r := newWaiters(Cluster{
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
		var second sync.WaitGroup
		second.Go(func() { r.Drained(t.Context()) })
		r.Drained(t.Context())
		second.Wait()
		require.Empty(t, r.departures.holds)
		require.Greater(t, time.Since(begun), 10*time.Second)
		require.Greater(t, largest, 50)
	})
}
