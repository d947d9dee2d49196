package sessions

import (
	"time"
)

// whySilent is the reason in the log.
const whySilent = "its client was silent for a session's lease"

func checkedBefore(a, b *client) bool {
	if !a.checkAt.Equal(b.checkAt) {
		return a.checkAt.Before(b.checkAt)
	}
	return a.id < b.id
}

// Demand sets whether the client of a connection must send something within the shortest lease of its sessions. A
// silent client's connection is closed, and its sessions end once their longest lease has passed since the client was
// last heard.
func (r *Renewer) Demand(conn int64, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clients[conn]
	if c == nil || c.cut {
		return
	}
	c.demanded = yes
	if limit, some := c.silenceLimit(); some && yes {
		r.expectSign(c, limit)
		wake(r.wakeCutter)
	}
}

// expectSign schedules a check of a client that has a session of that lease, if [Renewer.Demand] was called. The caller
// holds r.mu.
func (r *Renewer) expectSign(c *client, lease time.Duration) {
	if !c.demanded {
		return
	}
	if at := c.to.Heard().Add(lease); c.checkAt.IsZero() || at.Before(c.checkAt) {
		r.scheduleCheck(c, at)
	}
}

// scheduleCheck sets the time of the next check of a client, or none for the zero time. The caller holds r.mu.
func (r *Renewer) scheduleCheck(c *client, at time.Time) {
	if !c.checkAt.IsZero() {
		r.silent.Delete(c)
	}
	if c.checkAt = at; !at.IsZero() {
		r.silent.Set(c)
	}
}

// silenceLimit returns how long the client may be silent: the shortest lease of its sessions, if it has any.
func (c *client) silenceLimit() (limit time.Duration, some bool) {
	for _, s := range c.sessions { // unordered: a minimum
		if !some || s.lease < limit {
			limit, some = s.lease, true
		}
	}
	return limit, some
}

// cutSilent closes connections whose clients were silent for too long, and returns the time until the next check. A
// client is checked once per lease, whatever it sends.
func (r *Renewer) cutSilent(now time.Time) (sleep time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		c, some := r.silent.Min()
		if !some {
			return noDeadline
		}
		if left := c.checkAt.Sub(now); left > 0 {
			return left
		}
		limit, some := c.silenceLimit()
		heard := c.to.Heard()
		switch late := now.Sub(c.checkAt); {
		case !some || !c.demanded:
			r.scheduleCheck(c, time.Time{})
		case now.Sub(heard) < limit:
			r.scheduleCheck(c, heard.Add(limit))
		case late > limit/8:
			// This node was suspended: the clients' messages may not have been read yet.
			r.scheduleCheck(c, now.Add(limit/8))
		default:
			r.abandonSessions(c, now.Sub(heard))
			c.to.Cut(whySilent)
		}
	}
}
