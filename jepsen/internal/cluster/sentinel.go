package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/fleet"
)

// sentinelSize is the number of hosts, each with a redis-server and a sentinel: one primary, two replicas.
const sentinelSize = 3

// primary is the node that clients dial; sentinels resolve it.
const primary = "primary"

// Sentinel is the documented high-availability setup of Redis: three hosts, each with a redis-server and a sentinel, a
// quorum of two, and down-after one second.
type Sentinel struct {
	c       Config
	members []string
	fleet   *Fleet
}

// NewSentinel prepares the hosts. Requires: a kernel network, since sentinels exchange addresses, which must be the
// same for all.
func NewSentinel(c Config) (*Sentinel, error) {
	if c.Net.Kind() != "kernel" {
		return nil, errors.New("the target redis-sentinel needs network namespaces (run as root)")
	}
	s := &Sentinel{c: c, members: network.Nodes(sentinelSize), fleet: newFleet(c.Dir)}
	host, port, err := net.SplitHostPort(c.Net.Listen("n1", "client"))
	if err != nil {
		return nil, fmt.Errorf("address of n1: %w", err)
	}
	for _, m := range s.members {
		lines := []string{"repl-diskless-sync-delay 0"}
		if m != "n1" {
			lines = append(lines, "replicaof "+host+" "+port)
		}
		conf, err := writeRedisConf(&c, m, lines...)
		if err != nil {
			return nil, err
		}
		sentinel, err := writeSentinelConf(&c, m, host, port)
		if err != nil {
			return nil, err
		}
		s.fleet.add(m, m, func(...string) *exec.Cmd { return c.Net.Command(m, "redis-server", conf) })
		s.fleet.add(m, m+"-sentinel", func(...string) *exec.Cmd { return c.Net.Command(m, "redis-sentinel", sentinel) })
	}
	return s, nil
}

func writeSentinelConf(c *Config, member, host, port string) (string, error) {
	own, ownPort, err := net.SplitHostPort(c.Net.Listen(member, "sentinel"))
	if err != nil {
		return "", fmt.Errorf("address of %s: %w", member, err)
	}
	dir := filepath.Join(c.Dir, "data", member)
	text := fmt.Sprintf("bind %s\nport %s\ndir %s\nprotected-mode no\n", own, ownPort, dir) +
		fmt.Sprintf("sentinel monitor main %s %s 2\n", host, port) +
		"sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 3000\nsentinel parallel-syncs main 1\n"
	path := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return path, nil
}

// Nodes implements [workload.Service].
func (s *Sentinel) Nodes() []string { return []string{primary} }

// Sides implements [workload.Service].
func (s *Sentinel) Sides() int { return len(s.members) }

// Members implements [Target].
func (s *Sentinel) Members() []string { return s.members }

// Fleet implements [Target].
func (s *Sentinel) Fleet() Processes { return s.fleet }

// Close implements [Target].
func (s *Sentinel) Close() error { return s.fleet.close() }

// Dial implements [workload.Service] as clients of Sentinel do: it asks the sentinels for the primary, the nearest
// first, connects there, and verifies the node's role.
func (s *Sentinel) Dial(ctx context.Context, n int, _ string) (net.Conn, error) {
	from := side(s.members, n)
	err := errors.New("no sentinel answered")
	for i := range s.members {
		sentinel := s.members[(n+i)%len(s.members)]
		var nc net.Conn
		if nc, err = s.dialVia(ctx, from, sentinel); err == nil {
			return nc, nil
		}
	}
	return nil, err
}

func (s *Sentinel) dialVia(ctx context.Context, from, sentinel string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, debugTimeout)
	defer cancel()
	member, err := s.primaryBy(ctx, from, sentinel)
	if err != nil {
		return nil, err
	}
	nc, err := s.c.Net.Dial(ctx, from, member, "client")
	if err != nil {
		return nil, fmt.Errorf("dial primary %s: %w", member, err)
	}
	role := wire.New(nc, debugTimeout).Do("ROLE")
	if role.Outcome != history.OK || len(role.Value.Elems) == 0 || role.Value.Elems[0].Str != "master" {
		nc.Close()
		return nil, fmt.Errorf("%s is no primary", member)
	}
	return nc, nc.SetDeadline(time.Time{})
}

