package replica

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// refusalDelay holds back entries of refusals alone, for a moment. A command that would only stand in line
// counts as a refusal.
//
// A poll for a held lock is a command that changes nothing, and an entry of such polls costs as
// much as any other entry. On a contended lock a refused SET NX is usually in flight when the
// release arrives, so the release waits for two entries. So it is with clients that come back to the line of a
// lock: each asks again right after its release, and the next holder's release arrives a moment later. Therefore,
// for a moment after a useful entry, such commands wait for the next useful batch. Without useful batches they
// do not wait. Kafka's linger.ms and PostgreSQL's commit_delay hold back all writes; this delay
// holds back commands that are in no hurry.
type refusalDelay struct {
	// isNoop asks the state machine about the request in a body: see [fsm.Machine.IsNoop].
	isNoop func(body string, nowMillis int64) bool
	most   time.Duration // after an entry that was of use; a timer may be late. Not above 0: no time
	late   *time.Timer   // wakes the proposer when that time is over

	term *leaderTerm // whose batches these are
	// useful: the entry that is in flight, or has just landed, has more than refusals.
	useful bool
	landed time.Time // when the last useful entry landed
	holds  bool      // late is set
	looked [2]uint64 // how far each source was looked at
	// bodies are the batches under examination; others is set when there was a batch that is surely of use.
	bodies []string
	others bool
	see    func(*forward.Batch) bool
}

const (
	// mostRefusals is how many batches wait at most.
	mostRefusals = 256
	// maxRefusalBytes is the size of a body above which it is not looked at.
	maxRefusalBytes = 4 << 10
)

func newRefusalDelay(
	isNoop func(body string, nowMillis int64) bool, most time.Duration, wake chan<- struct{},
) *refusalDelay {
	d := &refusalDelay{isNoop: isNoop, most: most, late: time.AfterFunc(time.Hour, func() { notify(wake) })}
	d.late.Stop()
	d.see = d.note // made once: each use of a method as a value would allocate
	return d
}

// land is called when no entry of l is in flight.
func (d *refusalDelay) land(l *leaderTerm) {
	if d.term != l {
		*d = refusalDelay{isNoop: d.isNoop, most: d.most, late: d.late, see: d.see, term: l}
	}
	if d.useful {
		d.useful, d.landed = false, time.Now()
	}
}

// left is how long refusals alone are still held back.
func (d *refusalDelay) left() time.Duration { return d.most - time.Since(d.landed) }

// hold has the proposer woken when the time is over.
func (d *refusalDelay) hold() {
	if !d.holds {
		d.holds = true
		d.late.Reset(d.left())
	}
}

// propose is told that an entry is proposed.
func (d *refusalDelay) propose(useful bool) {
	d.useful = useful
	if d.holds {
		d.holds = false
		d.late.Stop()
	}
}

// onlyRefusals reports whether every waiting batch would be refused, or would only stand in line. The answer is a
// guess: the state at the time when the entry is applied decides. A key that is held stays held, unless
// it expires, until an entry is proposed. So while batches are held back only new batches are examined.
func (d *refusalDelay) onlyRefusals(sources *[2]source, waiting *[2]forward.Span, nowMillis int64) bool {
	count := uint64(0)
	for _, w := range waiting {
		count += w.Until - w.From
	}
	if d.most <= 0 || count > mostRefusals {
		return false
	}
	for i, source := range sources {
		from, until := waiting[i].From, waiting[i].Until
		if d.holds {
			from = max(from, d.looked[i])
		}
		// Mostly an early batch says no: so the search begins with few batches.
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

// note sees a batch.
func (d *refusalDelay) note(b *forward.Batch) bool {
	if b.Hints&(protocol.CreateIfAbsent|protocol.MayWait) == 0 || len(b.Body) > maxRefusalBytes {
		d.others = true
		return false
	}
	d.bodies = append(d.bodies, string(b.Body))
	return true
}

// refused reports whether every batch that was seen would be refused, or would only stand in line.
func (d *refusalDelay) refused(nowMillis int64) bool {
	defer clear(d.bodies)
	return !d.others && !slices.ContainsFunc(d.bodies, func(body string) bool { return !d.isNoop(body, nowMillis) })
}
