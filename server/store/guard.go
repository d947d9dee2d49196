package store

import (
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/store/wal"
)

// guard makes raft's calls on a disk, and reports a call that stalls or fails.
//
// A stalled call is never turned into an error. If an append failed although its entries reached the disk, replication
// could hang (hashicorp/raft#612), and a leader would answer clients incorrectly. [Hooks].OnStall ends the process
// instead.
type guard struct {
	hooks   Hooks
	closing atomic.Bool
	stalled sync.Once
	faulted sync.Once
	watches sync.Pool // of *watch, one per call in flight
	// appends and sets count the calls in flight that commands wait for.
	appends, sets underWay
	// space looks up the space of the disk. It does nothing for a store made by [New].
	space func()
}

// underWay counts the calls of a kind that are in flight. Raft makes one at a time.
type underWay struct {
	calls atomic.Int32
	begun atomic.Int64 // nanoseconds of Unix time
}

func (u *underWay) since(now time.Time) time.Duration {
	if u.calls.Load() == 0 {
		return 0
	}
	return now.Sub(time.Unix(0, u.begun.Load()))
}

func (g *guard) hanging(now time.Time) time.Duration {
	return max(g.appends.since(now), g.sets.since(now))
}

// of returns the counter of calls of a kind, or nil if they are not counted.
func (g *guard) of(op Op) *underWay {
	switch op {
	case OpStoreLogs:
		return &g.appends
	case OpSet:
		return &g.sets
	}
	return nil
}

func newGuard(h Hooks) *guard {
	if h.DiskStallLimit == 0 {
		h.DiskStallLimit = DefaultDiskStallLimit
	}
	return &guard{hooks: h, space: func() {}}
}

// watch is the watchdog of a call. It reports a stall after stallTicks ticks rather than by the clock: while the whole
// process is frozen (SIGSTOP, a suspended virtual machine) the clock advances, but only one late tick follows.
type watch struct {
	timer *time.Timer
	op    Op
	begun time.Time
	ticks atomic.Int32 // number of ticks since begun
	ended atomic.Bool
}

// stallTicks is the number of ticks in DiskStallLimit.
const stallTicks = 8

func (g *guard) tickEvery() time.Duration { return g.hooks.DiskStallLimit / stallTicks }

func (g *guard) begin(op Op) *watch {
	w, _ := g.watches.Get().(*watch)
	if w == nil {
		w = &watch{}
		if g.hooks.OnStall != nil {
			w.timer = time.AfterFunc(math.MaxInt64, func() { g.tick(w) })
		}
	}
	w.op, w.begun = op, time.Now()
	w.ticks.Store(0)
	w.ended.Store(false)
	if w.timer != nil {
		w.timer.Reset(g.tickEvery())
	}
	return w
}

// end returns the watch to the pool. A watch whose timer has fired is dropped, since the timer's function may still be
// reading it.
func (g *guard) end(w *watch) {
	w.ended.Store(true)
	if w.timer == nil || w.timer.Stop() {
		g.watches.Put(w)
	}
}

func (g *guard) tick(w *watch) {
	switch {
	case w.ended.Load():
		return
	case w.ticks.Add(1) < stallTicks:
		w.timer.Reset(g.tickEvery())
		return
	}
	g.stalled.Do(func() { g.hooks.OnStall(w.op, time.Since(w.begun)) })
}

func (g *guard) do(op Op, call func() error) error {
	w := g.begin(op)
	if u := g.of(op); u != nil {
		if u.calls.Load() == 0 {
			u.begun.Store(w.begun.UnixNano())
		}
		u.calls.Add(1)
		defer u.calls.Add(-1)
	}
	err := g.hooks.Faults.run(op, call)
	took := time.Since(w.begun)
	g.end(w)
	if op == OpStoreLogs && g.hooks.OnSync != nil {
		g.hooks.OnSync(took)
	}
	if err != nil && isFault(op, err) {
		g.fault(op, err)
	}
	return err
}

func (g *guard) fault(op Op, err error) {
	if g.hooks.OnFault != nil && !g.closing.Load() {
		g.faulted.Do(func() { go g.hooks.OnFault(op, err) })
	}
}

// isFault reports whether a failed call must end the process. Raft routinely asks for missing entries, and retries a
// failed snapshot, which does no harm. A shortage of file descriptors is no error here, since vfs.Patient waits for one
// under the watchdog.
func isFault(op Op, err error) bool {
	return op != OpSnapshot && !errors.Is(err, raft.ErrLogNotFound)
}

// guardedLog is a guarded raft.LogStore.
type guardedLog struct {
	guard     *guard
	log       raft.LogStore
	completed *completed
	appended  int // bytes since the disk's space was looked up; raft makes one append at a time
}

