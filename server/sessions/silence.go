package sessions

import (
	"time"

	"github.com/holdfast/holdfast/protocol/mutant"
)

// whySilent is logged with the connection.
const whySilent = "its client was silent for a session's lease"

func looksBefore(a, b *client) bool {
	if !a.look.Equal(b.look) {
		return a.look.Before(b.look)
	}
	return a.id < b.id
}

// Demand says whether the client of a connection has to send something within the shortest lease of its sessions. Else
// the connection is cut, and the sessions have what is left of their longest lease since the client was heard.
func (k *Keeper) Demand(conn int64, yes bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.clients[conn]
	if c == nil || c.cut {
		return
	}
	c.demanded = yes
	if limit, some := c.allowed(); some && yes {
		k.awaitSign(c, limit)
		wake(k.wakeCutter)
	}
}

// awaitSign has a client with a session of that lease be looked at in time, if signs of life are demanded. The caller
// holds k.mu.
func (k *Keeper) awaitSign(c *client, lease time.Duration) {
	if !c.demanded {
		return
	}
	if at := c.to.Heard().Add(lease); c.look.IsZero() || at.Before(c.look) {
		k.lookAt(c, at)
	}
}

// lookAt has a client be looked at then; the zero time: not at all. The caller holds k.mu.
func (k *Keeper) lookAt(c *client, at time.Time) {
	if !c.look.IsZero() {
		k.silent.Delete(c)
	}
	if c.look = at; !at.IsZero() {
		k.silent.Set(c)
	}
}

// allowed is how long the client may be silent: the shortest lease of the sessions that the log has told of, if any.
func (c *client) allowed() (limit time.Duration, some bool) {
	for _, s := range c.sessions { // unordered: the least
		if !some || s.lease < limit {
			limit, some = s.lease, true
		}
	}
	return limit, some
}

// cutSilent cuts the connections whose clients were silent for too long, and returns how long none will be. A client is
// looked at once in its lease, whatever it sends.
func (k *Keeper) cutSilent(now time.Time) (sleep time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		c, some := k.silent.Min()
		if !some {
			return forever
		}
		if left := c.look.Sub(now); left > 0 {
			return left
		}
		limit, some := c.allowed()
		heard := c.to.Heard()
		switch late := now.Sub(c.look); {
		case !some || !c.demanded:
			k.lookAt(c, time.Time{})
		case mutant.LockSilent:
			k.lookAt(c, now.Add(limit))
		case now.Sub(heard) < limit:
			k.lookAt(c, heard.Add(limit))
		case late > limit/8:
			// This node slept: what clients have sent meanwhile may not be read yet.
			k.lookAt(c, now.Add(limit/8))
		default:
			k.abandon(c, now.Sub(heard))
			c.to.Cut(whySilent)
		}
	}
}
