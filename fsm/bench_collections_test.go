package fsm

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

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

// BenchmarkCollections runs pairs of commands, 64 an entry, on keys of their own. The floor is a pair that
// sets a string and deletes it.
func BenchmarkCollections(b *testing.B) {
	lock, unlock := scriptSHA(redissonLock), scriptSHA(redissonUnlock)
	const token = "0b9d5e2e-8b4c-4f7b-9d6a-3f1c2a7e5d4b:42"
	for _, c := range []struct {
		name string
		pair [2][]string // %: the key
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
