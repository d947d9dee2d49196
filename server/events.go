package server

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/server/audit"
	"github.com/holdfast/holdfast/server/loglimit"
	"github.com/holdfast/holdfast/server/replica"
)

// onEvent writes each event of the replica to the log. After replica.Failed the node ends.
func (s *Server) onEvent(event replica.Event) {
	s.observed.event(event)
	switch e := event.(type) {
	case replica.LeadershipGained:
		s.logger.Info("leadership gained", "term", e.Term, "took", e.Took)
	case replica.LeadershipLost:
		s.logger.Warn("leadership lost", "term", e.Term)
	case replica.LeaderChanged:
		s.logger.Info("leader changed", "leader", e.Leader, "term", e.Term)
		if e.Leader == "" {
			s.cluster.bootstrap.Suspect()
		}
	case replica.LinkUp:
		s.logger.Debug("link to leader up", "leader", e.Leader)
	case replica.LinkDown:
		s.logger.Info("link to leader down", "leader", e.Leader, "error", e.Err)
	case replica.VersionRaised:
		s.logger.Info("the cluster goes over to a newer version of the log: earlier releases cannot read it", "from", e.From,
			"to", e.To)
	case replica.ProposalStalled:
		var logs []string
		for _, m := range e.Members {
			logs = append(logs, fmt.Sprintf("%s=%d", m.Name, m.LogIndex))
		}
		s.logger.Warn("proposal stalled", "age", e.Age.Round(time.Millisecond), "commit_index", e.Committed, "last_index",
			e.LastLog, "logs", strings.Join(logs, " "))
	case replica.DiskFull:
		s.logDiskFull(e)
	case replica.LeadershipGivenUp:
		s.logger.Warn("leadership given up: the other voters hear this leader, and have acknowledged nothing",
			"term", e.Term, "age", e.Age.Round(time.Millisecond), "asked", strings.Join(e.Asked, ", "))
	case replica.LeadershipDeclined:
		s.logger.Warn("leadership declined: this node is in quarantine", "term", e.Term)
	case replica.FollowerStalled:
		s.logger.Warn("follower makes no progress", "follower", e.Name, "log_index", e.LogIndex, "commit_index", e.Committed,
			"since", e.Since)
	case replica.FarApart:
		heartbeat, command := replica.TimeoutsFor(e.RoundTrip)
		s.logger.Warn("the nodes are too far apart for their timeouts: raise them on all nodes", "round_trip",
			e.RoundTrip.Round(time.Millisecond), "heartbeat-timeout", heartbeat, "election-timeout", heartbeat,
			"command-timeout", command)
	case replica.FollowerMoves:
		s.logger.Info("follower makes progress again", "follower", e.Name, "log_index", e.LogIndex, "after", e.After)
	case replica.LogShortened:
		s.logger.Error("a member has lost entries that it had acknowledged, and is refused: replace it",
			"member", e.Name, "log_index", e.LogIndex, "acknowledged", e.Acknowledged)
		if err := s.peers.Revoke(e.ID); err != nil {
			s.fail(err)
		}
	case replica.WaitersDropped:
		s.logger.Warn("clients that wait for keys dropped: their node is silent", "node", e.Node, "after", e.After)
	case replica.LockSlow:
		s.logSlowLock(e)
	case replica.SnapshotTaken:
		if e.Err != nil {
			s.logger.Error("snapshot failed", "error", e.Err)
			return
		}
		s.logger.Info("snapshot taken", "bytes", e.Bytes, "took", e.Took)
	case replica.SnapshotDamaged:
		s.logger.Error("the newest snapshot cannot be read, and a member needs it: taking another", "error", e.Err)
	case replica.Restored:
		// The snapshot replaces entries whose messages were not published.
		s.hub.Gap()
		s.caches.InvalidateAll()
		s.cluster.checker.Restored()
		s.audit.Note(audit.Line{Event: audit.Restored, From: e.From, Index: e.Index})
		s.logger.Info("state restored from snapshot", "took", e.Took)
	case replica.Failed:
		s.fail(fmt.Errorf("state can no longer follow the log: %w", e.Err)) // see fatal.go
	}
}

func (s *Server) logDiskFull(e replica.DiskFull) {
	if len(e.Members) == 0 {
		s.logger.Info("the disks have room again")
		return
	}
	s.logger.Warn("disks are nearly full", "members", strings.Join(e.Members, ", "), "refuses_data", e.Refuses,
		"free", e.Free, "reserve", e.Reserve, "data_dir", s.config.DataDir)
}

// onStateEvents passes the events of an entry to subscriptions, caches, monitors and the frontend.
func (s *Server) onStateEvents(events []event.Event) {
	s.hub.Events(events)
	s.caches.Events(events)
	s.monitors.Events(events)
	for i := range events {
		if e := &events[i]; e.Kind == event.LocksForced {
			s.front.LocksForced(e)
		}
	}
}

// newSlowLocks limits the log lines about locks that were held for most of their lease or waited for long: a burst of
// five, and five a second.
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

// millis returns n milliseconds as a time.Duration, at most the longest one, 292 years.
func millis(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// shortened returns the beginning of a client's word, for a log line.
func shortened(s string) string {
	const most = 128
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
