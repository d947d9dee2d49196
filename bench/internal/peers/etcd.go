package peers

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/protocol/fleet"
)

// etcdMembers is the number of members.
const etcdMembers = 3

// etcd is three members with default settings, except for the log level. They sync every entry by default.
func etcd(ctx context.Context, b *builder) error {
	path, err := b.driver(ctx, "etcd")
	if err != nil {
		return err
	}
	addrs, err := fleet.Reserve(2 * etcdMembers)
	if err != nil {
		return err
	}
	c := b.cluster
	c.driver = path
	c.isReady = func(ctx context.Context) error { return etcdReady(ctx, addrs[:etcdMembers]) }
	clients, peers := addrs[:etcdMembers], addrs[etcdMembers:]
	var members []string
	seen, err := b.apart(peers)
	if err != nil {
		return err
	}
	for i, addr := range seen {
		members = append(members, fmt.Sprintf("e%d=http://%s", i+1, addr))
	}
	for i := range etcdMembers {
		name := fmt.Sprintf("e%d", i+1)
		client, peer := "http://"+clients[i], "http://"+peers[i]
		err := c.add(name, clients[i], func(dir string) ([]string, error) {
			return []string{
				path, "serve", "--name", name, "--data-dir", filepath.Join(dir, "data"), "--log-level", "warn",
				"--listen-client-urls", client, "--advertise-client-urls", client,
				"--listen-peer-urls", peer, "--initial-advertise-peer-urls", "http://" + seen[i],
				"--initial-cluster", strings.Join(members, ","),
			}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// etcdReady checks that all members follow the same leader.
func etcdReady(ctx context.Context, addrs []string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var leader string
	for i, addr := range addrs {
		m, err := target.EtcdStatus(ctx, addr)
		switch {
		case err != nil:
			return err
		case m.Leader == "" || m.Leader == "0" || i > 0 && m.Leader != leader:
			return fmt.Errorf("%s follows %q, and another %q", addr, m.Leader, leader)
		}
		leader = m.Leader
	}
	return nil
}
