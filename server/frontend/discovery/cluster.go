package discovery

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

// In cluster mode a node describes the cluster to clients of Redis Cluster as a single shard with all slots, whose
// master is the leader. Every node accepts every command, so no reply redirects a client.

func clusterReplies() map[string]Reply {
	return map[string]Reply{
		"asking":                        clusterOK,
		"readonly":                      clusterOK,
		"readwrite":                     clusterOK,
		"cluster|count-failure-reports": inCluster(clusterFailureReports),
		"cluster|info":                  inCluster(clusterInfo),
		"cluster|keyslot":               inCluster(clusterKeySlot),
		"cluster|links":                 inCluster(func(*shard, [][]byte) protocol.Value { return protocol.Array() }),
		"cluster|myid": inCluster(func(s *shard, _ [][]byte) protocol.Value {
			return protocol.Bulk(nodeID(s.self))
		}),
		"cluster|myshardid": inCluster(func(*shard, [][]byte) protocol.Value { return protocol.Bulk(shardID) }),
		"cluster|nodes":     inCluster(clusterNodes),
		"cluster|replicas":  inCluster(clusterReplicas),
		"cluster|shards":    inCluster(clusterShards),
		"cluster|slaves":    inCluster(clusterReplicas),
		"cluster|slots":     inCluster(clusterSlots),
	}
}

// ErrNoCluster is the reply to CLUSTER outside of cluster mode.
var ErrNoCluster = protocol.NewError("This instance has cluster support disabled")

func clusterOK(d *Directory, _ [][]byte) protocol.Value {
	if !d.cfg.ClusterMode {
		return ErrNoCluster.Value()
	}
	return protocol.OK
}

// inCluster returns a subcommand of CLUSTER that is refused outside of cluster mode.
func inCluster(f func(s *shard, args [][]byte) protocol.Value) Reply {
	return func(d *Directory, args [][]byte) protocol.Value {
		if !d.cfg.ClusterMode {
			return ErrNoCluster.Value()
		}
		return f(d.shard(), args)
	}
}

// shard is the cluster as it is shown to clients of Redis Cluster.
type shard struct {
	self    string
	leader  replica.Member // the last leader; zero before the first
	serves  bool           // there is a leader now
	nodes   []replica.Member
	term    uint64
	commit  uint64
	portKey string // of CLUSTER SHARDS
}

func (d *Directory) shard() *shard {
	st, lead := d.status(), d.leadership()
	sh := &shard{
		self: st.ID, leader: lead.Leader, serves: lead.Present, term: st.Term, commit: st.Committed,
		portKey: "port",
	}
	if d.cfg.TLS {
		sh.portKey = "tls-port"
	}
	for _, m := range st.Members {
		if m.ClientAddr != "" {
			sh.nodes = append(sh.nodes, m)
		}
	}
	return sh
}

// leaderFirst returns the nodes that answer, the leader first, or nil before the first leader is known.
func (s *shard) leaderFirst() (nodes []replica.Member) {
	if s.leader.ID == "" {
		return nil
	}
	nodes = append(nodes, s.leader)
	for _, m := range s.nodes {
		if !s.isLeader(m) {
			nodes = append(nodes, m)
		}
	}
	return nodes
}

func (s *shard) isLeader(m replica.Member) bool { return m.ID == s.leader.ID }

// offset returns the index up to which the node's log has the committed entries.
func (s *shard) offset(m replica.Member) int64 {
	if s.isLeader(m) {
		return int64(s.commit)
	}
	return int64(min(m.LogIndex, s.commit))
}

// nodeID returns a node's ID for Redis Cluster and Sentinel, 40 hex digits. It is derived from the ID in the cluster,
// so all nodes agree.
func nodeID(id string) string {
	sum := sha1.Sum([]byte("holdfast node " + id))
	return hex.EncodeToString(sum[:])
}

// shardID is the ID of the only shard.
var shardID = func() string {
	sum := sha1.Sum([]byte("holdfast shard"))
	return hex.EncodeToString(sum[:])
}()

// endpoint is a node's address for clients. If the address has a host name, the name also replaces the IP address, as
// with announce-hostnames of Sentinel.
type endpoint struct {
	host, port string
	named      bool
}

func endpointOf(m replica.Member) endpoint {
	host, port := SplitAddress(m.ClientAddr)
	return endpoint{host: host, port: port, named: net.ParseIP(host) == nil}
}

func (e endpoint) number() protocol.Value {
	n, _ := protocol.ParseInt(e.port)
	return protocol.Integer(n)
}

func clusterSlots(s *shard, _ [][]byte) protocol.Value {
	nodes := s.leaderFirst()
	if nodes == nil {
		return protocol.Array()
	}
	slots := []protocol.Value{protocol.Integer(0), protocol.Integer(protocol.Slots - 1)}
	for _, m := range nodes {
		if m.Silent && !s.isLeader(m) {
			continue
		}
		e := endpointOf(m)
		slots = append(slots, protocol.Array(protocol.Bulk(e.host), e.number(), protocol.Bulk(nodeID(m.ID)), protocol.Map()))
	}
	return protocol.Array(protocol.Array(slots...))
}

