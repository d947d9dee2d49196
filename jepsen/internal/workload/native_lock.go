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
	"github.com/holdfast/holdfast/protocol"
)

// nativeKind is how the clients of a key use its lock. All clients of a key agree, since the meaning of a refusal
// depends on it.
type nativeKind struct {
	mode      int64
	waits     bool
	delay     int64
	reentrant bool
}

// nativeLimit is the limit of semaphores.
const nativeLimit = 3

var nativeKinds = []nativeKind{
	{mode: checker.Exclusive},
	{mode: checker.Exclusive, waits: true},
	{mode: checker.Shared, waits: true},
	{mode: checker.Counted},
	{mode: checker.Exclusive, waits: true, delay: 300},
	{mode: checker.Exclusive, reentrant: true},
	{mode: checker.Shared},
	{mode: checker.Counted, waits: true},
	{mode: checker.Exclusive, waits: true, reentrant: true},
}

// native has clients of native locks of all modes, with leases. They wait or not, repeat requests with an unknown
// outcome, renew and release holds, crash, are late, and are broken by operators.
type native struct {
	o             *Options
	keys          *Rotation
	owners, calls atomic.Int64
}

func newNative(o *Options) Workload {
	return &native{o: o, keys: NewRotation(o.name, max(2, o.Concurrency/3), 50, 3)}
}

func (w *native) Checkers() []checker.Func {
	clocks := checker.Clocks{Drift: w.o.Drift}
	return []checker.Func{
		checker.Capacity(clocks),
		checker.Fences,
		checker.Linear("lock", checker.NativeLock(clocks), checker.NativeFunctions),
		checker.Linear("passed fences", checker.Passes(), checker.PassFunctions),
		checker.Waits(checker.WaitBounds{Clocks: clocks, Late: lateBound, Settle: w.o.Settle}),
		checker.Notices(checker.TTLBounds{Clocks: clocks, Late: lateBound, Settle: w.o.Settle}),
		checker.Leftovers,
	}
}

// kindOf returns the kind of a key, which depends on its slot and generation.
func kindOf(key string) nativeKind {
	words := strings.Split(key, ":")
	slot, _ := strconv.Atoi(words[1])
	generation, _ := strconv.Atoi(words[2])
	return nativeKinds[(2*slot+generation)%len(nativeKinds)]
}

// nativeHold is an owner's attempt to hold a lock.
type nativeHold struct {
	w     *native
	c     *Client
	kind  nativeKind
	slot  int
	ask   ask
	conn  *lockConn // of the last acquire
	fence int64
	count int64
	until time.Time // end of the lease by the client's clock
}

func (h *nativeHold) key() string { return h.ask.keys[0] }

func (w *native) Step(ctx context.Context, c *Client) {
	c.roam()
	n, key := w.keys.Pick(c.rng)
	h := &nativeHold{w: w, c: c, kind: kindOf(key), slot: n}
	h.ask = w.draw(c, key, h.kind)
	if !h.acquire(ctx) {
		Sleep(ctx, c.between(5*time.Millisecond, 60*time.Millisecond))
		return
	}
	if h.kind.mode == checker.Exclusive && c.chance(0.7) {
		h.pass(ctx)
	}
	if c.chance(0.1) {
		return // a crashed holder, whose lease expires
	}
	h.keep(ctx)
	if c.chance(0.02) {
		h.broken(ctx)
	}
	over := 0.6
	if c.chance(0.15) {
		over = 1.6 // late, and unaware that the lease has expired
	}
	h.listen(ctx, over)
	h.release(ctx)
}

