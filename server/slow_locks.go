package server

import (
	"cmp"
	"time"

	"github.com/holdfast/holdfast/server/loglimit"
	"github.com/holdfast/holdfast/server/replica"
)

// newSlowLocks limits the lines about locks that clients of this node held for most of their lease, or waited for
// long: five at once, and five a second.
func newSlowLocks() *loglimit.Limit {
	return &loglimit.Limit{Burst: slowLines, Every: time.Second / slowLines}
}

const slowLines = 5

func (s *Server) logSlowLock(e replica.LockSlow) {
	silent, ok := s.slowLocks.Admit(time.Now())
	if !ok {
		return
	}
	attrs := []any{"key", shortened(e.Key), "db", e.DB, "owner", shortened(e.Owner), "id", e.Conn}
	if e.Fence != 0 {
		attrs = append(attrs, "fence", e.Fence)
	}
	if e.Session != 0 {
		attrs = append(attrs, "session", e.Session)
	}
	if silent > 0 {
		attrs = append(attrs, "not_logged", silent)
	}
	if e.HeldMillis == 0 && e.WaitedMillis > 0 {
		s.logger.Warn("waited long for a lock", append(attrs, "waited", millis(e.WaitedMillis), "outcome",
			cmp.Or(e.Reason, "granted"))...)
		return
	}
	attrs = append(attrs, "held", millis(e.HeldMillis), "unrenewed", millis(e.SinceRenewedMillis), "lease",
		millis(e.LeaseMillis))
	if e.SinceRenewedMillis >= e.LeaseMillis {
		attrs = append(attrs, "lost", "expired")
	}
	s.logger.Warn("a lock was held for more than four fifths of its lease", attrs...)
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// shortened is the beginning of a word that a client made.
func shortened(s string) string {
	const most = 128
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
