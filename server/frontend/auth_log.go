package frontend

import (
	"sync"
	"time"
)

// failedAuth logs who gave a wrong password, and from where. Somebody who guesses must not fill the log: there is a
// line a second at most, and it says how many attempts had none.
type failedAuth struct {
	mu     sync.Mutex
	last   time.Time
	silent int
}

// mostOfUser is how much of a user's name is logged.
const mostOfUser = 64

// noteFailedAuth counts a wrong user or password, and logs it.
func (c *conn) noteFailedAuth(user []byte) {
	s := c.srv
	s.stats.refused.Add(1)
	silent, ok := s.failedAuth.admit(time.Now())
	if !ok {
		return
	}
	s.cfg.Logger.Warn("authentication failed", "client", c.nc.RemoteAddr().String(), "id", c.id,
		"user", string(user[:min(len(user), mostOfUser)]), "not_logged_before", silent)
}

// admit reports whether there may be a line now, and how many attempts had none since the last.
func (f *failedAuth) admit(now time.Time) (silent int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.last.IsZero() && now.Sub(f.last) < time.Second {
		f.silent++
		return 0, false
	}
	silent, f.silent, f.last = f.silent, 0, now
	return silent, true
}
