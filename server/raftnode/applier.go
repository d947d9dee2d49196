package raftnode

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// applier gives committed entries to the machine, and has snapshots of the machine taken. Raft
// calls the methods on a single goroutine.
type applier struct {
	machine   Machine
	log       *parallelLog
	snapshots raft.SnapshotStore
	policy    SnapshotPolicy
	// needed is the entry from which on some member needs the log of this node, which leads; 0: none does.
	needed  func() uint64
	tell    func(Event)
	applied func() // entries were applied
	fail    func(error)
	verify  func([]*raft.Log) // nil unless invariant.On
	stopped <-chan struct{}
	raft    *raft.Raft // set before cutLog runs

	configurations *configurations
	quarantine     quarantine
	unreadable     error         // of the newest snapshot, before raft was open
	opened         atomic.Bool   // raft is open: a snapshot that is restored comes from a leader
	broken         atomic.Bool   // an entry could not be applied: nothing is any more
	index          atomic.Uint64 // of the newest entry applied
	bytes          int64         // of entries since the last snapshot
	cut            chan struct{}
}

var _ raft.BatchingFSM = (*applier)(nil)

func newApplier(c *Config, log *parallelLog, stopped <-chan struct{}) *applier {
	return &applier{
		machine: c.Machine, log: log, snapshots: c.Snapshots, policy: c.SnapshotPolicy,
		tell: c.OnEvent, applied: func() {}, needed: func() uint64 { return 0 }, fail: c.Fail, stopped: stopped,
		cut: make(chan struct{}, 1),
	}
}

// Apply is here because raft wants the method; raft calls ApplyBatch.
func (a *applier) Apply(l *raft.Log) any { return a.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies committed entries, in order.
func (a *applier) ApplyBatch(logs []*raft.Log) []any {
	frozen := a.quarantine.frozen.Load() // for all of them: index says what the state has
	if a.verify != nil {
		a.verify(logs)
	}
	for _, l := range logs {
		if l.Type == raft.LogConfiguration {
			a.configurations.reached(l.Index)
		}
		if l.Type == raft.LogCommand && !a.broken.Load() && !frozen {
			whole, err := a.log.withData(l)
			if err == nil {
				err = a.apply(whole)
			}
			if err != nil {
				a.broken.Store(true)
				a.fail(fmt.Errorf("apply log entry %d of term %d: %w", l.Index, l.Term, err))
			}
		}
	}
	if a.broken.Load() || frozen {
		return make([]any, len(logs))
	}
	last := logs[len(logs)-1].Index
	a.index.Store(last)
	a.machine.Reach(last)
	a.applied()
	return make([]any, len(logs))
}

func (a *applier) apply(l *raft.Log) error {
	void, flags, err := stampOf(l)
	if err != nil || void {
		return err
	}
	if err := a.machine.Apply(Entry{Index: l.Index, Term: l.Term, Data: l.Data, Flags: flags}); err != nil {
		return err
	}
	if a.bytes += int64(len(l.Data)); a.bytes > a.policy.SnapshotBytes {
		a.bytes = 0
		notify(a.cut)
	}
	return nil
}

// stampOf returns the flags of an entry. Void: stamped by a clock of another leadership, see Propose, and so void on
// every node.
func stampOf(l *raft.Log) (void bool, flags []byte, err error) {
	term, n := binary.Uvarint(l.Extensions)
	if n <= 0 {
		return false, nil, errors.New("the entry does not say for which term it was stamped")
	}
	return term != l.Term, l.Extensions[n:], nil
}

// Snapshot captures the state; what takes time is in Persist.
func (a *applier) Snapshot() (raft.FSMSnapshot, error) {
	if a.broken.Load() {
		return nil, errors.New("the state is not the log's any more")
	}
	if a.quarantine.frozen.Load() {
		return nil, ErrQuarantined
	}
	a.bytes = 0
	return &capture{a: a, state: a.machine.Capture()}, nil
}

// Restore replaces the state.
func (a *applier) Restore(rc io.ReadCloser) error {
	var index uint64
	// Raft does not say which snapshot this is: raft restores the newest readable snapshot.
	stored, err := a.snapshots.List()
	if err == nil {
		if len(stored) > 0 {
			index = stored[0].Index
		}
		err = a.machine.Restore(rc, index)
	}
	if err != nil {
		if !a.opened.Load() && a.unreadable == nil {
			a.unreadable = err
		}
		return err
	}
	a.bytes = 0
	a.index.Store(index)
	if a.opened.Load() {
		a.quarantine.frozen.Store(false)
	}
	if a.opened.Load() && index > 0 {
		a.configurations.installed(stored[0])
	}
	return nil
}

// capture is a captured state on the way to the disk.
type capture struct {
	a     *applier
	state io.WriterTo
}

func (c *capture) Persist(sink raft.SnapshotSink) error {
	start := time.Now()
	n, err := c.state.WriteTo(&pacedWriter{w: sink, applied: c.a.index.Load, stop: c.a.stopped})
	if err == nil {
		err = c.a.boundTrailing()
	}
	c.a.tell(SnapshotTaken{Bytes: n, Took: time.Since(start), Err: err})
	return err // raft closes or cancels the sink
}

func (c *capture) Release() {}

// boundTrailing has raft keep, over the snapshot that is about to be complete, no more of the log
// than the limit of bytes allows, raft counts entries only, and what a member needs next that gets a snapshot.
// Otherwise a member that takes longer to get a snapshot than this node to take the next would get
// snapshots as long as there is work.
func (a *applier) boundTrailing() error {
	trailing, err := a.log.trailing(a.policy.TrailingLogs, a.needed())
	if err != nil {
		return err
	}
	conf := a.raft.ReloadableConfig()
	conf.TrailingLogs = trailing
	return a.raft.ReloadConfig(conf)
}

// cutLog takes a snapshot when entries have grown large rather than many: raft counts them only.
func (a *applier) cutLog(ctx context.Context, logger *slog.Logger) error {
	for {
		select {
		case <-a.cut:
		case <-ctx.Done():
			return nil
		}
		if err := a.raft.Snapshot().Error(); err != nil && ctx.Err() == nil {
			logger.Warn("take snapshot", "error", err)
		}
	}
}

// notify wakes the goroutine that listens on c, a channel with a buffer of one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
