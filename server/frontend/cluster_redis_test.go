package frontend

import (
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/frontend/discovery"
)

// TestDifferentialCluster sends the conversations of testdata/differential_cluster to a Redis Cluster of one node and
// to a node in cluster mode, and requires the same replies except for IDs and counters.
func TestDifferentialCluster(t *testing.T) {
	redis := protocoltest.StartRedis(t, "--cluster-enabled", "yes", "--cluster-port", protocoltest.FreePort(t),
		"--cluster-announce-ip", "10.0.0.1", "--cluster-announce-port", "6379", "--cluster-announce-bus-port", "7379")
	converse(t, "unix", redis, command("CLUSTER", "ADDSLOTSRANGE", "0", "16383"))
	require.Eventually(t, func() bool {
		return strings.Contains(converse(t, "unix", redis, command("CLUSTER", "INFO"))[0], "cluster_state:ok")
	}, 10*time.Second, 10*time.Millisecond)

	cl := newCluster()
	cl.status.Members, cl.status.Followers = cl.status.Members[:1], nil
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	startOn(t, Config{Options: Options{ClusterMode: true}}, cl, ln)
	text := protocoltest.ReadFile(t, "testdata/differential_cluster")
	for i, conversation := range strings.Split(text, "\n\n") {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			lines, sent := conversationBytes(t, conversation)
			want, got := converse(t, "unix", redis, sent), converse(t, "tcp", ln.Addr().String(), sent)
			protocoltest.SameLines(t, maskCluster(want), maskCluster(got))
			require.NotEmpty(t, got, lines)
		})
	}
}

// maskCluster replaces IDs and counters, which may differ.
func maskCluster(lines []string) string {
	text := strings.Join(lines, "\n")
	for _, mask := range []struct{ pattern, with string }{
		{`[0-9a-f]{40}`, "ID"},
		{`"replication-offset" :\d+`, `"replication-offset" N`},
		{`- 0 0 \d+ connected`, "- 0 0 EPOCH connected"},
		{`(epoch|sent|received):\d+`, "$1:N"},
		{`cluster_stats_messages_(ping|pong|meet|publishshard)_(sent|received):N\\r\\n`, ""},
	} {
		text = regexp.MustCompile(mask.pattern).ReplaceAllString(text, mask.with)
	}
	return text
}

// TestDifferentialSentinel sends the conversations of testdata/differential_sentinel to one of two Sentinels that watch
// a master and a replica, and to the port for Sentinel's clients in a cluster of two nodes. It requires the same
// replies except for addresses, IDs, times and settings.
func TestDifferentialSentinel(t *testing.T) {
	redis := startSentinels(t)
	cl := newCluster()
	cl.status.Members, cl.status.Followers = cl.status.Members[:2], cl.status.Followers[:1]
	s := start(t, Config{Sentinel: discovery.Sentinel{
		Name: "mymaster", DownAfter: time.Second,
		FailoverTimeout: time.Second,
	}}, cl)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.serveSentinelOn(ln)
	text := protocoltest.ReadFile(t, "testdata/differential_sentinel")
	for i, conversation := range strings.Split(text, "\n\n") {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			lines, sent := conversationBytes(t, conversation)
			want, got := converse(t, "unix", redis, sent), converse(t, "tcp", ln.Addr().String(), sent)
			protocoltest.SameLines(t, maskSentinel(want), maskSentinel(got))
			require.Greater(t, len(got), len(lines)/2)
		})
	}
}

// startSentinels starts a master, a replica and two Sentinels that watch them. It waits until the Sentinels have found
// each other, and returns the socket of the second.
func startSentinels(t *testing.T) (socket string) {
	says := func(socket, words, has string) {
		require.Eventually(t, func() bool {
			return strings.Contains(strings.Join(converse(t, "unix", socket, command(strings.Fields(words)...)), ""), has)
		}, 20*time.Second, 50*time.Millisecond, words)
	}
	port := protocoltest.FreePort(t)
	protocoltest.StartRedis(t, "--port", port, "--repl-diskless-sync-delay", "0")
	replica := protocoltest.StartRedis(t, "--port", protocoltest.FreePort(t), "--replicaof", "127.0.0.1", port)
	says(replica, "INFO replication", "master_link_status:up")
	config := []string{
		"sentinel monitor mymaster 127.0.0.1 " + port + " 2",
		"sentinel down-after-milliseconds mymaster 60000",
	}
	protocoltest.StartSentinel(t, config...)
	socket = protocoltest.StartSentinel(t, config...)
	says(socket, "SENTINEL MASTERS", `"num-other-sentinels" "1"`)
	says(socket, "SENTINEL REPLICAS mymaster", `"master-link-status" "ok"`)
	says(socket, "SENTINEL SENTINELS mymaster", `"flags" "sentinel"`)
	return socket
}

// maskSentinel replaces addresses, IDs, times and settings, which may differ.
func maskSentinel(lines []string) string {
	text := strings.Join(lines, "\n")
	for _, mask := range []struct{ pattern, with string }{
		{`[0-9a-f]{40}`, "ID"},
		{`"(ip|port|master-host|master-port)" "[^"]*"`, `"$1" "X"`},
		{`(\["?|address=)(127|10)\.[0-9.]+(:|" ")\d+`, "${1}ADDRESS"},
		{`"name" "(127|10)\.[0-9.]+:\d+"`, `"name" "ADDRESS"`},
		{`"((last|role)-[a-z-]+|info-refresh|link-pending-commands|[a-z-]*epoch|down-after-milliseconds|failover-timeout|parallel-syncs|slave-repl-offset)" "\d+"`, `"$1" "N"`},
	} {
		text = regexp.MustCompile(mask.pattern).ReplaceAllString(text, mask.with)
	}
	return text
}
