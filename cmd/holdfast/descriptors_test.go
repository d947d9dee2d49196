//go:build unix

package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestFewDescriptors: strangers by the hundred neither take the descriptors that
// a node needs nor shut others out.
func TestFewDescriptors(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "limited")
	require.NoError(t, os.WriteFile(exe, []byte("#!/bin/sh\nulimit -n 128\nexec "+build(t)+` "$@"`+"\n"), 0o755))
	n := launch(t, exe, 1, "--password", "sesame", "--max-memory-clients", "3mb")[0]
	c := redis.NewClient(&redis.Options{Addr: n.addr, Password: "sesame", MaxRetries: -1, ReadTimeout: 10 * time.Second})
	defer c.Close()
	require.Eventually(t, func() bool { return c.Set(t.Context(), "k", "v", 0).Err() == nil }, 30*time.Second,
		10*time.Millisecond)
	require.Contains(t, n.Output(), "max-clients lowered")
	for range 300 {
		stranger, err := net.Dial("tcp", n.addr)
		require.NoError(t, err)
		defer stranger.Close()
	}
	late := redis.NewClient(&redis.Options{
		Addr: n.addr, Password: "sesame", MaxRetries: -1,
		ReadTimeout: 10 * time.Second,
	})
	defer late.Close()
	// It may have to come again while many are still being closed.
	require.Eventually(t, func() bool {
		got, err := late.ConfigGet(t.Context(), "max*clients").Result()
		return err == nil && got["maxclients"] == "32" && got["maxmemory-clients"] == "3145728"
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, c.Set(t.Context(), "k", "w", 0).Err(), "a client that was there stays")
	require.NotContains(t, n.Output(), "too many open files")
}
