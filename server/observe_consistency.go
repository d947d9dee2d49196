package server

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/server/consistency"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
)

// newChecker returns the checker that compares the members' states.
func (s *Server) newChecker() *consistency.Checker {
	return consistency.New(consistency.Config{
		Self: s.store.Identity().ID, Interval: s.config.ConsistencyCheckInterval, Folder: s.store, Client: s.cluster.client,
		Replica: func() consistency.Replica {
			if r := s.member.Load(); r != nil {
				return r
			}
			return nil
		},
		Fetch: func(ctx context.Context, leader members.Member, from uint64) (store.Snapshot, io.ReadCloser, error) {
			return s.cluster.bootstrap.State(ctx, leader, from)
		},
		OnEvent: s.onCheck, Fail: s.fail,
	})
}

// onCheck writes each event of the checker to the log. Clients of a node in quarantine go to another one.
func (s *Server) onCheck(event consistency.Event) {
	switch e := event.(type) {
	case consistency.Differs:
		s.logger.Error("the state of this node differs from the majority's: it is in quarantine until it is replaced "+
			"(holdfast cluster repair)",
			"log_index", e.Index, "hash", e.Own, "right_hash", e.Right)
		s.dismissClients()
	case consistency.Undecided:
		s.logger.Error("the states of members differ, and no majority has the same", "log_index", e.Index, "members",
			strings.Join(e.Members, ", "))
	case consistency.OthersDiffer:
		s.logger.Error("the state of other members differs from the majority's: they are in quarantine", "log_index",
			e.Index, "members", strings.Join(e.Members, ", "))
	case consistency.Replaced:
		s.logger.Warn("the state of this node was replaced, and is compared next", "log_index", e.Index, "from", e.From)
	case consistency.Released:
		s.logger.Info("the state of this node is the majority's again: the quarantine is over", "log_index", e.Index)
	case consistency.Checked:
		s.logger.Debug("states compared: this node's is the majority's", "log_index", e.Index)
	}
}

// dismissClients closes the connections of a node in quarantine, as it gets no more messages and invalidations. The
// clients reconnect to another node.
func (s *Server) dismissClients() {
	s.hub.Gap()
	s.caches.InvalidateAll()
	if s.isOpen() {
		s.front.Dismiss()
	}
}

func quarantined(r *replica.Replica) bool {
	on, _ := r.Quarantined()
	return on
}

// notQuarantined is the readiness check that fails in quarantine.
func notQuarantined(r *replica.Replica) error {
	if quarantined(r) {
		return raftnode.ErrQuarantined
	}
	return nil
}

// checks has the metrics of comparisons of states.
type checks struct{ of *consistency.Checker }

var (
	quarantinedDesc = prometheus.NewDesc("holdfast_quarantined",
		"1 while this node is in quarantine, as its state differs from the other members', or was replaced and is not "+
			"compared yet.", nil, nil)
	inQuarantineDesc = prometheus.NewDesc("holdfast_members_quarantined",
		"How many members are in quarantine, and so could not lead, as far as this node knows.", nil, nil)
	differingDesc = prometheus.NewDesc("holdfast_states_differing",
		"How many members' states differ from the majority's, as far as this node knows; where no majority has the same, "+
			"all that were compared.", nil, nil)
	agreedDesc = prometheus.NewDesc("holdfast_consistency_check_last_success_timestamp_seconds",
		"When the state of this node was last found to be the majority's; 0: not since the start.", nil, nil)
	hashedDesc = prometheus.NewDesc("holdfast_consistency_hash_duration_seconds",
		"What the last hash of the state took, with its rests.", nil, nil)
)

func (c checks) Describe(ch chan<- *prometheus.Desc) {
	ch <- quarantinedDesc
	ch <- inQuarantineDesc
	ch <- differingDesc
	ch <- agreedDesc
	ch <- hashedDesc
}

func (c checks) Collect(ch chan<- prometheus.Metric) {
	report := c.of.Report()
	gauge := func(desc *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	in, agreed := 0.0, 0.0
	if report.Quarantined {
		in = 1
	}
	if !report.Agreed.IsZero() {
		agreed = float64(report.Agreed.UnixMilli()) / float64(time.Second/time.Millisecond)
	}
	gauge(quarantinedDesc, in)
	gauge(inQuarantineDesc, float64(len(report.InQuarantine)))
	gauge(differingDesc, float64(len(report.Differ)))
	gauge(agreedDesc, agreed)
	gauge(hashedDesc, report.Took.Seconds())
}
