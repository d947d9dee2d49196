package importer

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/clienttest"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server"
)

func TestParseSource(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"redis://":                       "127.0.0.1:6379 user= password= db=0 service= tls=false",
		"redis://r1":                     "r1:6379 user= password= db=0 service= tls=false",
		"redis://pass@r1:7000/3":         "r1:7000 user= password=pass db=3 service= tls=false",
		"redis://:p%40ss%2F@r1/":         "r1:6379 user= password=p@ss/ db=0 service= tls=false",
		"rediss://me:pa:ss@[::1]:7000":   "[::1]:7000 user=me password=pa:ss db=0 service= tls=true",
		"redis://::1":                    "[::1]:6379 user= password= db=0 service= tls=false",
		"redis://10.0.0.1":               "10.0.0.1:6379 user= password= db=0 service= tls=false",
		"redis+sentinel://s1/main":       "s1:26379 user= password= db=0 service=main tls=false",
		"rediss+sentinel://s1,s2:1/m/12": "s1:26379 s2:1 user= password= db=12 service=m tls=true",
		"redis+sentinel://me:x@s1/m/0":   "s1:26379 user=me password=x db=0 service=m tls=false",
	} {
		s, err := ParseSource(text)
		require.NoError(t, err, text)
		require.Equal(t, want, fmt.Sprintf("%s user=%s password=%s db=%d service=%s tls=%v",
			strings.Join(s.Addrs, " "), s.User, s.Password, s.DB, s.Service, s.Encrypted), text)
	}
	for _, text := range []string{
		"", "r1:6379", "http://r1", "redis:r1", "redis://a,b", "redis://r1:x", "redis://r1:0", "redis://r1:65536",
		"redis://r1/x", "redis://r1/-1", "redis://r1/1/2",
		"redis+sentinel://s1", "redis+sentinel://s1/", "redis+sentinel://s1/m/x", "redis://%zz@r1", "redis://::1:6379:",
	} {
		_, err := ParseSource(text)
		require.ErrorIs(t, err, ErrURL, text)
	}
}

// certificate makes one for 127.0.0.1 that is its own authority.
func certificate(t *testing.T) *protocoltest.Certificate {
	return protocoltest.Sign(t, x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}, nil)
}

// TestTLSAndPasswords of the source: the right ones, and what is said of wrong ones.
func TestTLSAndPasswords(t *testing.T) {
	own := certificate(t)
	cert, key := own.Write(t, t.TempDir(), "own")
	trust := &tls.Config{RootCAs: protocoltest.Pool(own), MinVersion: tls.VersionTLS12}
	to := clienttest.StartNode(t)
	target := dial(t, &redis.Options{Addr: to})
	check := func(t *testing.T, addr, user string) {
		source := dial(t, &redis.Options{Addr: addr, Username: user, Password: "secret", TLSConfig: trust})
		require.NoError(t, source.Set(t.Context(), "fence:a", 5, 0).Err())
		require.NoError(t, target.FlushAll(t.Context()).Err())
		j := jobOf(t, fmt.Sprintf("rediss://%s:secret@%s/0", user, addr), to)
		j.From.TLS = trust
		run(t, j)
		require.Equal(t, "5", target.Get(t.Context(), "fence:a").Val())

		fails := func(text string, change func(s *Source)) {
			t.Helper()
			j := jobOf(t, fmt.Sprintf("rediss://%s:secret@%s", user, addr), to)
			j.From.TLS = trust
			change(j.From)
			_, err := j.Run(t.Context())
			require.ErrorContains(t, err, text)
			require.NotContains(t, err.Error(), "secret")
		}
		fails("see --from-password-file", func(s *Source) { s.Password = "wrong" })
		fails("NOAUTH the server wants a password: say --from-password-file", func(s *Source) { s.Password, s.User = "", "" })
		fails("say --from-tls-ca", func(s *Source) { s.TLS = &tls.Config{MinVersion: tls.VersionTLS12} })
		fails("use rediss://", func(s *Source) { s.TLS = nil })
	}
	t.Run("holdfast", func(t *testing.T) {
		check(t, clienttest.StartNode(t, func(c *server.Config) { c.Password, c.TLSCert, c.TLSKey = "secret", cert, key }), "")
	})
	t.Run("Redis", func(t *testing.T) {
		port := protocoltest.FreePort(t)
		protocoltest.StartRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients",
			"no",
			"--requirepass", "secret", "--user", "mover", "on", "~*", ">secret", "+@read", "+@transaction", "+set")
		check(t, "127.0.0.1:"+port, "mover")
		check(t, "127.0.0.1:"+port, "")
	})
	t.Run("target", func(t *testing.T) {
		locked := clienttest.StartNode(t, func(c *server.Config) { c.Password = "secret" })
		dial(t, &redis.Options{Addr: locked, Password: "secret"})
		_, err := jobOf(t, "redis://"+to, locked).Run(t.Context())
		require.ErrorContains(t, err, "the target: ")
		require.ErrorContains(t, err, "NOAUTH")
	})
}

