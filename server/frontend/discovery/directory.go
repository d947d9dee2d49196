// Package discovery has the replies to clients that look for the leader, for other nodes, or for the state of the
// cluster: CLUSTER for clients of Redis Cluster, SENTINEL for clients of Sentinel, ROLE and the role in HELLO and INFO,
// and RAFT.STATUS and RAFT.MEMBERS for operators.
//
// The package promises:
//   - a reply is made from one status of this node, so its parts agree;
//   - all nodes with the same status and leader give the same IDs and the same master;
//   - without a leader the last one is named, since clients refuse a replica without a master.
//
// A [Directory] calls a function for the status, and gets the leadership by [Directory.SetLeadership]. It knows no
// connections, starts no goroutine, and is safe for concurrent use.
//
// Read cluster.go next. ../DESIGN.md says which node is the master, and why.
package discovery

import (
	"maps"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

// Config configures a [Directory] of one node.
type Config struct {
	// EveryNodeMaster has every node report the role of a master in INFO, ROLE and HELLO.
	EveryNodeMaster bool
	// ClusterMode enables the replies for clients of Redis Cluster.
	ClusterMode bool
	// TLS is set if clients use TLS.
	TLS bool
	// Sentinel configures the port for Sentinel's clients.
	Sentinel Sentinel
	// ClusterID returns the ID of the node's cluster, or "" before there is one. If it is nil, the ID is unknown.
	ClusterID func() string
	// Troubles, if not nil, returns what is wrong although there is a leader and voters answer, a sentence each.
	Troubles func() []string
	// Warnings, if not nil, returns what members warn of in themselves, a sentence each. A warning is no trouble yet.
	Warnings func() []string
	// Quarantined, if not nil, returns the IDs of the members that are known to be in quarantine.
	Quarantined func() []string
	// Waiting returns what the node waits for before it belongs to a cluster. If it is nil, the node waits for nothing.
	Waiting func() string
}

// Directory knows the leader and the nodes of the cluster. Create it with [New].
type Directory struct {
	cfg    Config
	status func() replica.Status
	// lead is nil before the first call of SetLeadership.
	lead atomic.Pointer[lead]
}

// lead is the leadership as clients see it.
type lead struct {
	replica.Leadership
	since time.Time
}

// New returns a directory of the statuses that status returns. SetLeadership must be called before any query.
func New(cfg Config, status func() replica.Status) *Directory {
	return &Directory{cfg: cfg, status: status}
}

// Reply returns the reply to a command about the cluster.
type Reply func(d *Directory, args [][]byte) protocol.Value

// Replies returns the commands, by the names of their rows in the command table.
func Replies() map[string]Reply {
	all := clusterReplies()
	maps.Copy(all, sentinelReplies())
	maps.Copy(all, memberReplies())
	return all
}

// Knows reports whether the directory names the leader of l.
func (d *Directory) Knows(l replica.Leadership) bool {
	was := d.lead.Load()
	return was != nil && was.Leader == l.Leader && was.Present == l.Present
}

// SetLeadership sets the leadership. It returns the messages about the change for Sentinel's clients.
func (d *Directory) SetLeadership(l replica.Leadership, members []replica.Member) []Message {
	was := d.lead.Swap(&lead{Leadership: l, since: time.Now()})
	if was == nil {
		return nil
	}
	return d.cfg.Sentinel.messages(was.Leadership, l, members)
}

func (d *Directory) leadership() replica.Leadership { return d.lead.Load().Leadership }

// Every node accepts every command, so each could report the role of a master. But clients with several addresses look
// for the master (see ../DESIGN.md), so only the leader reports it, unless Config.EveryNodeMaster is set.

// Master reports whether this node reports the role of a master.
func (d *Directory) Master(st *replica.Status) bool { return st.Leading || d.cfg.EveryNodeMaster }

// Mode returns the mode of the node in INFO and HELLO.
func (d *Directory) Mode(sentinel bool) string {
	if sentinel {
		return "sentinel"
	}
	if d.cfg.ClusterMode {
		return "cluster"
	}
	return "standalone"
}

// HelloRole returns the role in HELLO.
func (d *Directory) HelloRole() string {
	if st := d.status(); d.Master(&st) {
		return "master"
	}
	return "replica"
}

// Role returns the reply to ROLE.
func (d *Directory) Role() protocol.Value {
	st := d.status()
	if !d.Master(&st) {
		leader, up := d.Following(&st)
		host, port := SplitAddress(leader)
		link := "connected"
		if !up {
			link = "connect"
		}
		n, _ := protocol.ParseInt(port)
		return protocol.Array(protocol.Bulk("slave"), protocol.Bulk(host), protocol.Integer(n),
			protocol.Bulk(link), protocol.Integer(int64(st.Applied)))
	}
	var others []protocol.Value
	for _, f := range st.Followers {
		host, port := SplitAddress(f.ClientAddr)
		others = append(others, protocol.Strings(host, port, strconv.FormatUint(Offset(&st, f), 10)))
	}
	return protocol.Array(protocol.Bulk("master"), protocol.Integer(int64(st.Committed)), protocol.Array(others...))
}

// Following returns the address of the leader that a follower names, and whether there is a leader. Otherwise it is the
// last leader, since clients refuse a replica without a master.
func (d *Directory) Following(st *replica.Status) (addr string, up bool) {
	if st.Leader.ClientAddr != "" {
		return st.Leader.ClientAddr, true
	}
	return d.leadership().Leader.ClientAddr, false
}

// SplitAddress splits host:port for clients, which get both separately. For an unknown address it returns an empty host
// and port 0.
func SplitAddress(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", "0"
	}
	return host, port
}

// Offset returns the index up to which a follower has the committed entries.
func Offset(st *replica.Status, f replica.Follower) uint64 { return min(f.LogIndex, st.Committed) }

// ClusterID returns the ID of this node's cluster, or "" if there is none yet.
func (d *Directory) ClusterID() string {
	if d.cfg.ClusterID == nil {
		return ""
	}
	return d.cfg.ClusterID()
}
