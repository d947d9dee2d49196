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

// allSlots is the number of locks. Clients want several of them at once.
const allSlots = 4

// nativeAll is clients that want some of a few locks as a whole, or just one of them, and wait long. Were there a
// deadlock, they would wait in vain; were there half a grant, the lock would say so.
type nativeAll struct {
	o      *Options
	keys   *Rotation
	owners atomic.Int64
}

func newNativeAll(o *Options) Workload {
	return &nativeAll{o: o, keys: NewRotation("nativeall", allSlots, 50, 3)}
}

func (w *nativeAll) Name() string { return "nativeall" }

func (w *nativeAll) Checkers() []checker.Func {
	clocks := checker.Clocks{Drift: w.o.Drift}
	return []checker.Func{
		checker.Capacity(clocks),
		checker.Fences,
		checker.Linear("lock", checker.NativeLock(clocks), checker.NativeFunctions),
		checker.Waits(checker.WaitBounds{Clocks: clocks, Late: lateBound, Settle: w.o.Settle, Vain: queueVain}),
		checker.Leftovers,
	}
}

func (w *nativeAll) Step(ctx context.Context, c *Client) {
	c.roam()
	slots := c.rng.Perm(allSlots)[:1+c.rng.IntN(3)]
	a := ask{owner: w.owners.Add(1), ttl: queueLease, wait: queueVain, notify: c.chance(0.5)}
	for _, n := range slots {
		a.keys = append(a.keys, w.keys.Key(n))
	}
	if c.chance(0.3) {
		a.mode = checker.Shared
	}
	if c.chance(0.3) {
		a.wait = checker.NoWait
	}
	for range 3 {
		_, r := c.lockAsk(ctx, &a)
		w.count(r, slots)
		if r.outcome == history.OK {
			w.granted(ctx, c, &a, slots, r.output[0] == 1)
			return
		}
		if ctx.Err() != nil || c.chance(0.3) {
			return
		}
		c.roam()
	}
}

func (w *nativeAll) count(r result, slots []int) {
	if r.outcome == history.Info {
		for _, n := range slots {
			w.keys.Unknown(n)
		}
	}
}

// granted looks at one of the locks, whatever the reply was, and gives all back.
func (w *nativeAll) granted(ctx context.Context, c *Client, a *ask, slots []int, granted bool) {
	key := a.keys[c.rng.IntN(len(a.keys))]
	if c.chance(0.5) {
		c.roam()
		c.lockWord(ctx, history.Op{F: "check", Key: key, Input: []int64{a.owner}}, oneAnd, "LOCK.CHECK", key,
			ownerToken(a.owner))
	}
	if !granted {
		return
	}
	Sleep(ctx, c.between(0, queueLease/10*time.Millisecond))
	c.roam()
	l, err := c.lockConn(ctx)
	if err != nil {
		c.moved = true
		return
	}
	var ops []history.Op
	for _, k := range a.keys {
		ops = append(ops, history.Op{F: "release", Key: k, Input: []int64{a.owner, 1}})
	}
	words := append([]string{"LOCK.RELEASEALL", decimal(int64(len(a.keys)))}, append(a.keys, ownerToken(a.owner))...)
	w.count(c.lockOp(l, ops, func() result { return onReleaseAll(l, words, len(a.keys)) }), slots)
}

// onReleaseAll: all were held or none; which of some is not known.
func onReleaseAll(l *lockConn, words []string, keys int) result {
	r := l.Do(words...)
	switch {
	case r.Outcome != history.OK:
		return not(r)
	case r.Value.Kind != protocol.KindInteger:
		return unexpected(r)
	case r.Value.Num == int64(keys):
		return ok(1, 0)
	case r.Value.Num == 0:
		return ok(0)
	}
	return result{outcome: history.Info, why: fmt.Sprintf("%d of %d were held", r.Value.Num, keys)}
}

// Final waits until all leases are over.
func (w *nativeAll) Final(ctx context.Context, c *Client) { finalLeft(ctx, c, w.Name()) }
