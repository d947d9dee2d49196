package fsm

import (
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
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
	// Hits and Misses count the keys that this node's clients looked up to read them, since the node's start.
	Hits, Misses uint64
	// UsedBytes is the size of the state that counts against the limit.
	UsedBytes int64
	// PeakBytes is the largest UsedBytes since this node's start.
	PeakBytes int64
	// Accounts has the users with quotas that have keys or waiters.
	Accounts []Account
}

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
		s.Keys[i], s.Expires[i] = d.Len(m.st.ClockMillis), d.Expires(m.st.ClockMillis)
	}
	return s
}

func (m *machine) LockStats() LockStats {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := lockStatsOf(m.st.Locks)
	s.LockCounts = m.call.locked
	for _, d := range m.st.Databases {
		s.Stock += d.Marks()
	}
	return s
}

func (m *machine) KeptSessions(f func(conn int64, session uint64, leaseMillis int64)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	now := m.st.ClockMillis
	for cursor := uint64(0); ; {
		rows, next, _ := m.st.Locks.Sessions("", cursor, maxListed, now)
		for i := range rows {
			if s := &rows[i]; s.Connection && s.Client.Origin == m.call.thisNode {
				f(s.Client.Conn, s.ID, s.LeaseMillis)
			}
		}
		if next == 0 {
			return
		}
		cursor = next
	}
}

// lostBetween returns events for the holds of this node's clients that before has and after has not. The node has
// skipped the entries with the reasons.
func lostBetween(before, after *state, own protocol.Incarnation) (events []event.Event) {
	known := after.history.byFence()
	for db := range before.Databases {
		if !before.Locks.HasLocks(db) {
			continue
		}
		q := locks.Query{DB: db, Count: maxListed, MaxRows: locks.MaxHolders, Held: true}
		for {
			rows, next, _ := before.Locks.List(&q, before.ClockMillis)
			for i := range rows {
				for _, h := range rows[i].Holds {
					if h.Client.Origin != own || h.Client.Conn == 0 || after.Locks.FenceOf(db, rows[i].Key, h.Owner,
						after.ClockMillis) == h.Fence {
						continue
					}
					lost := &event.LockNews{
						Owner: h.Owner, Fence: int64(h.Fence), Reason: "unknown", Conn: h.Client.Conn,
						Session: h.Session,
					}
					if loss := known[h.Fence]; loss != nil && loss.db == db &&
						loss.key == shortText(rows[i].Key, maxLostKeyBytes) {
						lost.Reason = loss.reason.String()
						if cause := after.history.kinds[nativeLocks].cause(loss.causeID); cause != nil {
							lost.Text, lost.By = cause.text, cause.by()
						}
					}
					events = append(events, event.Event{Kind: event.LockLost, DB: db, Key: rows[i].Key, Lock: lost})
				}
			}
			if next == 0 {
				break
			}
			q.Cursor = next
		}
	}
	return events
}
