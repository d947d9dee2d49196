package discovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

func member(n string) replica.Member {
	host := "10.0.0." + n
	return replica.Member{ID: "n" + n, Name: "n" + n, Voter: true, PeerAddr: host + ":7379", ClientAddr: host + ":6379"}
}

// shardOf returns the shard of a cluster with these members, of which the first leads.
func shardOf(cfg Config, members ...replica.Member) *shard {
	d := New(cfg, func() replica.Status {
		return replica.Status{ID: "n1", Name: "n1", Term: 3, Committed: 42, Members: members}
	})
	d.SetLeadership(replica.Leadership{Leader: members[0], Present: true}, members)
	return d.shard()
}

// TestClusterLeavesOutWhoIsSilent shows that a silent follower is listed as failed and is not in CLUSTER SLOTS, and
// that a node whose address is unknown is not listed.
func TestClusterLeavesOutWhoIsSilent(t *testing.T) {
	quiet, unknown := member("2"), member("3")
	quiet.Silent, quiet.LogIndex, unknown.ClientAddr = true, 40, ""
	s := shardOf(Config{}, member("1"), quiet, unknown)
	slots := clusterSlots(s, nil).Elems[0]
	require.Len(t, slots.Elems, 3, "two slots and the leader")
	require.Equal(t, "10.0.0.1", slots.Elems[2].Elems[0].Str)
	require.Equal(t, nodeID("n1")+" 10.0.0.1:6379@7379 myself,master - 0 0 3 connected 0-16383\n"+
		nodeID("n2")+" 10.0.0.2:6379@7379 slave,fail "+nodeID("n1")+" 0 0 3 disconnected\n", clusterNodes(s, nil).Str)
	nodes := clusterShards(s, nil).Elems[0].Elems[3].Elems
	require.Len(t, nodes, 2)
	require.Equal(t, []protocol.Value{
		protocol.Bulk("replication-offset"), protocol.Integer(40), protocol.Bulk("health"),
		protocol.Bulk("fail"),
	},
		nodes[1].Elems[len(nodes[1].Elems)-4:])
	require.Len(t, clusterReplicas(s, [][]byte{nil, nil, []byte(nodeID("n1"))}).Elems, 1)
	require.Equal(t, "ERR The specified node is not a master",
		clusterReplicas(s, [][]byte{nil, nil, []byte(nodeID("n2"))}).Str)
}

// TestClusterWithNames shows that a host name in the advertised address is returned wherever Redis has a name or an IP
// address.
func TestClusterWithNames(t *testing.T) {
	m := member("1")
	m.ClientAddr = "n1.example:6379"
	s := shardOf(Config{TLS: true}, m)
	require.Equal(t, protocol.Bulk("n1.example"), clusterSlots(s, nil).Elems[0].Elems[2].Elems[0])
	require.Equal(t, nodeID("n1")+" n1.example:6379@7379,n1.example myself,master - 0 0 3 connected 0-16383\n",
		clusterNodes(s, nil).Str)
	require.Equal(t, []protocol.Value{
		protocol.Bulk("id"), protocol.Bulk(nodeID("n1")), protocol.Bulk("tls-port"), protocol.Integer(6379),
		protocol.Bulk("ip"), protocol.Bulk("n1.example"),
		protocol.Bulk("endpoint"), protocol.Bulk("n1.example"), protocol.Bulk("hostname"), protocol.Bulk("n1.example"),
	}, clusterShards(s, nil).Elems[0].Elems[3].Elems[0].Elems[:10])
}

// TestClusterBeforeTheFirstLeader shows that before a node has heard of a leader, there is no shard, and CLUSTER NODES
// has no master.
func TestClusterBeforeTheFirstLeader(t *testing.T) {
	s := shardOf(Config{}, replica.Member{}, member("1"), member("2"))
	s.serves = false
	require.Empty(t, clusterSlots(s, nil).Elems)
	require.Empty(t, clusterShards(s, nil).Elems)
	require.Equal(t, nodeID("n1")+" 10.0.0.1:6379@7379 myself,slave - 0 0 3 connected\n"+
		nodeID("n2")+" 10.0.0.2:6379@7379 slave - 0 0 3 connected\n", clusterNodes(s, nil).Str)
	require.Contains(t, clusterInfo(&shard{}, nil).Str,
		"cluster_state:fail\r\ncluster_slots_assigned:0\r\ncluster_slots_ok:0\r\ncluster_slots_pfail:0\r\n")
}

// TestNodesTooFarApartAreATrouble shows that the leader reports a round trip that is too long for the timeouts, and the
// timeouts that it needs.
func TestNodesTooFarApartAreATrouble(t *testing.T) {
	st := replica.Status{ID: "n1", RoundTrip: 151 * time.Millisecond}
	d := New(Config{}, func() replica.Status { return st })
	require.Empty(t, d.census().troubles)
	st.FarApart = true
	require.Equal(t, []string{
		"a round trip to a majority takes 151ms, too long for the timeouts: set heartbeat-timeout and election-timeout to " +
			"700ms, and command-timeout to 3.0625s, on all nodes",
	}, d.census().troubles)
}
