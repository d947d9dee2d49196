package fsm

import (
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// Stats are numbers for INFO and for metrics.
type Stats struct {
	// Keys and Expires count, for each database, the keys and the keys with a deadline.
	Keys    [protocol.MaxDatabases]int
	Expires [protocol.MaxDatabases]int
	// Notifies are the flags of notify-keyspace-events.
	Notifies event.Classes
	// Scripts counts the cached scripts.
	Scripts int
	// Expired counts the ended keys that this node has removed since its start.
	Expired uint64
	// Hits and Misses count the keys that this node's clients looked for in order to read them, since the
	// node's start.
	Hits, Misses uint64
	// UsedBytes is the size of the state, as compared with the limit.
	UsedBytes int64
	// PeakBytes is the most that UsedBytes was since this node's start.
	PeakBytes int64
	// Accounts are the users with quotas that have something.
	Accounts []Account
}

// statsLooks is how many locks that have ended and are not worked off Stats leaves out at most: it takes time.
const statsLooks = 1 << 16

func (m *machine) Stats() Stats {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := Stats{
		Notifies: m.st.Notifies, Scripts: m.st.scripts.bySHA.Len(), Expired: m.expired, Hits: m.hits.Load(),
		Misses: m.misses.Load(),
	}
	sessions := m.st.sessions.usedBytes()
	s.UsedBytes = m.st.usedBytes() + sessions
	s.Accounts = m.st.accountsInUse()
	s.PeakBytes = max(s.UsedBytes, m.peak+sessions)
	for i, d := range m.st.Databases {
		ended, _ := m.st.Locks.Ended(i, m.st.ClockMillis, statsLooks)
		s.Keys[i], s.Expires[i] = d.Len(m.st.ClockMillis)-ended, d.Expires(m.st.ClockMillis)
	}
	return s
}