var _ raft.MonotonicLogStore = (*guardedLog)(nil)

// IsMonotonic reports whether the underlying store is monotonic. If it is, raft empties the log when it installs a
// snapshot, instead of leaving a gap.
func (l *guardedLog) IsMonotonic() bool {
	m, ok := l.log.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// FirstIndex is not watched, since our stores answer from memory or from cached pages. Neither is LastIndex.
func (l *guardedLog) FirstIndex() (uint64, error) { return l.log.FirstIndex() }
func (l *guardedLog) LastIndex() (uint64, error)  { return l.log.LastIndex() }

func (l *guardedLog) GetLog(index uint64, log *raft.Log) error {
	return l.guard.do(OpGetLog, func() error { return l.log.GetLog(index, log) })
}

func (l *guardedLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *guardedLog) StoreLogs(logs []*raft.Log) error {
	return l.guard.do(OpStoreLogs, func() error {
		l.guard.hooks.Faults.tear(len(logs), func(first int) error { return l.log.StoreLogs(logs[:first]) })
		err := l.log.StoreLogs(logs)
		for _, log := range logs {
			l.appended += len(log.Data)
		}
		if l.appended >= wal.DefaultSegmentSize {
			l.appended = 0
			l.guard.space()
		}
		return err
	})
}

func (l *guardedLog) DeleteRange(lo, hi uint64) error {
	return l.guard.do(OpDeleteRange, func() error {
		return l.log.DeleteRange(lo, l.completed.spare(lo, hi))
	})
}

// guardedStable is a guarded raft.StableStore.
type guardedStable struct {
	guard  *guard
	stable raft.StableStore
}

func (s *guardedStable) Set(key, value []byte) error {
	return s.guard.do(OpSet, func() error { return s.stable.Set(key, value) })
}

func (s *guardedStable) SetUint64(key []byte, value uint64) error {
	return s.guard.do(OpSet, func() error { return s.stable.SetUint64(key, value) })
}

func (s *guardedStable) Get(key []byte) (value []byte, err error) {
	err = s.guard.do(OpGet, func() error { value, err = s.stable.Get(key); return err })
	return value, err
}

func (s *guardedStable) GetUint64(key []byte) (value uint64, err error) {
	err = s.guard.do(OpGet, func() error { value, err = s.stable.GetUint64(key); return err })
	return value, err
}

// guardedSnapshots is a guarded raft.SnapshotStore.
type guardedSnapshots struct {
	guard     *guard
	snapshots raft.SnapshotStore
	completed *completed
}

func (s *guardedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, transport raft.Transport,
) (sink raft.SnapshotSink, err error) {
	err = s.guard.do(OpSnapshot, func() error {
		if late, err := tooOld(s.snapshots, index); late || err != nil {
			return errors.Join(err, overtaken("create", index))
		}
		sink, err = s.snapshots.Create(version, index, term, configuration, configurationIndex, transport)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &guardedSink{
		SnapshotSink: sink, guard: s.guard, completed: s.completed, end: index,
	}, nil
}

// List is not watched, since our store answers from memory. If it could fail, a follower would refuse entries, and its
// leader would send snapshots and entries in turn without a pause.
func (s *guardedSnapshots) List() ([]*raft.SnapshotMeta, error) { return s.snapshots.List() }

func (s *guardedSnapshots) Open(id string) (meta *raft.SnapshotMeta, r io.ReadCloser, err error) {
	err = s.guard.do(OpSnapshot, func() error { meta, r, err = s.snapshots.Open(id); return err })
	return meta, r, err
}

// guardedSink is a guarded raft.SnapshotSink. It watches each call by itself, since a whole snapshot may take long.
type guardedSink struct {
	raft.SnapshotSink
	guard     *guard
	completed *completed
	end       uint64 // index of the snapshot's last entry
}

func (s *guardedSink) Write(b []byte) (n int, err error) {
	err = s.guard.do(OpSnapshot, func() error { n, err = s.SnapshotSink.Write(b); return err })
	return n, err
}

// Close completes the snapshot. It fails if a later snapshot was completed before or meanwhile: raft would otherwise
// assume that this snapshot is the newest, and that the log may end before the later one.
func (s *guardedSink) Close() error {
	return s.guard.do(OpSnapshot, func() error {
		if s.completed.end.Load() > s.end {
			return errors.Join(overtaken("complete", s.end), s.Cancel())
		}
		if err := s.SnapshotSink.Close(); err != nil {
			return err
		}
		if !s.completed.reach(s.end) {
			return overtaken("complete", s.end)
		}
		return nil
	})
}
