package server

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// A node serves both ports, advertises the one for Sentinel's clients beside the other, and closes both.
func TestSentinelPort(t *testing.T) {
	c := DefaultConfig()
	c.Addr, c.PeerAddr, c.SentinelAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	c.AdvertiseAddr, c.DataDir = "n1.example:6379", t.TempDir()
	s, err := New(c, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	addr := s.sentinel.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	require.Equal(t, "n1.example:"+port, s.advertisedSentinel())
	s.config.SentinelAdvertiseAddr = "s.example:1"
	require.Equal(t, "s.example:1", s.advertisedSentinel())
	s.config.SentinelAdvertiseAddr, s.config.AdvertiseAddr = "", ""
	require.Equal(t, addr, s.advertisedSentinel())

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	client := protocol.NewConn(conn)
	require.Eventually(t, func() bool {
		v, err := client.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
		require.NoError(t, err)
		return len(v.Elems) == 2 && v.Elems[0].Str == "n1.example" && v.Elems[1].Str == "6379"
	}, 10*time.Second, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	_, err = net.Dial("tcp", addr)
	require.Error(t, err)
}
