package server

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/api"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/sessions"
	"github.com/holdfast/holdfast/server/store"
)

// runNode is a node alone, on ports of its own, until the test ends.
func runNode(t *testing.T, change func(c *Config)) *Server {
	t.Helper()
	return runLogging(t, slog.New(slog.DiscardHandler), change)
}

func runLogging(t *testing.T, logger *slog.Logger, change func(c *Config)) *Server {
	t.Helper()
	c := DefaultConfig()
	c.Addr, c.PeerAddr, c.HTTPAddr, c.DataDir = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", t.TempDir()
	if change != nil {
		change(&c)
	}
	s, err := New(c, logger)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return s
}

// client waits until the node serves.
func (s *Server) client(t *testing.T, password string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.clients.Addr().String(), Password: password})
	t.Cleanup(func() { c.Close() })
	require.Eventually(t, func() bool { return c.Set(t.Context(), "k", "v", 0).Err() == nil }, 20*time.Second,
		10*time.Millisecond)
	return c
}

func (s *Server) get(t *testing.T, path, password string) (status int, body string) {
	t.Helper()
	return s.getAs(t, path, "default", password)
}

func (s *Server) getAs(t *testing.T, path, user, password string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+s.monitoring.Addr().String()+path, nil)
	require.NoError(t, err)
	if password != "" {
		r.SetBasicAuth(user, password)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// metricsTable is monitoring/METRICS.md: what nodes of every role have. A metric that several have is shown once.
func metricsTable(t *testing.T, nodes ...prometheus.Gatherer) string {
	t.Helper()
	rows := map[string]string{}
	for _, node := range nodes {
		families, err := node.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if !strings.HasPrefix(f.GetName(), "holdfast_") || rows[f.GetName()] != "" {
				continue
			}
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, l.GetName())
			}
			kind := strings.ToLower(f.GetType().String())
			rows[f.GetName()] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.GetName(), kind, strings.Join(labels, ", "),
				f.GetHelp())
		}
	}
	var b strings.Builder
	b.WriteString("# Metrics for Prometheus\n\nMade by `make rewrite` from what `/metrics` answers (`--http-addr`). " +
		"The metrics of Go's runtime and of the process\n(`go_…`, `process_…`) stand beside these. A counter grows from " +
		"the start of the process, or from CONFIG RESETSTAT. What\ncounts clients of all nodes is alike on all of them: " +
		"take the `max`, a `sum` counts it once a node.\n\n| metric | kind | labels | |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		b.WriteString(rows[name])
	}
	return b.String()
}

// leaderOfTwo is a backend that leads a follower which stands still.
type leaderOfTwo struct{ frontend.Backend }

func (leaderOfTwo) WatchLeadership(func(replica.Leadership, []replica.Member)) {}
func (leaderOfTwo) LockStats() fsm.LockStats                                   { return fsm.LockStats{} }

func (leaderOfTwo) Origin() protocol.Incarnation { return protocol.Incarnation{Node: "n1"} }

func (leaderOfTwo) LockClasses() []fsm.LockClass { return make([]fsm.LockClass, 1) }

func (leaderOfTwo) Clients() *sessions.Clients { return sessions.New(sessions.Cluster{}) }

func (leaderOfTwo) Stats() fsm.Stats {
	return fsm.Stats{Accounts: []fsm.Account{{User: "alice", Keys: 1, Bytes: 2, Waiters: 3}}}
}

// limitedUsers are users with a quota.
type limitedUsers struct {
	frontend.Users
	users *acl.Users
}

func (u limitedUsers) Held() *acl.Users { return u.users }
func (limitedUsers) Watch(func())       {}

func limitUsers(t *testing.T) frontend.Users {
	t.Helper()
	users := acl.Only()
	require.NoError(t, users.Limit("quota", "user default max-keys 5 max-commands-per-second 7"))
	return limitedUsers{users: users}
}

func (leaderOfTwo) Status() replica.Status {
	n1, n2 := replica.Member{Name: "n1"}, replica.Member{Name: "n2"}
	return replica.Status{
		Name: "n1", Leading: true, Leader: n1, Members: []replica.Member{n1, n2},
		Followers: []replica.Follower{{Member: n2}}, Stalled: []replica.Stalled{{Member: n2}},
	}
}

// leader has the metrics of a leader.
func leader(t *testing.T) prometheus.Gatherer {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(frontend.New(frontend.Config{Users: limitUsers(t)}, leaderOfTwo{}).Metrics().Collector())
	return r
}

