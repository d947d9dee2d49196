package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast/holdfast/protocol/fleet"
)

// durable are the settings under which Redis syncs before it acknowledges a write.
var durable = []string{"--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no"}

// redisServer starts a redis-server.
func (b *builder) redisServer(name, addr string, more ...string) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("find redis-server: %w", err)
	}
	return b.cluster.add(name, addr, func(dir string) ([]string, error) {
		return append([]string{
			path, "--port", port(addr), "--bind", "127.0.0.1", "--save", "", "--dir", dir, "--maxclients",
			"12000",
		}, more...), nil
	})
}

func redisMemory(_ context.Context, b *builder) error { return b.redisServers(1) }

func redisAlways(_ context.Context, b *builder) error { return b.redisServers(1, durable...) }

func redisIndependent(_ context.Context, b *builder) error { return b.redisServers(3, durable...) }

func (b *builder) redisServers(n int, more ...string) error {
	addrs, err := fleet.Reserve(n)
	if err != nil {
		return err
	}
	for i, addr := range addrs {
		if err := b.redisServer(fmt.Sprintf("redis%d", i+1), addr, more...); err != nil {
			return err
		}
	}
	return nil
}

// redisReplicated is a primary, the first server, and two replicas.
func redisReplicated(_ context.Context, b *builder) error {
	addrs, err := fleet.Reserve(3)
	if err != nil {
		return err
	}
	if err := b.redisServer("primary", addrs[0], durable...); err != nil {
		return err
	}
	for i, addr := range addrs[1:] {
		follow := append([]string{"--replicaof", "127.0.0.1 " + port(addrs[0])}, durable...)
		if err := b.redisServer(fmt.Sprintf("replica%d", i+1), addr, follow...); err != nil {
			return err
		}
	}
	return nil
}

// sentinels is the number of sentinels; the quorum is a majority.
const (
	sentinels = 3
	quorum    = 2
)

// redisSentinel adds sentinels with the documented settings, except for down-after-milliseconds: 1 s instead of the
// default of 30 s.
func redisSentinel(ctx context.Context, b *builder) error {
	if err := redisReplicated(ctx, b); err != nil {
		return err
	}
	path, err := exec.LookPath("redis-sentinel")
	if err != nil {
		return fmt.Errorf("find redis-sentinel: %w", err)
	}
	addrs, err := fleet.Reserve(sentinels)
	if err != nil {
		return err
	}
	primary := b.cluster.servers[0].addr
	for i, addr := range addrs {
		err := b.cluster.add(fmt.Sprintf("sentinel%d", i+1), "", func(dir string) ([]string, error) {
			lines := []string{
				"port " + port(addr), "bind 127.0.0.1", "dir " + dir,
				fmt.Sprintf("sentinel monitor locks 127.0.0.1 %s %d", port(primary), quorum),
				"sentinel down-after-milliseconds locks 1000", "sentinel failover-timeout locks 10000",
			}
			config := filepath.Join(dir, "sentinel.conf")
			return []string{path, config}, os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
