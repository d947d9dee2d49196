// Package metrics has the statistics of a node: the counts of its connections, and the state of its log and of its copy
// of the state. INFO, MEMORY and LATENCY HISTOGRAM show them to clients, and [Registry.Collector] to Prometheus.
//
// The package promises:
//   - INFO and Prometheus use the same rows (metrics.go), so they cannot disagree;
//   - to count costs an atomic addition, to time a command a few more, and only a command's first call allocates;
//   - there is no ticker: commands take the samples for rates;
//   - no label and no line has a key or a value of a client; the number of error prefixes is bounded.
//
// A connection adds to the [Counters] and to the [Command] of the row, and calls [Registry.NoteRates] with times that
// it has anyway. All methods are safe for concurrent use; none starts a goroutine.
//
// Locks: Counters.mu guards the errors by prefix, rates.mu the samples. Nothing is called while one of them is held.
//
// Start reading at registry.go, then metrics.go.
package metrics

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend/discovery"
	"github.com/holdfast/holdfast/server/pubsub"
)

// kind is the kind of a line of INFO.
type kind string

const (
	text    kind = "text"
	gauge   kind = "gauge"   // rises and falls
	counter kind = "counter" // grows from the start of the process, or from CONFIG RESETSTAT
)

// metric is a row of the tables below: a line of INFO, or several lines of one form. ../../METRICS.md lists the rows
// with a help; clients of Redis look for the others.
type metric struct {
	name string
	kind kind
	help string
	// Either value or lines is set. A nil value leaves the line out.
	value   func(r *report) any
	lines   func(r *report) []string // whole lines; name shows their form
	counted func(s *Counters) *atomic.Uint64
}

// section is a section of INFO. If extra is set, it is shown only on request.
type section struct {
	name    string
	extra   bool
	metrics []metric
}

// sections returns the sections in the order of Redis.
func sections() []section {
	return []section{
		{"Server", false, serverMetrics()},
		{"Clients", false, clientMetrics()},
		{"Memory", false, memoryMetrics()},
		{"Persistence", false, persistenceMetrics()},
		{"Stats", false, statsMetrics()},
		{"Replication", false, replicationMetrics()},
		{"CPU", false, cpuMetrics()},
		{"Sentinel", false, []metric{{name: "masterN", kind: text, lines: func(r *report) []string {
			return r.cfg.Directory.SentinelLines()
		}}}},
		{"Modules", false, []metric{{name: "module", kind: text, lines: moduleLines}}},
		{"Commandstats", true, []metric{
			{
				name: "cmdstat_NAME", kind: counter, lines: commandStats,
				help: "calls of the command, calls that were refused before they ran, and those that failed; the microseconds " +
					"that the calls took, from the node's clients' side: commands of the log with the journey to the leader and to " +
					"the disks. Commands of a pipeline share its time",
			},
		}},
		{"Errorstats", false, []metric{
			{name: "errorstat_PREFIX", kind: counter, lines: errorStats, help: "error replies that begin with the prefix"},
		}},
		{"Latencystats", true, []metric{
			{
				name: "latency_percentiles_usec_NAME", kind: counter, lines: latencyStats,
				help: "the same times: microseconds that half of the calls did not exceed, 99 %, and 99.9 %",
			},
		}},
		{"Cluster", false, []metric{
			{name: "cluster_enabled", kind: text, value: func(r *report) any { return oneIf(r.cfg.ClusterMode) }},
		}},
		{"Holdfast", false, holdfastMetrics()},
		{"Locks", false, lockMetrics()},
		{"Keyspace", false, []metric{
			{name: "dbN", kind: gauge, lines: keyspaceLines, help: "keys of the database, and how many of them have a deadline"},
		}},
	}
}

// constant returns a row with a constant value.
func constant(name string, value any) metric {
	return metric{name: name, kind: text, value: func(*report) any { return value }}
}

