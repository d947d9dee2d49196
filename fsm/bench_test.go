package fsm

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// entryOf returns one entry with n batches, each with its own body.
func entryOf(seq *uint64, stamp int64, bodies ...[]byte) []byte {
	w := protocol.NewEntry(nil, protocol.EntryVersion, stamp, 1_700_000_000_000, protocol.EntryLimits{})
	for _, body := range bodies {
		*seq++
		w.Add(origin, *seq, *seq, body)
	}
	return w.Bytes()
}

// lastReply is a sink that wants everything and keeps the last reply.
type lastReply struct{ reply protocol.Value }

func (s *lastReply) Wanted(protocol.Incarnation, uint64) bool { return true }

func (s *lastReply) Done(_ protocol.Incarnation, _ uint64, replies []protocol.Value, _ bool) {
	if len(replies) > 0 {
		s.reply = replies[len(replies)-1]
	}
}

func (s *lastReply) Events([]event.Event) {}

// locked returns a machine with n long leases.
func locked(tb testing.TB, n int) *driver {
	d := newDriver(tb)
	d.fill("lock:", n, 1_000_000_000)
	return d
}

const compareAndDelete = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else " +
	"return 0 end"

// BenchmarkAcquireRelease is the typical load: 64 pairs per entry, beside a hundred thousand other locks.
func BenchmarkAcquireRelease(b *testing.B) {
	sha := scriptSHA(compareAndDelete)
	for _, c := range []struct {
		name    string
		sink    Sink
		release func(key string) []byte
	}{
		{"delifeq", new(lastReply), func(key string) []byte { return request(nil, 0, "delifeq", key, "token") }},
		{"evalsha", new(lastReply), func(key string) []byte { return request(nil, 0, "evalsha", sha, "1", key, "token") }},
		{"evalsha-follower", clientless{}, func(key string) []byte {
			return request(nil, 0, "evalsha", sha, "1", key, "token")
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := locked(b, 100_000)
			d.do("script", "load", compareAndDelete)
			var acquire, release [][]byte
			for i := range 64 {
				key := "mine:" + strconv.Itoa(i)
				acquire = append(acquire, request(nil, 0, "set", key, "token", "NX", "PX", "30000"))
				release = append(release, c.release(key))
			}
			seq := d.seq
			b.ReportAllocs()
			b.ResetTimer()
			began := cpuNanos()
			for i := 0; i < b.N; i += 64 {
				// Each entry must have its own numbers; making it costs little.
				for _, bodies := range [][][]byte{acquire, release} {
					if err := d.m.Apply(entryOf(&seq, d.nowMillis, bodies...), c.sink); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(cpuNanos()-began)/float64(b.N), "cpu-ns/op")
			if s, ok := c.sink.(*lastReply); ok && s.reply.Num != 1 {
				b.Fatal(line(s.reply))
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	d := locked(b, 100_000)
	body := string(request(nil, 0, "get", "lock:77"))
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, _, _, err := d.m.Read(body, 1, d.nowMillis, 0, ReadShort); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	d := locked(b, 1_000_000)
	var stream bytes.Buffer
	b.Run("capture", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			d.m.Snapshot()
		}
	})
	b.Run("write", func(b *testing.B) {
		for range b.N {
			n, err := d.m.Snapshot().WriteTo(io.Discard)
			require.NoError(b, err)
			b.SetBytes(n)
		}
	})
	_, err := d.m.Snapshot().WriteTo(&stream)
	require.NoError(b, err)
	b.Run("restore", func(b *testing.B) {
		for range b.N {
			require.NoError(b, newMachine().Restore(bytes.NewReader(stream.Bytes())))
		}
	})
}

// BenchmarkStorm is the worst entry when a million leases expire at one instant.
func BenchmarkStorm(b *testing.B) {
	d := newDriver(b)
	d.fill("lock:", 1_000_000, 1000)
	full := dump(b, d.m)
	d.nowMillis += 1001
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		require.NoError(b, d.m.Restore(bytes.NewReader(full)))
		b.StartTimer()
		d.advance(0)
	}
}

// heap returns the reachable memory.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestMemoryPerHashLock: a reentrant lock of a library, a hash of one field with a deadline, costs less than 300 bytes
// in all.
func TestMemoryPerHashLock(t *testing.T) {
	const n = 100_000
	before := heap()
	d := newDriver(t)
	changer(d, "take", collection.NewHash, func(v *collection.Hash, owner string) { v.Put(owner, "1") })
	var body []byte
	for i := range n {
		key := fmt.Sprintf("lock:%08d", i)
		body = protocoltest.AppendRequest(body, 0, "take", key, fmt.Sprintf("%038d:1", i))
		body = protocoltest.AppendRequest(body, 0, "pexpire", key, strconv.Itoa(30_000+i%10_000))
		if len(body) > 1<<14 || i == n-1 {
			d.apply(body)
			body = body[:0]
		}
	}
	require.Equal(t, n, d.m.Stats().Expires[0])
	each := float64(heap()-before-uint64(cap(body))) / n
	t.Logf("%d locks: %.0f bytes each, %d by the count", n, each, d.m.Stats().UsedBytes/n)
	require.Less(t, each, 300.0)
	runtime.KeepAlive(d)
}

// TestMemoryPerLock: a held lock costs at most 131 bytes beyond its key and value.
func TestMemoryPerLock(t *testing.T) {
	const n = 200_000
	before := heap()
	d := newDriver(t)
	content := 0
	var body []byte
	for i := range n {
		key, value := fmt.Sprintf("lock:resource:%08d", i), fmt.Sprintf("%032d", i)
		content += len(key) + len(value)
		body = protocoltest.AppendRequest(body, 0, "set", key, value, "nx", "px", strconv.Itoa(30_000+i%10_000))
		if len(body) > 1<<16 || i == n-1 {
			d.apply(body)
			body = body[:0]
		}
	}
	each := float64(heap()-before-uint64(cap(body))) / n
	over := each - float64(content)/n
	t.Logf("%d locks: %.0f bytes each, %.0f over key and value", n, each, over)
	require.Less(t, over, 131.0)
	runtime.KeepAlive(d)
}

// The scripts of Redisson's lock.
const (
	redissonLock = `if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then ` +
		`redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; ` +
		`return redis.call('pttl', KEYS[1]);`
	redissonUnlock = `if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil; end; ` +
		`local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); ` +
		`if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); return 0; ` +
		`else redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], ARGV[1]); return 1; end; return nil;`
)

// BenchmarkCollections runs pairs of commands, 64 per entry, on distinct keys. The baseline pair sets a string and
// deletes it.
func BenchmarkCollections(b *testing.B) {
	lock, unlock := scriptSHA(redissonLock), scriptSHA(redissonUnlock)
	const token = "0b9d5e2e-8b4c-4f7b-9d6a-3f1c2a7e5d4b:42"
	for _, c := range []struct {
		name string
		pair [2][]string // % is replaced by the key
	}{
		{"floor", [2][]string{{"set", "%", token}, {"del", "%"}}},
		{"push-pop", [2][]string{{"lpush", "%", token}, {"rpop", "%"}}},
		{"push-pop-long", [2][]string{{"lpush", "long", token}, {"rpop", "long"}}},
		{"move", [2][]string{{"lmove", "long", "long2", "RIGHT", "LEFT"}, {"lmove", "long2", "long", "RIGHT", "LEFT"}}},
		{"zadd-zrem", [2][]string{{"zadd", "%", "1730000000000", token}, {"zrem", "%", token}}},
		{"zadd-zpopmin-large", [2][]string{{"zadd", "large", "-1", "%"}, {"zpopmin", "large"}}},
		{"hset-hdel", [2][]string{{"hset", "%", token, "1"}, {"hdel", "%", token}}},
		{"redisson", [2][]string{{"evalsha", lock, "1", "%", "30000", token}, {
			"evalsha", unlock, "2", "%", "channel", "0",
			"30000", token,
		}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := locked(b, 100_000)
			d.do("script", "load", redissonLock)
			d.do("script", "load", redissonUnlock)
			d.plant("long", longList(100_000))
			d.plant("long2", longList(1_000))
			d.plant("large", longSortedSet(100_000))
			var bodies [2][][]byte
			for half, words := range c.pair {
				for i := range 64 {
					line := make([]string, len(words))
					for j, w := range words {
						if line[j] = w; w == "%" {
							line[j] = "mine:" + strconv.Itoa(i)
						}
					}
					bodies[half] = append(bodies[half], request(nil, 0, line...))
				}
			}
			seq := d.seq
			var sink lastReply
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += 64 {
				for half := range bodies {
					require.NoError(b, d.m.Apply(entryOf(&seq, d.nowMillis, bodies[half]...), &sink))
				}
			}
			require.False(b, sink.reply.IsError(), sink.reply.Str)
		})
	}
}

// BenchmarkNative is [BenchmarkAcquireRelease] with native locks: pairs, and hand-offs, which are a release and a
// queued request, with 64 clients.
func BenchmarkNative(b *testing.B) {
	native := func(conn, ticket int, line string) []byte {
		words := append([]string{"lock-command", strconv.Itoa(conn), strconv.Itoa(ticket), "2000"}, strings.Fields(line)...)
		return request(nil, 0, words...)
	}
	run := func(b *testing.B, d *driver, entries func(i int) [][][]byte) {
		seq := d.seq
		sink := new(lastReply)
		b.ReportAllocs()
		b.ResetTimer()
		began := cpuNanos()
		for i := 0; i < b.N; i += 64 {
			for _, bodies := range entries(i) {
				if err := d.m.Apply(entryOf(&seq, d.nowMillis, bodies...), sink); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.StopTimer()
		b.ReportMetric(float64(cpuNanos()-began)/float64(b.N), "cpu-ns/op")
		require.False(b, sink.reply.IsError() || sink.reply.IsNull(), line(sink.reply))
	}
	for name, prefix := range map[string]string{"pair": "", "pair beside 100,000 locks": "lock:"} {
		b.Run(name, func(b *testing.B) {
			d := newDriver(b)
			if prefix == "lock:" {
				for i := range 100_000 {
					d.apply(native(1, 0, "lock.acquire other:"+strconv.Itoa(i)+" me px 100000000"))
				}
			}
			turns := make([][][]byte, 2)
			for i := range 64 {
				turns[0] = append(turns[0], native(i+1, 10+i, "lock.acquire mine:"+strconv.Itoa(i)+" token px 30000 wait 4500"))
				turns[1] = append(turns[1], native(i+1, 0, "lock.release mine:"+strconv.Itoa(i)+" token"))
			}
			run(b, d, func(int) [][][]byte { return turns })
		})
	}
	b.Run("hand-off", func(b *testing.B) {
		d := newDriver(b)
		var release [64][]byte
		for i := range 64 {
			d.apply(native(i+1, i+1, "lock.acquire hot o"+strconv.Itoa(i)+" px 30000 wait 0"))
			release[i] = native(i+1, 0, "lock.release hot o"+strconv.Itoa(i))
		}
		ticket := 64
		bodies := make([][]byte, 128)
		run(b, d, func(int) [][][]byte {
			for i := range 64 {
				ticket++
				bodies[2*i] = release[i]
				bodies[2*i+1] = native(i+1, ticket, "lock.acquire hot o"+strconv.Itoa(i)+" px 30000 wait 0")
			}
			return [][][]byte{bodies}
		})
	})
}

// BenchmarkLongestSteps measures the largest indivisible steps: all leases of a key, LOCK.BREAK, and a session.
func BenchmarkLongestSteps(b *testing.B) {
	fill := func(b *testing.B, n int, words func(i int) string) *driver {
		d := newDriver(b)
		d.native(1, 0, "session.open", "px", "600000")
		for i := range n {
			d.native(1, 0, strings.Fields(words(i))...)
		}
		return d
	}
	shared := func(i int) string { return fmt.Sprint("lock.acquire k owner-", i, " px 60000 shared") }
	for name, c := range map[string]struct {
		n     int
		words func(i int) string
		end   func(d *driver)
	}{
		"leases of a key": {locks.MaxHolders, shared, func(d *driver) { d.nowMillis += 60_001; d.do("exists", "k") }},
		"break":           {locks.MaxHolders, shared, func(d *driver) { d.do("lock.break", "k") }},
		"session": {
			locks.MaxPerSession, func(i int) string { return fmt.Sprint("lock.acquire lock:", i, " me session 1") },
			func(d *driver) { d.do("session.close", "1") },
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				d := fill(b, c.n, c.words)
				b.StartTimer()
				c.end(d)
				require.Less(b, d.m.LockStats().Holds, c.n)
			}
		})
	}
}
