package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// finder is a client that finds the leader by itself: it sends a command and returns the reply as text.
type finder struct {
	name  string
	do    func(ctx context.Context, words ...string) (string, error)
	close func()
}

// runDiscovery has clients find the leader by "sentinel", or as a "cluster", and again after a kill.
func (s *suite) runDiscovery(ctx context.Context, mode string) error {
	sentinels := strings.Split(os.Getenv("HOLDFAST_SENTINELS"), ",")
	finders := []func() (finder, error){
		func() (finder, error) { return goRedisFinder(s.nodes, sentinels, mode, 2), nil },
		func() (finder, error) { return goRedisFinder(s.nodes, sentinels, mode, 3), nil },
		func() (finder, error) { return rueidisFinder(s.nodes, sentinels, mode) },
	}
	for _, open := range finders {
		if out, err := exec.Command("sh", "-c", os.Getenv("HOLDFAST_START")).CombinedOutput(); err != nil {
			return fmt.Errorf("start the nodes: %w: %s", err, out)
		}
		f, err := open()
		if err != nil {
			return err
		}
		s.check(f.name+" over the kill", func() error { return s.foundAgain(ctx, f) })
		f.close()
	}
	return nil
}

// foundAgain takes a lock, kills the leader, and finds the lock by the same client.
func (s *suite) foundAgain(ctx context.Context, f finder) error {
	var fence string
	return first(
		func() error { return f.is(ctx, "OK", "SET", "go:found:"+f.name, "token", "NX", "PX", "120000") },
		func() (err error) { fence, err = f.do(ctx, "INCR", "go:foundfence:"+f.name); return err },
		func() error { _, err := s.kill(); return err },
		func() error {
			return within(2*soon, func() error { return f.is(ctx, "token", "GET", "go:found:"+f.name) })
		},
		func() error {
			next, err := f.do(ctx, "INCR", "go:foundfence:"+f.name)
			if err == nil && (len(next) < len(fence) || next <= fence) {
				err = fmt.Errorf("fence %s after %s", next, fence)
			}
			return err
		},
		func() error { return f.is(ctx, "1", "DEL", "go:found:"+f.name) },
		func() error { return f.is(ctx, "1", "DEL", "go:foundfence:"+f.name) },
	)
}

func (f finder) is(ctx context.Context, wanted string, words ...string) error {
	found, err := f.do(ctx, words...)
	return errors.Join(err, equal(found, wanted))
}

func goRedisFinder(nodes, sentinels []string, mode string, protocol int) finder {
	var c redis.UniversalClient
	if mode == "sentinel" {
		c = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "mymaster", SentinelAddrs: sentinels,
			Protocol: protocol,
		})
	} else {
		c = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: nodes, Protocol: protocol,
			ClusterStateReloadInterval: time.Second,
		})
	}
	return finder{
		name: fmt.Sprintf("go-redis RESP%d, %s", protocol, mode),
		do: func(ctx context.Context, words ...string) (string, error) {
			args := make([]any, len(words))
			for i, w := range words {
				args[i] = w
			}
			v, err := c.Do(ctx, args...).Result()
			return fmt.Sprint(v), err
		},
		close: func() { _ = c.Close() },
	}
}

func rueidisFinder(nodes, sentinels []string, mode string) (finder, error) {
	o := rueidis.ClientOption{InitAddress: nodes, DisableCache: true}
	if mode == "sentinel" {
		o.InitAddress, o.Sentinel = sentinels, rueidis.SentinelOption{MasterSet: "mymaster"}
	}
	c, err := rueidis.NewClient(o)
	if err != nil {
		return finder{}, fmt.Errorf("rueidis, %s: %w", mode, err)
	}
	return finder{
		name: "rueidis, " + mode,
		do: func(ctx context.Context, words ...string) (string, error) {
			m, err := c.Do(ctx, c.B().Arbitrary(words[0]).Keys(words[1]).Args(words[2:]...).Build()).ToAny()
			return fmt.Sprint(m), err
		},
		close: c.Close,
	}, nil
}
