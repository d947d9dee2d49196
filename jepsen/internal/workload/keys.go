package workload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// Rotation hands out keys from a few slots. A slot's key is given up for a new
// one after so many operations, or when the outcome of so many of them is unknown: a checker's
// search grows with both, and minutes of history stay cheap to check.
type Rotation struct {
	prefix          string
	maxOps, maxInfo int

	mu    sync.Mutex
	slots []slot
	all   []string
}

type slot struct {
	generation, ops, infos int
}

// NewRotation makes so many slots of keys that begin with prefix.
func NewRotation(prefix string, slots, maxOps, maxInfo int) *Rotation {
	return &Rotation{prefix: prefix, maxOps: maxOps, maxInfo: maxInfo, slots: make([]slot, slots)}
}

// Pick chooses a slot and gives the present key.
func (r *Rotation) Pick(rng *rand.Rand) (n int, key string) {
	n = rng.IntN(len(r.slots))
	return n, r.Key(n)
}

// Key is the present key of a slot.
func (r *Rotation) Key(n int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.slots[n]
	s.ops++
	if s.ops > r.maxOps {
		*s = slot{generation: s.generation + 1, ops: 1}
	}
	key := fmt.Sprintf("%s:%d:%d", r.prefix, n, s.generation)
	if s.ops == 1 {
		r.all = append(r.all, key)
	}
	return key
}

// Unknown counts an operation on a slot's key whose outcome is unknown.
func (r *Rotation) Unknown(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.slots[n]
	if s.infos++; s.infos >= r.maxInfo && s.ops > 0 {
		*s = slot{generation: s.generation + 1}
	}
}

// All are the keys handed out so far.
func (r *Rotation) All() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}
