package workload

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/protocol"
)

// sessionLeases are the leases of sessions in milliseconds.
var sessionLeases = []int64{1000, 1000, 2500}

// nativeSession has clients whose holds are bound to a session, which the client keeps alive, or its node while the
// connection is open. Clients freeze, disconnect, lose their node, and move a session to another one.
type nativeSession struct {
	o      *Options
	keys   *Rotation
	owners atomic.Int64
}

func newNativeSession(o *Options) Workload {
	return &nativeSession{o: o, keys: NewRotation(o.name, max(2, o.Concurrency/2), 50, 3)}
}

func (w *nativeSession) Checkers() []checker.Func {
	clocks := checker.Clocks{Drift: w.o.Drift}
	bounds := checker.TTLBounds{Clocks: clocks, Late: lateBound, Settle: w.o.Settle}
	return []checker.Func{
		checker.Capacity(clocks),
		checker.Fences,
		checker.Linear("lock", checker.NativeLock(clocks), checker.NativeFunctions),
		checker.Waits(checker.WaitBounds{Clocks: clocks, Late: lateBound, Settle: w.o.Settle}),
		checker.Notices(bounds),
		checker.Kept(bounds),
		checker.Leftovers,
	}
}

// lockSession is a client's session with one hold.
type lockSession struct {
	w          *nativeSession
	c          *Client
	slot       int
	key        string
	owner      int64
	id         int64
	lease      int64
	connection bool
	conn       *lockConn // to which the session is bound, or which acquired
	fence      int64
	until      time.Time // the latest known end of the session by the client's clock
	opened     int64     // when its binding to the connection was requested, by the run's clock
	heard      int64     // when the connection was last known to be open
	closed     int64     // when an end was last recorded
}

func (w *nativeSession) Step(ctx context.Context, c *Client) {
	c.roam()
	n, key := w.keys.Pick(c.rng)
	s := &lockSession{
		w: w, c: c, slot: n, key: key, owner: w.owners.Add(1), lease: sessionLeases[c.rng.IntN(3)],
		connection: c.chance(0.6),
	}
	if !s.open(ctx) {
		return
	}
	defer s.hangUp()
	if c.chance(0.05) || !s.acquire(ctx) {
		return // an abandoned session, which expires
	}
	for range 1 + c.rng.IntN(4) {
		if ctx.Err() != nil || !s.live(ctx) {
			return
		}
	}
	s.end(ctx)
}

// hangUp closes the connection, which ends a session bound to it. A broken connection may already have ended it.
func (s *lockSession) hangUp() {
	if s.connection && s.conn.Broken() {
		s.closing(s.heard)
	} else if s.connection {
		s.closing(s.c.o.Recorder.Now())
	}
	s.conn.close()
}

func (s *lockSession) count(r result) result {
	if r.outcome == history.Info {
		s.w.keys.Unknown(s.slot)
	}
	return r
}

func (s *lockSession) extendBelief(asked time.Time) {
	s.until = asked.Add(time.Duration(s.lease) * time.Millisecond)
}

// open opens the session on a new connection.
func (s *lockSession) open(ctx context.Context) bool {
	l, err := s.c.freshLockConn(ctx)
	if err != nil {
		s.c.moved = true
		return false
	}
	s.conn = l
	words := []string{"SESSION.OPEN", "PX", decimal(s.lease)}
	if s.connection {
		words = append(words, "CONNECTION")
	}
	asked := time.Now()
	s.opened = s.c.o.Recorder.Now()
	r := l.Do(words...)
	if r.Outcome != history.OK || r.Value.Kind != protocol.KindInteger {
		l.Close()
		return false
	}
	s.id, s.heard = r.Value.Num, s.c.o.Recorder.Now()
	s.extendBelief(asked)
	return true
}

// acquire acquires the lock in the session.
func (s *lockSession) acquire(ctx context.Context) bool {
	left := time.Until(s.until).Milliseconds()
	if left <= 0 {
		return false
	}
	a := ask{
		keys: []string{s.key}, owner: s.owner, ttl: left, session: s.id, wait: checker.NoWait,
		notify: s.c.chance(0.3),
	}
	if s.c.chance(0.8) {
		a.wait = min(1500, s.lease)
	}
	if s.c.chance(0.3) {
		a.delay = 200
	}
	r := s.count(s.c.lockOp(s.conn, []history.Op{a.op(s.key)}, func() result { return a.acquire(ctx, s.conn) }))
	if r.outcome != history.OK || r.output[0] != 1 {
		return false
	}
	s.fence, s.heard = r.output[1], s.c.o.Recorder.Now()
	return true
}

func (s *lockSession) isLost() bool { return s.conn.lost[party(s.key, s.owner)] == s.fence }

