package target

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// startSrvr answers the word srvr as ZooKeeper does.
func startSrvr(t *testing.T, answer string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			word := make([]byte, 4)
			if _, err := io.ReadFull(c, word); err == nil && string(word) == "srvr" {
				_, _ = io.WriteString(c, answer)
			}
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

func TestZooKeeper(t *testing.T) {
	t.Parallel()
	starting := startSrvr(t, "This ZooKeeper instance is not currently serving requests\n")
	follower := startSrvr(t, "Zookeeper version: 3.8.0\nMode: follower\nNode count: 5\n")
	leader := startSrvr(t, "Zookeeper version: 3.8.0\nMode: leader\nNode count: 5\n")
	all := Target{
		Name: "x", Addrs: []string{"127.0.0.1:1", starting, follower, leader}, Kind: ZooKeeperLock,
		Via: ViaLeader,
	}
	got, err := all.Endpoints(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{leader}, got)
	all.Addrs = all.Addrs[:3]
	_, err = all.Endpoints(t.Context())
	require.ErrorContains(t, err, "x has no leader")
	require.ErrorContains(t, err, starting+" is not ready: This ZooKeeper instance is not currently serving requests")
}
