package replica

import (
	"sync"
	"sync/atomic"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/raftnode"
)

// Replica is a member of the cluster. The comments of the types describe the parts, and doc.go the goroutines.
type Replica struct {
	config  Config
	origin  protocol.Incarnation // the session of this node
	machine fsm.Machine
	state   *state

	// serving is the leadership under which this node serves, or nil. Only the leadership sets it.
	serving    atomic.Pointer[leaderTerm]
	leadership *leadership

	node *raftnode.Node
	traffic
	termination
	addresses      *addresses
	leaders        leaders
	asking         atomic.Bool // other voters are asked to lead
	health         health
	disk           disk
	commitInterest commitInterest
}

// traffic has the parts that batches pass through.
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

// termination has the state of the node's end.
type termination struct {
	parts   sync.WaitGroup // the goroutines that Run waits for
	ending  sync.Once
	stopped chan struct{} // closed when the replica begins to stop
	failed  chan error    // the reason to stop
	ended   chan struct{} // closed when Run returns

	opened atomic.Pointer[raftnode.Node] // nil while raft is being opened, though it applies entries already
}

// stop begins the end of the replica.
func (r *Replica) stop() { r.ending.Do(func() { close(r.stopped) }) }

// fail stops the node because of err. Only the first call counts.
func (r *Replica) fail(err error) {
	select {
	case r.failed <- err:
		r.event(Failed{Err: err})
	default:
	}
}

func (r *Replica) event(e Event) { r.config.OnEvent(e) }

// commitInterest has the reasons for which this node must learn of commits at once. While there is one, it subscribes
// to the leader's commit notifications: see package raftnode.
type commitInterest struct {
	mu sync.Mutex
	// locking is set if clients of this node have used native locks, and may lose holds.
	events, parked, locking bool
	subscribe               func(yes bool)
}

// set sets whether a reason applies.
func (c *commitInterest) set(reason *bool, holds bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*reason = holds
	c.subscribe(c.events || c.parked || c.locking)
}
