package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// The snippets of ../CONNECT.md: go-redis and rueidis by one address, by Sentinel and as a Redis Cluster.

// <tls>
var password = os.Getenv("HOLDFAST_PASSWORD")

func secure() *tls.Config {
	pool := x509.NewCertPool()
	ca, _ := os.ReadFile("ca.crt")
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// </tls>

func goRedisBy(mode string) redis.UniversalClient {
	switch mode {
	case "single":
		// <go-redis single>
		client := redis.NewClient(&redis.Options{
			Addr: "10.0.0.1:6379", Password: password, TLSConfig: secure(), DialTimeout: time.Second,
		})
		// </go-redis single>
		return client
	case "sentinel":
		// <go-redis sentinel>
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "mymaster", SentinelAddrs: []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
			Password: password, SentinelPassword: password, TLSConfig: secure(), DialTimeout: time.Second, DialerRetries: 1,
		})
		// </go-redis sentinel>
		return client
	default:
		// <go-redis cluster>
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:    []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"},
			Password: password, TLSConfig: secure(), DialTimeout: time.Second, DialerRetries: 1,
			ClusterStateReloadInterval: time.Second,
		})
		// </go-redis cluster>
		return client
	}
}

func rueidisBy(mode string) (rueidis.Client, error) {
	switch mode {
	case "single":
		// <rueidis single>
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{"10.0.0.1:6379"}, ForceSingleClient: true, Password: password, TLSConfig: secure(),
		})
		// </rueidis single>
		return client, err
	case "sentinel":
		// <rueidis sentinel>
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"}, Password: password, TLSConfig: secure(),
			Sentinel: rueidis.SentinelOption{MasterSet: "mymaster", Password: password, TLSConfig: secure()},
		})
		// </rueidis sentinel>
		return client, err
	default:
		// <rueidis cluster>
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"}, Password: password, TLSConfig: secure(),
		})
		// </rueidis cluster>
		return client, err
	}
}

// connector is a client of a snippet, or, with "-defaults" behind its name, one by Sentinel without its settings.
func connector(name, mode string) (do func(ctx context.Context, words ...string) (string, error), err error) {
	if name != "rueidis" {
		c := goRedisBy(mode)
		if name == "go-redis-defaults" {
			c = redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: "mymaster", SentinelAddrs: []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
				Password: password, SentinelPassword: password, TLSConfig: secure(),
			})
		}
		return func(ctx context.Context, words ...string) (string, error) {
			args := make([]any, len(words))
			for i, w := range words {
				args[i] = w
			}
			v, err := c.Do(ctx, args...).Result()
			return fmt.Sprint(v), err
		}, nil
	}
	c, err := rueidisBy(mode)
	return func(ctx context.Context, words ...string) (string, error) {
		m, err := c.Do(ctx, c.B().Arbitrary(words[0]).Keys(words[1]).Args(words[2:]...).Build()).ToAny()
		return fmt.Sprint(m), err
	}, err
}

// runConnect takes a lock, kills the leader, and tells when the client goes on.
func runConnect(ctx context.Context, name, mode string) error {
	do, err := connector(name, mode)
	if err != nil {
		return err
	}
	key := "connect:" + name + ":" + mode
	if taken, err := do(ctx, "SET", key, "token", "NX", "EX", "120"); err != nil || taken != "OK" {
		return fmt.Errorf("the lock is not granted: %s %w", taken, err)
	}
	if _, err := do(ctx, "INCR", key+":fence"); err != nil {
		return err
	}
	dead, err := exec.Command("sh", "-c", os.Getenv("HOLDFAST_KILL")).Output()
	if err != nil {
		return fmt.Errorf("kill the leader: %w", err)
	}
	began := time.Now()
	for {
		fence, err := do(ctx, "INCR", key+":fence")
		if err == nil && fence < "2" {
			err = errors.New("the fence is " + fence)
		}
		if err == nil {
			break
		}
		if time.Since(began) > 30*time.Second {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(began)
	if token, err := do(ctx, "GET", key); err != nil || token != "token" {
		return fmt.Errorf("the lock is lost: %s %w", token, err)
	}
	fmt.Printf("  ok    %s, %s: %.2f s after the end of %s\n", name, mode, took.Seconds(), strings.TrimSpace(string(dead)))
	return nil
}
