package replica

import (
	"sync"
	"sync/atomic"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/raftnode"
)

// Replica is a member of the cluster. Comments at the types describe the parts, and doc.go the
// goroutines.
type Replica struct {
	config  Config
	origin  protocol.Incarnation // this node's session
	machine fsm.Machine
	state   *state

	// serving is the leadership that this node serves, or nil. Only the leadership sets serving.
	serving    atomic.Pointer[leaderTerm]
	leadership *leadership

	node *raftnode.Node
	traffic
	termination
	addresses      *addresses
	leaders        leaders
	givingUp       atomic.Bool
	health         health
	commitInterest commitInterest
}

// traffic is what batches pass through.
type traffic struct {
	writes        *queue
	proposer      *proposer
	rounds        *rounds
	reader        *reader
	census        *census
	ticker        *ticker
	timeouts      *timeouts
	waiting       *waiting
	toLeader      *forward.Client
	fromFollowers *forward.Receiver
}

// termination is how the node ends.
type termination struct {
	ending  sync.Once
	stopped chan struct{} // closed when the replica begins to stop
	failed  chan error    // the reason to stop
	ended   chan struct{} // closed when Run returns

	opened atomic.Pointer[raftnode.Node] // nil while raft, which applies entries already, is opened
}

// stop begins the end.
func (r *Replica) stop() { r.ending.Do(func() { close(r.stopped) }) }

// fail ends the node because of err; only the first counts.
func (r *Replica) fail(err error) {
	select {
	case r.failed <- err:
		r.event(Failed{Err: err})
	default:
	}
}

func (r *Replica) event(e Event) { r.config.OnEvent(e) }

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
