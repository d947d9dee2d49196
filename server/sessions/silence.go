package sessions

import (
	"time"
)

// whySilent is logged with the connection.
const whySilent = "its client was silent for a session's lease"

func checkedBefore(a, b *client) bool {
	if !a.checkAt.Equal(b.checkAt) {
		return a.checkAt.Before(b.checkAt)
	}
	return a.id < b.id
}

// Demand says whether the client of a connection has to send something within the shortest lease of its sessions. Else
// the connection is cut, and the sessions have what is left of their longest lease since the client was heard.
func (r *Renewer) Demand(conn int64, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clients[conn]
	if c == nil || c.cut {
		return
	}
	c.demanded = yes
	if limit, some := c.allowed(); some && yes {
		r.awaitSign(c, limit)
		wake(r.wakeCutter)
	}
}

// awaitSign schedules a check of a client with a session of that lease, if signs of life are demanded. The caller
// holds r.mu.
func (r *Renewer) awaitSign(c *client, lease time.Duration) {
	if !c.demanded {
		return
	}
	if at := c.to.Heard().Add(lease); c.checkAt.IsZero() || at.Before(c.checkAt) {
		r.scheduleCheck(c, at)
	}
}

// scheduleCheck sets the time of the next check of a client; the zero time: none. The caller holds r.mu.
func (r *Renewer) scheduleCheck(c *client, at time.Time) {
	if !c.checkAt.IsZero() {
		r.silent.Delete(c)
	}
	if c.checkAt = at; !at.IsZero() {
		r.silent.Set(c)
	}
}

// allowed is how long the client may be silent: the shortest lease of the sessions in the log, if any.
func (c *client) allowed() (limit time.Duration, some bool) {
	for _, s := range c.sessions { // unordered: the least
		if !some || s.lease < limit {
			limit, some = s.lease, true
		}
	}
	return limit, some
}

// cutSilent cuts the connections whose clients were silent for too long, and returns how long none will be. A client is
// checked once in its lease, whatever it sends.
func (r *Renewer) cutSilent(now time.Time) (sleep time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		c, some := r.silent.Min()
		if !some {
			return forever
		}
		if left := c.checkAt.Sub(now); left > 0 {
			return left
		}
		limit, some := c.allowed()
		heard := c.to.Heard()
		switch late := now.Sub(c.checkAt); {
		case !some || !c.demanded:
			r.scheduleCheck(c, time.Time{})
		case now.Sub(heard) < limit:
			r.scheduleCheck(c, heard.Add(limit))
		case late > limit/8:
			// This node slept: what clients have sent meanwhile may not be read yet.
			r.scheduleCheck(c, now.Add(limit/8))
		default:
			r.abandon(c, now.Sub(heard))
			c.to.Cut(whySilent)
		}
	}
}
