package frontend

import (
	"time"

	"github.com/holdfast/holdfast/server/loglimit"
)

// newFailedAuth limits the lines about wrong passwords: one a second, and each says how many attempts had none.
func newFailedAuth() *loglimit.Limit { return &loglimit.Limit{Burst: 1, Every: time.Second} }

// mostOfUser is how much of a user's name is logged.
const mostOfUser = 64

// noteFailedAuth counts a wrong user or password, and logs who gave it and from where.
func (c *conn) noteFailedAuth(user []byte) {
	s := c.srv
	s.metrics.Refused.Add(1)
	silent, ok := s.failedAuth.Admit(time.Now())
	if !ok {
		return
	}
	s.cfg.Logger.Warn("authentication failed", "client", c.nc.RemoteAddr().String(), "id", c.id,
		"user", string(user[:min(len(user), mostOfUser)]), "not_logged_before", silent)
}
