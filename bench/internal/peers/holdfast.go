package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/bench/internal/workload"
	"github.com/holdfast/holdfast/protocol/fleet"
)

// before is three nodes of the binary of --before, to compare with the peer holdfast of this tree.
func before(ctx context.Context, b *builder) error {
	if b.before == "" {
		return errors.New("--before names no binary")
	}
	other := *b
	other.holdfast = b.before
	return holdfast(3)(ctx, &other)
}

// pinned restricts servers to some cores.
func pinned(cores string, servers func(context.Context, *builder) error) func(context.Context, *builder) error {
	return func(ctx context.Context, b *builder) error {
		b.cores = cores
		err := servers(ctx, b)
		b.cores = ""
		return err
	}
}

// withUsers is three nodes with the users of the workload flood.
func withUsers(ctx context.Context, b *builder) error {
	users := ""
	for _, name := range []string{"default", workload.FloodUser, workload.FloodLimitedUser} {
		users += "user " + name + " on nopass ~* &* +@all\n"
	}
	limits := fmt.Sprintf("user %s max-commands-per-second %d\n", workload.FloodLimitedUser, workload.FloodLimit)
	if err := os.MkdirAll(b.cluster.dir, 0o755); err != nil {
		return err
	}
	var flags []string
	for flag, text := range map[string]string{"acl-file": users, "quota-file": limits} {
		file := filepath.Join(b.cluster.dir, flag)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		flags = append(flags, "--"+flag, file)
	}
	return holdfast(3, flags...)(ctx, b)
}

// holdfast is n nodes with default settings and more flags.
func holdfast(n int, more ...string) func(context.Context, *builder) error {
	return func(ctx context.Context, b *builder) error {
		path, err := b.binary(ctx)
		if err != nil {
			return err
		}
		addrs, err := fleet.Reserve(2 * n)
		if err != nil {
			return err
		}
		clients, peers := addrs[:n], addrs[n:]
		var members []string
		seen, err := b.apart(peers)
		if err != nil {
			return err
		}
		for i, addr := range seen {
			members = append(members, fmt.Sprintf("n%d=%s", i+1, addr))
		}
		for i := range n {
			name := fmt.Sprintf("n%d", i+1)
			err := b.cluster.add(name, clients[i], func(dir string) ([]string, error) {
				var command []string
				if b.cores != "" {
					command = []string{"taskset", "--cpu-list", b.cores}
				}
				return slices.Concat(command, []string{
					path, "serve", "--name", name, "--addr", clients[i], "--peer-addr", peers[i],
					"--data-dir", filepath.Join(dir, "data"), "--initial-cluster", strings.Join(members, ","),
					"--max-clients", "12000",
				}, more), nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}
