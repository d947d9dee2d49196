package replica

import (
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// linger holds back entries of refusals alone, for a moment.
//
// A poll for a lock that somebody has is an entry that changes nothing and costs as much as
// any. Where a lock goes from one to the next such an entry is on its way whenever a release comes,
// which then waits for two. So for a moment after an entry that was of use, polls that are going to be
// refused wait for the next batch that is. Where nothing of use happens they do not wait.
// The name is Kafka's (linger.ms); PostgreSQL's commit_delay waits for the same reason.
type linger struct {
	most time.Duration // after an entry that was of use; a timer may be late. Not above 0: no time
	late *time.Timer   // wakes the proposer when that time is over

	lead *lead // whose batches these are
	// useful: the entry that is on its way, or has just landed, has more than refusals.
	useful bool
	landed time.Time // when the last useful one did
	holds  bool      // late is set
	// looked is how far each source was looked at.
	looked [2]uint64
	// wanted are the keys of polls that are looked at, polls whether there was nothing else.
	wanted []wantedKey
	polls  bool
	see    func(*forward.Batch) bool
}

// wantedKey is a key that a poll wants to take.
type wantedKey struct {
	db  int
	key string
}

// mostRefusals is how many batches wait at most.
const mostRefusals = 256

func newLinger(most time.Duration, wake chan<- struct{}) *linger {
	g := &linger{most: most, late: time.AfterFunc(time.Hour, func() { notify(wake) })}
	g.late.Stop()
	g.see = g.note // made once: each use of a method as a value would allocate
	return g
}

// land is told that nothing of l is on its way.
func (g *linger) land(l *lead) {
	if g.lead != l {
		*g = linger{most: g.most, late: g.late, see: g.see, lead: l}
	}
	if g.useful {
		g.useful, g.landed = false, time.Now()
	}
}

// left is how long refusals alone are still held back.
func (g *linger) left() time.Duration { return g.most - time.Since(g.landed) }

// hold has the proposer woken when the time is over.
func (g *linger) hold() {
	if !g.holds {
		g.holds = true
		g.late.Reset(g.left())
	}
}

// propose is told that an entry is proposed.
func (g *linger) propose(useful bool) {
	g.useful = useful
	if g.holds {
		g.holds = false
		g.late.Stop()
	}
}

// onlyRefusals reports whether all that waits wants keys that somebody has. It is a
// guess, and what is true when the entry is applied decides. Who was found to have a key has it, but
// for its deadline, until an entry is proposed: so while batches are held back it looks
// at those alone that have come since.
func (p *proposer) onlyRefusals(nowMillis int64) bool {
	g, count := p.linger, uint64(0)
	for _, w := range p.waiting {
		count += w.until - w.from
	}
	if g.most <= 0 || count > mostRefusals {
		return false
	}
	for i, source := range p.sources {
		from, until := p.waiting[i].from, p.waiting[i].until
		if g.holds {
			from = max(from, g.looked[i])
		}
		// The first of them says no, mostly: so it begins with few.
		for n := uint64(1); from < until; n *= 2 {
			to := min(until, from+n)
			source.look(g.lead, from, to, g.begin())
			if !g.refused(p.r, nowMillis) {
				return false
			}
			from = to
		}
	}
	for i, w := range p.waiting {
		g.looked[i] = w.until
	}
	return true
}

// begin returns what is to see batches.
func (g *linger) begin() (see func(*forward.Batch) bool) {
	clear(g.wanted)
	g.wanted, g.polls = g.wanted[:0], true
	return g.see
}

// note sees a batch.
func (g *linger) note(b *forward.Batch) bool {
	var w wantedKey
	var key []byte
	if w.db, key, g.polls = protocol.SetNXKey(b.Body); g.polls {
		w.key = string(key)
		g.wanted = append(g.wanted, w)
	}
	return g.polls
}

// refused reports whether all batches that were seen want keys that somebody has.
func (g *linger) refused(r *Replica, nowMillis int64) bool {
	for i := 0; g.polls && i < len(g.wanted); i++ {
		g.polls = r.machine.Has(g.wanted[i].db, g.wanted[i].key, nowMillis)
	}
	return g.polls
}