// TestMetrics: a node answers a scrape with what it did, and METRICS.md of monitoring/ has each metric.
func TestMetrics(t *testing.T) {
	cert, key := certificate(t, time.Now().Add(time.Hour))
	s := runNode(t, func(c *Config) { c.PeerTLSCert, c.PeerTLSKey, c.PeerTLSCA, c.ClusterSecret = cert, key, cert, "s" })
	c := s.client(t, "")
	require.Error(t, c.HGet(t.Context(), "k", "f").Err())
	status, text := s.get(t, "/metrics", "")
	require.Equal(t, http.StatusOK, status)
	for _, line := range []string{
		"holdfast_raft_is_leader 1", "holdfast_raft_has_leader 1", "holdfast_raft_members 1", `holdfast_keys{db="0"} 1`,
		`holdfast_commands_total{command="hget",outcome="failed"} 1`, `holdfast_commands_total{command="set",outcome="ok"} 1`,
		"holdfast_snapshot_failures_total 0", "go_goroutines ", "process_start_time_seconds ",
	} {
		require.Contains(t, text, "\n"+line)
	}
	for _, never := range []string{
		"holdfast_log_sync_duration_seconds_count 0\n",
		"holdfast_raft_entry_duration_seconds_count 0\n",
	} {
		require.NotContains(t, text, "\n"+never)
	}
	problems, err := testutil.GatherAndLint(s.metrics)
	require.NoError(t, err)
	require.Empty(t, problems)
	document := metricsTable(t, s.metrics, leader(t))
	require.Equal(t, protocoltest.Golden(t, filepath.Join("monitoring", "METRICS.md"), document), document,
		"run 'make rewrite' and look at the change")
}

