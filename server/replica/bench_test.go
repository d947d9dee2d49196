package replica_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/incarnation"
	membership "github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// realCluster starts three replicas in this process, with connections over loopback and stores on disk.
func realCluster(b *testing.B) (leader, follower *replica.Replica) {
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	members := make(map[string]string)
	listeners := make(map[string]net.Listener)
	for i := range 3 {
		name := fmt.Sprintf("n%d", i+1)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		listeners[name], members[name] = l, l.Addr().String()
	}
	addresses := &membership.Addresses{}
	var first []membership.Member
	for name, addr := range members { // unordered
		first = append(first, membership.Member{ID: name, Addr: addr, Voter: true})
		addresses.Hint(name, addr)
	}
	var replicas []*replica.Replica
	var stores []*store.Store
	dir := b.TempDir()
	for name, listener := range listeners {
		disk, err := store.Open(store.Config{DataDir: filepath.Join(dir, name), Name: name})
		require.NoError(b, err)
		stores = append(stores, disk)
		dialer := &net.Dialer{}
		registry := incarnation.New(incarnation.Config{Lineage: disk.Lineage, Stable: disk.Stable, Save: disk.Proved})
		require.NoError(b, registry.Prove())
		port, err := peer.New(peer.Config{
			Listener: listener, ClusterID: func() string { return "bench" }, ID: name, Addresses: addresses,
			Incarnations: registry,
			Dial:         func(ctx context.Context, addr string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) },
		})
		require.NoError(b, err)
		r, err := replica.Open(replica.Config{
			ID: name, Bootstrap: first,
			Stores: replica.Stores{Log: disk.Log, Stable: disk.Stable, Snapshots: disk.Snapshots, Lineage: disk.Lineage},
			Peers: replica.Peers{
				Raft: port.Layer(peer.KindRaft), Append: port.Layer(peer.KindAppend),
				Forward: port.Layer(peer.KindForward),
			},
			OnEvent: func(e replica.Event) {
				if lost, ok := e.(replica.LeadershipLost); ok && ctx.Err() == nil {
					b.Errorf("a false election: %s lost term %d", name, lost.Term)
				}
			},
		})
		require.NoError(b, err)
		replicas = append(replicas, r)
		parts.Go(func() { _ = port.Run(ctx) })
		parts.Go(func() { _ = r.Run(ctx) })
	}
	b.Cleanup(func() {
		cancel()
		parts.Wait()
		for _, s := range stores {
			_ = s.Close()
		}
	})
	for leader == nil {
		time.Sleep(10 * time.Millisecond)
		for _, r := range replicas {
			if r.Status().Leading {
				leader = r
			}
		}
	}
	for _, r := range replicas {
		if r != leader {
			follower = r
		}
	}
	return leader, follower
}

// loop has several callers run op, b.N times in all.
func loop(b *testing.B, callers int, op func(caller, i int)) {
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := 0; left.Add(-1) >= 0; i++ {
				op(caller, i)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkPairs measures an acquire and a release of a lock as one operation.
func BenchmarkPairs(b *testing.B) {
	leader, follower := realCluster(b)
	for _, node := range []struct {
		name string
		r    *replica.Replica
	}{{"leader", leader}, {"follower", follower}} {
		for _, callers := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d", node.name, callers), func(b *testing.B) {
				loop(b, callers, func(caller, i int) {
					key := fmt.Sprintf("lock:%d:%d", caller, i)
					u := replicatest.Batch([]string{"set", key, "token", "NX", "PX", "30000"})
					if err := node.r.Execute(u); err != nil {
						b.Error(err)
					}
					u = replicatest.Batch([]string{"delifeq", key, "token"})
					if err := node.r.Execute(u); err != nil || u.Replies[0].Num != 1 {
						b.Error(err, u.Replies)
					}
				})
			})
		}
	}
}

func BenchmarkReads(b *testing.B) {
	leader, follower := realCluster(b)
	require.NoError(b, leader.Execute(replicatest.Batch([]string{"set", "k", "v"})))
	for _, node := range []struct {
		name string
		r    *replica.Replica
	}{{"leader", leader}, {"follower", follower}} {
		for _, callers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d", node.name, callers), func(b *testing.B) {
				loop(b, callers, func(int, int) {
					if err := node.r.Execute(replicatest.Batch([]string{"get", "k"})); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
}
