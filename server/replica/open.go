package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/raftnode"
)

// Open restores the node's state from the stores, and begins to take part in elections. Commands are executed only
// while [Replica.Run] runs, which must follow.
func Open(c Config) (*Replica, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("configure replica: %w", err)
	}
	r := &Replica{
		config:    c,
		origin:    protocol.Incarnation{Node: c.ID, Epoch: c.Stores.Lineage.Current()},
		machine:   cmp.Or(c.Machine, fsm.New()),
		addresses: &addresses{},
	}
	r.machine.SeedReads(r.origin)
	r.machine.ClassifyLocks(c.LockClasses)
	r.machine.Listen(c.auditing())
	r.stopped, r.failed, r.ended = make(chan struct{}), make(chan error, 1), make(chan struct{})
	r.open()
	var err error
	if r.node, err = raftnode.Open(r.nodeConfig()); err != nil {
		return nil, err
	}
	r.opened.Store(r.node)
	r.leadership.node = r.node
	r.addresses.follow(r.node.Configuration(), r.self())
	return r, nil
}

// open creates the parts, except raft, and gives each the functions that it needs.
func (r *Replica) open() {
	c := &r.config
	r.timeouts = newTimeouts()
	r.disk.noted = make(chan struct{}, 1)
	r.writes = newQueue(r.origin, c.Limits, r.timeouts.poke)
	r.writes.inTime, r.writes.patience = c.CommandTimeout/4, c.CommandTimeout/4
	r.writes.turns.patience = c.CommandTimeout / 4
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
		serving: &r.serving, serves: newGate(), elsewhere: reads, writes: r.writes, rounds: r.rounds, machine: r.machine,
		stamps: &r.state.stamps,
		want:   func(l *leaderTerm, stampMillis int64) { r.proposer.want(l, stampMillis) },
		census: func(question string, deadline time.Time) ([]protocol.Value, error) {
			return r.census.ask(r.origin, question, deadline)
		},
		long: make(chan struct{}, 1), room: c.Limits.ReplyBytes / 4, logger: c.Logger,
	}
	r.census = newCensus(censusConfig{
		self: r.origin, patience: c.CommandTimeout / 4, serving: &r.serving, confirm: r.rounds.confirm,
		configuration: func() members.Configuration { return r.node.Configuration() },
		report:        c.Report,
		inquire: func(ctx context.Context, id, question string) (protocol.Value, error) {
			return r.fromFollowers.Inquire(ctx, id, question)
		},
	})
	r.toLeader = forward.NewClient(r.toLeaderConfig())
	r.fromFollowers = forward.NewReceiver(r.fromFollowersConfig(wake))
	r.commitInterest.subscribe = r.toLeader.SubscribeCommits
	r.proposer = newProposer(proposerConfig{
		serving: &r.serving, sources: [2]source{own{r.writes}, forwarded{r.fromFollowers}}, wake: wake,
		isNoop: r.machine.IsNoop, version: r.common,
		raised:  func(from, to byte) { r.event(VersionRaised{From: from, To: to}) },
		propose: r.propose, proposed: r.timeouts.poke, took: c.OnEntry,
		roundTrip: func() time.Duration { return r.node.RoundTrip() }, limits: c.EntryLimits,
		diskFull: &r.disk.refuses,
	}, c.Limits.EntryBytes, c.RefusalDelay)
	r.ticker = newTicker(&r.serving, r.machine, r.proposer.want)
	r.waiting = newWaiting(r.waitingConfig(), r.sessionsCluster())
	r.leadership = newLeadership(r.leadershipConfig())
	r.state.sink = r.newSink()
	r.state.stateHooks = stateHooks{
		entered: r.leadership.poke, landed: r.proposer.landed, captured: c.OnCapture,
		reached: func() {
			r.ticker.rearm()
			r.waiting.reached()
		},
		restored: func(e Restored) {
			r.event(e)
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

// Run serves until ctx ends, [Replica.Shutdown] is complete, or the node fails. If ctx ends, the node stops as if it
// crashed, except that its goroutines end, and that batches in flight get their outcome as far as it is known: call
// Shutdown first.
func (r *Replica) Run(ctx context.Context) error {
	defer close(r.ended)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := func(name string, run func(context.Context) error) {
		r.parts.Go(func() {
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
	start("watch the disk", r.watchDisk)
	start("end what waits too long", r.timeouts.run)
	start("look after waiters", r.waiting.run)
	start("renew sessions", r.waiting.clients.Run)
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
	// First, since all that follows may wait for a disk that never returns.
	r.writes.close(protocol.ErrStopping)
	r.reader.elsewhere.close(protocol.ErrStopping)
	if !r.node.Stop() {
		return context.Cause(ctx) // goroutines of raft may never end
	}
	r.parts.Wait()
	err := r.node.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// Shutdown transfers the leadership, waits for pending batches, and ends Run, as far as the time before ctx ends
// allows. The node's clients must have left. If no node takes the leadership, the others elect a leader after a
// timeout. An error means that Run has not ended.
func (r *Replica) Shutdown(ctx context.Context) error {
	if err := r.TransferLeadership(ctx, ""); err != nil {
		r.config.Logger.Warn("stop while leading", "error", err)
	}
	r.leave()
	r.waiting.clients.Drained(ctx)
	r.writes.drained(ctx)
	r.stop()
	select {
	case <-r.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
