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
	// own and others are how far was looked at this node's units and at those of other nodes.
	own    uint64
	others int
	wanted []wantedKey
}

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

// wantedKey is a key that a poll wants to take.
type wantedKey struct {
	db  int
	key string
}

// onlyRefusals reports whether all that waits wants keys that somebody has. It is a
// guess: what is true when the entry is applied decides. While polls wait nothing is on its
// way that could change what was found, so it looks at those alone that have come since.
func (p *proposer) onlyRefusals(l *lead, from, until uint64, others int, nowMillis int64) bool {
	c, known := &p.company, 0
	if c.waits {
		from, known = max(from, c.own), c.others
	}
	only := true
	c.wanted = c.wanted[:0]
	look := func(body []byte) bool {
		db, key, ok := protocol.Acquires(body)
		if only = ok; ok {
			c.wanted = append(c.wanted, wantedKey{db, string(key)})
		}
		return ok
	}
	p.r.writes.look(l, from, until, look)
	if only {
		p.r.inbox.look(l.term, known, others, look)
	}
	for i := 0; only && i < len(c.wanted); i++ {
		only = p.r.machine.Has(c.wanted[i].db, c.wanted[i].key, nowMillis)
	}
	c.own, c.others = until, others
	return only
}