func serverMetrics() []metric {
	executable, _ := os.Executable()
	return []metric{
		constant("redis_version", protocol.RedisVersion),
		constant("redis_git_sha1", "00000000"),
		constant("redis_git_dirty", 0),
		constant("redis_build_id", "0"),
		{name: "redis_mode", kind: text, value: func(r *report) any { return r.cfg.Directory.Mode(r.sentinel) }},
		constant("os", runtime.GOOS+" "+runtime.GOARCH),
		constant("arch_bits", strconv.IntSize),
		constant("process_id", os.Getpid()),
		{name: "run_id", kind: text, value: func(r *report) any { return r.cfg.RunID }},
		{name: "tcp_port", kind: text, value: func(r *report) any {
			_, port := discovery.SplitAddress(r.cfg.Address(r.sentinel))
			return port
		}},
		{
			name: "server_time_usec", kind: gauge, value: func(*report) any { return time.Now().UnixMicro() },
			help: "this node's wall clock, in microseconds since 1970",
		},
		{name: "uptime_in_seconds", kind: gauge, value: func(r *report) any {
			return int64(time.Since(r.started).Seconds())
		}, help: "seconds since the process started to serve"},
		{name: "uptime_in_days", kind: gauge, value: func(r *report) any {
			return int64(time.Since(r.started).Hours() / 24)
		}, help: "the same in days"},
		constant("executable", executable),
		constant("config_file", ""),
		constant("holdfast_version", protocol.HoldfastVersion),
	}
}

func clientMetrics() []metric {
	return []metric{
		{
			name: "connected_clients", kind: gauge, value: func(r *report) any { return r.cfg.Clients() },
			help: "clients that are connected to this node",
		},
		{
			name: "maxclients", kind: gauge, value: func(r *report) any { return r.cfg.MaxClients },
			help: "how many may be: `--max-clients`, or what the limit of open files leaves room for",
		},
		{
			name: "blocked_clients", kind: gauge, value: func(r *report) any { return r.Blocked.Load() },
			help: "clients that wait: in BLPOP and its like, in LOCK.ACQUIRE with WAIT, in WAIT or WAITAOF",
		},
		{
			name: "tracking_clients", kind: gauge, value: func(r *report) any { return r.cfg.Tracking.Stats().Clients },
			help: "clients that are told which keys change: CLIENT TRACKING",
		},
		{
			name: "pubsub_clients", kind: gauge, value: func(r *report) any { return r.cfg.Hub.Clients() },
			help: "clients with subscriptions",
		},
	}
}

// memoryMetrics returns the rows about memory. used_memory is what the leader compares with its maxmemory: keys and
// scripts, as the state machine estimates them. The memory of the process has other names.
func memoryMetrics() []metric {
	return []metric{
		{
			name: "used_memory", kind: gauge, value: func(r *report) any { return r.state().UsedBytes },
			help: "bytes of keys and scripts, as they are compared with `maxmemory`",
		},
		{name: "used_memory_human", kind: text, value: func(r *report) any { return human(uint64(r.state().UsedBytes)) }},
		{
			name: "used_memory_peak", kind: gauge, value: func(r *report) any { return r.state().PeakBytes },
			help: "the most that `used_memory` was since the node's start",
		},
		{name: "used_memory_peak_human", kind: text, value: func(r *report) any {
			return human(uint64(r.state().PeakBytes))
		}},
		{name: "used_memory_peak_perc", kind: text, value: func(r *report) any {
			return fmt.Sprintf("%.2f%%", 100*float64(r.state().UsedBytes)/float64(max(1, r.state().PeakBytes)))
		}},
		{
			name: "used_memory_rss", kind: gauge, value: func(r *report) any { return r.heap().mapped },
			help: "bytes that the process has from the system",
		},
		{name: "used_memory_rss_human", kind: text, value: func(r *report) any { return human(r.heap().mapped) }},
		{
			name: "total_system_memory", kind: gauge, value: func(r *report) any { return r.cfg.MachineBytes },
			help: "bytes that the process may use at most: the machine's, or fewer by a limit of the control group or the " +
				"address space; 0: not known",
		},
		{name: "total_system_memory_human", kind: text, value: func(r *report) any { return human(r.cfg.MachineBytes) }},
		{
			name: "maxmemory", kind: gauge, value: func(r *report) any { return r.cfg.MaxMemoryBytes },
			help: "bytes that `--max-memory` came to; 0: no limit",
		},
		{name: "maxmemory_human", kind: text, value: func(r *report) any { return human(r.cfg.MaxMemoryBytes) }},
		constant("maxmemory_policy", "noeviction"),
		{
			name: "mem_clients_normal", kind: gauge, value: func(r *report) any { return r.cfg.ClientBytes() },
			help: "bytes that all clients hold together, as they are compared with `--max-memory-clients`",
		},
		{
			name: "number_of_cached_scripts", kind: gauge, value: func(r *report) any { return r.state().Scripts },
			help: "scripts that EVALSHA finds",
		},
		{
			name: "allocator_allocated", kind: gauge, value: func(r *report) any { return r.heap().objects },
			help: "bytes of the heap that are in use or not yet collected",
		},
		{name: "mem_fragmentation_ratio", kind: gauge, value: func(r *report) any {
			return fmt.Sprintf("%.2f", float64(r.heap().mapped)/float64(max(1, r.heap().objects)))
		}, help: "`used_memory_rss` for each byte of `allocator_allocated`"},
		{name: "mem_fragmentation_bytes", kind: gauge, value: func(r *report) any {
			return int64(r.heap().mapped) - int64(r.heap().objects)
		}, help: "`used_memory_rss` less `allocator_allocated`"},
		constant("mem_allocator", runtime.Version()),
	}
}

