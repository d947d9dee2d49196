package importer

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/clienttest"
	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/protocol/fleet"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server"
)

// freeAddr is a loopback address that is free for now.
func freeAddr(t *testing.T) string {
	t.Helper()
	return "127.0.0.1:" + protocoltest.FreePort(t)
}

// dial waits until the server serves.
func dial(t *testing.T, o *redis.Options, asks ...any) *redis.Client {
	t.Helper()
	if asks == nil {
		asks = []any{"DBSIZE"}
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	require.Eventually(t, func() bool { return c.Do(t.Context(), asks...).Err() == nil }, 20*time.Second,
		10*time.Millisecond)
	return c
}

// sources calls f with a source that is a Holdfast node, and with one that is a redis-server where there is one.
func sources(t *testing.T, f func(t *testing.T, addr string)) {
	t.Run("holdfast", func(t *testing.T) { f(t, clienttest.StartNode(t)) })
	t.Run("Redis", func(t *testing.T) { f(t, startRedis(t)) })
}

func startRedis(t *testing.T, flags ...string) (addr string) {
	t.Helper()
	addr = freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	protocoltest.StartRedis(t, append([]string{"--port", port}, flags...)...)
	return addr
}

func jobOf(t *testing.T, from, to string) *Job {
	t.Helper()
	s, err := ParseSource(from)
	require.NoError(t, err)
	return &Job{
		From: s, To: &operator.Servers{Addrs: []string{to}, DB: s.DB}, Counters: []string{"fence:*"},
		Leases: []string{"*"},
	}
}

// fill makes keys of all kinds, small and large, and n leases.
func fill(t *testing.T, c *redis.Client, n int) {
	t.Helper()
	_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range n {
			p.Set(t.Context(), fmt.Sprint("lock:", i), fmt.Sprint("token ", i), time.Hour)
		}
		p.MSet(t.Context(), "fence:a", 41, "fence:b", "-9223372036854775808", "fence:c", "9007199254740993", "empty", "",
			"forever", "\x00\xff\r\n")
		p.HSet(t.Context(), "{r}lock", "uuid:1", 2)
		p.PExpire(t.Context(), "{r}lock", time.Minute)
		p.RPush(t.Context(), "queue", "a", "b", "a", "")
		p.SAdd(t.Context(), "workers", "one", "two", "3")
		p.ZAdd(t.Context(), "semaphore", redis.Z{Score: 1.5, Member: "a"}, redis.Z{Score: 1e300, Member: "b"})
		p.Do(t.Context(), "ZADD", "semaphore", "inf", "c", "-inf", "d", "0.1", "e")
		for i := range 3 * partElements {
			p.HSet(t.Context(), "large:hash", fmt.Sprint("field ", i), strings.Repeat("v", i%70))
			p.RPush(t.Context(), "large:list", i%7)
			p.SAdd(t.Context(), "large:set", i, fmt.Sprint("m", i))
			p.ZAdd(t.Context(), "large:zset", redis.Z{Score: float64(i) / 3, Member: fmt.Sprint(i)})
		}
		p.PExpire(t.Context(), "large:list", time.Minute)
		p.Set(t.Context(), "large:string", strings.Repeat("x", 3<<20), time.Hour)
		p.RPush(t.Context(), "heavy", strings.Repeat("y", 2<<20), strings.Repeat("z", 2<<20), "w")
		return nil
	})
	require.NoError(t, err)
}

// state is what a server holds, read in three pipelines: a trip for each question would be most of the tests' work.
func state(t *testing.T, c *redis.Client) map[string]string {
	t.Helper()
	keys, err := c.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	ask := func(question func(i int) []any) (answers []any) {
		cmds, _ := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := range keys {
				p.Do(t.Context(), question(i)...)
			}
			return nil
		})
		for _, cmd := range cmds {
			answers = append(answers, cmd.(*redis.Cmd).Val())
		}
		return answers
	}
	kinds := ask(func(i int) []any { return []any{"TYPE", keys[i]} })
	values := ask(func(i int) []any {
		switch kinds[i] {
		case "string":
			return []any{"GET", keys[i]}
		case "list":
			return []any{"LRANGE", keys[i], 0, -1}
		case "hash":
			return []any{"HGETALL", keys[i]}
		case "set":
			return []any{"SMEMBERS", keys[i]}
		}
		return []any{"ZRANGE", keys[i], 0, -1, "WITHSCORES"}
	})
	all := map[string]string{}
	for i, life := range ask(func(i int) []any { return []any{"PTTL", keys[i]} }) {
		if members, ok := values[i].([]any); ok && kinds[i] == "set" {
			slices.SortFunc(members, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
		}
		// Between two questions a key may go: a run that was ended may have left a command under way.
		if life != int64(-2) {
			all[keys[i]] = fmt.Sprint(kinds[i], " ends ", life.(int64) > 0, " ", values[i])
		}
	}
	return all
}

