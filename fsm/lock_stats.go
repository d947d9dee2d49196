package fsm

// LockStats are numbers about native locks.
type LockStats struct {
	// Locks, Holds, Waiting and Sessions are how many there are.
	Locks, Holds, Waiting, Sessions int
	LockCounts
}

// LockCounts count what clients of all nodes did, since the start of this node.
type LockCounts struct {
	// Grants are new holds. Refusals are requests that were answered nil at once, Timeouts waits that ended
	// without a grant.
	Grants, Refusals, Timeouts uint64
	// Lost counts the losses by reason.
	LostExpired, LostSession, LostBroken, LostFlushed uint64
	// Breaks counts LOCK.BREAK, and FencesRefused the fences that did not pass.
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

// LockStats counts the locks.
func (m *Machine) LockStats() LockStats {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return LockStats{}
}

// KeptSessions calls f with the sessions that live with connections of this node: see [Machine.SeedReads].
func (m *Machine) KeptSessions(f func(conn int64, session uint64, leaseMillis int64)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
}
