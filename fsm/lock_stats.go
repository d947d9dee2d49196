package fsm

import (
	"math/bits"
)

// LockStats are numbers about native locks.
type LockStats struct {
	// Locks, Holds, Waiting and Sessions are how many there are, and Bytes what they count for.
	Locks, Holds, Waiting, Sessions int
	Bytes                           int64
	// Stock are the keys with the mark of a stock lock.
	Stock int
	LockCounts
}

// LockCounts count what clients of all nodes did, since the start of this node.
type LockCounts struct {
	// Grants are new holds. Refusals are requests that were answered nil at once, Timeouts waits that ended by
	// time.
	Grants, Refusals, Timeouts uint64
	// Lost… count the losses by reason.
	LostExpired, LostSession, LostBroken, LostFlushed uint64
	// Breaks counts LOCK.BREAK that broke a hold, and FencesRefused the fences that did not pass.
	Breaks, FencesRefused uint64
	// Waited is the time that granted requests waited, if they did, and Held the time that ended holds were
	// held.
	Waited, Held LockTimes
}

// LockTimes counts durations in doubling steps.
type LockTimes struct {
	Count     uint64
	SumMillis uint64
	// Steps count the durations below 1 ms, 2 ms, 4 ms and so on; the last has all that are longer.
	Steps [32]uint64
}

func (t *LockTimes) add(millis int64) {
	n := uint64(max(0, millis))
	t.Count++
	t.SumMillis += n
	t.Steps[min(bits.Len64(n), len(t.Steps)-1)]++
}
