package replica

import "sync"

// ears are the reasons for this node to hear of commits at once. While there is one, the leader nudges this
// node: see package raftnode.
type ears struct {
	mu sync.Mutex
	// locking: clients of this node have used words of native locks, and may have holds to lose.
	events, parked, locking bool
	tell                    func(listens bool)
}

// set notes whether a reason holds.
func (e *ears) set(reason *bool, holds bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*reason = holds
	e.tell(e.events || e.parked || e.locking)
}

// Attend says whether clients of this node are parked, until some entry wakes them.
func (r *Replica) Attend(parked bool) { r.ears.set(&r.ears.parked, parked) }