func run(t *testing.T, j *Job) *Report {
	t.Helper()
	r, err := j.Run(t.Context())
	require.NoError(t, err)
	return r
}

// TestAllKinds: all is there as it is at the source, no sooner gone; a second run does nothing more, and a dry run
// nothing.
func TestAllKinds(t *testing.T) {
	sources(t, func(t *testing.T, addr string) {
		to := clienttest.StartNode(t)
		source, target := dial(t, &redis.Options{Addr: addr}), dial(t, &redis.Options{Addr: to})
		const leases = 300
		fill(t, source, leases)
		before := state(t, source)
		j := jobOf(t, "redis://"+addr, to)
		j.DryRun = true
		want := Tally{Copied: int64(len(before)) - 3}
		r := run(t, j)
		require.Equal(t, []any{Tally{Copied: 3}, want, int64(0)}, []any{r.Counters, r.Leases, r.Gone})
		require.Zero(t, target.DBSize(t.Context()).Val(), "a dry run writes nothing")
		require.NotContains(t, target.Info(t.Context(), "memory").Val(), "number_of_cached_scripts:1", "nor scripts")

		j.DryRun = false
		r = run(t, j)
		require.Equal(t, []any{Tally{Copied: 3}, want, int64(0), int64(9007199254740993), "fence:c"},
			[]any{r.Counters, r.Leases, r.Gone, r.Largest, r.LargestKey})
		require.Empty(t, r.Skipped)
		require.Equal(t, before, state(t, target))
		require.Equal(t, before, state(t, source), "the source is only read")
		for i := range leases {
			key := fmt.Sprint("lock:", i)
			here := target.PTTL(t.Context(), key).Val() // first: time passes between the two
			there := source.PTTL(t.Context(), key).Val()
			require.GreaterOrEqual(t, here, there, "a lease that ended sooner would have two holders")
			require.Less(t, here, there+20*time.Second)
		}
		for _, dry := range []bool{true, false} {
			j.DryRun = dry
			r = run(t, j)
			require.Equal(t, []any{Tally{There: 3}, Tally{There: want.Copied}}, []any{r.Counters, r.Leases}, "%v", r.Skipped)
		}
		require.Equal(t, before, state(t, target))
		j.Raise = 100
		r = run(t, j)
		require.Equal(t, Tally{Copied: 3}, r.Counters)
		require.Equal(t, "141", target.Get(t.Context(), "fence:a").Val())
	})
}

