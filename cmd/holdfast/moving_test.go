//go:build unix

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestMovingAsWritten runs the blocks of the page, with a redis-server in the place of the old one.
func TestMovingAsWritten(t *testing.T) {
	if _, err := exec.LookPath("redis-cli"); err != nil {
		t.Skip("redis-cli is not installed")
	}
	from := freeAddrs(t, 1)[0]
	_, port, _ := net.SplitHostPort(from)
	protocoltest.StartRedis(t, "--port", port)
	exe := build(t)
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("open sesame\n"), 0o600))
	n := plan(t, exe, 1, "--password-file", password)[0]
	n.start(t)
	ctx := t.Context()
	client := func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		t.Cleanup(func() { c.Close() })
		require.Eventually(t, func() bool { return c.DBSize(ctx).Err() == nil }, 20*time.Second, 10*time.Millisecond)
		return c
	}
	old, c := client(&redis.Options{Addr: from}), client(&redis.Options{Addr: n.addr, Password: "open sesame"})
	require.NoError(t, old.Do(ctx, "ACL", "SETUSER", "orders-a", "on", ">hush", "~*", "&*", "+@all").Err())
	bridge := client(&redis.Options{Addr: from, ClientName: "orders-a", Username: "orders-a", Password: "hush"})
	named := client(&redis.Options{Addr: from, ClientName: "orders-ab"}) // idle since its CLIENT SETNAME
	require.NoError(t, named.Do(ctx, "CLIENT", "SETNAME", "orders-ab").Err())
	take := func(c *redis.Client, key string) error { return c.SetNX(ctx, key, "token", time.Hour).Err() }
	for _, err := range []error{
		take(bridge, "lock:both"), take(c, "lock:both"), take(old, "lock:alone"),
		bridge.MSet(ctx, "fence:a", 41, "redisson_lock_token:{b}", 7).Err(),
	} {
		require.NoError(t, err)
	}

	bin := t.TempDir()
	require.NoError(t, os.Symlink(exe, filepath.Join(bin, "holdfast")))
	here := strings.NewReplacer("10.0.0.9:6379", from, "10.0.0.1:6379", n.addr, "/etc/holdfast/password", password)
	page := protocoltest.ReadFile(t, filepath.Join("..", "..", "server", "operating", "MOVING.md"))
	_, inside, _ := section(t, page, "moving")
	blocks := fenced(inside, "sh")
	value := func(c *redis.Client, key, want string) func() {
		return func() { require.Equal(t, want, c.Get(ctx, key).Val(), key) }
	}
	want := []struct {
		says  []string
		lacks string
		then  func()
	}{
		{[]string{"name= ", "name=orders-ab "}, "name=orders-a ", func() {}},
		{
			[]string{"leases         1 copied, if this were no dry run, 1 there already", "not there      lock:alone"},
			"lock:both", value(c, "fence:a", ""),
		},
		{[]string{"OK"}, "ERR", func() {
			require.ErrorContains(t, take(old, "lock:old"), "NOPERM")
			require.ErrorContains(t, old.Eval(ctx, "return redis.call('set', KEYS[1], 1)", []string{"lock:old"}).Err(), "NOPERM")
			require.NoError(t, take(bridge, "lock:bridge"))
		}},
		{[]string{"counters       2 copied", "larger than 100041 from now on"}, "skipped", value(c, "fence:a", "100041")},
		{
			[]string{"leases         2 copied, 1 there already", "0 copied, 2 as large or larger already"},
			"skipped",
			value(c, "lock:alone", "token"),
		},
		{[]string{"counters       2 copied"}, "skipped", func() {
			value(old, "fence:a", "100041")()
			require.NoError(t, take(old, "lock:old"))
		}},
	}
	require.Len(t, blocks, len(want))
	for i, of := range want {
		line := here.Replace(blocks[i])
		cmd := exec.Command("sh", "-eu", "-c", line)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, out)
		for _, says := range of.says {
			require.Contains(t, string(out), says, line)
		}
		require.NotContains(t, string(out), of.lacks, line)
		of.then()
	}
	fence, err := c.Do(ctx, "LOCK.ACQUIRE", "native", "me", "PX", "60000").Int64()
	require.NoError(t, err)
	require.Greater(t, fence, int64(100041))
}
