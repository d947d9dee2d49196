package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
)

// The rows of metrics.go for Prometheus. A scrape reads them as INFO does. Nothing runs between scrapes.

// prefix is the prefix of Holdfast's metrics.
const prefix = "holdfast_"

// promNames has the names of rows whose name in INFO breaks Prometheus's conventions. Other rows are named as in INFO;
// a counter gets "_total". An empty name leaves a row out.
var promNames = map[string]string{
	"server_time_usec":   "", // Prometheus has a clock
	"uptime_in_seconds":  "", // process_start_time_seconds
	"uptime_in_days":     "",
	"used_cpu_sys":       "", // process_cpu_seconds_total
	"used_cpu_user":      "",
	"slave_repl_offset":  "", // raft_applied_index
	"master_repl_offset": "", // raft_commit_index

	"maxclients":               "max_clients",
	"used_memory":              "memory_used_bytes",
	"used_memory_peak":         "memory_used_peak_bytes",
	"used_memory_rss":          "memory_mapped_bytes",
	"maxmemory":                "memory_max_bytes",
	"mem_clients_normal":       "memory_clients_bytes",
	"total_system_memory":      "memory_system_bytes",
	"mem_fragmentation_ratio":  "", // a quotient of two others
	"mem_fragmentation_bytes":  "",
	"number_of_cached_scripts": "cached_scripts",
	"allocator_allocated":      "memory_heap_bytes",

	"total_connections_received":                "connections_received_total",
	"total_commands_processed":                  "commands_received_total",
	"total_net_input_bytes":                     "network_input_bytes_total",
	"total_net_output_bytes":                    "network_output_bytes_total",
	"tracking_total_keys":                       "tracking_keys",
	"tracking_total_items":                      "tracking_items",
	"tracking_total_prefixes":                   "tracking_prefixes",
	"client_output_buffer_limit_disconnections": "output_limit_disconnections_total",
	"total_error_replies":                       "", // error_replies_total, by prefix

	"acl_access_denied_auth": "wrong_passwords_total",

	// Prometheus computes rates.
	"instantaneous_ops_per_sec": "",
	"instantaneous_input_kbps":  "",
	"instantaneous_output_kbps": "",

	"connected_slaves":  "raft_connected_followers",
	"stalled_followers": "raft_stalled_followers",
	"leading":           "raft_is_leader",
	"members":           "raft_members",
}

// promName returns the metric's name for Prometheus, or "" if it is left out.
func (m metric) promName() string {
	if m.help == "" || m.kind == text || m.lines != nil {
		return ""
	}
	name, is := promNames[m.name]
	switch {
	case is && name == "":
		return ""
	case is:
		return prefix + name
	case m.kind == counter && !strings.HasSuffix(m.name, "_total"):
		return prefix + m.name + "_total"
	}
	return prefix + m.name
}

// number returns the metric's value. ok is false if it has none now.
func (m metric) number(r *report) (value float64, ok bool) {
	if m.counted != nil {
		return float64(m.counted(&r.Counters).Load()), true
	}
	switch v := m.value(r).(type) {
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// desc returns the description of a metric that is no row of metrics.go.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

var (
	commandsDesc = desc("commands_total",
		"Calls of the command: ok, failed (an error was the reply) or rejected (refused before it ran).", "command",
		"outcome")
	commandTimeDesc = desc("command_duration_seconds",
		"What calls took, from the side of this node's clients: commands of the log with the journey to the leader and to "+
			"the disks. Commands of a pipeline share its time.", "command")
	waitedDesc = desc("lock_wait_duration_seconds", "How long granted requests had waited, if they had to.")
	heldDesc   = desc("lock_hold_duration_seconds", "How long holds lasted that have ended.")
	errorsDesc = desc("error_replies_total",
		"Error replies by their prefix; prefixes that scripts made up are \"other\".", "prefix")
	keysDesc      = desc("keys", "Keys of the database.", "db")
	deadlinesDesc = desc("keys_with_deadline", "Keys of the database that have a deadline.", "db")
	hasLeaderDesc = desc("raft_has_leader", "1 while this node knows a leader.")
	heldBackDesc  = desc("cluster_version_held_back",
		"1 while the member keeps the version of the cluster from going up.", "member")
	lagDesc = desc("raft_follower_lag_entries", "On the leader: committed log entries that the follower lacks.",
		"follower")
	silenceDesc = desc("raft_follower_silence_seconds",
		"On the leader: time since the follower's last answer, at most an election timeout.", "follower")
	reachableDesc = desc("raft_follower_up", "On the leader: 1 if the follower has answered within an election timeout.",
		"follower")
	stalledForDesc = desc("raft_follower_stalled_seconds",
		"On the leader: how long the follower's log has stood still although it lacks committed entries.", "follower")
)

// Collector returns the collector for Prometheus.
func (g *Registry) Collector() prometheus.Collector { return collector{g} }

type collector struct{ *Registry }

// Describe describes nothing, since the metrics depend on the node's role and on the commands that were called.
func (c collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	r := c.report()
	for _, s := range sections() {
		for _, m := range s.metrics {
			name := m.promName()
			if name == "" {
				continue
			}
			if value, ok := m.number(r); ok {
				kind := prometheus.GaugeValue
				if m.kind == counter {
					kind = prometheus.CounterValue
				}
				ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, sentence(m.help), nil, nil), kind, value)
			}
		}
	}
	r.collectCommands(ch)
	r.collectErrors(ch)
	r.collectLocks(ch)
	r.collectLockClasses(ch)
	r.collectUsers(ch)
	r.collectKeys(ch)
	r.collectFollowers(ch)
}