// persistenceMetrics returns the rows of an append-only file that is synced before every reply, which the raft log is.
func persistenceMetrics() []metric {
	return []metric{
		constant("loading", 0),
		constant("async_loading", 0),
		constant("rdb_changes_since_last_save", 0),
		constant("rdb_bgsave_in_progress", 0),
		constant("rdb_last_bgsave_status", "ok"),
		constant("aof_enabled", 1),
		constant("aof_rewrite_in_progress", 0),
		constant("aof_last_bgrewrite_status", "ok"),
		constant("aof_last_write_status", "ok"),
	}
}

func statsMetrics() []metric {
	return []metric{
		{name: "total_connections_received", kind: counter, counted: func(s *Counters) *atomic.Uint64 {
			return &s.Connections
		}, help: "connections that were accepted"},
		{
			name: "total_commands_processed", kind: counter, counted: func(s *Counters) *atomic.Uint64 { return &s.Commands },
			help: "commands that were read",
		},
		{
			name: "instantaneous_ops_per_sec", kind: gauge, value: func(r *report) any { return int64(r.rates().commands) },
			help: "commands per second that were read, over the latest 1.6 seconds",
		},
		{
			name: "total_net_input_bytes", kind: counter, counted: func(s *Counters) *atomic.Uint64 { return &s.BytesIn },
			help: "bytes from clients",
		},
		{
			name: "total_net_output_bytes", kind: counter, counted: func(s *Counters) *atomic.Uint64 { return &s.BytesOut },
			help: "bytes to clients",
		},
		{name: "instantaneous_input_kbps", kind: gauge, value: func(r *report) any {
			return fmt.Sprintf("%.2f", r.rates().in/1024)
		}, help: "KiB per second from clients, over the same time"},
		{name: "instantaneous_output_kbps", kind: gauge, value: func(r *report) any {
			return fmt.Sprintf("%.2f", r.rates().out/1024)
		}, help: "KiB per second to clients"},
		{
			name: "rejected_connections", kind: counter, counted: func(s *Counters) *atomic.Uint64 { return &s.Rejected },
			help: "connections refused because `maxclients` were connected",
		},
		{
			name: "expired_keys", kind: counter, value: func(r *report) any { return r.state().Expired },
			help: "keys that this node removed because their time was over; CONFIG RESETSTAT leaves it",
		},
		constant("evicted_keys", 0),
		{
			name: "keyspace_hits", kind: counter, value: func(r *report) any {
				return r.state().Hits - r.forgotten.hits.Load()
			},
			help: "keys that were there when a command looked for them in order to read. Counted where the command runs for " +
				"its client: on the leader, for the clients of all nodes; of a client with CLIENT TRACKING on that " +
				"client's node, too",
		},
		{name: "keyspace_misses", kind: counter, value: func(r *report) any {
			return r.state().Misses - r.forgotten.misses.Load()
		}, help: "those that were not there"},
		{
			name: "pubsub_channels", kind: gauge, value: func(r *report) any { return r.cfg.Hub.Topics(pubsub.Channel) },
			help: "channels with subscribers on this node",
		},
		{
			name: "pubsub_patterns", kind: gauge, value: func(r *report) any { return r.cfg.Hub.Topics(pubsub.Pattern) },
			help: "patterns with subscribers on this node",
		},
		{
			name: "pubsubshard_channels", kind: gauge, value: func(r *report) any { return r.cfg.Hub.Topics(pubsub.Shard) },
			help: "shard channels with subscribers on this node",
		},
		{
			name: "tracking_total_keys", kind: gauge, value: func(r *report) any { return r.cfg.Tracking.Stats().Keys },
			help: "keys that clients of this node may have in a cache",
		},
		{
			name: "tracking_total_items", kind: gauge, value: func(r *report) any { return r.cfg.Tracking.Stats().Items },
			help: "the same, counted for each client",
		},
		{
			name: "tracking_total_prefixes", kind: gauge, value: func(r *report) any { return r.cfg.Tracking.Stats().Prefixes },
			help: "prefixes of CLIENT TRACKING BCAST",
		},
		{
			name: "evicted_clients", kind: counter, counted: func(s *Counters) *atomic.Uint64 { return &s.Evicted },
			help: "clients cut off because they held most when all together held too much",
		},
		{name: "client_output_buffer_limit_disconnections", kind: counter, counted: func(s *Counters) *atomic.Uint64 {
			return &s.CutOff
		}, help: "clients cut off because they did not read"},
		{
			name: "acl_access_denied_auth", kind: counter, counted: func(s *Counters) *atomic.Uint64 { return &s.Refused },
			help: "wrong passwords",
		},
		{
			name: "total_error_replies", kind: counter, counted: func(s *Counters) *atomic.Uint64 { return &s.Failures },
			help: "error replies",
		},
	}
}

