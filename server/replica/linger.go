package replica

import (
	"time"

	"github.com/holdfast/holdfast/protocol"
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
	// own and others are how far was looked at this node's batches and at those of other nodes.
	own    uint64
	others int
	wanted []wantedKey
}

// wantedKey is a key that a poll wants to take.
type wantedKey struct {
	db  int
	key string
}

// mostRefusals is how many batches wait at most.
const mostRefusals = 256

func newLinger(most time.Duration, wake chan<- struct{}) linger {
	late := time.AfterFunc(time.Hour, func() { notify(wake) })
	late.Stop()
	return linger{most: most, late: late}
}

// land is told that nothing of l is on its way.
func (g *linger) land(l *lead) {
	if g.lead != l {
		*g = linger{most: g.most, late: g.late, lead: l}
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
func (p *proposer) onlyRefusals(from, until uint64, others int, nowMillis int64) bool {
	g, known := &p.linger, 0
	if g.most <= 0 || until-from+uint64(others) > mostRefusals {
		return false
	}
	if g.holds {
		from, known = max(from, g.own), g.others
	}
	// The first of them says no, mostly: so it begins with few.
	for n := uint64(1); from < until; n *= 2 {
		to := min(until, from+n)
		if !g.refused(p.r, nowMillis, func(see func([]byte) bool) { p.r.writes.look(g.lead, from, to, see) }) {
			return false
		}
		from = to
	}
	for n := 1; known < others; n *= 2 {
		to := min(others, known+n)
		if !g.refused(p.r, nowMillis, func(see func([]byte) bool) { p.r.inbox.look(g.lead.term, known, to, see) }) {
			return false
		}
		known = to
	}
	g.own, g.others = until, others
	return true
}

// refused reports whether all batches that look shows want keys that somebody has.
func (g *linger) refused(r *Replica, nowMillis int64, look func(see func(body []byte) bool)) bool {
	polls := true
	look(func(body []byte) bool {
		var w wantedKey
		var key []byte
		if w.db, key, polls = protocol.SetNXKey(body); polls {
			w.key = string(key)
			g.wanted = append(g.wanted, w)
		}
		return polls
	})
	for i := 0; polls && i < len(g.wanted); i++ {
		polls = r.machine.Has(g.wanted[i].db, g.wanted[i].key, nowMillis)
	}
	clear(g.wanted)
	g.wanted = g.wanted[:0]
	return polls
}
