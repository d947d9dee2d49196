package target

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// startGateway starts a fake JSON gateway of an etcd member.
func startGateway(t *testing.T, id, leader string) (addr string) {
	t.Helper()
	var mu sync.Mutex
	keys := make(map[string]bool)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v3/maintenance/status", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"header":{"member_id":"` + id + `"},"leader":"` + leader + `","raftTerm":"7"}`))
	})
	mux.HandleFunc("POST /v3/kv/txn", func(w http.ResponseWriter, r *http.Request) {
		var txn struct {
			Compare []struct {
				Target         string
				Key            []byte
				CreateRevision string `json:"create_revision"`
			}
			Success []struct{ RequestPut struct{ Key, Value []byte } }
		}
		if err := json.NewDecoder(r.Body).Decode(&txn); err != nil || len(txn.Compare) != 1 ||
			txn.Compare[0].Target != "CREATE" {
			http.Error(w, "no such transaction", http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		key := string(txn.Compare[0].Key)
		if keys[key] {
			_, _ = w.Write([]byte(`{"header":{}}`))
			return
		}
		keys[key] = string(txn.Success[0].RequestPut.Key) == key
		_, _ = w.Write([]byte(`{"header":{},"succeeded":true}`))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	follower, leader := startGateway(t, "1", "2"), startGateway(t, "2", "2")
	etcd := Target{Name: "x", Addrs: []string{"127.0.0.1:1", follower, leader}, Kind: EtcdMutex, Via: ViaLeader}
	got, err := etcd.Endpoints(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{leader}, got)
	m, err := EtcdStatus(t.Context(), follower)
	require.NoError(t, err)
	require.False(t, m.Leads())
	require.Equal(t, "7", m.Term)

	p, err := etcd.Probe(t.Context(), leader, Options{})
	require.NoError(t, err)
	defer p.Close()
	for _, want := range []bool{true, false} {
		ok, err := p.Acquire(t.Context(), "k", "1")
		require.NoError(t, err)
		require.Equal(t, want, ok)
	}

	etcd.Addrs = etcd.Addrs[:2]
	_, err = etcd.Endpoints(t.Context())
	require.ErrorContains(t, err, "x has no leader")
	_, err = Target{Name: "x", Addrs: []string{leader}, Kind: Etcd, Via: ViaSpread}.Clients(t.Context(), 1,
		someOptions)
	require.EqualError(t, err, "x: this program has no client for etcd")
}

// startSrvr starts a fake ZooKeeper server, which answers srvr.
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