// TestReadyz: what the checks ask of a node that serves, and of what they are told.
func TestReadyz(t *testing.T) {
	s := runNode(t, func(c *Config) { c.Password = "open sesame" })
	s.client(t, "open sesame")
	status, body := s.get(t, "/readyz?verbose", "")
	require.Equal(t, "[+]cluster ok\n[+]voter ok\n[+]disk ok\n[+]state ok\n[+]log ok\n[+]linearizable_read ok\nok\n", body)
	require.Equal(t, http.StatusOK, status)
	status, _ = s.get(t, "/metrics", "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = s.get(t, "/metrics", "open sesame")
	require.Equal(t, http.StatusOK, status)

	st := s.member.Load().Status()
	require.NoError(t, isVoter(st))
	st.Members = nil
	require.ErrorContains(t, isVoter(st), "no voter")
	require.NoError(t, diskAnswers(maxReadyAppend))
	require.ErrorContains(t, diskAnswers(1500*time.Millisecond), "under way for 1.5s")
}

// TestObservedEvents: what is over when somebody looks is counted.
func TestObservedEvents(t *testing.T) {
	o := newObserved()
	for _, e := range []replica.Event{
		replica.LeaderChanged{Leader: "n2"},
		replica.LeaderChanged{},
		replica.LeaderChanged{Leader: "n3"},
		replica.LeadershipLost{},
		replica.SnapshotTaken{Err: errors.New("no room")},
		replica.SnapshotTaken{Bytes: 77, Took: time.Second},
		replica.LogShortened{Name: "n2"},
		replica.SnapshotDamaged{Err: errors.New("damaged")},
	} {
		o.event(e)
	}
	require.Equal(t, 2.0, testutil.ToFloat64(o.leaderChanges))
	require.Equal(t, 1.0, testutil.ToFloat64(o.leaderships))
	require.Equal(t, 1.0, testutil.ToFloat64(o.failedSnapshots))
	require.Equal(t, 77.0, testutil.ToFloat64(o.snapshotBytes))
	require.Equal(t, 1.0, testutil.ToFloat64(o.shortenedLogs))
	require.Equal(t, 1.0, testutil.ToFloat64(o.damagedSnapshots))
	(*observed)(nil).sync(time.Second)
	require.Nil(t, (*observed)(nil).onEntry(), "nobody asks: nothing is measured")
	(*observed)(nil).event(replica.LeadershipLost{})
}

// certificate writes one that signs itself, and its key.
func certificate(t *testing.T, until time.Time) (cert, key string) {
	return protocoltest.Sign(t, x509.Certificate{NotAfter: until}, nil).Write(t, t.TempDir(), "node")
}

// TestCredentialsAreObserved: a scrape says when certificates run out, and whether files were taken.
func TestCredentialsAreObserved(t *testing.T) {
	until := time.Now().Add(10 * 24 * time.Hour)
	cert, key := certificate(t, until)
	s := runNode(t, func(c *Config) { c.PeerTLSCert, c.PeerTLSKey, c.PeerTLSCA, c.ClusterSecret = cert, key, cert, "s" })
	status, text := s.get(t, "/metrics", "")
	require.Equal(t, http.StatusOK, status)
	for _, flag := range []string{"peer-tls-ca", "peer-tls-cert"} {
		require.Contains(t, text, fmt.Sprintf("\nholdfast_tls_certificate_expiry_timestamp_seconds{flag=%q} %v\n", flag,
			float64(until.Unix())))
	}
	require.Contains(t, text, "\nholdfast_credentials_last_reload_successful 1\n")
	require.NoError(t, os.WriteFile(cert, []byte("half"), 0o600))
	s.Reload("test")
	_, text = s.get(t, "/metrics", "")
	require.Contains(t, text, "\nholdfast_credentials_last_reload_successful 0\n")
}

// TestUsersHearOfTheirKeys: what commands without keys, scripts, transactions and the documents of the HTTP port tell of
// keys leaves out those that the user may not read, in each page; names are hidden where they would come with values.
func TestUsersHearOfTheirKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.acl")
	require.NoError(t, os.WriteFile(file, []byte("user admin on >p ~* &* +@all\n"+
		"user default on nopass ~k +set\n"+
		"user orders on >p ~orders:* %R~shared:* +@all -@admin -@dangerous\n"+
		"user monitor on >p +lock.list +lock.history +lock.info\n"+
		"user reader on >p %R~* +lock.list +lock.history +lock.info\n"), 0o600))
	s := runNode(t, func(c *Config) { c.ACLFile, c.ClusterMode = file, true })
	s.client(t, "")
	as := func(user string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: s.clients.Addr().String(), Username: user, Password: "p", Protocol: 2})
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	ctx, admin := t.Context(), as("admin")
	const each = 25
	for i := range each {
		for _, team := range []string{"orders", "billing", "shared"} {
			require.NoError(t, admin.SetNX(ctx, fmt.Sprint(team, ":stock:", i), "SECRET-"+team, time.Hour).Err())
			require.NoError(t, admin.Do(ctx, "LOCK.ACQUIRE", fmt.Sprint(team, ":native:", i), "OWNER-"+team, "EX", 3600).Err())
		}
	}
	for _, team := range []string{"orders", "billing", "shared"} {
		require.NoError(t, admin.Do(ctx, "LOCK.BREAK", team+":native:0", "REASON", "WHY-"+team).Err())
	}
	told := func(user, text string) {
		t.Helper()
		for team, sees := range map[string]bool{
			"billing": user == "reader", "orders": user != "monitor",
			"shared": user != "monitor",
		} {
			require.Equal(t, sees, strings.Contains(text, team), "%s hears of %s: %s", user, team, text)
		}
	}
	for _, user := range []string{"orders", "monitor", "reader"} {
		c := as(user)
		want := map[string]int{"orders": 4*each - 2, "monitor": 0, "reader": 6*each - 3}[user]
		var all string
		rows := 0
		for cursor, calls := "0", 0; cursor != "0" || calls == 0; calls++ {
			page, err := c.Do(ctx, "LOCK.LIST", "CURSOR", cursor, "COUNT", 7).Slice()
			require.NoError(t, err)
			require.Less(t, calls, 6*each, "a page looks at some locks, whoever's they are")
			rows += len(page[1].([]any))
			all += fmt.Sprint(page[1])
			cursor = page[0].(string)
		}
		require.Equal(t, want, rows)
		told(user, all)
		told(user, fmt.Sprint(c.Do(ctx, "LOCK.HISTORY", "COUNT", 100).Val()))
		paged, pages := 0, ""
		for cursor := "0"; cursor != ""; {
			var doc api.Locks
			status, body := s.getAs(t, "/api/locks?limit=9&cursor="+cursor, user, "p")
			require.Equal(t, http.StatusOK, status)
			require.NoError(t, json.Unmarshal([]byte(body), &doc))
			paged, pages, cursor = paged+len(doc.Locks), pages+body, doc.NextCursor
		}
		require.Equal(t, want, paged)
		told(user, pages)
		var doc api.Locks
		_, body := s.getAs(t, "/api/locks?limit=200", user, "p")
		require.NoError(t, json.Unmarshal([]byte(body), &doc))
		require.EqualValues(t, want, doc.Sums.Locks)
		told(user, body)
		_, body = s.getAs(t, "/api/history", user, "p")
		told(user, body)
		status, _ := s.getAs(t, "/api/lock?key=billing:stock:1", user, "p")
		require.Equal(t, user == "reader", status == http.StatusOK)
	}
	c := as("orders")
	list := []any{"LOCK.LIST", "COUNT", 1000}
	told("orders", fmt.Sprint(c.Eval(ctx, "return redis.call('LOCK.LIST', 'COUNT', '1000')", nil).Val()))
	replies, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "orders:x", "1", 0)
		p.Do(ctx, list...)
		return nil
	})
	require.NoError(t, err)
	told("orders", fmt.Sprint(replies[1].(*redis.Cmd).Val()))
	for _, team := range []string{"orders", "billing"} {
		keys, err := c.ClusterGetKeysInSlot(ctx, protocol.KeySlot(team+":stock:1"), 9).Result()
		require.NoError(t, err)
		require.Equal(t, team == "orders", slices.Contains(keys, team+":stock:1"), keys)
	}
}

