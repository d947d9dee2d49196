package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

const (
	releaseScript = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
	extendScript  = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else " +
		"return 0 end"
)

func newClient(node string, protocol int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: node, Protocol: protocol, ClientName: "suite"})
}

// goRedis checks the plain client on node, with a second one on other.
func goRedis(ctx context.Context, node, other string, protocol int) error {
	c, o := newClient(node, protocol), newClient(other, protocol)
	defer func() { _ = errors.Join(c.Close(), o.Close()) }()
	key := fmt.Sprintf("go:redis%d:%s", protocol, node)
	return first(
		func() error { return c.Del(ctx, key).Err() },
		func() error { return isTrue(c.SetNX(ctx, key, "a", 30*time.Second).Result()) },
		func() error { return isFalse(o.SetNX(ctx, key, "b", 30*time.Second).Result()) },
		func() error { return isInt(redis.NewScript(releaseScript).Run(ctx, o, []string{key}, "b").Int())(0) },
		func() error {
			return isInt(redis.NewScript(extendScript).Run(ctx, c, []string{key}, "a", 60000).Int())(1)
		},
		func() error {
			ttl, err := o.PTTL(ctx, key).Result()
			return whole(ttl > 30*time.Second, err, "PTTL")
		},
		func() error { return isInt(redis.NewScript(releaseScript).Run(ctx, o, []string{key}, "a").Int())(1) },
		func() error { return fails(c.Get(ctx, key).Err(), redis.Nil.Error()) },
		func() error {
			fence, err := c.Incr(ctx, "go:fence").Result()
			next := o.Incr(ctx, "go:fence").Val()
			return whole(next > fence, err, "INCR")
		},
		func() error { return pipeline(ctx, c, key) },
		func() error { return fails(c.Do(ctx, "nosuch", "x").Err(), "ERR unknown command") },
		func() error { return fails(c.Do(ctx, "get").Err(), "ERR wrong number of arguments") },
		func() error { return c.Set(ctx, key, "text", 0).Err() },
		func() error { return fails(c.Incr(ctx, key).Err(), "ERR value is not an integer") },
		func() error { return transactions(ctx, c, o, key) },
		func() error {
			nine := redis.NewClient(&redis.Options{Addr: node, Protocol: protocol, DB: 9})
			defer func() { _ = nine.Close() }()
			return fails(nine.Get(ctx, key).Err(), redis.Nil.Error())
		},
		func() error { return isInt(c.Del(ctx, key).Result())(1) },
	)
}

func isTrue(found bool, err error) error  { return whole(found, err, "the command") }
func isFalse(found bool, err error) error { return whole(!found, err, "the refusal") }

func isInt[T int | int64](found T, err error) func(wanted T) error {
	return func(wanted T) error {
		if err != nil {
			return err
		}
		return equal(found, wanted)
	}
}

func pipeline(ctx context.Context, c *redis.Client, key string) error {
	pipe := c.Pipeline()
	for range 1000 {
		pipe.Incr(ctx, key)
	}
	replies, err := pipe.Exec(ctx)
	for i, reply := range replies {
		if n, ok := reply.(*redis.IntCmd); !ok || n.Val() != int64(i+1) {
			return fmt.Errorf("reply %d is %v", i+1, reply)
		}
	}
	return err
}

// transactions: one that runs, and one whose watched key another node's client changes.
func transactions(ctx context.Context, c, o *redis.Client, key string) error {
	watch := func(between func() error) error {
		return c.Watch(ctx, func(tx *redis.Tx) error {
			if err := between(); err != nil {
				return err
			}
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Set(ctx, key, 7, 0)
				p.Incr(ctx, key)
				return nil
			})
			return err
		}, key)
	}
	return first(
		func() error { return watch(func() error { return nil }) },
		func() error { return isInt(o.Get(ctx, key).Int())(8) },
		func() error {
			return fails(watch(func() error { return o.Set(ctx, key, "theirs", 0).Err() }), redis.TxFailedErr.Error())
		},
		func() error { return fails(c.Incr(ctx, key).Err(), "not an integer") },
	)
}

// newRueidis leaves out the client's cache, which needs CLIENT TRACKING.
func newRueidis(node string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{node}, DisableCache: true, SelectDB: 3})
}

func rueidisCommands(ctx context.Context, node, other string) error {
	c, err := newRueidis(node)
	if err != nil {
		return err
	}
	defer c.Close()
	o, err := newRueidis(other)
	if err != nil {
		return err
	}
	defer o.Close()
	key := "go:rueidis:" + node
	set := func(c rueidis.Client, token string) error {
		return c.Do(ctx, c.B().Set().Key(key).Value(token).Nx().PxMilliseconds(30000).Build()).Error()
	}
	run := func(c rueidis.Client, script, token string) func(int64) error {
		return isInt(rueidis.NewLuaScript(script).Exec(ctx, c, []string{key}, []string{token, "60000"}).AsInt64())
	}
	return first(
		func() error { return c.Do(ctx, c.B().Del().Key(key).Build()).Error() },
		func() error { return set(c, "a") },
		func() error { return whole(rueidis.IsRedisNil(set(o, "b")), nil, "the second SET NX") },
		func() error { return run(o, releaseScript, "b")(0) },
		func() error { return run(c, extendScript, "a")(1) },
		func() error { return run(c, releaseScript, "a")(1) },
		func() error {
			var pipe rueidis.Commands
			for range 1000 {
				pipe = append(pipe, c.B().Incr().Key(key).Build())
			}
			for i, reply := range c.DoMulti(ctx, pipe...) {
				if err := isInt(reply.AsInt64())(int64(i + 1)); err != nil {
					return err
				}
			}
			return nil
		},
		func() error { return fails(c.Do(ctx, c.B().Arbitrary("nosuch").Build()).Error(), "unknown command") },
		func() error { return c.Do(ctx, c.B().Del().Key(key).Build()).Error() },
	)
}
