package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/console"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/secrets"
	"github.com/holdfast/holdfast/server/web"
)

// observed has the histograms and counters that only Prometheus shows. It is nil without a port for monitoring, and its
// methods then do nothing.
type observed struct {
	syncs, entries, snapshots, restores prometheus.Histogram
	snapshotBytes, backup               prometheus.Gauge
	failedSnapshots, leaderChanges      prometheus.Counter
	leaderships, linkLosses             prometheus.Counter
	stalledProposals, droppedWaiters    prometheus.Counter
	shortenedLogs, damagedSnapshots     prometheus.Counter
}

// Buckets of histograms, in seconds. An fsync takes from tens of microseconds to --disk-stall-limit.
func shortTimes() []float64 { return prometheus.ExponentialBuckets(32e-6, 2, 20) } // to 16.8 s
func longTimes() []float64  { return prometheus.ExponentialBuckets(0.001, 4, 10) } // to 262 s

func newObserved() *observed {
	o := describeObserved()
	return o
}

func describeObserved() *observed {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "holdfast_" + name, Help: help, Buckets: buckets})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_" + name, Help: help})
	}
	return &observed{
		syncs: histogram("log_sync_duration_seconds",
			"What an append to the log took, from the write until the disk has it.", shortTimes()),
		entries: histogram("raft_entry_duration_seconds",
			"What an entry of this node as leader took, from the proposal until it was applied.", shortTimes()),
		snapshots: histogram("snapshot_duration_seconds", "What a snapshot of the state took.", longTimes()),
		restores:  histogram("restore_duration_seconds", "What replacing the state by a snapshot's took.", longTimes()),
		snapshotBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_snapshot_size_bytes",
			Help: "Size of the last snapshot that this node took.",
		}),
		backup: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_backup_timestamp_seconds",
			Help: "When a client took the last whole backup from this node; 0: not since it started.",
		}),

		failedSnapshots: counter("snapshot_failures_total", "Snapshots that could not be taken."),
		leaderChanges:   counter("raft_leader_changes_total", "How often this node learnt of another leader."),
		leaderships:     counter("raft_leaderships_lost_total", "How often this node lost its leadership."),
		linkLosses:      counter("raft_leader_link_losses_total", "How often this node lost its connection to the leader."),
		stalledProposals: counter("raft_stalled_proposals_total",
			"How often an entry of this node as leader was not committed for long."),
		droppedWaiters: counter("raft_silent_nodes_total",
			"How often clients that wait at another node lost their places, as the node was silent."),
		damagedSnapshots: counter("snapshot_damaged_total",
			"How often this node could not read its newest snapshot: when a member needed it, and another is taken then; or "+
				"at the start, and another member's state takes its place."),
		shortenedLogs: counter("raft_shortened_logs_total",
			"How often a member's log was shorter than the member had acknowledged to this node as leader."),
	}
}

func (o *observed) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		o.syncs, o.entries, o.snapshots, o.restores, o.snapshotBytes, o.backup,
		o.failedSnapshots, o.leaderChanges, o.leaderships, o.linkLosses, o.stalledProposals, o.droppedWaiters,
		o.shortenedLogs, o.damagedSnapshots,
	}
}

func (o *observed) sync(took time.Duration) {
	if o != nil {
		o.syncs.Observe(took.Seconds())
	}
}

func (o *observed) onEntry() func(time.Duration) {
	if o == nil {
		return nil
	}
	return func(took time.Duration) { o.entries.Observe(took.Seconds()) }
}

func (o *observed) event(event replica.Event) {
	if o == nil {
		return
	}
	switch e := event.(type) {
	case replica.LeadershipLost:
		o.leaderships.Inc()
	case replica.LeaderChanged:
		if e.Leader != "" {
			o.leaderChanges.Inc()
		}
	case replica.LinkDown:
		o.linkLosses.Inc()
	case replica.ProposalStalled:
		o.stalledProposals.Inc()
	case replica.WaitersDropped:
		o.droppedWaiters.Inc()
	case replica.LogShortened:
		o.shortenedLogs.Inc()
	case replica.SnapshotTaken:
		if e.Err != nil {
			o.failedSnapshots.Inc()
			return
		}
		o.snapshots.Observe(e.Took.Seconds())
		o.snapshotBytes.Set(float64(e.Bytes))
	case replica.SnapshotDamaged:
		o.damaged()
	case replica.Restored:
		o.restores.Observe(e.Took.Seconds())
	}
}

// backedUp records that a backup was taken now.
func (o *observed) backedUp() {
	if o != nil {
		o.backup.SetToCurrentTime()
	}
}