func replicationMetrics() []metric {
	return []metric{
		{
			name: "role", kind: text, value: func(r *report) any { return r.role() },
			help: "`master` on the leader, `slave` on the others",
		},
		{name: "master_host", kind: text, value: ofSlave(func(r *report) any { host, _ := r.following(); return host })},
		{name: "master_port", kind: text, value: ofSlave(func(r *report) any { _, port := r.following(); return port })},
		{
			name: "master_link_status", kind: text, value: ofSlave((*report).leaderLink),
			help: "`down` while this node knows no leader",
		},
		{name: "master_last_io_seconds_ago", kind: text, value: ofSlave(zero)},
		{name: "master_sync_in_progress", kind: text, value: ofSlave(zero)},
		{
			name: "slave_repl_offset", kind: gauge, value: ofSlave(func(r *report) any { return r.status.Applied }),
			help: "on a follower: `raft_applied_index`",
		},
		{name: "slave_priority", kind: text, value: ofSlave(func(*report) any { return 100 })},
		{name: "slave_read_only", kind: text, value: ofSlave(zero)},
		{
			name: "connected_slaves", kind: gauge, value: (*report).connectedSlaves,
			help: "followers that answer the leader; 0 on a follower",
		},
		{
			name: "slaveN", kind: gauge, lines: slaveLines,
			help: "on the leader, for each of them: how much of what is committed its log has, and seconds since its " +
				"last answer",
		},
		{
			name: "stalled_followers", kind: gauge, value: ofMaster(func(r *report) any { return len(r.status.Stalled) }),
			help: "on the leader: followers whose logs have stood still for 3 s behind what is committed",
		},
		{
			name: "stalled_followerN", kind: gauge, lines: stalledLines,
			help: "for each of them: where its log stands, and for how many seconds",
		},
		constant("master_failover_state", "no-failover"),
		{name: "master_replid", kind: text, value: func(r *report) any { return replicationID(r.cfg.Directory.ClusterID()) }},
		constant("master_replid2", strings.Repeat("0", 40)),
		{
			name: "master_repl_offset", kind: gauge, value: func(r *report) any { return r.status.Committed },
			help: "`raft_commit_index`",
		},
		constant("second_repl_offset", -1),
		constant("repl_backlog_active", 0),
	}
}

