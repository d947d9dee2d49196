package frontend

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

func infoLocals() map[string]local {
	return map[string]local{"info": {answer: info, last: true}}
}

// infoSection is a section of INFO. extra ones are shown only when asked for.
type infoSection struct {
	name  string
	extra bool
	write func(r *infoReport)
}

// infoSections are the sections in the order of Redis.
func infoSections() []infoSection {
	return []infoSection{
		{"Server", false, (*infoReport).server},
		{"Clients", false, (*infoReport).clients},
		{"Memory", false, (*infoReport).memory},
		{"Persistence", false, (*infoReport).persistence},
		{"Stats", false, (*infoReport).stats},
		{"Replication", false, (*infoReport).replication},
		{"CPU", false, (*infoReport).cpu},
		{"Modules", false, func(*infoReport) {}},
		{"Commandstats", true, (*infoReport).commandStats},
		{"Errorstats", false, (*infoReport).errorStats},
		{"Cluster", false, func(r *infoReport) { r.line("cluster_enabled", 0) }},
		{"Holdfast", false, (*infoReport).holdfast},
		{"Keyspace", false, (*infoReport).keyspace},
	}
}

// infoReport is one INFO reply in the making.
type infoReport struct {
	strings.Builder
	srv    *Server
	status replica.Status
}

func (r *infoReport) line(name string, value any) { fmt.Fprintf(r, "%s:%v\r\n", name, value) }

// lines writes name, value, name, value.
func (r *infoReport) lines(pairs ...any) {
	for i := 0; i < len(pairs); i += 2 {
		r.line(pairs[i].(string), pairs[i+1])
	}
}

// info answers INFO [section …].
func info(c *conn, words [][]byte) protocol.Value {
	c.srv.backend.AwaitApplied(c.ctx, c.wrote) // whoever wrote over this connection finds it counted
	r := &infoReport{srv: c.srv, status: c.srv.backend.Status()}
	for _, s := range infoSections() {
		if !wantsSection(words[1:], s) {
			continue
		}
		if r.Len() > 0 {
			r.WriteString("\r\n")
		}
		r.WriteString("# " + s.name + "\r\n")
		s.write(r)
	}
	return protocol.Verbatim(r.String())
}

func wantsSection(asked [][]byte, s infoSection) bool {
	if len(asked) == 0 {
		return !s.extra
	}
	for _, w := range asked {
		switch name := strings.ToLower(string(w)); {
		case name == "all", name == "everything", name == strings.ToLower(s.name):
			return true
		case name == "default" && !s.extra:
			return true
		}
	}
	return false
}

func (r *infoReport) server() {
	up := time.Since(r.srv.started)
	_, port := splitAddress(r.srv.address())
	executable, _ := os.Executable()
	r.lines(
		"redis_version", protocol.RedisVersion,
		"redis_git_sha1", "00000000",
		"redis_git_dirty", 0,
		"redis_build_id", "0",
		"redis_mode", "standalone",
		"os", runtime.GOOS+" "+runtime.GOARCH,
		"arch_bits", strconv.IntSize,
		"process_id", os.Getpid(),
		"run_id", r.srv.cfg.Node.RunID,
		"tcp_port", port,
		"server_time_usec", time.Now().UnixMicro(),
		"uptime_in_seconds", int64(up.Seconds()),
		"uptime_in_days", int64(up.Hours()/24),
		"executable", executable,
		"config_file", "",
		"holdfast_version", protocol.HoldfastVersion,
	)
}

func (r *infoReport) clients() {
	r.lines(
		"connected_clients", r.srv.clientCount(),
		"maxclients", r.srv.cfg.MaxClients,
		"blocked_clients", r.srv.stats.blocked.Load(),
		"tracking_clients", 0,
	)
}

// memory: used_memory is what the leader compares with its maxmemory: keys and scripts as the
// state machine counts them. What the process takes has other names.
func (r *infoReport) memory() {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	heap := samples[0].Value.Uint64()
	mapped := samples[1].Value.Uint64() - samples[2].Value.Uint64()
	stats, limit := r.srv.backend.Stats(), r.srv.cfg.MaxMemoryBytes
	used := uint64(stats.UsedBytes)
	r.lines(
		"used_memory", used,
		"used_memory_human", human(used),
		"used_memory_rss", mapped,
		"used_memory_rss_human", human(mapped),
		"maxmemory", limit,
		"maxmemory_human", human(limit),
		"maxmemory_policy", "noeviction",
		"mem_clients_normal", r.srv.memory.held.Load(),
		"number_of_cached_scripts", stats.Scripts,
		"allocator_allocated", heap,
		"mem_allocator", runtime.Version(),
	)
}

func human(n uint64) string {
	units := []string{"K", "M", "G", "T"}
	if n < 1024 {
		return strconv.FormatUint(n, 10) + "B"
	}
	f, unit := float64(n)/1024, 0
	for f >= 1024 && unit < len(units)-1 {
		f, unit = f/1024, unit+1
	}
	return strconv.FormatFloat(f, 'f', 2, 64) + units[unit]
}

