package replica

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// refusalDelay delays entries that have only refusals. A command that would only join a queue counts as a refusal.
//
// A poll for a held lock changes nothing, but an entry of polls costs as much as any other entry. On a contended lock,
// a refused SET NX is usually in flight when the release arrives, so the release waits for two entries. Clients that
// join the queue of a lock again right after their release have the same effect on the next holder's release. So for a
// short time after a useful entry, such commands wait for the next useful batch. Without useful batches they do not
// wait. Kafka's linger.ms and PostgreSQL's commit_delay delay all writes; this delay is only for commands that are not
// urgent.
type refusalDelay struct {
	// isNoop is [fsm.Machine.IsNoop].
	isNoop func(body string, nowMillis int64) bool
	delay  time.Duration // the time after a useful entry; disabled if it is not above 0
	late   *time.Timer   // wakes the proposer after that time

	term *leaderTerm // the leadership of these entries
	// useful is set if the entry in flight, or the last one, has more than refusals.
	useful bool
	landed time.Time // the time at which the last useful entry was applied
	holds  bool      // late is running
	looked [2]uint64 // the number up to which each source was examined
	// bodies has the batches to examine. others is set if there was a batch that is surely useful.
	bodies []string
	others bool
	see    func(*forward.Batch) bool
}

const (
	// maxRefusals bounds the batches that wait.
	maxRefusals = 256
	// maxRefusalBytes bounds the bodies that are examined.
	maxRefusalBytes = 4 << 10
)

func newRefusalDelay(
	isNoop func(body string, nowMillis int64) bool, delay time.Duration, wake chan<- struct{},
) *refusalDelay {
	d := &refusalDelay{isNoop: isNoop, delay: delay, late: time.AfterFunc(time.Hour, func() { notify(wake) })}
	d.late.Stop()
	d.see = d.note // made once, since each method value would allocate
	return d
}

// land is called when no entry of l is in flight.
func (d *refusalDelay) land(l *leaderTerm) {
	if d.term != l {
		*d = refusalDelay{isNoop: d.isNoop, delay: d.delay, late: d.late, see: d.see, term: l}
	}
	if d.useful {
		d.useful, d.landed = false, time.Now()
	}
}

// left returns how long refusals alone are still delayed.
func (d *refusalDelay) left() time.Duration { return d.delay - time.Since(d.landed) }

// hold has the proposer woken after that time.
func (d *refusalDelay) hold() {
	if !d.holds {
		d.holds = true
		d.late.Reset(d.left())
	}
}

// propose is called when an entry is proposed.
func (d *refusalDelay) propose(useful bool) {
	d.useful = useful
	if d.holds {
		d.holds = false
		d.late.Stop()
	}
}

// onlyRefusals reports whether every waiting batch would be refused, or would only join a queue. It is a guess: the
// state at which the entry is applied decides. Until an entry is proposed, a held key stays held, unless it expires. So
// during a delay it examines only new batches.
func (d *refusalDelay) onlyRefusals(sources *[2]source, waiting *[2]forward.Span, nowMillis int64) bool {
	count := uint64(0)
	for _, w := range waiting {
		count += w.Until - w.From
	}
	if d.delay <= 0 || count > maxRefusals {
		return false
	}
	for i, source := range sources {
		from, until := waiting[i].From, waiting[i].Until
		if d.holds {
			from = max(from, d.looked[i])
		}
		// The search begins with few batches, since mostly an early one is useful.
		for n := uint64(1); from < until; n *= 2 {
			to := min(until, from+n)
			d.bodies, d.others = d.bodies[:0], false
			source.scan(d.term, from, to, d.see)
			if !d.refused(nowMillis) {
				return false
			}
			from = to
		}
	}
	for i, w := range waiting {
		d.looked[i] = w.Until
	}
	return true
}

// note examines a batch.
func (d *refusalDelay) note(b *forward.Batch) bool {
	if b.Hints&(protocol.CreateIfAbsent|protocol.MayWait) == 0 || len(b.Body) > maxRefusalBytes {
		d.others = true
		return false
	}
	d.bodies = append(d.bodies, string(b.Body))
	return true
}

// refused reports whether every examined batch would be refused, or would only join a queue.
func (d *refusalDelay) refused(nowMillis int64) bool {
	defer clear(d.bodies)
	return !d.others && !slices.ContainsFunc(d.bodies, func(body string) bool { return !d.isNoop(body, nowMillis) })
}
