package server

import (
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/replica"
)

// slowLocks logs locks that clients of this node held for most of their lease, or waited for long: one line
// each, as long as there are few.
type slowLocks struct {
	mu sync.Mutex
	// second is the second of the last line, lines how many were logged in it, and silent how many were not
	// since the last line.
	second        int64
	lines, silent int
}

// slowLines is the most lines in a second.
const slowLines = 5

func (l *slowLocks) log(logger *slog.Logger, e replica.LockSlow) {
	silent, ok := l.admit(time.Now().Unix())
	if !ok {
		return
	}
	attrs := []any{"key", shortened(e.Key), "db", e.DB, "owner", shortened(e.Owner), "fence", e.Fence, "id", e.Conn}
	if silent > 0 {
		attrs = append(attrs, "not_logged", silent)
	}
	if e.HeldMillis == 0 && e.WaitedMillis > 0 {
		logger.Warn("waited long for a lock", append(attrs, "waited", millis(e.WaitedMillis))...)
		return
	}
	logger.Warn("a lock was held for more than four fifths of its lease", append(attrs, "held", millis(e.HeldMillis), "lease", millis(e.LeaseMillis))...)
}

// admit reports whether there may be a line, and how many there were not since the last.
func (l *slowLocks) admit(second int64) (silent int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if second != l.second {
		l.second, l.lines = second, 0
	}
	if l.lines >= slowLines {
		l.silent++
		return 0, false
	}
	l.lines++
	silent, l.silent = l.silent, 0
	return silent, true
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
