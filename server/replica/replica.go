package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/sessions"
)

// Replica is a member of the cluster. Comments at the types describe the parts, and doc.go the
// goroutines.
type Replica struct {
	config  Config
	origin  protocol.Origin // this node's session
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
	large         *largeBatches
	writes        *queue
	proposer      *proposer
	rounds        *rounds
	reader        *reader
	ticker        *ticker
	timeouts      *timeouts
	waiting       *waiting
	renewer       *sessions.Renewer
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

// Open restores the node's state from the stores, and starts to take part in elections. Commands are answered while
// [Replica.Run] runs, and Run must follow.
func Open(c Config) (*Replica, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("configure replica: %w", err)
	}
	r := &Replica{
		config:    c,
		origin:    protocol.Origin{Node: c.ID, Epoch: c.Stores.Lineage.Current()},
		machine:   fsm.New(),
		addresses: &addresses{},
	}
	r.machine.SeedReads(r.origin)
	r.machine.ClassifyLocks(c.LockClasses)
	r.stopped, r.failed, r.ended = make(chan struct{}), make(chan error, 1), make(chan struct{})
	r.open()
	var err error
	if r.node, err = raftnode.Open(r.nodeConfig()); err != nil {
		return nil, err
	}
	r.opened.Store(r.node)
	r.addresses.follow(r.node.Configuration(), &r.config)
	return r, nil
}

// open makes the parts, but for raft, and hands each the functions that it needs.
func (r *Replica) open() {
	c := &r.config
	r.leadership = newLeadership(r)
	r.timeouts = newTimeouts()
	r.large = newLargeBatches(c.Limits.EntryBytes)
	r.writes = newQueue(r.origin, c.Limits, r.timeouts.poke)
	r.writes.inTime, r.writes.patience = c.CommandTimeout/4, c.CommandTimeout/4
	reads := newQueue(r.origin, c.Limits, r.timeouts.poke)
	wake := make(chan struct{}, 1)
	r.rounds = newRounds(roundsConfig{
		serving: &r.serving, within: c.CommandTimeout,
		begin: func(term uint64) (*raftnode.Acknowledgement, uint64) { return r.node.BeginRound(term) },
		leads: func(term uint64) bool { return r.node.Leads(term) },
		reached: func(index uint64, gone, expired <-chan struct{}) error {
			return r.state.index.wait(index, gone, expired)
		},
	})
	r.state = &state{machine: r.machine}
	r.reader = &reader{
		serving: &r.serving, serves: newGate(), elsewhere: reads, rounds: r.rounds, machine: r.machine,
		stamps: &r.state.stamps,
		want:   func(l *leaderTerm, stampMillis int64) { r.proposer.want(l, stampMillis) },
		long:   make(chan struct{}, 1), room: c.Limits.ReplyBytes / 4, logger: c.Logger,
	}
	r.toLeader, r.fromFollowers = newToLeader(r), newFromFollowers(r, wake)
	r.commitInterest.subscribe = r.toLeader.SubscribeCommits
	r.proposer = newProposer(proposerConfig{
		serving: &r.serving, sources: [2]source{own{r.writes}, forwarded{r.fromFollowers}}, wake: wake,
		wouldRefuse: r.machine.WouldRefuse, wouldWait: r.machine.WouldWait, version: r.common,
		raised:  func(from, to byte) { r.event(VersionRaised{From: from, To: to}) },
		propose: r.propose, proposed: r.timeouts.poke, took: c.OnEntry, memoryLimitBytes: c.MaxMemoryBytes,
	}, c.Limits.EntryBytes, c.RefusalDelay)
	r.ticker = newTicker(&r.serving, r.machine, r.proposer.want)
	r.waiting, r.renewer = newWaiting(r.waitingConfig(), r.parkingCluster()), newRenewer(r)
	r.state.sink = r.newSink()
	r.state.stateHooks = stateHooks{
		entered: r.leadership.look, landed: r.proposer.landed, captured: c.OnCapture,
		reached: func() {
			r.ticker.rearm()
			r.waiting.reached()
		},
		restored: func(took time.Duration) {
			r.event(Restored{Took: took})
			r.resync()
		},
	}
	r.timeouts.timeoutsConfig = timeoutsConfig{
		serving: &r.serving, writes: r.writes, reads: reads, command: c.CommandTimeout,
		stalledAfter: c.ElectionTimeout, stalled: func(age time.Duration) {
			r.event(ProposalStalled{Age: age, Committed: r.node.Committed(), LastLog: r.node.Last(), Members: r.members()})
		},
		unacknowledged: func(term uint64) (uint64, bool) { return r.node.Unacknowledged(term) },
		transfer:       func() time.Duration { return r.node.TransferTime() }, giveUp: r.giveUp,
		idle:    func() bool { return r.node.Last() == r.state.index.load() },
		restart: r.leadership.serveAnew,
	}
}