// draw draws a request of the kind.
func (w *native) draw(c *Client, key string, kind nativeKind) ask {
	a := ask{
		keys: []string{key}, owner: w.owners.Add(1), ttl: leaseChoices[c.rng.IntN(3)], mode: kind.mode, wait: checker.NoWait,
		delay: kind.delay,
	}
	switch {
	case kind.mode == checker.Shared && c.chance(0.4):
		a.mode = checker.Exclusive
	case kind.mode == checker.Counted:
		a.limit, a.permit = nativeLimit, 1+int64(c.rng.IntN(2))
	}
	if kind.reentrant {
		a.call = w.calls.Add(1)
	}
	if kind.waits && c.chance(0.8) {
		a.wait = []int64{400, 400, 1500, 4000}[c.rng.IntN(4)]
		a.notify = c.chance(0.4)
	}
	if !kind.waits {
		a.strict = 1
	}
	return a
}

// acquire sends the request, and repeats it unchanged after an unknown outcome, or when one slice of a wait has timed
// out.
func (h *nativeHold) acquire(ctx context.Context) bool {
	for range 4 {
		asked := time.Now()
		l, r := h.c.lockAsk(ctx, &h.ask)
		h.count1(r)
		switch {
		case r.outcome == history.OK && r.output[0] == 1:
			h.conn, h.fence, h.count = l, r.output[1], max(h.count, 1)
			h.until = asked.Add(time.Duration(h.ask.ttl) * time.Millisecond)
			if h.ask.wait >= 0 && time.Since(asked) > time.Duration(h.ask.ttl/4)*time.Millisecond {
				return h.extend(ctx)
			}
			return true
		case r.outcome == history.OK && h.ask.wait == 400:
			pause := 100 * time.Millisecond
			if h.c.chance(0.1) {
				pause = 3 * time.Second // the queue entry is gone
			}
			Sleep(ctx, h.c.between(0, pause))
		case r.outcome == history.OK || h.c.chance(0.2):
			return false
		}
		if ctx.Err() != nil {
			return false
		}
		h.c.roam()
	}
	return false
}

// count1 counts an unknown outcome.
func (h *nativeHold) count1(r result) {
	if r.outcome == history.Info {
		h.w.keys.Unknown(h.slot)
	}
}

// word sends a command of the owner. After a refusal a push must have come or come soon.
func (h *nativeHold) word(ctx context.Context, f, word string, input []int64, rest ...string) result {
	r := h.c.lockWord(ctx, history.Op{F: f, Key: h.key(), Input: input}, oneAnd,
		append([]string{word, h.key(), ownerToken(h.ask.owner)}, rest...)...)
	h.count1(r)
	if r.outcome == history.OK && r.output[0] == 0 {
		h.missing()
	}
	return r
}

// noticeLimit bounds the time from a reply that reveals a loss to the push about it.
const noticeLimit = 3 * time.Second

// missing waits for the push about a loss, and records its absence.
func (h *nativeHold) missing() {
	name := party(h.key(), h.ask.owner)
	done := func() bool { return h.conn.lost[name] == h.fence }
	if h.conn.Listen(noticeLimit, done) && !done() {
		h.c.invoke(noticeSlot, history.Op{F: "untold", Key: h.key(), Input: []int64{h.ask.owner, h.fence}}).OK()
	}
}

func (h *nativeHold) extend(ctx context.Context) bool {
	asked := time.Now()
	ttl := h.ask.ttl
	r := h.word(ctx, "extend", "LOCK.RENEW", []int64{h.ask.owner, ttl}, "PX", decimal(ttl))
	if r.outcome != history.OK || r.output[0] == 0 {
		return false
	}
	h.until = asked.Add(time.Duration(ttl) * time.Millisecond)
	return true
}

// keep performs a random action of a holder.
func (h *nativeHold) keep(ctx context.Context) {
	if h.kind.reentrant {
		h.again(ctx)
	}
	if h.c.chance(0.3) && h.listen(ctx, 0.8) {
		h.c.roam()
		h.extend(ctx)
	}
	if h.c.chance(0.3) && h.listen(ctx, 0.5) {
		h.c.roam()
		h.word(ctx, "check", "LOCK.CHECK", []int64{h.ask.owner})
	}
	if h.kind.mode == checker.Shared && h.ask.mode == checker.Exclusive && h.c.chance(0.4) {
		h.word(ctx, "downgrade", "LOCK.DOWNGRADE", []int64{h.ask.owner})
	}
}