func clusterShards(s *shard, _ [][]byte) protocol.Value {
	nodes := s.leaderFirst()
	if nodes == nil {
		return protocol.Array()
	}
	shown := make([]protocol.Value, len(nodes))
	for i, m := range nodes {
		e := endpointOf(m)
		fields := []protocol.Value{
			protocol.Bulk("id"), protocol.Bulk(nodeID(m.ID)),
			protocol.Bulk(s.portKey), e.number(),
			protocol.Bulk("ip"), protocol.Bulk(e.host),
			protocol.Bulk("endpoint"), protocol.Bulk(e.host),
		}
		if e.named {
			fields = append(fields, protocol.Bulk("hostname"), protocol.Bulk(e.host))
		}
		role := "replica"
		if s.isLeader(m) {
			role = "master"
		}
		shown[i] = protocol.Map(append(fields,
			protocol.Bulk("role"), protocol.Bulk(role),
			protocol.Bulk("replication-offset"), protocol.Integer(s.offset(m)),
			protocol.Bulk("health"), protocol.Bulk(s.health(m)))...)
	}
	return protocol.Array(protocol.Map(
		protocol.Bulk("slots"), protocol.Array(protocol.Integer(0), protocol.Integer(protocol.Slots-1)),
		protocol.Bulk("nodes"), protocol.Array(shown...)))
}

func (s *shard) health(m replica.Member) string {
	if s.isLeader(m) && !s.serves || m.Silent && !s.isLeader(m) {
		return "fail"
	}
	return "online"
}

func clusterNodes(s *shard, _ [][]byte) protocol.Value {
	var b strings.Builder
	for _, m := range s.nodes {
		b.WriteString(s.line(m) + "\n")
	}
	return protocol.Verbatim(b.String())
}

// line returns a node's line of CLUSTER NODES.
func (s *shard) line(m replica.Member) string {
	e := endpointOf(m)
	_, bus := SplitAddress(m.PeerAddr)
	addr := e.host + ":" + e.port + "@" + bus
	if e.named {
		addr += "," + e.host
	}
	var flags []string
	link := "connected"
	if m.ID == s.self {
		flags = append(flags, "myself")
	}
	of, slots := "-", ""
	switch {
	case s.isLeader(m):
		flags, slots = append(flags, "master"), " 0-"+strconv.Itoa(protocol.Slots-1)
		if !s.serves {
			flags = append(flags, "fail?")
		}
	case s.leader.ID == "":
		flags = append(flags, "slave")
	default:
		flags, of = append(flags, "slave"), nodeID(s.leader.ID)
	}
	if s.health(m) == "fail" {
		link = "disconnected"
		if !s.isLeader(m) {
			flags = append(flags, "fail")
		}
	}
	return fmt.Sprintf("%s %s %s %s 0 0 %d %s%s", nodeID(m.ID), addr, strings.Join(flags, ","), of, s.term, link, slots)
}

func (s *shard) find(id []byte) (m replica.Member, refusal *protocol.Error) {
	for _, m := range s.nodes {
		if nodeID(m.ID) == string(id) {
			return m, nil
		}
	}
	return m, protocol.NewError("Unknown node " + string(id))
}

func clusterReplicas(s *shard, args [][]byte) protocol.Value {
	m, refusal := s.find(args[2])
	switch {
	case refusal != nil:
		return refusal.Value()
	case !s.isLeader(m):
		return protocol.Err("The specified node is not a master")
	}
	var lines []string
	for _, m := range s.nodes {
		if !s.isLeader(m) {
			lines = append(lines, s.line(m))
		}
	}
	return protocol.Strings(lines...)
}

func clusterFailureReports(s *shard, args [][]byte) protocol.Value {
	if _, refusal := s.find(args[2]); refusal != nil {
		return refusal.Value()
	}
	return protocol.Integer(0)
}

func clusterKeySlot(_ *shard, args [][]byte) protocol.Value {
	return protocol.Integer(int64(protocol.KeySlot(string(args[2]))))
}

func clusterInfo(s *shard, _ [][]byte) protocol.Value {
	state, fine, doubtful := "ok", protocol.Slots, 0
	assigned, size := protocol.Slots, 1
	if !s.serves {
		state, fine, doubtful = "fail", 0, protocol.Slots
	}
	if s.leader.ID == "" {
		assigned, doubtful, size = 0, 0, 0
	}
	var b strings.Builder
	for _, line := range []struct {
		name  string
		value any
	}{
		{"cluster_state", state},
		{"cluster_slots_assigned", assigned},
		{"cluster_slots_ok", fine},
		{"cluster_slots_pfail", doubtful},
		{"cluster_slots_fail", 0},
		{"cluster_known_nodes", len(s.nodes)},
		{"cluster_size", size},
		{"cluster_current_epoch", s.term},
		{"cluster_my_epoch", s.term},
		{"cluster_stats_messages_sent", 0},
		{"cluster_stats_messages_received", 0},
		{"total_cluster_links_buffer_limit_exceeded", 0},
	} {
		fmt.Fprintf(&b, "%s:%v\r\n", line.name, line.value)
	}
	return protocol.Verbatim(b.String())
}
