// Package loglimit keeps the lines of a log few where others cause them: guesses of passwords and scans of ports must
// not fill a disk.
package loglimit

import (
	"sync"
	"time"
)

// Limit lets through Burst lines at once, and then one each time Every has passed. It is safe for many goroutines.
type Limit struct {
	Burst int
	Every time.Duration

	mu     sync.Mutex
	empty  time.Time // when the lines of before will count no more
	silent int
}

// Admit reports whether there may be a line now, and if so how many there were not since the last.
func (l *Limit) Admit(now time.Time) (silent int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.empty.Before(now) {
		l.empty = now
	}
	if l.empty.Sub(now) > time.Duration(l.Burst-1)*l.Every {
		l.silent++
		return 0, false
	}
	l.empty = l.empty.Add(l.Every)
	silent, l.silent = l.silent, 0
	return silent, true
}
