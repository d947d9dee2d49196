package holder_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/holder"
	"github.com/holdfast/holdfast/cmd/internal/holder/holdertest"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// ttl is long enough for a machine that is busy with other things.
const ttl = 2 * time.Second

func newHolder(t *testing.T, c *holdertest.Cluster, owner string, wait time.Duration) *holder.Holder {
	t.Helper()
	h := holder.New(&holder.Servers{Addrs: c.Addrs(), Password: c.Password}, holder.Lock{
		Name: "job", Owner: owner,
		TTL: ttl, Wait: wait,
	})
	t.Cleanup(h.Close)
	return h
}

// acquire begins to acquire, and returns what comes of it.
func acquire(t *testing.T, h *holder.Holder) <-chan error {
	done := make(chan error, 1)
	go func() { done <- h.Acquire(t.Context()) }()
	return done
}

func inLine(t *testing.T, c *holdertest.Cluster, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Waiters("job") == n }, 10*time.Second, time.Millisecond)
}

// TestTakesAndGivesBack: one after the other, with fences that grow.
func TestTakesAndGivesBack(t *testing.T) {
	t.Parallel()
	c := holdertest.Start(t, 1)
	first, second := newHolder(t, c, "first", -1), newHolder(t, c, "second", -1)
	require.NoError(t, first.Acquire(t.Context()))
	waits := acquire(t, second)
	inLine(t, c, 1)
	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, <-waits)
	require.Greater(t, second.Fence(), first.Fence())
	require.Equal(t, "second", c.Holder("job"))
	second.Close()
	require.Eventually(t, func() bool { return c.Holder("job") == "" }, 10*time.Second, time.Millisecond)
}

// TestNotGranted: at once without a wait, at its end with one.
func TestNotGranted(t *testing.T) {
	t.Parallel()
	c := holdertest.Start(t, 2)
	c.Take("job")
	require.ErrorIs(t, newHolder(t, c, "a", 0).Acquire(t.Context()), holder.ErrNotGranted)
	require.ErrorIs(t, newHolder(t, c, "b", time.Millisecond).Acquire(t.Context()), holder.ErrNotGranted)
	c.Refuse("CLUSTERDOWN No leader is known, the command was not applied")
	err := newHolder(t, c, "c", 0).Acquire(t.Context())
	require.ErrorIs(t, err, holder.ErrNotGranted)
	require.ErrorContains(t, err, "No leader")
}

// TestRefusedAtOnce: another try would meet the same.
func TestRefusedAtOnce(t *testing.T) {
	t.Parallel()
	c := holdertest.Start(t, 1, "open sesame")
	c.Refuse("WRONGTYPE Operation against a key holding the wrong kind of value")
	require.ErrorContains(t, newHolder(t, c, "a", -1).Acquire(t.Context()), "WRONGTYPE")
	c.Refuse("")
	stranger := holder.New(&holder.Servers{Addrs: c.Addrs(), Password: "guess"}, holder.Lock{
		Name: "job", Owner: "a",
		TTL: ttl, Wait: -1,
	})
	require.ErrorContains(t, stranger.Acquire(t.Context()), "WRONGPASS")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	unreachable := holder.New(&holder.Servers{Addrs: []string{closed.Addr().String(), closed.Addr().String()}},
		holder.Lock{Name: "job", Owner: "a", TTL: ttl})
	require.ErrorContains(t, unreachable.Acquire(t.Context()), "connect")
}

// TestNodeDiesWhileWaiting: the place in line is kept.
func TestNodeDiesWhileWaiting(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*holdertest.Cluster, int){
		"killed": (*holdertest.Cluster).Kill,
		"frozen": (*holdertest.Cluster).Freeze,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := holdertest.Start(t, 2)
			c.Take("job")
			h := newHolder(t, c, "first", -1)
			waits := acquire(t, h)
			inLine(t, c, 1)
			end(c, 0)
			require.Eventually(t, func() bool { return asked(c) == 2 }, 10*time.Second, time.Millisecond,
				"it asks again at the other node")
			require.Equal(t, 1, c.Waiters("job"))
			c.Break("job")
			require.NoError(t, <-waits)
		})
	}
}

// TestAsksAgainWhenTheWaitFails: a node says so when the session ended, or when it lost sight of the cluster.
func TestAsksAgainWhenTheWaitFails(t *testing.T) {
	t.Parallel()
	c := holdertest.Start(t, 1)
	c.Take("job")
	waits := acquire(t, newHolder(t, c, "first", -1))
	inLine(t, c, 1)
	c.Fail("job", "first")
	require.Eventually(t, func() bool { return asked(c) == 2 }, 10*time.Second, time.Millisecond)
	c.Break("job")
	require.NoError(t, <-waits)
}

// TestAsksAgainWhenTheGrantIsLost: the session ends, with its connection, before the grant was proved.
func TestAsksAgainWhenTheGrantIsLost(t *testing.T) {
	t.Parallel()
	c := holdertest.Start(t, 1)
	h := newHolder(t, c, "first", -1)
	c.Cut("LOCK.ACQUIRE")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- h.Acquire(ctx) }()
	require.Eventually(t, func() bool { return asked(c) == 2 }, 10*time.Second, time.Millisecond,
		"it asks with another session")
	require.NoError(t, <-done)
	require.Equal(t, "first", c.Holder("job"))
	require.NoError(t, h.Release(t.Context()))
}