// again acquires the lock once or twice more, each with its own call, repeated after an unknown outcome.
func (h *nativeHold) again(ctx context.Context) {
	for range h.c.rng.IntN(3) {
		h.ask.call = h.w.calls.Add(1)
		if !h.acquire(ctx) {
			return
		}
		h.count++
	}
}

// listen sleeps for a random part of the remaining lease, receiving pushes.
func (h *nativeHold) listen(ctx context.Context, share float64) bool {
	left := time.Until(h.until)
	if left <= 0 || ctx.Err() != nil {
		return false
	}
	d := time.Duration(h.c.rng.Float64() * share * float64(left))
	name := party(h.key(), h.ask.owner)
	end := time.Now().Add(d)
	h.conn.Listen(d, func() bool { return h.conn.lost[name] == h.fence })
	return Sleep(ctx, time.Until(end))
}

// release releases the lock, count by count or as a whole.
func (h *nativeHold) release(ctx context.Context) {
	for range 4 {
		h.c.roam()
		input, rest := []int64{h.ask.owner, 0}, []string(nil)
		if h.count > 1 && h.c.chance(0.3) {
			input[1], rest = 1, []string{"ALL"}
		}
		r := h.word(ctx, "release", "LOCK.RELEASE", input, rest...)
		if r.outcome != history.OK || r.output[0] == 0 || r.output[1] == 0 {
			return
		}
	}
}

// broken breaks this hold as an operator.
func (h *nativeHold) broken(ctx context.Context) {
	h.c.roam()
	r := h.c.lockWord(ctx, history.Op{F: "break", Key: h.key(), Input: []int64{h.ask.owner, h.fence}},
		func(v protocol.Value) []int64 { return []int64{v.Num} },
		"LOCK.BREAK", h.key(), "OWNER", ownerToken(h.ask.owner), "FENCE", decimal(h.fence), "REASON", "jepsen")
	h.count1(r)
}

// pass presents the fence to a resource in the cluster.
func (h *nativeHold) pass(ctx context.Context) {
	c, key := h.c, h.key()+"/passed"
	c.hop()
	if r := c.op(ctx, history.Op{F: "pass", Key: key, Input: []int64{h.fence}}, func(x exchange) result {
		return onLock(x.do("FENCE.PASS", key, decimal(h.fence)), func(v protocol.Value) []int64 { return []int64{v.Num} })
	}); r.outcome != history.OK {
		h.count1(r)
		return
	}
	c.op(ctx, history.Op{F: "passed", Key: key}, func(x exchange) result {
		return onLock(x.do("FENCE.GET", key), oneAnd)
	})
}

// Final waits until all leases have expired.
func (w *native) Final(ctx context.Context, c *Client) { finalLeft(ctx, c, w.o.name) }

// allSlots is the number of locks, of which clients want several at once.
const allSlots = 4

// nativeAll has clients that want several of a few locks atomically, or one of them, with long waits. A deadlock would
// let waits time out; a partial grant would show in the lock's state.
type nativeAll struct {
	o      *Options
	keys   *Rotation
	owners atomic.Int64
}

func newNativeAll(o *Options) Workload {
	return &nativeAll{o: o, keys: NewRotation(o.name, allSlots, 50, 3)}
}

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

// granted checks one of the locks in half of the cases, whatever the reply was, and releases all if they were granted.
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

// onReleaseAll reads a release of several locks: all were held or none. For a part the outcome is unknown.
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

// Final waits until all leases have expired.
func (w *nativeAll) Final(ctx context.Context, c *Client) { finalLeft(ctx, c, w.o.name) }
