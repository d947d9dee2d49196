package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
)

// Replica is one member of the cluster. Its parts are described where their
// types are; doc.go says who runs what.
type Replica struct {
	config  Config
	origin  protocol.Origin // this node's session
	machine *fsm.Machine
	state   *state

	// serving is the leadership that this node serves, or nil. The helm sets it.
	serving atomic.Pointer[lead]
	serves  *gate // open while serving is not nil
	helm    *helm

	engine
	traffic
	life
	addresses *addresses
	health    health
}

// engine is raft with what is around it.
type engine struct {
	raft       *raft.Raft
	stable     *stable
	transport  *transport
	acks       *acks
	succession *succession
	progress   *progress
}

// traffic is what batches pass through.
type traffic struct {
	large         *largeBatches
	writes, reads *table
	proposer      *proposer
	rounds        *rounds
	turns         chan struct{} // has room for one: who reads at length
	ticker        *ticker
	sweeper       *sweeper
	link          *link
	inbox         *inbox
}

// life is how the node ends.
type life struct {
	ending  sync.Once
	stopped chan struct{} // closed when it begins to stop
	failed  chan error    // what it must stop for
	ended   chan struct{} // closed when Run returns
}

// Open restores the node's state from its stores, and starts to take part in
// elections; a fresh store is made a member of the initial cluster first.
// Commands are answered once [Replica.Run] runs, which must follow.
func Open(c Config) (*Replica, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("configure replica: %w", err)
	}
	r := &Replica{
		config:    c,
		origin:    protocol.Origin{Node: c.Name, Epoch: c.Stores.Epoch},
		machine:   fsm.New(),
		serves:    newGate(),
		addresses: newAddresses(&c),
	}
	r.machine.SeedReads(r.origin)
	r.stopped, r.failed, r.ended = make(chan struct{}), make(chan error, 1), make(chan struct{})
	r.acks = newAcks(c.Name, c.InitialCluster)
	r.state, r.helm, r.proposer = newState(r), newHelm(r), newProposer(r)
	r.turns = make(chan struct{}, 1)
	r.rounds, r.ticker, r.sweeper = newRounds(r), newTicker(r), newSweeper(r)
	r.large = newLargeBatches(c.Limits.EntryBytes)
	r.writes = newTable(c.Limits, r.sweeper.poke)
	r.writes.inTime = c.Timing.Command / 4
	r.reads = newTable(c.Limits, r.sweeper.poke)
	r.link, r.inbox, r.succession, r.progress = newLink(r), newInbox(r), newSuccession(r), &progress{r: r}
	if err := r.openRaft(); err != nil {
		return nil, err
	}
	return r, nil
}

// part is something that runs as long as the node does.
type part struct {
	name string
	run  func(context.Context) error
}

// Run serves until ctx ends, [Replica.Shutdown] is through, or the node fails.
// When ctx ends the node goes as if it had crashed, but for its goroutines, and for the
// batches in flight, which are answered at once with what is known of them: use Shutdown first.
func (r *Replica) Run(ctx context.Context) error {
	defer close(r.ended)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.stable.running.Store(true)
	var parts sync.WaitGroup
	for _, p := range []part{
		{"take entries", r.transport.acceptAppends},
		{"relay", r.transport.relay},
		{"steer", r.helm.run},
		{"propose", r.proposer.run},
		{"check leadership", r.rounds.run},
		{"tick", r.ticker.run},
		{"sweep", r.sweeper.run},
		{"forward", r.link.run},
		{"accept links", r.inbox.run},
		{"succeed", r.succession.run},
		{"cut log", r.state.cutLog},
	} {
		parts.Go(func() {
			if err := p.run(ctx); err != nil {
				cancel(fmt.Errorf("%s: %w", p.name, err))
			}
		})
	}
	select {
	case <-ctx.Done():
	case <-r.stopped:
		cancel(nil)
	case err := <-r.failed:
		cancel(err)
	}
	r.stop()
	// First, as all that follows may wait for a disk that never returns.
	r.writes.close(protocol.ErrStopping)
	r.reads.close(protocol.ErrStopping)
	// From here on nobody waits for raft: its calls return ErrRaftShutdown.
	down := r.raft.Shutdown()
	select {
	case <-r.stable.lost:
		return context.Cause(ctx) // nothing of raft's ends any more
	default:
	}
	_ = r.transport.Close() // else raft waits for nodes that do not answer
	parts.Wait()
	err := down.Error()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
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

// Shutdown hands leadership over, waits for what is pending, and ends Run. It
// does that as far as it gets before ctx ends: if nobody takes the leadership,
// the others will find it vacant. The error says that Run has not ended.
func (r *Replica) Shutdown(ctx context.Context) error {
	if err := r.TransferLeadership(ctx); err != nil {
		r.config.Logger.Warn("stop while leading", "error", err)
	}
	r.writes.drained(ctx)
	r.stop()
	select {
	case <-r.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