// TestTroubles: what `holdfast cluster status` shows beside silent members.
func TestTroubles(t *testing.T) {
	require.Empty(t, troubles("n1", nil, nil))
	require.Equal(t, []string{
		"n1 is not ready: at log index 5 of 90 since the start",
		"n2 and n3 do not admit each other: why",
	},
		troubles("n1", errors.New("at log index 5 of 90 since the start"),
			[]memberrpc.Refusal{{A: "n2", B: "n3", Text: "why"}}))

	s := runNode(t, func(c *Config) { c.Debug, c.DiskStallLimit = true, time.Minute })
	client := s.client(t, "")
	require.Empty(t, s.troubles())
	s.faults.store.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
	go client.Set(t.Context(), "k", "v", 0)
	require.Eventually(t, func() bool { return len(s.troubles()) > 0 }, 30*time.Second, 100*time.Millisecond)
	require.Contains(t, s.troubles()[0], "is not ready: nothing was committed for")
	s.faults.store.Clear()
}

// TestSlowDisk: a disk that is slow again and again is a warning of its node, in its log once, and a detail of /readyz.
func TestSlowDisk(t *testing.T) {
	var lines diskLines
	s := runLogging(t, slog.New(slog.NewTextHandler(&lines, nil)), func(c *Config) { c.Debug = true })
	client := s.client(t, "")
	s.faults.store.Inject(store.Fault{Op: store.OpStoreLogs, Delay: slowSync + 20*time.Millisecond})
	for i := range minSlow + 1 {
		require.NoError(t, client.Set(t.Context(), "k", i, 0).Err())
	}
	require.Len(t, s.cluster.admissions.Warnings(), 1)
	require.Contains(t, s.cluster.admissions.Warnings()[0],
		"n1: the disk is slow: in the last minute one append to the log in 100 took ")
	require.Equal(t, s.diskDetail(), s.readyChecks()[2].Detail())
	require.EqualValues(t, 1, lines.Load())
}

// TestAgeOfBackup: a backup counts once a client has all of it.
func TestAgeOfBackup(t *testing.T) {
	s := runNode(t, nil)
	conn := s.client(t, "").Conn()
	defer conn.Close()
	at := func() float64 { return testutil.ToFloat64(s.observed.backup) }
	require.NoError(t, conn.Do(t.Context(), "RAFT.BACKUP", "BEGIN").Err())
	for range 1000 {
		require.Zero(t, at())
		if err := conn.Do(t.Context(), "RAFT.BACKUP", "NEXT").Err(); err == redis.Nil {
			break
		}
	}
	require.NotZero(t, at())
}

// diskLines counts lines about a slow disk.
type diskLines struct{ atomic.Int32 }

func (l *diskLines) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "the disk is slow") {
		l.Add(1)
	}
	return len(line), nil
}

// TestSyncTimes: what one append in 100 takes is of the last minute, and a few slow ones are no slow disk.
func TestSyncTimes(t *testing.T) {
	var s syncTimes
	start := time.Unix(1_000_000_005, 0)
	for range 9 {
		s.note(600*time.Millisecond, start)
	}
	require.Zero(t, s.slowP99(start), "a hiccup")
	s.note(300*time.Millisecond, start)
	require.InDelta(t, 600*time.Millisecond, s.slowP99(start), float64(60*time.Millisecond))
	for range 490 {
		s.note(time.Millisecond, start)
	}
	require.InDelta(t, 600*time.Millisecond, s.slowP99(start), float64(60*time.Millisecond), "9 of 500 are that slow")
	for range 491 {
		s.note(time.Millisecond, start)
	}
	require.InDelta(t, 300*time.Millisecond, s.slowP99(start), float64(30*time.Millisecond), "9 of 991 are")
	for range 100 {
		s.note(99*time.Millisecond, start)
	}
	require.Zero(t, s.slowP99(start), "less than one in 100 is slow")

	for range minSlow {
		s.note(time.Hour, start.Add(50*time.Second))
	}
	require.NotZero(t, s.slowP99(start.Add(109*time.Second)), "longer than the last bucket")
	require.Zero(t, s.slowP99(start.Add(130*time.Second)), "longer ago than a minute")
	s.note(time.Millisecond, start.Add(130*time.Second))
	require.Zero(t, s.slowP99(start.Add(130*time.Second)))

	s = syncTimes{}
	s.note(5*time.Second, start)
	require.Zero(t, s.slowP99(start), "once")
	s.note(5*time.Second, start)
	require.InDelta(t, 5*time.Second, s.slowP99(start), float64(500*time.Millisecond), "there is no time for ten")
}
