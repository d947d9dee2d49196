package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// resources is the number of sets, each guarded by a lock.
const resources = 3

// guardedSet has holders of a lock that read a set, add an element and write the set back. The set is outside of the
// service, as the resource of a lock is. A holder is sometimes paused beyond its lease without noticing.
//
// With fencing tokens the set refuses a holder whose token is smaller than one already seen, and nothing is lost.
// Without tokens a paused holder overwrites its successors' elements: the unfenced variant is expected to fail, under
// any lock service.
type guardedSet struct {
	o      *Options
	fenced bool
	keys   *Rotation
	owners atomic.Int64

	mu   sync.Mutex
	sets map[string]*resource
}

func newGuardedSet(o *Options, fenced bool) Workload {
	return &guardedSet{
		o: o, fenced: fenced, sets: map[string]*resource{}, keys: NewRotation(o.name, resources, 400, 8),
	}
}

func (w *guardedSet) Checkers() []checker.Func {
	clocks := checker.Clocks{Drift: w.o.Drift}
	return []checker.Func{
		checker.GuardedSet,
		checker.Tokens,
		checker.Exclusion(clocks),
		checker.Linear("fenced lock", checker.FencedLock(clocks), checker.LockFunctions),
	}
}

// errFenced is the error for a token smaller than one that the resource has seen.
var errFenced = errors.New("a larger token was here")

// resource is a set that checks fencing tokens.
type resource struct {
	fenced bool

	mu       sync.Mutex
	elements []int64
	token    int64
}

// admit checks a token. Reads are checked as well: after a holder's read, no previous holder may write.
func (r *resource) admit(token int64) error {
	if r.fenced && token < r.token {
		return errFenced
	}
	r.token = max(r.token, token)
	return nil
}

func (r *resource) read(token int64) ([]int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.elements), r.admit(token)
}

func (r *resource) write(token int64, elements []int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(token); err != nil {
		return err
	}
	r.elements = elements
	return nil
}

func (w *guardedSet) resource(key string) *resource {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sets[key] == nil {
		w.sets[key] = &resource{fenced: w.fenced}
	}
	return w.sets[key]
}

func (w *guardedSet) Step(ctx context.Context, c *Client) {
	c.hop()
	slot, key := w.keys.Pick(c.rng)
	owner, ttl := w.owners.Add(1), leaseChoices[c.rng.IntN(len(leaseChoices))]
	count := func(r result) result {
		if r.outcome == history.Info {
			w.keys.Unknown(slot)
		}
		return r
	}
	r := count(c.op(ctx, history.Op{F: "acquire", Key: key, Input: []int64{owner, ttl}}, func(x exchange) result {
		return fenced.acquire(x, key, ownerToken(owner), ttl)
	}))
	if r.outcome != history.OK || r.output[0] != 1 {
		Sleep(ctx, c.between(5*time.Millisecond, 60*time.Millisecond))
		return
	}
	w.change(ctx, c, key, owner, ttl, r.output[1])
	c.hop()
	count(c.op(ctx, history.Op{F: "release", Key: key, Input: []int64{owner}}, func(x exchange) result {
		return fenced.release(x, key, ownerToken(owner), ttl)
	}))
}

// change reads the set, takes some time, and writes the set back with one more element.
func (w *guardedSet) change(ctx context.Context, c *Client, key string, element, ttl, token int64) {
	set := w.resource(key)
	lease := time.Duration(ttl) * time.Millisecond
	thinking := c.between(0, lease/4)
	if c.chance(0.15) {
		thinking = c.between(lease, 2*lease)
	}
	p := c.o.Recorder.Invoke(c.worker*maxPipe, history.Op{F: "add", Key: key, Input: []int64{element, token}})
	elements, err := set.read(token)
	if err == nil {
		Sleep(ctx, thinking)
		err = set.write(token, append(elements, element))
	}
	if err != nil {
		p.Complete(history.Fail, fmt.Sprintf("resource: %v", err))
		return
	}
	p.OK()
}

// Final records the elements of the sets.
func (w *guardedSet) Final(_ context.Context, c *Client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range w.keys.All() {
		if set := w.sets[key]; set != nil {
			c.o.Recorder.Invoke(c.worker*maxPipe, history.Op{F: "final", Key: key}).OK(set.elements...)
		}
	}
}