func cpuMetrics() []metric {
	return []metric{
		{name: "used_cpu_sys", kind: counter, value: func(*report) any {
			system, _ := cpuTime()
			return microseconds(system)
		}, help: "seconds of CPU in the kernel; CONFIG RESETSTAT leaves it"},
		{
			name: "used_cpu_user", kind: counter, value: func(*report) any { _, user := cpuTime(); return microseconds(user) },
			help: "seconds of CPU in the process itself; CONFIG RESETSTAT leaves it",
		},
		constant("used_cpu_sys_children", "0.000000"),
		constant("used_cpu_user_children", "0.000000"),
	}
}

// holdfastMetrics returns the rows that Redis has no word for.
func holdfastMetrics() []metric {
	return []metric{
		{name: "node_name", kind: text, value: func(r *report) any { return r.status.Name }, help: "this node"},
		{
			name: "node_id", kind: text, value: func(r *report) any { return r.status.ID },
			help: "the ID of this node's folder, which no other folder ever has",
		},
		{
			name: "cluster_id", kind: text, value: func(r *report) any { return r.cfg.Directory.ClusterID() },
			help: "the cluster that this node belongs to; empty: none yet",
		},
		{name: "leading", kind: gauge, value: (*report).leading, help: "1 on the leader"},
		{
			name: "leader_name", kind: text, value: func(r *report) any { return r.status.Leader.Name },
			help: "the leader, as far as this node knows; empty: no leader",
		},
		{
			name: "leader_addr", kind: text, value: func(r *report) any { return r.status.Leader.ClientAddr },
			help: "its address for clients",
		},
		{
			name: "members", kind: gauge, value: func(r *report) any { return len(r.status.Members) },
			help: "how many nodes the cluster has",
		},
		{
			name: "voters", kind: gauge, value: func(r *report) any { return discovery.Voters(r.status.Members) },
			help: "how many of them vote",
		},
		{name: "non_voters", kind: gauge, value: func(r *report) any {
			return len(r.status.Members) - discovery.Voters(r.status.Members)
		}, help: "how many only follow"},
		{
			name: "voting", kind: gauge, value: func(r *report) any { return oneIf(discovery.Self(&r.status).Voter) },
			help: "1 if this node votes",
		},
		{
			name: "cluster_version", kind: gauge, value: func(r *report) any { return int(r.status.Version) },
			help: "the version of the log, and of what its entries mean; it goes up when all members can use a newer one",
		},
		{name: "cluster_version_held_back_by", kind: text, value: func(r *report) any {
			return strings.Join(discovery.HeldBackBy(&r.status), ",")
		}, help: "the members that keep it from going up; empty: none, or there is no newer one"},
		{
			name: "raft_term", kind: gauge, value: func(r *report) any { return r.status.Term },
			help: "grows with every election",
		},
		{
			name: "raft_commit_index", kind: gauge, value: func(r *report) any { return r.status.Committed },
			help: "the last log entry that this node knows to be on a majority's disks",
		},
		{
			name: "raft_applied_index", kind: gauge, value: func(r *report) any { return r.status.Applied },
			help: "the last log entry in this node's state; a follower that lags for long has a slow disk or network",
		},
		{
			name: "raft_last_log_index", kind: gauge, value: func(r *report) any { return r.status.LastLog },
			help: "the last log entry on this node's disk",
		},
	}
}
