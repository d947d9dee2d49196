package frontend

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// goRedis is a stock client that dials the server in memory.
func goRedis(t *testing.T, s *testServer, o redis.Options) *redis.Client {
	o.Dialer = func(context.Context, string, string) (net.Conn, error) { return s.ln.dial() }
	c := redis.NewClient(&o)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestGoRedis(t *testing.T) {
	for _, o := range []redis.Options{
		{Protocol: 3, ClientName: "worker", DB: 9},
		{Protocol: 2, Password: "sesame"},
		{Protocol: 3, Password: "sesame", Username: "default", ClientName: "worker"},
	} {
		t.Run(fmt.Sprintf("protocol %d, password %q", o.Protocol, o.Password), func(t *testing.T) {
			cl := newCluster()
			s := start(t, Config{Users: asks(o.Password)}, cl)
			c := goRedis(t, s, o)
			ctx := t.Context()

			require.Equal(t, "PONG", c.Ping(ctx).Val())
			ok, err := c.SetNX(ctx, "lock", "token", 30*time.Second).Result()
			require.NoError(t, err)
			require.True(t, ok)
			ok, err = c.SetNX(ctx, "lock", "other", 30*time.Second).Result()
			require.NoError(t, err)
			require.False(t, ok)
			require.Equal(t, "token", c.Get(ctx, "lock").Val())
			require.ErrorIs(t, c.Get(ctx, "none").Err(), redis.Nil)
			ttl := c.PTTL(ctx, "lock").Val()
			require.True(t, ttl > 0 && ttl <= 30*time.Second, ttl)
			require.EqualValues(t, 1, c.Incr(ctx, "fence").Val())
			// EVALSHA, then EVAL after NOSCRIPT, as most lock libraries release.
			release := redis.NewScript(
				`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)
			require.EqualValues(t, 0, release.Run(ctx, c, []string{"lock"}, "other").Val())
			require.EqualValues(t, 1, release.Run(ctx, c, []string{"lock"}, "token").Val())

			name, err := c.ClientGetName(ctx).Result()
			if o.ClientName == "" {
				require.ErrorIs(t, err, redis.Nil)
			} else {
				require.Equal(t, o.ClientName, name)
			}
			require.Contains(t, c.ClientInfo(ctx).Val().LibName, "go-redis")
			require.Equal(t, map[string]string{"databases": "16"}, c.ConfigGet(ctx, "databases").Val())
			require.Contains(t, c.Info(ctx, "replication").Val(), "role:master\r\n")
			require.EqualValues(t, 2, c.Wait(ctx, 2, time.Second).Val())
			require.NotEmpty(t, c.Command(ctx).Val())
			require.NotZero(t, c.Time(ctx).Val())
		})
	}
}

// TestGoRedisPipeline: a pipeline that the client writes in several pieces is one batch all the
// same.
func TestGoRedisPipeline(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := goRedis(t, s, redis.Options{PoolSize: 1})
		ctx := t.Context()
		require.NoError(t, c.Ping(ctx).Err())
		cl.take()
		replies, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range 1000 {
				p.Set(ctx, fmt.Sprint("key", i), i, time.Minute)
			}
			return nil
		})
		require.NoError(t, err)
		require.Len(t, replies, 1000)
		batches := cl.take()
		require.Len(t, batches, 1)
		require.Equal(t, 1000, batches[0].Count)
		require.NoError(t, c.Close())
	})
}