// sentence returns a row's help for Prometheus.
func sentence(help string) string {
	help = strings.ReplaceAll(help, "`", "")
	return strings.ToUpper(help[:1]) + help[1:] + "."
}

func (r *report) collectCommands(ch chan<- prometheus.Metric) {
	for _, c := range r.cfg.Commands {
		// failed is read first, since a call is counted before it fails.
		failed := c.Failed.Load()
		calls, rejected := c.Calls.Load(), c.Rejected.Load()
		if calls+rejected == 0 {
			continue
		}
		for outcome, n := range map[string]uint64{"ok": calls - min(failed, calls), "failed": failed, "rejected": rejected} {
			ch <- prometheus.MustNewConstMetric(commandsDesc, prometheus.CounterValue, float64(n), c.Name, outcome)
		}
		if t := c.times.Load(); t != nil {
			count, sum, buckets := t.histogram()
			ch <- prometheus.MustNewConstHistogram(commandTimeDesc, count, sum, buckets, c.Name)
		}
	}
}

// bucketSteps is the number of doublings in a bucket for Prometheus: each bucket is a series, of each command.
const bucketSteps = 2

// histogram returns the numbers of calls that did not exceed each limit, in seconds.
func (t *times) histogram() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64)
	for i := range t.steps {
		count += t.steps[i].Load()
		if i%bucketSteps == 0 && i < timeSteps-1 {
			buckets[float64(stepLimit(i))/float64(time.Second)] = count
		}
	}
	return count, time.Duration(t.nanos.Load()).Seconds(), buckets
}

// alarming has the prefixes of errors that alerts use. Their series begin at 0: Prometheus sees no growth in a series
// that begins with the first error.
var alarming = []string{protocol.ErrUncertain.Prefix, "OOM", "TRYAGAIN"}

// collectErrors emits the prefixes that this program knows, since a script may put a key into a prefix.
func (r *report) collectErrors(ch chan<- prometheus.Metric) {
	other := r.Failures.Load()
	counts := r.errorCounts()
	for _, prefix := range alarming {
		counts[prefix] += 0
	}
	for prefix, n := range counts {
		if protocol.KnownPrefix(prefix) {
			ch <- prometheus.MustNewConstMetric(errorsDesc, prometheus.CounterValue, float64(n), prefix)
			other -= min(n, other)
		}
	}
	ch <- prometheus.MustNewConstMetric(errorsDesc, prometheus.CounterValue, float64(other), "other")
}

func (r *report) collectLocks(ch chan<- prometheus.Metric) {
	s := r.locks()
	for d, t := range map[*prometheus.Desc]*fsm.LockTimes{waitedDesc: &s.Waited, heldDesc: &s.Held} {
		buckets, below := make(map[float64]uint64), uint64(0)
		for i, n := range t.Steps[:len(t.Steps)-1] { // the last step has no limit
			below += n
			if i%bucketSteps == 0 {
				buckets[float64(uint64(1)<<i)/1000] = below
			}
		}
		ch <- prometheus.MustNewConstHistogram(d, t.Count, float64(t.SumMillis)/1000, buckets)
	}
}

// OtherLocks is the class of locks that no pattern matches.
const OtherLocks = "other"

// lockClassCounters has the counters of a class of locks.
var lockClassCounters = []struct {
	desc *prometheus.Desc
	of   func(n *fsm.LockClassCounts) uint64
}{
	{classDesc("grants_total", "Holds that were granted"), func(n *fsm.LockClassCounts) uint64 { return n.Grants }},
	{
		classDesc("slow_grants_total",
			"Holds that were waited for more than a second: a stock lock from the first refusal of that client on"),
		func(n *fsm.LockClassCounts) uint64 { return n.Slow },
	},
	{
		classDesc("refusals_total", "Requests for a held lock that did not wait for it"),
		func(n *fsm.LockClassCounts) uint64 { return n.Refusals },
	},
	{
		classDesc("releases_total", "Holds that were given back; of stock locks all that a command removed"),
		func(n *fsm.LockClassCounts) uint64 { return n.Releases },
	},
	{
		classDesc("late_releases_total",
			"Holds that were given back with more than four fifths of their lease used since the last renewal"),
		func(n *fsm.LockClassCounts) uint64 { return n.Late },
	},
	{classDesc("expired_total", "Holds whose lease ran out"), func(n *fsm.LockClassCounts) uint64 { return n.Expired }},
	{
		classDesc("stale_releases_total", "Releases by an owner that had lost the lock, and so may have worked without it"),
		func(n *fsm.LockClassCounts) uint64 { return n.Stale },
	},
}

