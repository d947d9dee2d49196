// Package discovery answers clients that look for the leader, for other nodes, or for what the cluster is: CLUSTER for
// clients of Redis Cluster, SENTINEL for clients of Sentinel, ROLE and the role in HELLO and INFO, and RAFT.STATUS and
// RAFT.MEMBERS for operators.
//
// The package promises:
//   - a reply is made from one status of this node, so its parts agree;
//   - all nodes with the same status and leader give the same IDs and the same master;
//   - without a leader the last one is named, as clients refuse a replica without a master.
//
// A [Directory] gets the status as a function, and the leadership by [Directory.SetLeadership]. It knows no
// connections, starts no goroutine, and may be asked by any number of goroutines.
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

// Config is what a [Directory] says of the node itself.
type Config struct {
	// EveryNodeMaster lets every node call itself master in INFO, ROLE and HELLO.
	EveryNodeMaster bool
	// ClusterMode answers clients of Redis Cluster.
	ClusterMode bool
	// TLS: the addresses for clients are spoken to by TLS.
	TLS bool
	// Sentinel is about the port for Sentinel's clients.
	Sentinel Sentinel
	// ClusterID is the ID of the cluster that the node belongs to, "" while there is none; nil: not known.
	ClusterID func() string
	// Troubles, unless nil, is what is wrong although a leader is there and voters answer, a sentence each.
	Troubles func() []string
	// Warnings, unless nil, is what members warn of in themselves, which is no trouble yet, a sentence each.
	Warnings func() []string
	// Quarantined, unless nil, are the IDs of the members in quarantine, as far as is known.
	Quarantined func() []string
	// Waiting says what the node waits for before it belongs to a cluster; nil: it waits for nothing.
	Waiting func() string
}

// Directory answers who leads the cluster and which nodes there are. Create it with [New].
type Directory struct {
	cfg    Config
	status func() replica.Status
	// lead is nil before the first call of SetLeadership.
	lead atomic.Pointer[lead]
}

// lead is what clients are told about the leader.
type lead struct {
	replica.Leadership
	since time.Time
}

// New makes a directory of what status returns. SetLeadership must be called before any question.
func New(cfg Config, status func() replica.Status) *Directory {
	return &Directory{cfg: cfg, status: status}
}

// Reply makes the reply to a command about the cluster.
type Reply func(d *Directory, args [][]byte) protocol.Value

// Replies are the commands by the names of their rows in the command table.
func Replies() map[string]Reply {
	all := clusterReplies()
	maps.Copy(all, sentinelReplies())
	maps.Copy(all, memberReplies())
	return all
}

// Knows reports whether l names the leader that the directory names.
func (d *Directory) Knows(l replica.Leadership) bool {
	was := d.lead.Load()
	return was != nil && was.Leader == l.Leader && was.Present == l.Present
}

// SetLeadership takes a change of the leadership. The result are messages about it for Sentinel's clients.
func (d *Directory) SetLeadership(l replica.Leadership, members []replica.Member) []Message {
	was := d.lead.Swap(&lead{Leadership: l, since: time.Now()})
	if was == nil {
		return nil
	}
	return d.cfg.Sentinel.messages(was.Leadership, l, members)
}

func (d *Directory) leadership() replica.Leadership { return d.lead.Load().Leadership }

// Every node takes every command, so each could call itself master. Clients that are given several
// addresses look for the master (see ../DESIGN.md), so only the leader says so, unless
// Config.EveryNodeMaster is set.

// Master reports whether this node calls itself master.
func (d *Directory) Master(st *replica.Status) bool { return st.Leading || d.cfg.EveryNodeMaster }

// Mode is what the node calls itself in INFO and HELLO.
func (d *Directory) Mode(sentinel bool) string {
	if sentinel {
		return "sentinel"
	}
	if d.cfg.ClusterMode {
		return "cluster"
	}
	return "standalone"
}

// HelloRole is the role in HELLO.
func (d *Directory) HelloRole() string {
	if st := d.status(); d.Master(&st) {
		return "master"
	}
	return "replica"
}

// Role is the reply to ROLE.
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

// Following is the address of the leader that a follower names, and whether the leader is there. While
// no leader is known that is the last one, because clients refuse a replica without a master.
func (d *Directory) Following(st *replica.Status) (addr string, up bool) {
	if st.Leader.ClientAddr != "" {
		return st.Leader.ClientAddr, true
	}
	return d.leadership().Leader.ClientAddr, false
}

// SplitAddress splits host:port, because clients get both separately. An unknown address gives an
// empty host and port 0.
func SplitAddress(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", "0"
	}
	return host, port
}

// Offset is how far a follower has what is committed.
func Offset(st *replica.Status, f replica.Follower) uint64 { return min(f.LogIndex, st.Committed) }

// ClusterID is the ID of the cluster that this node belongs to; "": none yet.
func (d *Directory) ClusterID() string {
	if d.cfg.ClusterID == nil {
		return ""
	}
	return d.cfg.ClusterID()
}
