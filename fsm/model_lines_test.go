package fsm

import (
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// noOrder are commands whose replies have no order.
var noOrder = []string{"hkeys", "smembers", "sinter", "sunion", "sdiff"}

// shown is a reply as the model writes it.
func shown(name string, v protocol.Value) string {
	if !slices.Contains(noOrder, name) || v.Kind == protocol.KindError {
		return line(v)
	}
	words := make([]string, len(v.Elems))
	for i := range v.Elems {
		words[i] = v.Elems[i].Str
	}
	slices.Sort(words)
	return array(words)
}

// collectionLine is a random command line of the model. space is the number of different elements.
func collectionLine(rng *rand.Rand, space int) []string {
	n := func(below int) string { return strconv.Itoa(rng.Intn(below)) }
	element := func() string {
		if rng.Intn(200) == 0 {
			return strings.Repeat("long", 20)
		}
		return n(space)
	}
	end, index := func() string { return pick(rng, []string{"LEFT", "RIGHT"}) }, func() string {
		return strconv.Itoa(rng.Intn(40) - 20)
	}
	kind := pick(rng, []string{"h", "s", "z", "l"})
	key := func() string {
		if rng.Intn(50) == 0 {
			return pick(rng, []string{"h1", "s1", "z1", "l1"}) // of any kind
		}
		return kind + n(3)
	}
	several := func(name string) []string {
		words := []string{name, key()}
		for range 1 + rng.Intn(8) {
			words = append(words, element())
		}
		return words
	}
	lines := map[string][]func() []string{
		"h": {
			func() []string { return append(several("hset"), element())[:4] },
			func() []string { return []string{"hset", key(), element(), n(9), element(), "x", element(), n(9)} },
			func() []string { return []string{"hincrby", key(), element(), index()} },
			func() []string { return []string{"hget", key(), element()} },
			func() []string { return several("hdel") },
			func() []string { return []string{pick(rng, []string{"hkeys", "hlen"}), key()} },
		},
		"s": {
			func() []string { return several("sadd") }, func() []string { return several("sadd") },
			func() []string { return several("srem") },
			func() []string { return []string{"smove", key(), key(), element()} },
			func() []string { return []string{"sunionstore", key(), key(), key()} },
			func() []string { return []string{pick(rng, []string{"sinter", "sunion", "sdiff"}), key(), key()} },
			func() []string { return []string{pick(rng, []string{"smembers", "scard"}), key()} },
			func() []string { return []string{"sismember", key(), element()} },
		},
		"z": {
			func() []string { return []string{"zadd", key(), n(30), element()} },
			func() []string { return []string{"zadd", key(), n(30), element()} },
			func() []string { return []string{"zincrby", key(), index(), element()} },
			func() []string { return []string{"zrem", key(), element()} },
			func() []string { return []string{pick(rng, []string{"zscore", "zrank"}), key(), element()} },
			func() []string { return []string{"zrange", key(), index(), index()} },
			func() []string { return []string{"zrangebyscore", key(), n(30), n(30)} },
			func() []string { return []string{"zremrangebyrank", key(), n(5), n(5)} },
			func() []string { return []string{"zcard", key()} },
		},
		"l": {
			func() []string { return several("rpush") }, func() []string { return several("lpush") },
			func() []string { return []string{pick(rng, []string{"lpop", "rpop", "llen"}), key()} },
			func() []string { return []string{"lrange", key(), index(), index()} },
			func() []string { return []string{"lindex", key(), index()} },
			func() []string { return []string{"lrem", key(), "0", element()} },
			func() []string {
				return []string{"linsert", key(), pick(rng, []string{"BEFORE", "AFTER"}), element(), element()}
			},
			func() []string { return []string{"lmove", key(), key(), end(), end()} },
			func() []string { return []string{"ltrim", key(), n(3), "-2"} },
		},
	}
	switch rng.Intn(100) {
	case 0:
		return []string{"del", key()}
	case 1:
		return []string{"rename", key(), key()}
	}
	return pick(rng, lines[kind])()
}

// TestCollectionsModel runs random commands on collections, small and large, and compares every reply. Some
// commands run in scripts.
func TestCollectionsModel(t *testing.T) {
	t.Parallel()
	for seed := range int64(40) {
		rng := rand.New(rand.NewSource(seed))
		d, m := newDriver(t), collections{}
		space := []int{4, 40, 400, 4000}[seed%4]
		for i := range 1500 {
			words := collectionLine(rng, space)
			if rng.Intn(20) == 0 {
				m.run(words)
				d.do(append([]string{"eval", "redis.call(unpack(ARGV))", "0"}, words...)...)
				continue
			}
			require.Equal(t, m.run(words), shown(words[0], d.do(words...)), "seed %d, command %d: %s", seed, i, quote(words))
		}
		require.NoError(t, d.m.st.Databases[0].Verify())
		require.Equal(t, len(m), d.m.Stats().Keys[0])
	}
}
