package metrics

import (
	"fmt"
	"strings"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
)

func moduleLines(*report) []string {
	return []string{fmt.Sprintf("module:name=%s,ver=%d,api=1,filters=0,usedby=[],using=[],options=[]",
		protocol.ModuleName, protocol.ModuleVersion)}
}

// locks returns the statistics of the locks.
func (r *report) locks() *fsm.LockStats {
	if r.lockStats == nil {
		s := r.cfg.Backend.LockStats()
		r.lockStats = &s
	}
	return r.lockStats
}

// lockMetrics returns the rows about native locks. Except for those about this node's clients, they are the same on all
// nodes that were started at the same time.
func lockMetrics() []metric {
	of := func(name string, kind kind, help string, value func(*fsm.LockStats) any) metric {
		return metric{name: name, kind: kind, help: help, value: func(r *report) any { return value(r.locks()) }}
	}
	return []metric{
		of("lock_keys", gauge, "locks: somebody holds them, waits for them, or their delay runs",
			func(s *fsm.LockStats) any { return s.Locks }),
		of("lock_stock_keys", gauge,
			"keys that clients have taken as locks by Redis's own commands, with those that have no time to live yet",
			func(s *fsm.LockStats) any { return s.Stock }),
		of("lock_holds", gauge, "holds; a lock that is shared or counted has several", func(s *fsm.LockStats) any {
			return s.Holds
		}),
		of("lock_waiters", gauge, "requests that wait in line", func(s *fsm.LockStats) any { return s.Waiting }),
		of("lock_sessions", gauge, "sessions", func(s *fsm.LockStats) any { return s.Sessions }),
		{
			name: "lock_sessions_kept", kind: gauge, value: func(r *report) any { return r.cfg.Backend.Clients().Renewer.Len() },
			help: "sessions that live with connections of this node",
		},
		of("lock_grants", counter,
			"holds that were granted to clients of all nodes, since this node's start, as in the lines below; CONFIG "+
				"RESETSTAT leaves them", func(s *fsm.LockStats) any { return s.Grants }),
		of("lock_refusals", counter, "requests that did not wait and were not granted", func(s *fsm.LockStats) any {
			return s.Refusals
		}),
		of("lock_wait_timeouts", counter, "waits that ended by time, without a grant; each slice of a wait is one",
			func(s *fsm.LockStats) any { return s.Timeouts }),
		of("lock_lost_expired", counter, "holds that were lost since their lease was over", func(s *fsm.LockStats) any {
			return s.LostExpired
		}),
		of("lock_lost_session", counter, "holds that were lost with their session", func(s *fsm.LockStats) any {
			return s.LostSession
		}),
		of("lock_lost_broken", counter, "holds that were lost by LOCK.BREAK or DEL", func(s *fsm.LockStats) any {
			return s.LostBroken
		}),
		of("lock_lost_flushed", counter, "holds that were lost by FLUSHDB or FLUSHALL", func(s *fsm.LockStats) any {
			return s.LostFlushed
		}),
		of("lock_breaks", counter, "calls of LOCK.BREAK that broke a hold", func(s *fsm.LockStats) any { return s.Breaks }),
		of("lock_fences_refused", counter, "fences that were stale at FENCE.PASS", func(s *fsm.LockStats) any {
			return s.FencesRefused
		}),
		{
			name: "lock_clients_cut", kind: counter, value: func(r *report) any { return r.cfg.Backend.Clients().Renewer.Cuts() },
			help: "connections of this node that were closed since their sessions could not be renewed in time; CONFIG " +
				"RESETSTAT leaves it",
		},
		lockTimes("lock_waited",
			"how long granted requests had waited, if they had to; a wait without a grant is not among them",
			func(s *fsm.LockStats) *fsm.LockTimes { return &s.Waited }),
		lockTimes("lock_held", "how long holds lasted that have ended", func(s *fsm.LockStats) *fsm.LockTimes {
			return &s.Held
		}),
	}
}

// lockTimes returns a row with a histogram.
func lockTimes(name, help string, of func(*fsm.LockStats) *fsm.LockTimes) metric {
	return metric{
		name: name, kind: counter, help: help +
			": how many, the sum in milliseconds, and how many were below 1 ms, 2 ms, 4 ms and so on; the last number is all " +
			"that is longer, too",
		lines: func(r *report) []string { return []string{name + ":" + showTimes(of(r.locks()))} },
	}
}

func showTimes(t *fsm.LockTimes) string {
	var b strings.Builder
	fmt.Fprintf(&b, "count=%d,sum_msec=%d", t.Count, t.SumMillis)
	below := uint64(0)
	for i, n := range t.Steps {
		if below += n; below > 0 {
			fmt.Fprintf(&b, ",lt_%d=%d", uint64(1)<<i, below)
		}
		if below == t.Count {
			break
		}
	}
	return b.String()
}
