package peer

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/peertest"
	"github.com/holdfast/holdfast/server/raftnode/hclogger"
	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/storetest"
)

// startRaft runs raft over the layer of KindRaft of n. Raft stops at the end of the test.
func startRaft(t *testing.T, n *node, peers raft.Configuration) *raft.Raft {
	t.Helper()
	s, err := storetest.NewDisk().Open(store.Config{})
	require.NoError(t, err)
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.config.ID)
	c.Logger = hclogger.New(slog.New(slog.DiscardHandler))
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.Layer(KindRaft), MaxPool: 3, Timeout: time.Second, MaxRPCsInFlight: 1, Logger: c.Logger,
	})
	require.NoError(t, raft.BootstrapCluster(c, s.Log, s.Stable, s.Snapshots, transport, peers))
	r, err := raft.NewRaft(c, &raft.MockFSM{}, s.Log, s.Stable, s.Snapshots, transport)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.Shutdown().Error())
		require.NoError(t, transport.Close())
		require.NoError(t, s.Close())
	})
	return r
}

// leader returns the node that leads, as a majority confirms. It waits for 20 seconds at most.
func leader(t *testing.T, nodes []*raft.Raft) *raft.Raft {
	t.Helper()
	for range 100 {
		time.Sleep(200 * time.Millisecond)
		for _, r := range nodes {
			if r.State() == raft.Leader && r.VerifyLeader().Error() == nil {
				return r
			}
		}
	}
	t.Fatal("no leader in 20 s")
	return nil
}

// TestRaftRunsOverTheLayer shows that raft elects a leader and replicates over this package, also after a partition.
// The bubble ends only if no goroutine is left.
func TestRaftRunsOverTheLayer(t *testing.T) {
	inBubble(t, func(t *testing.T, net *peertest.Network) {
		var peers raft.Configuration
		for i := range 3 {
			name := fmt.Sprintf("n%d", i+1)
			peers.Servers = append(peers.Servers, raft.Server{ID: raft.ServerID(name), Address: raft.ServerAddress(name)})
		}
		var nodes []*raft.Raft
		byID := make(map[raft.ServerID]*raft.Raft)
		for _, p := range peers.Servers {
			r := startRaft(t, start(t, net, string(p.ID)), peers)
			nodes, byID[p.ID] = append(nodes, r), r
		}
		first := leader(t, nodes)
		require.NoError(t, first.Apply([]byte("one"), time.Second).Error())
		_, id := first.LeaderWithID()
		net.Isolate(string(id))
		var rest []*raft.Raft
		for other, r := range byID {
			if other != id {
				rest = append(rest, r)
			}
		}
		second := leader(t, rest)
		require.NoError(t, second.Apply([]byte("two"), time.Second).Error())
		net.Heal()
		time.Sleep(10 * time.Second)
		for _, r := range nodes {
			require.Equal(t, second.AppliedIndex(), r.AppliedIndex())
		}
	})
}

// TestOverTCP shows that the handshake works over real sockets, with and without TLS.
func TestOverTCP(t *testing.T) {
	ca := newAuthority(t)
	for _, security := range []func(*Config){func(*Config) {}, ca.with(t, "x")} {
		var nodes []*Mux
		known := &members.Addresses{}
		ctx, cancel := context.WithCancel(t.Context())
		var ends []chan error
		for _, name := range []string{"n1", "n2"} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			known.Hint(name, l.Addr().String())
			c := Config{
				Incarnations: proved(firstLife, disk{}).Registry,
				Listener:     l, ClusterID: cluster("c1"), ID: name, Addresses: known, Secrets: knows("s"),
				Dial: func(ctx context.Context, addr string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
				},
			}
			security(&c)
			m, err := New(c)
			require.NoError(t, err)
			end := make(chan error, 1)
			go func() { end <- m.Run(ctx) }()
			nodes, ends = append(nodes, m), append(ends, end)
		}
		addr := nodes[1].Layer(KindRaft).Addr().String()
		c, err := nodes[0].Layer(KindRaft).Dial("n2", 5*time.Second)
		require.NoError(t, err)
		other, err := nodes[1].Layer(KindRaft).Accept()
		require.NoError(t, err)
		talk(t, c, other, "there")
		talk(t, other, c, "and back")

		stranger, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		_, err = io.WriteString(stranger, "GET / HTTP/1.0\r\n\r\n")
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, stranger) // ends, since n2 closes the connection
		_ = stranger.Close()

		cancel()
		for _, end := range ends {
			require.NoError(t, <-end)
		}
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
	}
}

// knocking is a connection that has an address and carries nothing.
type knocking struct {
	net.Conn
	from address
}

func (k knocking) RemoteAddr() net.Addr { return k.from }
func (k knocking) Close() error         { return nil }

// TestOldestOfItsOwnHost shows that the counts stay right if a new connection replaces the oldest one, and both are of
// the same host, which has no other.
func TestOldestOfItsOwnHost(t *testing.T) {
	hs := newHandshakes((&members.Addresses{}).Addrs)
	begin := func(host int) *handshake { return hs.begin(knocking{from: address(fmt.Sprintf("10.0.0.%d:1", host))}) }
	all := []*handshake{begin(0)}
	for host := 1; host < maxHandshakes; host++ {
		all = append(all, begin(host))
	}
	all = append(all, begin(0))
	require.True(t, all[0].dropped)
	for i, h := range all {
		require.Equal(t, i == 0, hs.end(h))
	}
	require.Empty(t, hs.hosts)
	require.Zero(t, hs.strangers.Len())
}

// TestKnownHostsAreBounded shows that of the hosts at which members were authenticated at most maxKnown are remembered.
func TestKnownHostsAreBounded(t *testing.T) {
	hs := newHandshakes((&members.Addresses{}).Addrs)
	know := func(host int) {
		hs.rememberHost(knocking{from: address(fmt.Sprintf("10.0.%d.%d:1", host/250, host%250))})
	}
	var all sync.WaitGroup
	for part := range 2 { // for the race detector
		all.Go(func() {
			for n := range maxKnown / 2 {
				know(2*(n/2) + part) // each host twice
			}
		})
	}
	all.Wait()
	require.Len(t, hs.own, maxKnown/2)
	for host := range 2 * maxKnown {
		know(host)
	}
	require.Len(t, hs.own, maxKnown)
}

func TestHostOf(t *testing.T) {
	for addr, host := range map[address]string{"10.0.0.1:7": "10.0.0.1", "[::1]:7": "::1", "n1:7": "n1", "pipe": "pipe"} {
		require.Equal(t, host, hostOf(addr))
	}
}