func asked(c *holdertest.Cluster) (n int) {
	for _, name := range c.Sent() {
		if name == "LOCK.ACQUIRE" {
			n++
		}
	}
	return n
}

// TestNodeDiesWhileHolding: the session goes on at the other node, with the same hold.
func TestNodeDiesWhileHolding(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*holdertest.Cluster, int){
		"killed": (*holdertest.Cluster).Kill,
		"frozen": (*holdertest.Cluster).Freeze,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := holdertest.Start(t, 2)
			h := newHolder(t, c, "first", 0)
			require.NoError(t, h.Acquire(t.Context()))
			ctx, cancel := context.WithCancel(t.Context())
			kept := make(chan error, 1)
			go func() { kept <- h.Keep(ctx) }()
			end(c, 0)
			proofs := func() (n int) {
				attached := false
				for _, name := range c.Sent() {
					attached = attached || name == "SESSION.ATTACH"
					if attached && name == "LOCK.CHECK" {
						n++
					}
				}
				return n
			}
			require.Eventually(t, func() bool { return proofs() >= 3 }, 10*time.Second, time.Millisecond)
			require.Equal(t, "first", c.Holder("job"))
			require.True(t, c.Demands(), "of the other connection, too")
			cancel()
			require.NoError(t, <-kept)
			require.NoError(t, h.Release(t.Context()))
			require.Empty(t, c.Holder("job"))
		})
	}
}

// TestMovesWithoutEndingTheSession: the connection to a node that hangs ends when the session lives with another.
func TestMovesWithoutEndingTheSession(t *testing.T) {
	t.Parallel()
	c := holdertest.Start(t, 2)
	h := newHolder(t, c, "first", 0)
	require.NoError(t, h.Acquire(t.Context()))
	c.Stall(0)
	require.NoError(t, h.Resume(t.Context()))
	require.Equal(t, "first", c.Holder("job"))
}

// TestReleaseWithoutReply: a release is asked for again, and to find the lock free is no loss then.
func TestReleaseWithoutReply(t *testing.T) {
	t.Parallel()
	c := holdertest.Start(t, 2)
	h := newHolder(t, c, "first", 0)
	require.NoError(t, h.Acquire(t.Context()))
	c.Swallow("LOCK.RELEASE")
	require.NoError(t, h.Release(t.Context()))
	require.Empty(t, c.Holder("job"))
}

// TestToldOfLoss: by the notice, at once and with its reason.
func TestToldOfLoss(t *testing.T) {
	t.Parallel()
	c := holdertest.Start(t, 1)
	h := newHolder(t, c, "first", 0)
	require.NoError(t, h.Acquire(t.Context()))
	kept := make(chan error, 1)
	go func() { kept <- h.Keep(t.Context()) }()
	c.Break("job")
	var lost *holder.Lost
	require.ErrorAs(t, <-kept, &lost)
	require.Regexp(t, `^broken by 127\.0\.0\.1:\d+`, lost.Why)
	require.Zero(t, lost.Until)
	require.ErrorAs(t, h.Release(t.Context()), &lost)
}

// TestGivesUpInTime: where no node can be asked, Keep ends before the session can have ended.
func TestGivesUpInTime(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*holdertest.Cluster){
		"killed":    func(c *holdertest.Cluster) { c.Kill(0) },
		"frozen":    func(c *holdertest.Cluster) { c.Freeze(0) },
		"no leader": func(c *holdertest.Cluster) { c.Refuse("CLUSTERDOWN No leader is known, the command was not applied") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := holdertest.Start(t, 1)
			h := newHolder(t, c, "first", 0)
			require.NoError(t, h.Acquire(t.Context()))
			end(c)
			begun := time.Now()
			var lost *holder.Lost
			require.ErrorAs(t, h.Keep(t.Context()), &lost)
			require.False(t, errors.Is(lost, context.Canceled))
			require.LessOrEqual(t, lost.Until.Sub(begun), ttl, "the last proof was before")
			require.Greater(t, time.Until(lost.Until), time.Duration(0), "the command can be ended before its session")
		})
	}
}

// TestResumes: after a sleep longer than the TTL the hold goes on if the session lives.
func TestResumes(t *testing.T) {
	protocoltest.SkipShort(t, "waits for real time")
	t.Parallel()
	c := holdertest.Start(t, 1)
	h := newHolder(t, c, "first", 0)
	require.NoError(t, h.Acquire(t.Context()))
	require.True(t, c.Demands())
	h.Suspend(t.Context())
	require.False(t, c.Demands(), "who sleeps sends nothing")
	require.NoError(t, h.Resume(t.Context()))
	require.True(t, c.Demands())
	c.Break("job")
	var lost *holder.Lost
	require.ErrorAs(t, h.Resume(t.Context()), &lost)
	require.Regexp(t, `^broken by 127\.0\.0\.1:\d+`, lost.Why)
	c.Kill(0)
	require.ErrorAs(t, h.Resume(t.Context()), &lost)
}
