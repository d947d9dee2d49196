package store

import (
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// guard stands between raft and a disk. It reports a call that does not come back, and
// a call that fails.
//
// A late call is never turned into an error. In hashicorp/raft#612 a follower's append came back as
// failed although the entries may have reached the disk, and replication was wedged. A leader would
// answer clients wrongly. [Hooks].OnStall ends the process instead.
type guard struct {
	hooks   Hooks
	closing atomic.Bool
	stalled sync.Once
	faulted sync.Once
	watches sync.Pool // of *watch: one timer per call in flight, used again
	// appends and sets are the calls under way that commands wait for.
	appends, sets underWay
}

// underWay is the calls of a kind that are under way. Raft makes one at a time.
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

// of is what counts calls of that kind; nil: nothing does.
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
	return &guard{hooks: h}
}

// watch is the alarm clock of a call. The alarm rings stallTicks times before the stall is
// believed: when the whole process was frozen (SIGSTOP, a suspended virtual machine), the
// clock went on meanwhile, and a healthy call looks as if it hung. Frozen time is
// one late tick, however long.
type watch struct {
	timer *time.Timer
	op    Op
	begun time.Time
	ticks atomic.Int32 // since begun
	ended atomic.Bool
}

// stallTicks is how many ticks make the limit.
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

// end puts the watch back for the next call. A watch whose alarm went off is not used
// again, as the timer's function may still be reading the watch.
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

// isFault: raft asks for entries that are not there as a matter of course. A
// snapshot that fails is tried again later, and harms nothing until then. A shortage of
// file descriptors does not come here: vfs.Patient waits for a descriptor, and the watchdog looks at the clock.
func isFault(op Op, err error) bool {
	return op != OpSnapshot && !errors.Is(err, raft.ErrLogNotFound)
}

// guardedLog is a raft.LogStore.
type guardedLog struct {
	guard     *guard
	log       raft.LogStore
	completed *completed
}

var _ raft.MonotonicLogStore = (*guardedLog)(nil)

// IsMonotonic passes on what the store below says: raft then empties the log
// when a snapshot is installed, instead of leaving a gap.
func (l *guardedLog) IsMonotonic() bool {
	m, ok := l.log.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// FirstIndex and LastIndex are answered from memory by our stores, or from
// pages that are surely cached: such calls are not watched.
func (l *guardedLog) FirstIndex() (uint64, error) { return l.log.FirstIndex() }
func (l *guardedLog) LastIndex() (uint64, error)  { return l.log.LastIndex() }

func (l *guardedLog) GetLog(index uint64, log *raft.Log) error {
	return l.guard.do(OpGetLog, func() error { return l.log.GetLog(index, log) })
}

func (l *guardedLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *guardedLog) StoreLogs(logs []*raft.Log) error {
	return l.guard.do(OpStoreLogs, func() error {
		l.guard.hooks.Faults.tear(len(logs), func(first int) error { return l.log.StoreLogs(logs[:first]) })
		return l.log.StoreLogs(logs)
	})
}

func (l *guardedLog) DeleteRange(lo, hi uint64) error {
	return l.guard.do(OpDeleteRange, func() error {
		return l.log.DeleteRange(lo, l.completed.spare(lo, hi))
	})
}

// guardedStable is a raft.StableStore.
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

// guardedSnapshots is a raft.SnapshotStore.
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

// List is answered from memory by our store: the call is not watched. A follower whose list failed would refuse
// entries, and its leader would send snapshots and entries in turn, without a pause.
func (s *guardedSnapshots) List() ([]*raft.SnapshotMeta, error) { return s.snapshots.List() }

func (s *guardedSnapshots) Open(id string) (meta *raft.SnapshotMeta, r io.ReadCloser, err error) {
	err = s.guard.do(OpSnapshot, func() error { meta, r, err = s.snapshots.Open(id); return err })
	return meta, r, err
}

// guardedSink watches each call by itself: a snapshot as a whole may take long.
type guardedSink struct {
	raft.SnapshotSink
	guard     *guard
	completed *completed
	end       uint64 // index of the last entry that the snapshot stands for
}

func (s *guardedSink) Write(b []byte) (n int, err error) {
	err = s.guard.do(OpSnapshot, func() error { n, err = s.SnapshotSink.Write(b); return err })
	return n, err
}

// Close fails if a later snapshot was installed meanwhile, also while this snapshot is being
// completed: raft would take this snapshot for the newest, and believe that the log ends before the
// later snapshot does.
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
