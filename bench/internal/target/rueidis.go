package target

import (
	"context"
	"fmt"
	"net"

	"github.com/redis/rueidis"
)

// rueidisRing is 2^5 commands on their way: a caller has one. The default takes 100 KB a client.
const rueidisRing = 5

// rueidisClient is a client of rueidis with one connection.
type rueidisClient struct {
	c              rueidis.Client
	o              Options
	release, renew *rueidis.Lua
}

func dialRueidis(ctx context.Context, addr string, o Options) (Client, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, PipelineMultiplex: -1, RingScaleEachConn: rueidisRing,
		AlwaysRESP2: true, DisableCache: true, DisableRetry: true, ClientSetInfo: rueidis.DisableClientSetInfo,
		Dialer: net.Dialer{Timeout: o.Timeout}, ConnWriteTimeout: o.Timeout,
	})
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", addr, err)
	}
	r := &rueidisClient{c: c, o: o, release: rueidis.NewLuaScript(releaseScript), renew: rueidis.NewLuaScript(renewScript)}
	if err := c.Do(ctx, c.B().Ping().Build()).Error(); err != nil {
		c.Close()
		return nil, fmt.Errorf("reach %s: %w", addr, err)
	}
	return r, nil
}

func (r *rueidisClient) Acquire(ctx context.Context, key, token string) (bool, error) {
	set := r.c.B().Set().Key(key).Value(token).Nx().PxMilliseconds(r.o.TTL.Milliseconds()).Build()
	if r.o.Wait == 0 {
		return given(r.c.Do(ctx, set))
	}
	wait := r.c.B().Arbitrary("wait").Args(fmt.Sprint(r.o.Wait), waitMillis).Build()
	replies := r.c.DoMulti(ctx, set, wait)
	ok, err := given(replies[0])
	if !ok || err != nil {
		return false, err
	}
	n, err := replies[1].AsInt64()
	if err == nil && n < int64(r.o.Wait) {
		err = ErrNotReplicated
	}
	return err == nil, err
}

// given tells a lock that another owner has, which is nil, from an error.
func given(reply rueidis.RedisResult) (bool, error) {
	err := reply.Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	return err == nil, err
}

func (r *rueidisClient) Release(ctx context.Context, key, token string) (bool, error) {
	n, err := r.release.Exec(ctx, r.c, []string{key}, []string{token}).AsInt64()
	return n == 1, err
}

func (r *rueidisClient) Renew(ctx context.Context, key, token string) (bool, error) {
	n, err := r.renew.Exec(ctx, r.c, []string{key}, []string{token, r.o.ttlMillis()}).AsInt64()
	return n == 1, err
}

func (r *rueidisClient) Read(ctx context.Context, key string) (string, error) {
	s, err := r.c.Do(ctx, r.c.B().Get().Key(key).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return s, err
}

func (r *rueidisClient) Close() error {
	r.c.Close()
	return nil
}
