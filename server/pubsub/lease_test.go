package pubsub

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// leased returns a hub whose lease lasts for ten seconds from each renewal. fail sets the error of later renewals.
func leased() (h *Hub, fail func(error)) {
	h = newHub()
	var failed atomic.Pointer[error]
	failed.Store(new(error))
	h.OnLease(func() (time.Time, error) { return time.Now().Add(10 * time.Second), *failed.Load() })
	return h, func(err error) { failed.Store(&err) }
}

// TestLateSubscription shows that no subscription is confirmed if the lease ended between Acquire and Subscribe, as on
// a node that was suspended.
func TestLateSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := leased()
		require.NoError(t, h.Acquire(t.Context()))
		time.Sleep(11 * time.Second)
		l := &listener{}
		late := h.Client(l)
		late.Subscribe(Channel, "c")
		require.False(t, late.Check())
		require.Equal(t, whyLease, l.isCut(h))
		late.Leave()

		require.NoError(t, h.Acquire(t.Context()))
		l = &listener{}
		timely := h.Client(l)
		timely.Subscribe(Channel, "c")
		require.True(t, timely.Check())
		require.Empty(t, l.isCut(h))
		timely.Leave()
		time.Sleep(time.Minute) // the renewals end
	})
}

// TestLeaseEnds shows that subscriptions last while the lease is renewed, and end with it.
func TestLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, fail := leased()
		require.NoError(t, h.Acquire(t.Context()))
		l := &listener{}
		c := h.Client(l)
		c.Subscribe(Channel, "c")
		require.True(t, c.Check())
		time.Sleep(time.Hour)
		require.True(t, c.Check())
		require.Empty(t, l.isCut(h))

		fail(errors.New("no leader"))
		time.Sleep(8 * time.Second)
		require.Empty(t, l.isCut(h))
		time.Sleep(3 * time.Second)
		require.Equal(t, whyLease, l.isCut(h))
		require.False(t, c.Check())
		require.Error(t, h.Acquire(t.Context()))
		c.Leave()
		time.Sleep(time.Minute)
	})
}