// TestNothingIsOverwritten: what is there at the target is kept and named, in a dry run and a real one; lives only
// grow.
func TestNothingIsOverwritten(t *testing.T) {
	sources(t, func(t *testing.T, addr string) {
		to := clienttest.StartNode(t)
		source, target := dial(t, &redis.Options{Addr: addr}), dial(t, &redis.Options{Addr: to})
		fill(t, source, 3)
		fill(t, target, 3)
		ctx := t.Context()
		source.Set(ctx, "fence:high", 7, 0)
		source.Set(ctx, "fence:word", 7, 0)
		source.Set(ctx, "fence:list", 7, 0)
		source.Set(ctx, "fence:big", "9223372036854775806", 0)
		source.Set(ctx, "native", "token", time.Minute)
		source.Set(ctx, "forever", "\x00\xff\r\n", time.Minute)
		target.Set(ctx, "fence:a", 42, 0)
		target.Set(ctx, "fence:b", "-9223372036854775807", 0)
		target.Set(ctx, "fence:c", "9007199254740992", time.Hour)
		target.Set(ctx, "fence:word", "abc", 0)
		target.RPush(ctx, "fence:list", "abc")
		target.Do(ctx, "LOCK.ACQUIRE", "native", "me", "PX", "60000")
		target.Set(ctx, "lock:0", "another", time.Minute)
		target.PExpire(ctx, "lock:1", time.Minute) // less than at the source
		target.PExpire(ctx, "lock:2", 2*time.Hour)
		target.RPush(ctx, "queue", "more")
		target.HSet(ctx, "{r}lock", "uuid:1", 1)
		target.SRem(ctx, "workers", "one")
		target.SAdd(ctx, "workers", "five")
		target.ZAdd(ctx, "semaphore", redis.Z{Score: 2, Member: "a"})
		target.HSet(ctx, "large:hash", "field 1500", "other")
		target.LSet(ctx, "large:list", 1200, "other")
		target.SAdd(ctx, "large:set", "more")
		target.PExpire(ctx, "large:zset", time.Minute) // the source's never ends
		require.NoError(t, target.RPush(ctx, "heavy", "more").Err())
		kept := state(t, target)
		j := jobOf(t, "redis://"+addr, to)
		for _, dry := range []bool{true, false} {
			j.DryRun = dry
			r := run(t, j)
			slices.Sort(r.Skipped[0].Keys)
			require.Len(t, r.Skipped, 1)
			require.EqualValues(t, 12, r.Skipped[0].Count, "%v", r.Skipped)
			require.Equal(t, string(skipOther), r.Skipped[0].Reason)
			require.Equal(t, Tally{Copied: 3, There: 2}, r.Counters)
			if dry {
				require.Equal(t, kept, state(t, target))
			}
		}
		for key, value := range map[string]string{
			"fence:high": "7", "fence:big": "9223372036854775806", "fence:a": "42", "fence:b": "-9223372036854775807",
			"fence:c": "9007199254740993",
		} {
			require.Equal(t, value, target.Get(ctx, key).Val(), key)
			delete(kept, key)
		}
		require.Greater(t, target.PTTL(ctx, "fence:c").Val(), time.Minute, "a counter keeps its life")
		require.Greater(t, target.PTTL(ctx, "lock:1").Val(), 30*time.Minute, "a lease is no shorter than at the source")
		require.Greater(t, target.PTTL(ctx, "lock:2").Val(), 90*time.Minute, "nor shortened")
		require.Negative(t, target.PTTL(ctx, "large:zset").Val())
		require.Negative(t, target.PTTL(ctx, "forever").Val())
		delete(kept, "large:zset")
		after := state(t, target)
		for key, value := range kept {
			require.Equal(t, value, after[key], key)
		}
		j.Raise = 100
		for _, s := range run(t, j).Skipped {
			if s.Reason == string(skipTooHigh) {
				require.Equal(t, []string{"fence:big"}, s.Keys)
				return
			}
		}
		require.Fail(t, "the sum is too large")
	})
}

// TestCountersAlone: without patterns of leases other keys are named, and not copied.
func TestCountersAlone(t *testing.T) {
	sources(t, func(t *testing.T, addr string) {
		to := clienttest.StartNode(t)
		source, target := dial(t, &redis.Options{Addr: addr}), dial(t, &redis.Options{Addr: to})
		ctx := t.Context()
		source.MSet(ctx, "fence:a", 1, "fence:b", "1.5", "fence:long", strings.Repeat("1", 30), "other", 2)
		source.Set(ctx, "fence:lease", 5, time.Hour)
		source.RPush(ctx, "fence:list", 1)
		j := jobOf(t, "redis://"+addr, to)
		j.Leases = nil
		r := run(t, j)
		require.Equal(t, Tally{Copied: 1}, r.Counters)
		require.Equal(t, []string{"fence:a"}, target.Keys(ctx, "*").Val())
		reasons := map[string]int64{}
		for _, s := range r.Skipped {
			reasons[s.Reason] = s.Count
		}
		require.Equal(t, map[string]int64{string(skipNumber): 2, string(skipLease): 1, "no counter: a list": 1}, reasons)
	})
}

// cutter passes connections on, and closes each after some bytes; 0: never.
func cutter(t *testing.T, to string, bytes func() int64) (addr string) {
	t.Helper()
	r, err := fleet.NewRelay(func(context.Context) (net.Conn, fleet.Carry, error) {
		node, err := net.Dial("tcp", to)
		left := new(atomic.Int64)
		left.Store(bytes())
		return node, func(to, from net.Conn) error {
			room := make([]byte, 4<<10)
			for {
				n, err := from.Read(room)
				if err != nil || left.Add(int64(-n)) < 0 {
					return io.EOF
				}
				if _, err := to.Write(room[:n]); err != nil {
					return err
				}
			}
		}, err
	})
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	return r.Addr()
}