// damaged counts a damaged snapshot.
func (o *observed) damaged() {
	if o != nil {
		o.damagedSnapshots.Inc()
	}
}

// buildInfo returns a metric whose labels have the version of the program.
func buildInfo(node string) prometheus.Collector {
	revision := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "holdfast_build_info", Help: "1, with the node's name and what it runs as labels.",
		ConstLabels: prometheus.Labels{
			"node": node, "version": protocol.HoldfastVersion, "revision": revision, "goversion": runtime.Version(),
			"log_format": strconv.Itoa(int(protocol.EntryVersion)),
		},
	})
	g.Set(1)
	return g
}

// newRegistry returns a registry with the metrics of the process. openReplica adds those of the member.
func (s *Server) newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		auditCounter("lines", "Lines of the audit log that were written.", s.audit.Lines),
		auditCounter("dropped", "Lines of the audit log that were not written: there was no room, or the write failed.",
			s.audit.Dropped),
		diskGauge("free", "The free bytes of the file system that has the data folder; 0 while they are unknown.",
			func() uint64 { free, _ := s.space(); return free }),
		diskGauge("reserve", "The free bytes below which the disk counts as nearly full; 0 while they are unknown.",
			func() uint64 { _, reserve := s.space(); return reserve }),
		buildInfo(s.config.Name), credentials{s.secrets, s.cluster.admissions}, checks{s.cluster.checker},
	)
	return r
}

func auditCounter(name, help string, count func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "holdfast_audit_" + name + "_total", Help: help},
		func() float64 { return float64(count()) })
}

func diskGauge(name, help string, bytes func() uint64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "holdfast_disk_" + name + "_bytes", Help: help},
		func() float64 { return float64(bytes()) })
}

// newWeb returns the server of the port for monitoring, or nil if there is none.
func (s *Server) newWeb() *web.Server {
	if s.monitoring == nil {
		return nil
	}
	s.metrics = s.newRegistry()
	return web.New(web.Config{
		Gatherer: s.metrics, Live: s.liveChecks(), Ready: s.readyChecks(), Console: s.console,
		Access: web.Access{TLS: s.secrets.ClientTLS(), Users: s.secrets.Current, Refused: func(addr, user string) {
			s.servingFront().FailedHTTPAuth(addr, user)
		}},
		Profiles: s.config.HTTPPprof, Logger: s.logger,
	})
}

// servingFront returns the frontend that serves clients now.
func (s *Server) servingFront() *frontend.Server {
	if s.isOpen() {
		return s.front
	}
	return s.waitingFront()
}

// newConsole returns the console behind the page and /api.
func (s *Server) newConsole() *console.Console {
	return console.New(console.Config{
		Node: s.config.Name,
		Machine: func() fsm.Machine {
			if r := s.member.Load(); r != nil && !quarantined(r) {
				return r.Machine()
			}
			return nil
		},
		Status: func() protocol.Value { return s.servingFront().Directory().ClusterStatus() },
		AddPolls: func(db int, key string, v protocol.Value) {
			if s.isOpen() {
				s.front.AddPolls(db, key, v)
			}
		},
		AddClients: func(ctx context.Context, v protocol.Value) protocol.Value {
			if s.isOpen() {
				return s.front.AddClients(ctx, v)
			}
			return v
		},
	})
}

// serveMonitoring logs a failure and returns no error, as a node serves clients without monitoring, too.
func (s *Server) serveMonitoring(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var noted sync.WaitGroup
	defer noted.Wait()
	defer cancel()
	noted.Go(func() { s.console.Run(ctx) })
	if err := s.web.Serve(ctx, s.monitoring); err != nil {
		s.logger.Error("http port ended", "error", err)
		<-ctx.Done()
	}
	return nil
}

// liveChecks returns one check, which always succeeds. A restart would cure no failure of readyChecks, and a disk that
// hangs ends the process already.
func (s *Server) liveChecks() []web.Check {
	return []web.Check{{Name: "process", Run: func(context.Context) error { return nil }}}
}

// maxReadyAppend is the duration of an append from which the node is not ready.
const maxReadyAppend = time.Second

func (s *Server) readyChecks() []web.Check {
	return []web.Check{
		{Name: "cluster", Run: s.inCluster},
		{Name: "voter", Run: s.asMember(func(r *replica.Replica) error { return isVoter(r.Status()) })},
		{
			Name: "disk", Run: func(context.Context) error { return diskAnswers(s.store.Hanging()) },
			Detail: s.diskDetail,
		},
		{Name: "state", Run: s.asMember(notQuarantined)},
		{Name: "log", Run: s.asMember((*replica.Replica).Healthy)},
		{Name: "linearizable_read", Run: s.asMember(read)},
	}
}

