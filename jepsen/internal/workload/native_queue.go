package workload

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/protocol"
)

const (
	// queueLease is the lease of clients that behave well and hold the lock for a tenth of it.
	queueLease = 1000
	// deadLease is the lease of clients that leave the queue.
	deadLease = 4000
	// deadLook is how long after leaving such clients check whether they were granted the lock nevertheless.
	deadLook = 1200 * time.Millisecond
	// queueVain is longer than any wait without faults, even if all others hold for their whole lease.
	queueVain = 8000
)

// nativeQueue has clients that queue for a few locks. Some cancel their wait, others disconnect.
type nativeQueue struct {
	o      *Options
	keys   *Rotation
	owners atomic.Int64
}

func newNativeQueue(o *Options) Workload {
	return &nativeQueue{o: o, keys: NewRotation(o.name, max(1, o.Concurrency/5), 50, 4)}
}

func (w *nativeQueue) Checkers() []checker.Func {
	clocks := checker.Clocks{Drift: w.o.Drift}
	return []checker.Func{
		checker.Capacity(clocks),
		checker.Fences,
		checker.InLine,
		checker.NoneDeserted(checker.TTLBounds{Clocks: clocks, Late: deadLook / 2, Settle: w.o.Settle}),
		checker.Waits(checker.WaitBounds{Clocks: clocks, Late: lateBound, Settle: w.o.Settle, Vain: queueVain}),
		checker.Linear("lock", checker.NativeLock(clocks), checker.NativeFunctions),
		checker.Leftovers,
	}
}

func (w *nativeQueue) Step(ctx context.Context, c *Client) {
	c.roam()
	n, key := w.keys.Pick(c.rng)
	a := ask{keys: []string{key}, owner: w.owners.Add(1), ttl: queueLease, wait: queueVain, notify: c.chance(0.75)}
	if c.chance(0.2) {
		w.desert(ctx, c, a, n)
		return
	}
	for range 3 {
		_, r := c.lockAsk(ctx, &a)
		if r.outcome == history.Info {
			w.keys.Unknown(n)
		}
		if r.outcome == history.OK {
			if r.output[0] == 1 {
				w.hold(ctx, c, key, a.owner, n)
			}
			return
		}
		if ctx.Err() != nil || c.chance(0.3) {
			return
		}
		c.roam()
	}
}

func (w *nativeQueue) hold(ctx context.Context, c *Client, key string, owner int64, slot int) {
	long := time.Duration(queueLease/10) * time.Millisecond
	if c.chance(0.15) {
		long *= 8
	}
	Sleep(ctx, c.between(0, long))
	w.release(ctx, c, key, owner, slot)
}

func (w *nativeQueue) release(ctx context.Context, c *Client, key string, owner int64, slot int) {
	c.roam()
	o := history.Op{F: "release", Key: key, Input: []int64{owner, 0}}
	if r := c.lockWord(ctx, o, oneAnd, "LOCK.RELEASE", key, ownerToken(owner)); r.outcome == history.Info {
		w.keys.Unknown(slot)
	}
}

// desert joins the queue and leaves it, by cancelling or by disconnecting.
func (w *nativeQueue) desert(ctx context.Context, c *Client, a ask, slot int) {
	a.ttl, a.notify = deadLease, true
	l, err := c.freshLockConn(ctx)
	if err != nil {
		c.moved = true
		return
	}
	defer l.close()
	r := c.lockOp(l, []history.Op{a.op(a.keys[0])}, func() result {
		reply := l.Do(a.words()...)
		switch {
		case reply.Outcome != history.OK:
			return not(reply)
		case reply.Value.Kind == protocol.KindInteger && reply.Value.Num > 0:
			return ok(1, reply.Value.Num, 0)
		case reply.Value.IsNull():
			return ok(0)
		}
		Sleep(ctx, c.between(0, 50*time.Millisecond))
		if c.chance(0.3) {
			return cancel(l, a.keys[0], a.owner)
		}
		l.Close()
		return result{outcome: history.Info, why: checker.Deserted}
	})
	switch {
	case r.outcome == history.OK && r.output[0] == 1:
		w.hold(ctx, c, a.keys[0], a.owner, slot)
	case r.outcome == history.Info:
		w.keys.Unknown(slot)
		w.lookBack(ctx, c, a.keys[0], a.owner, slot)
	}
}

// lookBack checks whether a client that left was granted the lock, which is possible at the same moment, and releases
// it.
func (w *nativeQueue) lookBack(ctx context.Context, c *Client, key string, owner int64, slot int) {
	if !Sleep(ctx, deadLook) {
		return
	}
	c.roam()
	r := c.lockWord(ctx, history.Op{F: "check", Key: key, Input: []int64{owner}}, oneAnd, "LOCK.CHECK", key,
		ownerToken(owner))
	if r.outcome == history.OK && r.output[0] == 1 {
		w.release(ctx, c, key, owner, slot)
	}
}

// cancel cancels a wait, which may already have been granted.
func cancel(l *lockConn, key string, owner int64) result {
	reply := l.Do("LOCK.CANCEL", key, ownerToken(owner))
	if reply.Outcome == history.OK && reply.Value.Num == 1 {
		return failed("cancelled")
	}
	l.Close()
	return result{outcome: history.Info, why: fmt.Sprintf("cancel: %+v", reply)}
}

// Final waits until all leases have expired.
func (w *nativeQueue) Final(ctx context.Context, c *Client) { finalLeft(ctx, c, w.o.name) }
