package frontend

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// TestRueidisCache: the client-side cache of a stock client, which tracks with OPTIN.
func TestRueidisCache(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cl := newCluster()
	startOn(t, Config{}, cl, ln)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{ln.Addr().String()}})
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	get := func() (value string, fromCache bool) {
		reply := client.DoCache(ctx, client.B().Get().Key("k").Cache(), time.Minute)
		value, err := reply.ToString()
		if !rueidis.IsRedisNil(err) {
			require.NoError(t, err)
		}
		return value, reply.IsCacheHit()
	}
	set := func(value string) {
		require.NoError(t, client.Do(ctx, client.B().Set().Key("k").Value(value).Build()).Error())
	}
	set("1")
	value, hit := get()
	require.Equal(t, "1", value)
	require.False(t, hit)
	value, hit = get()
	require.Equal(t, "1", value)
	require.True(t, hit)
	for _, want := range []string{"2", "3"} {
		set(want)
		for value != want { // the message is on the way
			require.NoError(t, ctx.Err())
			value, _ = get()
		}
	}
	require.NoError(t, client.Do(ctx, client.B().Flushall().Build()).Error())
	for value != "" {
		require.NoError(t, ctx.Err())
		value, _ = get()
	}
}