func isVoter(st replica.Status) error {
	for _, m := range st.Members {
		if m.ID == st.ID && m.Voter {
			return nil
		}
	}
	return errors.New("this node is no voter")
}

func diskAnswers(hanging time.Duration) error {
	if hanging > maxReadyAppend {
		return fmt.Errorf("a write has been under way for %v", hanging.Round(time.Millisecond))
	}
	return nil
}

// read executes EXISTS like a client: the leader answers after a majority has confirmed its leadership.
func read(r *replica.Replica) error {
	b := replica.Batch{Body: protocol.AppendRequest(nil, protocol.Head{}, "exists", [][]byte{[]byte("readyz")}), Count: 1}
	if err := r.Execute(&b); err != nil {
		return err
	}
	if len(b.Replies) != 1 || b.Replies[0].IsError() {
		return fmt.Errorf("answered with %v", b.Replies)
	}
	return nil
}

// newAdmissions returns the check whether the members admit each other, with hooks that log changes.
func (s *Server) newAdmissions() *memberrpc.Admissions {
	return memberrpc.NewAdmissions(memberrpc.AdmissionsConfig{
		Client: s.cluster.client, Self: s.store.Identity().ID, Misfit: peer.Misfit, Own: s.warnings,
		Members: func() []members.Member { return s.newest().Members },
		Refused: func(m members.Member, why string) {
			s.logger.Error("this node and another member do not admit each other: their connections last until the "+
				"next failover", "member", m.Name(), "reason", why)
		},
		Admitted: func(m members.Member) {
			s.logger.Info("this node and another member admit each other again", "member", m.Name())
		},
	}, s.cluster.requests)
}

// troubles returns the faults of a cluster that has a leader and whose voters answer, a sentence each.
func (s *Server) troubles() []string {
	var health error
	var disks []string
	if r := s.member.Load(); r != nil && s.led() {
		health, disks = r.Healthy(), diskTroubles(r)
	}
	if errors.Is(health, raftnode.ErrQuarantined) {
		health = nil // the checker's troubles have more details
	}
	return slices.Concat(troubles(s.config.Name, health, s.cluster.admissions.Refusals()), disks,
		s.cluster.checker.Troubles())
}

func troubles(node string, health error, refusals []memberrpc.Refusal) (all []string) {
	if health != nil {
		all = append(all, fmt.Sprintf("%s is not ready: %v", node, health))
	}
	for _, r := range refusals {
		all = append(all, fmt.Sprintf("%s and %s do not admit each other: %s", r.A, r.B, r.Text))
	}
	return all
}

// credentials are the metrics of the node's certificates and secrets.
type credentials struct {
	of       *secrets.Keyring
	admitted *memberrpc.Admissions
}

var (
	expiryDesc = prometheus.NewDesc("holdfast_tls_certificate_expiry_timestamp_seconds",
		"When the certificates of the flag's file run out: the first of a chain, the last of a CA file.", []string{"flag"},
		nil)
	reloadOKDesc = prometheus.NewDesc("holdfast_credentials_last_reload_successful",
		"1 while certificates, passwords and secrets are as in their files; 0 while a file is damaged or cannot be read, "+
			"and what was read before it is in force.", nil, nil)
	reloadTimeDesc = prometheus.NewDesc("holdfast_credentials_last_reload_success_timestamp_seconds",
		"When certificates, passwords and secrets were taken from their files at last.", nil, nil)
	refusalsDesc = prometheus.NewDesc("holdfast_peer_refusals",
		"How many pairs of members, as far as this node knows, do not admit each other: a secret, a certificate or a "+
			"release does not fit. They find out by a handshake each minute.", nil, nil)
)

func (c credentials) Describe(ch chan<- *prometheus.Desc) {
	ch <- expiryDesc
	ch <- reloadOKDesc
	ch <- reloadTimeDesc
	ch <- refusalsDesc
}

func (c credentials) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	expiries, status := c.of.Expiries()
	for _, e := range expiries {
		gauge(expiryDesc, float64(e.At.Unix()), e.Flag)
	}
	successful := 1.0
	if status.Failed {
		successful = 0
	}
	gauge(reloadOKDesc, successful)
	gauge(reloadTimeDesc, float64(status.ReadAt.UnixMilli())/1000)
	gauge(refusalsDesc, float64(len(c.admitted.Refusals())))
}
