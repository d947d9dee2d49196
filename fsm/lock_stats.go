package fsm

import (
	"math/bits"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
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
		rows, next := m.st.Locks.Sessions(cursor, maxListed, now)
		for i := range rows {
			if s := &rows[i]; s.Connection && s.Client.Origin == m.call.own {
				f(s.Client.Conn, s.ID, s.LeaseMillis)
			}
		}
		if next == 0 {
			return
		}
		cursor = next
	}
}

// lostBetween are events for the holds of this node's clients that before has and after has not: the node
// skipped the entries that say why they ended.
func lostBetween(before, after *state, own protocol.Origin) (events []event.Event) {
	known := after.history.byFence()
	for db := range before.Databases {
		if !before.Locks.Any(db) {
			continue
		}
		q := locks.Query{DB: db, Count: maxListed, Most: locks.MaxHolders, Held: true}
		for {
			rows, next, _ := before.Locks.List(&q, before.ClockMillis)
			for i := range rows {
				for _, h := range rows[i].Holds {
					if h.Client.Origin != own || h.Client.Conn == 0 || after.Locks.Check(db, rows[i].Key, h.Owner,
						after.ClockMillis) == h.Fence {
						continue
					}
					lost := &event.LockNews{
						Owner: h.Owner, Fence: int64(h.Fence), Reason: "unknown", Conn: h.Client.Conn,
						Session: h.Session,
					}
					if loss := known[h.Fence]; loss != nil && loss.db == db && loss.key == shortText(rows[i].Key, mostOfLostKey) {
						lost.Reason = loss.reason.String()
						if cause := after.history.kinds[nativeLocks].cause(loss.cause); cause != nil {
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