// live performs a random action of a session, and reports whether the session continues.
func (s *lockSession) live(ctx context.Context) bool {
	d := s.c.between(0, time.Duration(s.lease)*time.Millisecond/3)
	if s.connection && s.c.chance(0.2) {
		d = 2 * time.Duration(s.lease) * time.Millisecond // only the node renews it
	}
	if !s.conn.Listen(d, s.isLost) {
		return s.connection && s.move(ctx)
	}
	if s.isLost() {
		return false
	}
	if s.connection && s.c.chance(0.2) {
		return s.move(ctx)
	}
	if s.connection && s.c.chance(0.5) {
		return s.check()
	}
	return s.keepAlive()
}

// keepAlive renews the session, and with it the hold.
func (s *lockSession) keepAlive() bool {
	asked := time.Now()
	o := history.Op{F: "extend", Key: s.key, Input: []int64{s.owner, s.lease}}
	r := s.count(s.c.lockOp(s.conn, []history.Op{o}, func() result {
		return onLock(s.conn.Do("SESSION.KEEPALIVE", decimal(s.id)), func(protocol.Value) []int64 {
			return []int64{1, s.fence}
		})
	}))
	return s.answered(r, asked, true)
}

// check checks that the hold exists.
func (s *lockSession) check() bool {
	o := history.Op{F: "check", Key: s.key, Input: []int64{s.owner}}
	r := s.count(s.c.lockOp(s.conn, []history.Op{o}, func() result {
		return onLock(s.conn.Do("LOCK.CHECK", s.key, ownerToken(s.owner)), oneAnd)
	}))
	return s.answered(r, time.Time{}, false)
}

// answered handles a reply, yes or no. A no is also pushed, and must not come while the connection is open and the node
// serves.
func (s *lockSession) answered(r result, asked time.Time, renews bool) bool {
	if r.outcome != history.OK {
		return false
	}
	s.heard = s.c.o.Recorder.Now()
	if r.output[0] == 1 {
		if renews {
			s.extendBelief(asked)
		}
		return true
	}
	input := []int64{s.owner, s.fence, s.opened}
	if s.conn.Listen(noticeLimit, s.isLost) && !s.isLost() {
		s.c.invoke(noticeSlot, history.Op{F: "untold", Key: s.key, Input: input}).OK()
	}
	if s.connection && !s.conn.Broken() {
		s.c.invoke(noticeSlot, history.Op{F: "unkept", Key: s.key, Input: input}).OK()
	}
	return false
}

// move moves the session to another connection, and closes the previous one.
func (s *lockSession) move(ctx context.Context) bool {
	if s.conn.Broken() {
		s.closing(s.heard)
	}
	nodes := s.c.o.Service.Nodes()
	s.c.node = nodes[s.c.rng.IntN(len(nodes))]
	l, err := s.c.freshLockConn(ctx)
	if err != nil {
		s.c.moved = true
		return false
	}
	asked := s.c.o.Recorder.Now()
	r := l.Do("SESSION.ATTACH", decimal(s.id))
	if r.Outcome != history.OK || r.Value.Num != 1 {
		if r.Outcome == history.Info {
			s.closing(asked) // the session is bound to one of the two
		}
		l.Close()
		return false
	}
	s.conn.Close()
	s.conn = l
	s.opened, s.heard = asked, s.c.o.Recorder.Now()
	return s.check()
}

// closing records that the hold's session or connection may have ended at any time since start.
func (s *lockSession) closing(start int64) {
	o := history.Op{F: "close", Key: s.key, Input: []int64{s.owner}}
	s.c.o.Recorder.Since(s.c.worker*maxPipe+closeSlot, o, max(start, s.closed))
	s.closed = s.c.o.Recorder.Now()
}

// closeSlot is the slot of a pipeline under which ends of sessions are recorded.
const closeSlot = noticeSlot - 1

// end ends the session: gracefully, with the connection (which Step closes), or by silence.
func (s *lockSession) end(ctx context.Context) {
	switch s.c.rng.IntN(4) {
	case 0:
		o := history.Op{F: "release", Key: s.key, Input: []int64{s.owner, 0}}
		s.count(s.c.lockOp(s.conn, []history.Op{o}, func() result {
			return onLock(s.conn.Do("LOCK.RELEASE", s.key, ownerToken(s.owner)), oneAnd)
		}))
		s.conn.Do("SESSION.CLOSE", decimal(s.id))
	case 1:
		s.closing(s.c.o.Recorder.Now())
		s.conn.Do("SESSION.CLOSE", decimal(s.id))
	case 2:
		// Frozen: only the node renews the session.
		if Sleep(ctx, 2*time.Duration(s.lease)*time.Millisecond) {
			s.check()
		}
	}
}

// Final waits until all sessions have ended.
func (w *nativeSession) Final(ctx context.Context, c *Client) { finalLeft(ctx, c, w.o.name) }
