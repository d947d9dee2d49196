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

// applier applies committed entries to the machine and captures its snapshots. Raft calls the methods of raft.FSM on a
// single goroutine.
type applier struct {
	machine   Machine
	log       *parallelLog
	snapshots raft.SnapshotStore
	policy    SnapshotPolicy
	// needed is [acks.needed] while this node leads, and returns 0 otherwise.
	needed  func() uint64
	tell    func(Event)
	applied func() // called after entries were applied
	fail    func(error)
	verify  func([]*raft.Log) // nil unless invariant.On
	stopped <-chan struct{}
	raft    *raft.Raft // set before snapshotBySize runs

	configurations *configurations
	quarantine     quarantine
	unreadable     error         // error of restoring the newest snapshot while raft was opened
	opened         atomic.Bool   // raft is open, so a snapshot that is restored is a leader's
	broken         atomic.Bool   // an entry could not be applied, so none is applied any more
	index          atomic.Uint64 // of the newest entry applied
	bytes          atomic.Int64  // of the entries applied since the last snapshot
	diskFull       atomic.Bool   // see [Node.SetDiskFull]
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

// Apply implements raft.FSM. Raft calls ApplyBatch instead.
func (a *applier) Apply(l *raft.Log) any { return a.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies committed entries in order.
func (a *applier) ApplyBatch(logs []*raft.Log) []any {
	frozen := a.quarantine.frozen.Load() // once for the batch, since index describes the state after it
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
	if a.bytes.Add(int64(len(l.Data))) > a.bound(a.policy.SnapshotBytes) {
		a.bytes.Store(0)
		notify(a.cut)
	}
	return nil
}

// stampOf returns the flags of an entry. A void entry was proposed in another term, see [Node.Propose], and is skipped
// on every node.
func stampOf(l *raft.Log) (void bool, flags []byte, err error) {
	term, n := binary.Uvarint(l.Extensions)
	if n <= 0 {
		return false, nil, errors.New("the entry does not say for which term it was stamped")
	}
	return term != l.Term, l.Extensions[n:], nil
}

// Snapshot captures the state. Persist writes it, which takes longer.
func (a *applier) Snapshot() (raft.FSMSnapshot, error) {
	if a.broken.Load() {
		return nil, errors.New("the state is not the log's any more")
	}
	if a.quarantine.frozen.Load() {
		return nil, ErrQuarantined
	}
	a.bytes.Store(0)
	return &capture{a: a, state: a.machine.Capture()}, nil
}

// Restore replaces the state by a snapshot's.
func (a *applier) Restore(rc io.ReadCloser) error {
	var index uint64
	// Raft does not name the snapshot. It restores the newest readable one.
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
	a.bytes.Store(0)
	a.index.Store(index)
	if a.opened.Load() {
		a.quarantine.frozen.Store(false)
	}
	if a.opened.Load() && index > 0 {
		a.configurations.installed(stored[0])
	}
	return nil
}

// capture is a captured state to be written to the disk.
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

// boundTrailing limits the entries that raft keeps behind the snapshot to the policy's bytes, since raft counts entries
// only. Entries that a lagging member needs are kept: otherwise a member that receives a snapshot more slowly than this
// node takes the next one would be sent snapshots for as long as there is work.
func (a *applier) boundTrailing() error {
	trailing, err := a.log.trailing(a.policy.TrailingLogs, a.bound(a.policy.TrailingBytes), a.needed())
	if err != nil {
		return err
	}
	conf := a.raft.ReloadableConfig()
	conf.TrailingLogs = trailing
	return a.raft.ReloadConfig(conf)
}

// fullBytes bounds the bytes between two snapshots, and those that a snapshot leaves, while the disk is nearly full.
const fullBytes = 16 << 20

// bound returns limit, or what a disk that is nearly full allows.
func (a *applier) bound(limit int64) int64 {
	if a.diskFull.Load() {
		return min(limit, fullBytes)
	}
	return limit
}

// SetDiskFull sets whether the disk is nearly full, beside a state of about stateBytes. Snapshots are then taken early,
// and leave little of the log. Each call with true also asks for a snapshot if it would give back much space: that of
// the log, or of the snapshots of a larger state, of which the last two are kept.
func (n *Node) SetDiskFull(full bool, stateBytes int64) {
	a := n.applier
	a.diskFull.Store(full)
	stored, err := a.snapshots.List()
	if !full || err != nil || len(stored) > 0 && stored[0].Index >= a.index.Load() {
		return
	}
	gain := a.bytes.Load() - fullBytes
	if len(stored) > 1 {
		gain = max(gain, stored[1].Size-stateBytes-fullBytes)
	} else if len(stored) > 0 {
		gain = max(gain, stored[0].Size-2*stateBytes-fullBytes)
	}
	if gain > 0 {
		notify(a.cut)
	}
}

// snapshotBySize takes a snapshot each time the entries exceed the policy's bytes. Raft counts entries only.
func (a *applier) snapshotBySize(ctx context.Context, logger *slog.Logger) error {
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

// notify wakes the goroutine that receives from c, a channel with a buffer of one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