// persistence: the raft log is an append-only file that is synced before every reply.
func (r *infoReport) persistence() {
	r.lines(
		"loading", 0,
		"async_loading", 0,
		"rdb_bgsave_in_progress", 0,
		"rdb_last_bgsave_status", "ok",
		"aof_enabled", 1,
		"aof_rewrite_in_progress", 0,
		"aof_last_bgrewrite_status", "ok",
		"aof_last_write_status", "ok",
	)
}

func (r *infoReport) stats() {
	st := &r.srv.stats
	r.lines(
		"total_connections_received", st.connections.Load(),
		"total_commands_processed", st.commands.Load(),
		"total_net_input_bytes", st.bytesIn.Load(),
		"total_net_output_bytes", st.bytesOut.Load(),
		"rejected_connections", st.rejected.Load(),
		"expired_keys", r.srv.backend.Stats().Expired,
		"evicted_keys", 0,
		"evicted_clients", st.evicted.Load(),
		"client_output_buffer_limit_disconnections", st.cutOff.Load(),
		"total_error_replies", st.failures.Load(),
	)
}

func (r *infoReport) replication() {
	st := &r.status
	if !r.srv.master(st) {
		host, port := splitAddress(st.Leader.ClientAddr)
		link := "up"
		if st.Leader.Name == "" {
			link = "down"
		}
		r.lines(
			"role", "slave",
			"master_host", host,
			"master_port", port,
			"master_link_status", link,
			"master_last_io_seconds_ago", 0,
			"master_sync_in_progress", 0,
			"slave_repl_offset", st.Applied,
			"slave_priority", 100,
			"slave_read_only", 0,
			"connected_slaves", 0,
		)
	} else {
		r.lines("role", "master", "connected_slaves", len(st.Followers))
		for i, f := range st.Followers {
			host, port := splitAddress(f.ClientAddr)
			r.line("slave"+strconv.Itoa(i), fmt.Sprintf("ip=%s,port=%s,state=online,offset=%d,lag=%d",
				host, port, offset(st, f), int64(f.Silent.Seconds())))
		}
		r.line("stalled_followers", len(st.Stalled))
		for i, f := range st.Stalled {
			r.line("stalled_follower"+strconv.Itoa(i), fmt.Sprintf("name=%s,addr=%s,offset=%d,seconds=%d",
				f.Name, f.PeerAddr, f.LogIndex, int64(f.For.Seconds())))
		}
	}
	r.lines(
		"master_failover_state", "no-failover",
		"master_replid", replicationID(st),
		"master_replid2", strings.Repeat("0", 40),
		"master_repl_offset", st.Committed,
		"second_repl_offset", -1,
		"repl_backlog_active", 0,
	)
}

// offset is how far a follower has what is committed.
func offset(st *replica.Status, f replica.Follower) uint64 { return min(f.LogIndex, st.Committed) }

// replicationID is the same on all nodes of a cluster: a hash of its members.
func replicationID(st *replica.Status) string {
	h := sha1.New()
	for _, m := range st.Members {
		fmt.Fprintf(h, "%s=%s\n", m.Name, m.PeerAddr)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (r *infoReport) cpu() {
	system, user := cpuTime()
	r.lines(
		"used_cpu_sys", strconv.FormatFloat(system.Seconds(), 'f', 6, 64),
		"used_cpu_user", strconv.FormatFloat(user.Seconds(), 'f', 6, 64),
		"used_cpu_sys_children", "0.000000",
		"used_cpu_user_children", "0.000000",
	)
}

// commandStats has Redis's fields; the times are not measured.
func (r *infoReport) commandStats() {
	var lines []string
	for _, row := range r.srv.rows {
		calls, rejected := row.calls.Load(), row.rejected.Load()
		if calls+rejected > 0 {
			lines = append(lines, fmt.Sprintf("cmdstat_%s:calls=%d,usec=0,usec_per_call=0.00,rejected_calls=%d,failed_calls=%d\r\n",
				row.Name, calls, rejected, row.failed.Load()))
		}
	}
	slices.Sort(lines)
	r.WriteString(strings.Join(lines, ""))
}

func (r *infoReport) errorStats() {
	var lines []string
	for prefix, n := range r.srv.stats.errorCounts() {
		lines = append(lines, fmt.Sprintf("errorstat_%s:count=%d\r\n", prefix, n))
	}
	slices.Sort(lines)
	r.WriteString(strings.Join(lines, ""))
}

// holdfast is what Redis has no word for.
func (r *infoReport) holdfast() {
	st := &r.status
	leading := 0
	if st.Leading {
		leading = 1
	}
	r.lines(
		"node_name", st.Name,
		"leading", leading,
		"leader_name", st.Leader.Name,
		"leader_addr", st.Leader.ClientAddr,
		"members", len(st.Members),
		"raft_term", st.Term,
		"raft_commit_index", st.Committed,
		"raft_applied_index", st.Applied,
		"raft_last_log_index", st.LastLog,
	)
}

func (r *infoReport) keyspace() {
	stats := r.srv.backend.Stats()
	for db, keys := range stats.Keys {
		if keys > 0 {
			r.line("db"+strconv.Itoa(db), fmt.Sprintf("keys=%d,expires=%d,avg_ttl=0", keys, stats.Expires[db]))
		}
	}
}