var longestQueueDesc = desc("lock_class_longest_queue",
	"Most clients that wait for one lock of the class now; for a stock lock those that were refused again and again, "+
		"as far as the node remembers them.", "class", "kind")

// classDesc returns the description of a counter of a class of locks.
func classDesc(name, help string) *prometheus.Desc {
	return desc("lock_class_"+name,
		help+
			", of all nodes' clients, since this node's start; class is a pattern of --lock-class or other, kind is "+
			"native or stock.", "class", "kind")
}

func (r *report) collectLockClasses(ch chan<- prometheus.Metric) {
	for _, class := range r.cfg.Backend.LockClasses() {
		name := class.Pattern
		if name == "" {
			name = OtherLocks
		}
		for _, kind := range []struct {
			name  string
			n     *fsm.LockClassCounts
			queue int
		}{{"native", &class.Native, class.NativeQueue}, {"stock", &class.Stock, class.StockQueue}} {
			for _, c := range lockClassCounters {
				ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(c.of(kind.n)), name, kind.name)
			}
			ch <- prometheus.MustNewConstMetric(longestQueueDesc, prometheus.GaugeValue, float64(kind.queue), name, kind.name)
		}
	}
}

// UserLimits has the quotas of a user, and its usage of this node.
type UserLimits struct {
	protocol.Quota
	MaxConnections, MaxRate uint64
	Connections             int
	// Paused is the total time of the pauses of the user's connections.
	Paused time.Duration
}

var (
	userKeysDesc    = desc("user_keys", "Keys and sessions that a user with a quota created, in the cluster.", "user")
	userBytesDesc   = desc("user_bytes", "Bytes of keys that a user with a quota created, in the cluster.", "user")
	userWaitersDesc = desc("user_waiters",
		"Requests of a user with a quota that wait for keys and locks, in the cluster.", "user")
	userConnectionsDesc = desc("user_connections", "Connections of a user with a quota to this node.", "user")
	userPausedDesc      = desc("user_paused_seconds_total",
		"How long connections of a user to this node were kept waiting by the user's limit of commands a second, in all.",
		"user")
	userLimitDesc = desc("user_limit",
		"Quota of a user by this node's file; limit is keys, bytes, waiters, connections or commands_per_second.", "user",
		"limit")
)

// collectUsers emits the quotas and the usage of users.
func (r *report) collectUsers(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, a := range r.state().Accounts {
		gauge(userKeysDesc, float64(a.Keys), a.User)
		gauge(userBytesDesc, float64(a.Bytes), a.User)
		gauge(userWaitersDesc, float64(a.Waiters), a.User)
	}
	if r.cfg.Users == nil {
		return
	}
	for _, u := range r.cfg.Users() {
		gauge(userConnectionsDesc, float64(u.Connections), u.User)
		ch <- prometheus.MustNewConstMetric(userPausedDesc, prometheus.CounterValue, u.Paused.Seconds(), u.User)
		for _, limit := range []struct {
			name string
			most uint64
		}{
			{"keys", u.Keys},
			{"bytes", u.Bytes},
			{"waiters", u.Waiters},
			{"connections", u.MaxConnections},
			{"commands_per_second", u.MaxRate},
		} {
			if limit.most != 0 {
				gauge(userLimitDesc, float64(limit.most), u.User, limit.name)
			}
		}
	}
}

func (r *report) collectKeys(ch chan<- prometheus.Metric) {
	stats := r.state()
	for db, keys := range stats.Keys {
		if keys > 0 || db == 0 {
			label := strconv.Itoa(db)
			ch <- prometheus.MustNewConstMetric(keysDesc, prometheus.GaugeValue, float64(keys), label)
			ch <- prometheus.MustNewConstMetric(deadlinesDesc, prometheus.GaugeValue, float64(stats.Expires[db]), label)
		}
	}
}

func (r *report) collectFollowers(ch chan<- prometheus.Metric) {
	st := &r.status
	one := func(d *prometheus.Desc, value float64, follower string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, follower)
	}
	hasLeader := 0.0
	if st.Leader.Name != "" {
		hasLeader = 1
	}
	ch <- prometheus.MustNewConstMetric(hasLeaderDesc, prometheus.GaugeValue, hasLeader)
	held := make(map[string]float64)
	for _, m := range st.HeldBackBy() {
		held[m.Name] = 1
	}
	for _, m := range st.Members {
		one(heldBackDesc, held[m.Name], m.Name)
	}
	if !st.Leading {
		return
	}
	up := make(map[string]float64)
	for _, f := range st.Followers {
		up[f.Name] = 1
		one(silenceDesc, f.Silent.Seconds(), f.Name)
	}
	for _, m := range st.Members {
		if m.Name != st.Name {
			one(reachableDesc, up[m.Name], m.Name)
			one(lagDesc, float64(st.Committed-min(m.LogIndex, st.Committed)), m.Name)
		}
	}
	for _, f := range st.Stalled {
		one(stalledForDesc, f.For.Seconds(), f.Name)
	}
}