// primaryBy asks a sentinel for the primary.
func (s *Sentinel) primaryBy(ctx context.Context, from, sentinel string) (string, error) {
	v, err := ask(ctx, s.c.Net, from, sentinel, "sentinel", "SENTINEL", "get-master-addr-by-name", "main")
	if err != nil {
		return "", err
	}
	if len(v.Elems) != 2 {
		return "", fmt.Errorf("sentinel of %s knows no primary", sentinel)
	}
	addr := net.JoinHostPort(v.Elems[0].Str, v.Elems[1].Str)
	n := slices.IndexFunc(s.members, func(m string) bool { return s.c.Net.Listen(m, "client") == addr })
	if n < 0 {
		return "", fmt.Errorf("sentinel of %s names a stranger, %s", sentinel, addr)
	}
	return s.members[n], nil
}

// Start implements [Target].
func (s *Sentinel) Start(ctx context.Context) error {
	for _, m := range s.members {
		if err := s.fleet.Start(m); err != nil {
			return err
		}
	}
	return s.Serving(ctx)
}

// Serving implements [Target]: the primary serves, both replicas are in sync, and every sentinel has detected the two
// others, so that a failover is possible.
func (s *Sentinel) Serving(ctx context.Context) error {
	if err := serving(ctx, s); err != nil {
		return err
	}
	return fleet.Await(ctx, s.whole)
}

func (s *Sentinel) whole(ctx context.Context) error {
	leader, known := s.Leader(ctx)
	if !known {
		return errors.New("the sentinels do not agree on a primary")
	}
	role, err := s.Debug(ctx, leader, "ROLE")
	if err != nil {
		return err
	}
	if len(role.Elems) != 3 || len(role.Elems[2].Elems) != sentinelSize-1 {
		return fmt.Errorf("%s does not have both replicas", leader)
	}
	for _, m := range s.members {
		v, err := ask(ctx, s.c.Net, "", m, "sentinel", "SENTINEL", "SENTINELS", "main")
		if err != nil {
			return err
		}
		if len(v.Elems) != sentinelSize-1 {
			return fmt.Errorf("the sentinel of %s does not know the others", m)
		}
	}
	return nil
}

// Debug implements [Target].
func (s *Sentinel) Debug(ctx context.Context, member string, words ...string) (protocol.Value, error) {
	return ask(ctx, s.c.Net, "", member, "client", words...)
}

// Features implements [Target].
func (s *Sentinel) Features(ctx context.Context) workload.Features {
	return workload.Features{Hashes: true, IfEq: knows(ctx, s, "delex")}
}

// Supports implements [Target].
func (s *Sentinel) Supports(context.Context) []string {
	return []string{
		"partition-one", "partition-leader", "partition-halves", "partition-ring", "partition-oneway", "partition-deaf",
		"packets-lost",
		"kill-leader", "kill-follower", "kill-minority", "kill-all", "restart-all", "restart-rolling",
		"pause-leader", "pause-minority", "pause-all",
	}
}

// Leader implements [Target]: it returns the primary that a majority of the sentinels names.
func (s *Sentinel) Leader(ctx context.Context) (string, bool) {
	votes := map[string]int{}
	for _, m := range s.members {
		if named, err := s.primaryBy(ctx, "", m); err == nil {
			votes[named]++
		}
	}
	for m, n := range votes {
		if n > sentinelSize/2 {
			return m, true
		}
	}
	return "", false
}

// Agree implements [Target]. Sentinel promises only that replicas agree eventually, so nothing is compared.
func (s *Sentinel) Agree(context.Context) (int, []string) { return 0, nil }

// writeRedisConf writes the configuration of a redis-server, which rewrites the file at a failover.
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
