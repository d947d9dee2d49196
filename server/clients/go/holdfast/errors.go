package holdfast

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotGranted: somebody else holds the lock, or stands in line for it.
var ErrNotGranted = errors.New("holdfast: lock not granted")

// ErrClosed: the client was closed.
var ErrClosed = errors.New("holdfast: client closed")

// RefusedError is an error that a node replied and that another try would meet again: of rights, passwords,
// certificates, a value under the lock's name, or limits.
type RefusedError struct {
	Addr string // of the node
	Text string // the reply; the first word is its kind, as NOPERM or WRONGTYPE
}

func (e *RefusedError) Error() string { return "holdfast: " + e.Addr + ": " + e.Text }

// LostError says that a lock is no longer held, or can soon no longer be proved to be.
type LostError struct {
	Lock  string
	Fence int64
	// Reason is broken, expired, session or flushed as server/LOCKS.md defines them, unknown, or a sentence.
	Reason string
	// By is the name and address of the client that broke the lock, Text the reason that it gave. Either may be empty.
	By, Text string
	// Until is the instant before which nobody else is granted the lock, when no node could be asked; zero: somebody
	// else may hold it now.
	Until time.Time
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("holdfast: lock %q lost, fence %d: %s", e.Lock, e.Fence, e.Reason)
	if e.By != "" {
		s += " by " + e.By
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}
