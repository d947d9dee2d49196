package peers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// before is three nodes of the binary of --before. The peer holdfast, of this tree, is compared with them.
func before(ctx context.Context, b *builder) error {
	if b.before == "" {
		return errors.New("--before names no binary")
	}
	other := *b
	other.holdfast = b.before
	return holdfast(3)(ctx, &other)
}

// pinned are servers on some cores alone.
func pinned(cores string, servers func(context.Context, *builder) error) func(context.Context, *builder) error {
	return func(ctx context.Context, b *builder) error {
		b.cores = cores
		err := servers(ctx, b)
		b.cores = ""
		return err
	}
}

// holdfast is n nodes with their default settings, but for what more says.
func holdfast(n int, more ...string) func(context.Context, *builder) error {
	return func(ctx context.Context, b *builder) error {
		path, err := b.binary(ctx)
		if err != nil {
			return err
		}
		addrs, err := freeAddrs(2 * n)
		if err != nil {
			return err
		}
		clients, peers := addrs[:n], addrs[n:]
		var members []string
		for i, addr := range peers {
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