// TestRedisAlone: what only a redis-server has.
func TestRedisAlone(t *testing.T) {
	addr := startRedis(t)
	host, port, _ := net.SplitHostPort(addr)
	to := clienttest.StartNode(t)
	source, target := dial(t, &redis.Options{Addr: addr}), dial(t, &redis.Options{Addr: to})
	ctx := t.Context()
	flushed := func() {
		t.Helper()
		require.NoError(t, target.FlushAll(ctx).Err())
	}

	source.XAdd(ctx, &redis.XAddArgs{Stream: "stream", Values: []string{"a", "b"}})
	source.Set(ctx, "fence:a", 5, 0)
	j := jobOf(t, "redis://"+addr, to)
	require.Equal(t, []Skipped{{"Holdfast has no values of type stream", 1, []string{"stream"}}}, run(t, j).Skipped)
	require.NoError(t, source.Del(ctx, "stream").Err())

	replica := startRedis(t, "--replicaof", host+" "+port)
	c := dial(t, &redis.Options{Addr: replica})
	require.Eventually(t, func() bool { return c.Get(ctx, "fence:a").Val() == "5" }, 20*time.Second, 20*time.Millisecond)
	_, err := jobOf(t, "redis://"+replica, to).Run(ctx)
	require.ErrorContains(t, err, "is a replica, and may be behind: name its primary, "+addr)

	flushed()
	sentinel := dial(t, &redis.Options{Network: "unix", Addr: protocoltest.StartSentinel(t, "sentinel monitor main "+host+
		" "+port+" 1")}, "PING")
	sentinelPort := regexp.MustCompile(`tcp_port:(\d+)`).FindStringSubmatch(sentinel.Info(ctx, "server").Val())[1]
	gone := freeAddr(t)
	_, err = jobOf(t, "redis+sentinel://127.0.0.1:"+sentinelPort+"/other", to).Run(ctx)
	require.ErrorContains(t, err, `no Sentinel's group is called "other"`)
	run(t, jobOf(t, "redis+sentinel://"+gone+",127.0.0.1:"+sentinelPort+"/main", to))
	require.Equal(t, "5", target.Get(ctx, "fence:a").Val())
}

