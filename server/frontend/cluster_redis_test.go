package frontend

import (
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestDifferentialCluster sends the lines of testdata/differential_cluster to a Redis Cluster of one
// node and to a node in cluster mode, and requires the same bytes but for IDs and counters.
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
	text, err := os.ReadFile("testdata/differential_cluster")
	require.NoError(t, err)
	for i, conversation := range strings.Split(string(text), "\n\n") {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			lines, sent := conversationBytes(t, conversation)
			want, got := converse(t, "unix", redis, sent), converse(t, "tcp", ln.Addr().String(), sent)
			protocoltest.SameLines(t, maskCluster(want), maskCluster(got))
			require.NotEmpty(t, got, lines)
		})
	}
}

// maskCluster replaces IDs and counters, which differ rightly.
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
