package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol"
)

// Redis is a single redis-server with an append-only file synced once a second, as most run it.
type Redis struct {
	c       Config
	members []string
	fleet   *Fleet
}

// NewRedis prepares a server.
func NewRedis(c Config) (*Redis, error) {
	r := &Redis{c: c, members: network.Nodes(1), fleet: newFleet(c.Dir)}
	conf, err := writeRedisConf(&c, "n1")
	if err != nil {
		return nil, err
	}
	r.fleet.add("n1", "n1", func(...string) *exec.Cmd { return c.Net.Command("n1", "redis-server", conf) })
	return r, nil
}

// writeRedisConf writes the file that a redis-server keeps its configuration in, and rewrites
// when a sentinel tells it to change sides.
func writeRedisConf(c *Config, member string, lines ...string) (string, error) {
	dir := filepath.Join(c.Dir, "data", member)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make data folder: %w", err)
	}
	host, port, err := net.SplitHostPort(c.Net.Listen(member, "client"))
	if err != nil {
		return "", fmt.Errorf("address of %s: %w", member, err)
	}
	text := fmt.Sprintf("bind %s\nport %s\ndir %s\nprotected-mode no\nsave \"\"\nappendonly yes\nappendfsync everysec\n",
		host, port, dir)
	for _, l := range lines {
		text += l + "\n"
	}
	for _, l := range c.Args {
		text += l + "\n"
	}
	path := filepath.Join(dir, "redis.conf")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return path, nil
}

// Nodes implements [workload.Service].
func (r *Redis) Nodes() []string { return r.members }

// Sides implements [workload.Service].
func (r *Redis) Sides() int { return 1 }

// Members implements [Target].
func (r *Redis) Members() []string { return r.members }

// Fleet implements [Target].
func (r *Redis) Fleet() Processes { return r.fleet }

// Close implements [Target].
func (r *Redis) Close() error { return r.fleet.close() }

// Dial implements [workload.Service].
func (r *Redis) Dial(ctx context.Context, n int, node string) (net.Conn, error) {
	return dialNode(ctx, &r.c, r.members, n, node)
}

// Start implements [Target].
func (r *Redis) Start(ctx context.Context) error {
	if err := r.fleet.Start("n1"); err != nil {
		return err
	}
	return r.Serving(ctx)
}

// Serving implements [Target].
func (r *Redis) Serving(ctx context.Context) error { return serving(ctx, r) }

// Debug implements [Target].
func (r *Redis) Debug(ctx context.Context, member string, words ...string) (protocol.Value, error) {
	return ask(ctx, r.c.Net, "", member, "client", words...)
}

// Features implements [Target].
func (r *Redis) Features(ctx context.Context) workload.Features {
	return workload.Features{Hashes: true, IfEq: knows(ctx, r, "delex")}
}

// Supports implements [Target].
func (r *Redis) Supports(context.Context) []string {
	return []string{"kill-leader", "kill-all", "restart-all", "pause-leader", "pause-all"}
}

// Leader implements [Target].
func (r *Redis) Leader(context.Context) (string, bool) { return "n1", true }

// Agree implements [Target]: there is no replica to disagree with.
func (r *Redis) Agree(context.Context) (int, []string) { return 1, nil }
