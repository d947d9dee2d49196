package replica

import (
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// company decides whether polls that are going to be refused wait for an entry of others.
//
// An entry of refusals alone changes nothing, and costs as much as any. Where a lock is
// handed from one to the next, it is on its way whenever a release comes, which
// then waits for two entries. So for a moment after an entry that was of use such polls wait
// for the next that is. Where nothing of use happens they do not wait.
type company struct {
	within time.Duration // how long they wait, from the last entry that was of use; timers may be late
	late   *time.Timer   // wakes the proposer when the waiting is over
	// useful: the entry that was proposed last had more than refusals. landed is when one that had was applied.
	useful bool
	landed time.Time
	waits  bool // late is set
}

// mostRefusals is how many polls wait at most.
const mostRefusals = 256

func newCompany(within time.Duration, wake chan<- struct{}) company {
	late := time.AfterFunc(time.Hour, func() { notify(wake) })
	late.Stop()
	return company{within: within, late: late}
}

// comes reports whether what waits is to wait for company. It is asked before each
// entry; refusals says whether the entry would change nothing.
func (c *company) comes(refusals bool) bool {
	now := time.Now()
	if c.useful {
		c.useful, c.landed = false, now
	}
	if left := c.within - now.Sub(c.landed); refusals && left > 0 {
		if !c.waits {
			c.waits = true
			c.late.Reset(left)
		}
		return true
	}
	if c.waits {
		c.waits = false
		c.late.Stop()
	}
	c.useful = !refusals
	return false
}

// onlyRefusals reports whether all that waits wants keys that somebody has. It is a
// guess: what is true when the entry is applied decides.
func (p *proposer) onlyRefusals(l *lead, until uint64, others int, nowMillis int64) bool {
	var wanted [mostRefusals]struct {
		db  int
		key string
	}
	n := 0
	only := true
	look := func(body []byte) bool {
		db, key, ok := protocol.Acquires(body)
		if only = ok && n < len(wanted); only {
			wanted[n].db, wanted[n].key = db, string(key)
			n++
		}
		return only
	}
	p.r.writes.look(l, until, look)
	if only {
		p.r.inbox.look(l.term, others, look)
	}
	for i := 0; only && i < n; i++ {
		only = p.r.machine.Has(wanted[i].db, wanted[i].key, nowMillis)
	}
	return only && n > 0
}