// TestRedisCluster: one of its servers stands for all.
func TestRedisCluster(t *testing.T) {
	var servers []string
	for i := range 2 {
		addr := startRedis(t, "--cluster-enabled", "yes", "--appendonly", "no")
		c := dial(t, &redis.Options{Addr: addr})
		require.NoError(t, c.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 8192*i, 8192*i+8191).Err())
		if i > 0 {
			host, port, _ := net.SplitHostPort(servers[0])
			require.NoError(t, c.ClusterMeet(t.Context(), host, port).Err())
		}
		servers = append(servers, addr)
	}
	for _, addr := range servers {
		c := dial(t, &redis.Options{Addr: addr})
		require.Eventually(t, func() bool { return strings.Contains(c.ClusterInfo(t.Context()).Val(), "cluster_state:ok") },
			20*time.Second, 20*time.Millisecond)
	}
	all := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers})
	defer all.Close()
	for i := range 100 {
		require.NoError(t, all.Set(t.Context(), fmt.Sprint("fence:", i), i, 0).Err())
	}
	to := clienttest.StartNode(t)
	target := dial(t, &redis.Options{Addr: to})
	for _, addr := range servers {
		require.NoError(t, target.FlushAll(t.Context()).Err())
		r := run(t, jobOf(t, "redis://"+addr, to))
		require.Equal(t, []any{Tally{Copied: 100}, int64(100)}, []any{r.Counters, r.Keys})
	}

	require.NoError(t, target.Incr(t.Context(), "fence:7").Err())
	moved := int64(0)
	for _, addr := range servers { // the way back
		r := run(t, jobOf(t, "redis://"+to, addr))
		require.Len(t, r.Skipped, 1)
		require.Equal(t, string(skipMoved), r.Skipped[0].Reason)
		require.EqualValues(t, 100, r.Counters.Copied+r.Counters.There+r.Skipped[0].Count)
		moved += r.Skipped[0].Count
	}
	require.EqualValues(t, 100, moved)
	require.Equal(t, "8", all.Get(t.Context(), "fence:7").Val())
}

// TestFieldsThatEnd: a hash would live on without an end of its fields, so it is named and not copied.
func TestFieldsThatEnd(t *testing.T) {
	addr := startRedis(t)
	source := dial(t, &redis.Options{Addr: addr})
	if info := source.Command(t.Context()).Val(); info["hpexpire"] == nil {
		t.Skip("this redis-server has no lives of fields: they came with 7.4")
	}
	for i := range 2 * partElements {
		source.HSet(t.Context(), "large", fmt.Sprint("field ", i), i)
	}
	source.HSet(t.Context(), "small", "a", 1, "b", 2)
	source.HSet(t.Context(), "plain", "a", 1)
	source.HPExpire(t.Context(), "large", time.Minute, "field 700")
	require.NoError(t, source.HPExpire(t.Context(), "small", time.Minute, "b").Err())
	to := clienttest.StartNode(t)
	dial(t, &redis.Options{Addr: to})
	r := run(t, jobOf(t, "redis://"+addr, to))
	require.Equal(t, Tally{Copied: 1}, r.Leases)
	require.Len(t, r.Skipped, 1)
	require.Equal(t, []any{errFieldLives, int64(2)}, []any{r.Skipped[0].Reason, r.Skipped[0].Count})
}

// TestLife: counted from the answer, and a millisecond more, as PTTL cuts off what is less; never rounded down.
func TestLife(t *testing.T) {
	t.Parallel()
	at := time.Now()
	it := &item{leftMillis: 100, answered: at}
	for after, want := range map[time.Duration]int64{
		0: 101, time.Millisecond: 100, 50*time.Millisecond + 1: 51, 101*time.Millisecond - 1: 1, 101 * time.Millisecond: -1,
		time.Hour: -1,
	} {
		require.Equal(t, want, it.life(at.Add(after)), after)
	}
	it.leftMillis = noEnd
	require.Zero(t, it.life(at.Add(time.Hour)))
	for left, want := range map[int64]int64{ // longer than a time.Duration, and the longest
		9_223_372_036_855: 9_223_372_036_855, 1e16: 1e16, math.MaxInt64: math.MaxInt64,
	} {
		it.leftMillis = left
		require.Equal(t, want, it.life(at.Add(time.Millisecond+1)))
	}
	it.leftMillis = math.MaxInt64
	require.Equal(t, int64(math.MaxInt64), it.life(at))
}
