package target

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// goRedis is a client of go-redis with one connection.
type goRedis struct {
	c              *redis.Client
	o              Options
	release, renew *redis.Script
}

func dialGoRedis(ctx context.Context, addr string, o Options) (Client, error) {
	c := redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 1, MaxRetries: -1, DisableIdentity: true,
		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, PoolTimeout: o.Timeout,
		// Redis 7 knows no maintenance notifications; asking would cost an error a connection.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	if err := c.Ping(ctx).Err(); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("reach %s: %w", addr, err)
	}
	return &goRedis{c: c, o: o, release: redis.NewScript(releaseScript), renew: redis.NewScript(renewScript)}, nil
}

func (g *goRedis) Acquire(ctx context.Context, key, token string) (bool, error) {
	set := redis.NewStatusCmd(ctx, "set", key, token, "nx", "px", g.o.TTL.Milliseconds())
	if g.o.Wait == 0 {
		return acquired(g.c.Process(ctx, set))
	}
	wait := redis.NewIntCmd(ctx, "wait", g.o.Wait, waitMillis)
	_, err := g.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		return errors.Join(p.Process(ctx, set), p.Process(ctx, wait))
	})
	ok, setErr := acquired(set.Err())
	switch {
	case setErr != nil || !ok:
		return false, setErr
	case wait.Err() != nil:
		return false, err
	case wait.Val() < int64(g.o.Wait):
		return false, ErrNotReplicated
	}
	return true, nil
}

func acquired(err error) (bool, error) {
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

func (g *goRedis) Release(ctx context.Context, key, token string) (bool, error) {
	n, err := g.release.Run(ctx, g.c, []string{key}, token).Int64()
	return n == 1, err
}

func (g *goRedis) Renew(ctx context.Context, key, token string) (bool, error) {
	n, err := g.renew.Run(ctx, g.c, []string{key}, token, g.o.TTL.Milliseconds()).Int64()
	return n == 1, err
}

func (g *goRedis) Read(ctx context.Context, key string) (string, error) {
	s, err := g.c.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return s, err
}

func (g *goRedis) Close() error { return g.c.Close() }
