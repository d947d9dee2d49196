package workload

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
)

// leaseChoices are the TTLs of locks in milliseconds.
var leaseChoices = []int64{300, 1000, 2500, 6000}

// lock has clients of several libraries that acquire, hold, extend and release locks. Each slot of keys belongs to one
// library, since two libraries never share a lock.
type lock struct {
	o      *Options
	slots  []dialect
	keys   *Rotation
	owners atomic.Int64
}

func newLock(o *Options) Workload {
	w := &lock{o: o}
	for len(w.slots) < max(1, o.Concurrency/3) {
		for _, d := range dialects {
			if d.usable(o.Features) {
				w.slots = append(w.slots, d)
			}
		}
	}
	w.keys = NewRotation(o.name, len(w.slots), 200, 8)
	return w
}

func (w *lock) Checkers() []checker.Func {
	clocks := checker.Clocks{Drift: w.o.Drift}
	return []checker.Func{
		checker.Exclusion(clocks),
		checker.Linear("owner-aware lock", checker.OwnerLock(clocks), checker.LockFunctions),
	}
}

// hold is an owner's attempt to hold a lock.
type hold struct {
	d     *dialect
	key   string
	owner int64
	ttl   int64
	slot  int
	until time.Time // end of the lease by the client's clock, counted from before the request
}

func (w *lock) Step(ctx context.Context, c *Client) {
	c.hop()
	n, key := w.keys.Pick(c.rng)
	h := &hold{
		d: &w.slots[n], key: key, slot: n,
		owner: w.owners.Add(1), ttl: leaseChoices[c.rng.IntN(len(leaseChoices))],
	}
	if !w.acquire(ctx, c, h) {
		Sleep(ctx, c.between(5*time.Millisecond, 60*time.Millisecond))
		return
	}
	if c.chance(0.1) {
		return // a crashed holder, whose lease expires
	}
	if c.chance(0.3) && w.sleepWithin(ctx, c, h, 0.8) {
		w.extend(ctx, c, h)
	}
	if h.d.plain && c.chance(0.3) && w.sleepWithin(ctx, c, h, 0.5) {
		w.holder(ctx, c, h)
	}
	// One in ten is late and unaware that its lease has expired.
	over := 0.7
	if c.chance(0.1) {
		over = 1.5
	}
	w.sleepWithin(ctx, c, h, over)
	w.release(ctx, c, h)
}

// sleepWithin sleeps for a random part of the remaining lease, at most share of it.
func (w *lock) sleepWithin(ctx context.Context, c *Client, h *hold, share float64) bool {
	left := time.Until(h.until)
	return left > 0 && Sleep(ctx, time.Duration(c.rng.Float64()*share*float64(left)))
}

// acquire tries as often as the library does, and records every try.
func (w *lock) acquire(ctx context.Context, c *Client, h *hold) bool {
	for range h.d.tries {
		asked := time.Now()
		r := w.op(ctx, c, h, "acquire", h.d.acquire)
		if r.outcome == history.OK && r.output[0] == 1 {
			h.until = asked.Add(time.Duration(h.ttl) * time.Millisecond)
			return time.Now().Before(h.until)
		}
		if r.outcome == history.OK || !r.retried || ctx.Err() != nil {
			break
		}
		c.hop()
	}
	if h.d.releasesRefused && ctx.Err() == nil {
		c.hop()
		w.release(ctx, c, h)
	}
	return false
}

func (w *lock) extend(ctx context.Context, c *Client, h *hold) {
	c.hop()
	asked := time.Now()
	if r := w.op(ctx, c, h, "extend", h.d.extend); r.outcome == history.OK && r.output[0] == 1 {
		h.until = asked.Add(time.Duration(h.ttl) * time.Millisecond)
	}
}

func (w *lock) release(ctx context.Context, c *Client, h *hold) {
	c.hop()
	w.op(ctx, c, h, "release", h.d.release)
}

// op performs and records one operation of a library on a lock.
func (w *lock) op(ctx context.Context, c *Client, h *hold, f string, do func(exchange, string, string,
	int64) result,
) result {
	input := []int64{h.owner, h.ttl}
	if f == "release" {
		input = input[:1]
	}
	r := c.op(ctx, history.Op{F: f, Key: h.key, Input: input}, func(x exchange) result {
		return do(x, h.key, ownerToken(h.owner), h.ttl)
	})
	if r.outcome == history.Info {
		w.keys.Unknown(h.slot)
	}
	return r
}

// holder reads the owner of the lock through a random node.
func (w *lock) holder(ctx context.Context, c *Client, h *hold) {
	c.hop()
	c.op(ctx, history.Op{F: "holder", Key: h.key}, func(x exchange) result { return onOwner(x.do("GET", h.key)) })
}

// onOwner reads the owner of a lock.
func onOwner(r wire.Reply) result {
	if r.Outcome != history.OK {
		return not(r)
	}
	if r.Value.IsNull() {
		return ok()
	}
	text, found := strings.CutPrefix(r.Value.Str, "owner-")
	n, err := strconv.ParseInt(text, 10, 64)
	if !found || err != nil {
		return result{outcome: history.Info, why: fmt.Sprintf("holder is %.40q", r.Value.Str)}
	}
	return ok(n)
}

// Final reads the remaining locks, whose leases may still run.
func (w *lock) Final(ctx context.Context, c *Client) {
	for _, key := range w.keys.All() {
		slot, err := strconv.Atoi(strings.Split(key, ":")[1])
		if err == nil && w.slots[slot].plain {
			w.holder(ctx, c, &hold{key: key})
		}
	}
}

// oneLease is the TTL of the lock in milliseconds: longer than any work under the lock.
const oneLease = 3000

// oneLock has clients that share one lock and hold it long enough for a picture: SET NX PX, some work, and a
// compare-and-delete. The third input of an acquire is the client.
type oneLock struct {
	o      *Options
	key    string
	owners atomic.Int64
}

func newOneLock(o *Options) Workload { return &oneLock{o: o, key: "onelock:0"} }

// Checkers judge exclusion only: a search for an order grows too fast with the operations on one key.
func (w *oneLock) Checkers() []checker.Func {
	return []checker.Func{checker.Exclusion(checker.Clocks{Drift: w.o.Drift})}
}

func (w *oneLock) Step(ctx context.Context, c *Client) {
	c.hop()
	owner := w.owners.Add(1)
	r := c.op(ctx, history.Op{F: "acquire", Key: w.key, Input: []int64{owner, oneLease, int64(c.worker)}},
		func(x exchange) result {
			return onOKOrNull(x.do("SET", w.key, ownerToken(owner), "NX", "PX", decimal(oneLease)))
		})
	if r.outcome != history.OK || r.output[0] != 1 {
		Sleep(ctx, c.between(50*time.Millisecond, 150*time.Millisecond))
		return
	}
	Sleep(ctx, c.between(400*time.Millisecond, 1600*time.Millisecond))
	c.hop()
	c.op(ctx, history.Op{F: "release", Key: w.key, Input: []int64{owner}}, func(x exchange) result {
		return byScript(compareAndDelete, thenEval)(x, w.key, ownerToken(owner), oneLease)
	})
}

// Final reads nothing: the replies are enough for the checkers.
func (w *oneLock) Final(context.Context, *Client) {}