// TestInterrupted at random points, by a target that breaks connections, by a source that does, and by an end of the
// program: what is there is whole, and runs until the end lose and double nothing.
func TestInterrupted(t *testing.T) {
	sources(t, func(t *testing.T, addr string) {
		source := dial(t, &redis.Options{Addr: addr})
		fill(t, source, 2000)
		want := state(t, source)
		seed := rand.Uint64()
		t.Log("seed", seed)
		random := rand.New(rand.NewPCG(seed, 1))
		// Connections carry more and more, or the large keys would never come through.
		conns := int64(0)
		few := func() int64 {
			conns++
			return random.Int64N(1<<19) + conns<<19
		}
		for what, cut := range map[string]struct{ from, to func() int64 }{
			"the target": {never, few}, "the source": {few, never}, "the program": {never, never},
		} {
			t.Run(what, func(t *testing.T) {
				if testing.Short() && what != "the target" {
					t.Skip("left out by -short")
				}
				conns = 0
				to := clienttest.StartNode(t)
				target := dial(t, &redis.Options{Addr: to})
				j := jobOf(t, "redis://"+cutter(t, addr, cut.from), cutter(t, to, cut.to))
				tries, most := 0, 500
				if what == "the target" {
					most = 1 // a run tries again by itself
				}
				for done := false; !done; tries++ {
					require.Less(t, tries, most)
					ctx, cancel := context.WithCancel(t.Context())
					if what == "the program" && tries < 20 {
						time.AfterFunc(time.Duration(random.Int64N(int64(40*time.Millisecond))), cancel)
					}
					_, err := j.Run(ctx)
					cancel()
					done = err == nil
					for key, value := range whole(t, target) {
						require.Equal(t, want[key], value, key)
					}
				}
				require.Equal(t, want, whole(t, target))
				t.Log(tries, "runs")
			})
		}
	})
}

func never() int64 { return 1 << 60 }

// whole is the state without the names under which large keys grow. Each of these names ends by itself.
func whole(t *testing.T, c *redis.Client) map[string]string {
	all := state(t, c)
	for key := range all {
		if strings.Contains(key, tempSuffix) {
			require.Contains(t, all[key], "ends true")
			delete(all, key)
		}
	}
	return all
}

// TestChangesMeanwhile: keys that change while they are read are copied as they were at one instant, or named.
func TestChangesMeanwhile(t *testing.T) {
	sources(t, func(t *testing.T, addr string) {
		to := clienttest.StartNode(t)
		source, target := dial(t, &redis.Options{Addr: addr, PoolSize: 2}), dial(t, &redis.Options{Addr: to})
		fill(t, source, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error)
		go func() { // the list has each number twice at every instant, the hash the same number in each field
			defer close(done)
			for i := 0; ctx.Err() == nil; i++ {
				_, err := source.TxPipelined(ctx, func(p redis.Pipeliner) error {
					p.Del(ctx, "pair", "kind")
					p.RPush(ctx, "pair", i, i)
					if i%2 == 0 {
						p.Set(ctx, "kind", i, time.Minute)
					} else {
						p.HSet(ctx, "kind", "a", i)
						p.PExpire(ctx, "kind", time.Minute)
					}
					p.LSet(ctx, "large:list", 0, i)
					p.LSet(ctx, "large:list", 3*partElements-1, i)
					return nil
				})
				if err != nil && ctx.Err() == nil {
					done <- err
				}
			}
		}()
		require.Eventually(t, func() bool { return source.Exists(ctx, "pair").Val() == 1 }, 10*time.Second, time.Millisecond)
		for range 5 {
			require.NoError(t, target.FlushAll(ctx).Err())
			r := run(t, jobOf(t, "redis://"+addr, to))
			pair := target.LRange(ctx, "pair", 0, -1).Val()
			require.Len(t, pair, 2)
			require.Equal(t, pair[0], pair[1])
			if kind := target.Type(ctx, "kind").Val(); kind == "none" {
				require.Contains(t, fmt.Sprint(r.Skipped), "kind", "%+v", r)
			}
			if ends := target.LRange(ctx, "large:list", 0, -1).Val(); len(ends) > 0 {
				require.Equal(t, ends[0], ends[len(ends)-1])
			} else {
				require.Contains(t, fmt.Sprint(r.Skipped), errChanged.Error())
			}
		}
		cancel()
		require.NoError(t, <-done)
	})
}

// TestTargetThatIsFull ends at once, and says why.
func TestTargetThatIsFull(t *testing.T) {
	from, to := clienttest.StartNode(t), clienttest.StartNode(t, func(c *server.Config) { c.MaxMemory = "100kb" })
	source := dial(t, &redis.Options{Addr: from})
	dial(t, &redis.Options{Addr: to})
	fill(t, source, 3000)
	_, err := jobOf(t, "redis://"+from, to).Run(t.Context())
	require.ErrorContains(t, err, "the target: OOM")
}
