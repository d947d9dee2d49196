package replica

import "sync"

// commitInterest holds the reasons for this node to learn of commits at once. While there is a reason, this node
// subscribes to the leader's commit notifications: see package raftnode.
type commitInterest struct {
	mu sync.Mutex
	// locking: clients of this node have used commands of native locks, and may have holds to lose.
	events, parked, locking bool
	subscribe               func(yes bool)
}

// set notes whether a reason holds.
func (c *commitInterest) set(reason *bool, holds bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*reason = holds
	c.subscribe(c.events || c.parked || c.locking)
}