// Listen sets the events that [Config.OnStateEvents] gets from the next entry on. While there are such events, this
// node subscribes to the leader's commit notifications.
func (r *Replica) Listen(i event.Interest) {
	r.machine.Listen(i)
	r.commitInterest.set(&r.commitInterest.events, i != 0)
}

func (r *Replica) newSink() sink {
	return sink{
		writes: r.writes, lineage: r.config.Stores.Lineage, superseded: r.superseded,
		followers: r.fromFollowers.Peer, events: r.stateEvents, runsReads: r.config.RunsReads,
		committed: r.committed,
	}
}

// committed is as far as this node knows; nothing is known while the node is opened.
func (r *Replica) committed() (index uint64, known bool) {
	n := r.opened.Load()
	if n == nil {
		return 0, false
	}
	return n.Committed(), true
}

func (r *Replica) nodeConfig() raftnode.Config {
	c := &r.config
	return raftnode.Config{
		ID: c.ID, Bootstrap: c.Bootstrap,
		Log: c.Stores.Log, Stable: c.Stores.Stable, Snapshots: c.Stores.Snapshots,
		Raft: c.Peers.Raft, Append: c.Peers.Append, Dial: c.Peers.Forward.DialContext,
		Timing: c.Timing.Timing, SnapshotPolicy: c.SnapshotPolicy,
		Logger: c.Logger, RaftLogger: c.RaftLogger,
		Quarantined: c.Quarantined, Machine: r.state,
		OnChange: r.leadership.look, OnConfiguration: r.reconfigured, OnRemoved: c.OnRemoved,
		OnEvent: c.OnEvent,
		Fail:    r.fail,
	}
}

// Run serves until ctx ends, [Replica.Shutdown] is through, or the node fails. When ctx ends the
// node goes as if crashed, but for its goroutines and the batches in flight. Such batches are
// answered at once with what is known of them: use Shutdown first.
func (r *Replica) Run(ctx context.Context) error {
	defer close(r.ended)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	start := func(name string, run func(context.Context) error) {
		parts.Go(func() {
			if err := run(ctx); err != nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	r.node.Start(start)
	start("watch leadership", r.leadership.run)
	start("propose", r.proposer.run)
	start("check leadership", r.rounds.run)
	start("tick", r.ticker.run)
	start("end what waits too long", r.timeouts.run)
	start("look after waiters", r.waiting.run)
	start("let waiters leave", r.waiting.registry.Run)
	start("renew sessions", r.renewer.Run)
	start("forward", r.toLeader.Run)
	start("accept links", r.fromFollowers.Run)
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
	r.reader.elsewhere.close(protocol.ErrStopping)
	if !r.node.Stop() {
		return context.Cause(ctx) // nothing of raft's ends any more
	}
	parts.Wait()
	err := r.node.Wait()
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

// Shutdown hands leadership over, waits for what is pending, and ends Run, as far as there is time
// before ctx ends. If no node takes the leadership, the others will find the leadership vacant. The
// error says that Run has not ended.
func (r *Replica) Shutdown(ctx context.Context) error {
	if err := r.TransferLeadership(ctx, ""); err != nil {
		r.config.Logger.Warn("stop while leading", "error", err)
	}
	r.waiting.registry.Drained(ctx)
	r.writes.drained(ctx)
	r.stop()
	select {
	case <-r.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
