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

// model is what the state machine means, written down as plainly as can be: maps,
// a clock, and expiry by looking at every key.
type model struct {
	now  int64
	keys [3]map[string]modelKey
}

type modelKey struct {
	value string
	ends  int64 // 0: never
}

func newModel() *model {
	m := &model{}
	for i := range m.keys {
		m.keys[i] = map[string]modelKey{}
	}
	return m
}

func (m *model) advance(to int64) {
	m.now = max(m.now, to)
	for _, db := range m.keys {
		for key, k := range db {
			if k.ends != 0 && k.ends < m.now {
				delete(db, key)
			}
		}
	}
}

// put is a key's new value, which may have ended already.
func (m *model) put(db int, key string, k modelKey) {
	if k.ends != 0 && k.ends < m.now {
		delete(m.keys[db], key)
		return
	}
	m.keys[db][key] = k
}

func integer(n int64) string { return strconv.FormatInt(n, 10) }

func flag01(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// run answers a command line as [line] writes replies.
func (m *model) run(db int, words []string) string {
	key := ""
	if len(words) > 1 {
		key = words[1]
	}
	k, there := m.keys[db][key]
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(words[i], 10, 64)
		return n
	}
	switch words[0] {
	case "get":
		return quoteOrNil(k.value, there)
	case "exists":
		return flag01(there)
	case "del":
		delete(m.keys[db], key)
		return flag01(there)
	case "delifeq":
		if there && k.value == words[2] {
			delete(m.keys[db], key)
			return "1"
		}
		return "0"
	case "set":
		return m.set(db, words, k, there)
	case "incrby":
		n, err := strconv.ParseInt(k.value, 10, 64)
		if there && (err != nil || strconv.FormatInt(n, 10) != k.value) {
			return "(ERR value is not an integer or out of range)"
		}
		m.keys[db][key] = modelKey{integer(n + number(2)), k.ends}
		return integer(n + number(2))
	case "append":
		m.keys[db][key] = modelKey{k.value + words[2], k.ends}
		return strconv.Itoa(len(k.value) + len(words[2]))
	default:
		return m.runOther(db, words, k, there)
	}
}

func (m *model) set(db int, words []string, k modelKey, there bool) string {
	next := modelKey{value: words[2]}
	ok, get := true, false
	for i := 3; i < len(words); i++ {
		switch words[i] {
		case "NX":
			ok = !there
		case "XX":
			ok = there
		case "IFEQ":
			i++
			ok = there && k.value == words[i]
		case "GET":
			get = true
		case "KEEPTTL":
			next.ends = k.ends
		case "PX":
			i++
			n, _ := strconv.ParseInt(words[i], 10, 64)
			next.ends = m.now + n
		}
	}
	if ok {
		m.put(db, words[1], next)
	}
	switch {
	case get:
		return quoteOrNil(k.value, there)
	case ok:
		return "OK"
	}
	return "nil"
}

func (m *model) runOther(db int, words []string, k modelKey, there bool) string {
	switch words[0] {
	case "pttl":
		switch {
		case !there:
			return "-2"
		case k.ends == 0:
			return "-1"
		}
		return integer(k.ends - m.now)
	case "pexpire":
		return m.pexpire(db, words, k, there)
	case "persist":
		m2 := there && k.ends != 0
		if m2 {
			m.keys[db][words[1]] = modelKey{value: k.value}
		}
		return flag01(m2)
	case "rename":
		if !there {
			return "(ERR no such key)"
		}
		delete(m.keys[db], words[1])
		m.keys[db][words[2]] = k
		return "OK"
	case "copy": // from to DB n
		to, _ := strconv.Atoi(words[4])
		if words[1] == words[2] && to == db {
			return "(ERR source and destination objects are the same)"
		}
		_, taken := m.keys[to][words[2]]
		if there && !taken {
			m.keys[to][words[2]] = k
		}
		return flag01(there && !taken)
	case "swapdb":
		a, _ := strconv.Atoi(words[1])
		b, _ := strconv.Atoi(words[2])
		m.keys[a], m.keys[b] = m.keys[b], m.keys[a]
		return "OK"
	case "flushdb":
		m.keys[db] = map[string]modelKey{}
		return "OK"
	case "dbsize":
		return strconv.Itoa(len(m.keys[db]))
	}
	panic(words[0])
}

func (m *model) pexpire(db int, words []string, k modelKey, there bool) string {
	n, _ := strconv.ParseInt(words[2], 10, 64)
	ends := m.now + n
	ok := there
	if len(words) > 3 {
		switch words[3] {
		case "NX":
			ok = ok && k.ends == 0
		case "XX":
			ok = ok && k.ends != 0
		case "GT":
			ok = ok && k.ends != 0 && ends > k.ends
		case "LT":
			ok = ok && (k.ends == 0 || ends < k.ends)
		}
	}
	if ok {
		if ends <= m.now {
			delete(m.keys[db], words[1])
		} else {
			m.keys[db][words[1]] = modelKey{k.value, ends}
		}
	}
	return flag01(ok)
}

func quoteOrNil(value string, there bool) string {
	if !there {
		return "nil"
	}
	return strconv.Quote(value)
}

// modelLine is a random command line that the model knows.
func modelLine(rng *rand.Rand) []string {
	key := func() string { return pick(rng, []string{"a", "b", "c", "d"}) }
	value := func() string { return pick(rng, []string{"1", "2", "x", ""}) }
	millis := func() string { return strconv.Itoa(1 + rng.Intn(60)) }
	switch rng.Intn(20) {
	case 0, 1, 2, 3:
		return slices.Concat([]string{"set", key(), value()}, pick(rng, [][]string{nil, {"NX"}, {"XX"}, {"IFEQ", value()}}),
			pick(rng, [][]string{nil, {"PX", millis()}, {"PX", millis()}, {"KEEPTTL"}}),
			pick(rng, [][]string{nil, nil, {"GET"}}))
	case 4:
		return []string{"get", key()}
	case 5:
		return []string{"exists", key()}
	case 6:
		return []string{"del", key()}
	case 7:
		return []string{"delifeq", key(), value()}
	case 8:
		return []string{"incrby", key(), strconv.Itoa(rng.Intn(9) - 4)}
	case 9:
		return []string{"append", key(), value()}
	case 10, 11:
		return []string{"pttl", key()}
	case 12, 13:
		return append([]string{"pexpire", key(), strconv.Itoa(rng.Intn(60) - 5)},
			pick(rng, [][]string{nil, {"NX"}, {"XX"}, {"GT"}, {"LT"}})...)
	case 14:
		return []string{"persist", key()}
	case 15:
		return []string{"rename", key(), key()}
	case 16:
		return []string{"copy", key(), key(), "DB", strconv.Itoa(rng.Intn(3))}
	case 17:
		return []string{"swapdb", strconv.Itoa(rng.Intn(3)), strconv.Itoa(rng.Intn(3))}
	case 18:
		if rng.Intn(10) == 0 {
			return []string{"flushdb"}
		}
	}
	return []string{"dbsize"}
}

// TestModel runs random commands while time passes, and compares every reply.
func TestModel(t *testing.T) {
	for seed := range int64(100) {
		rng := rand.New(rand.NewSource(seed))
		d, m := newDriver(t), newModel()
		for i := range 1000 {
			d.db = rng.Intn(3)
			if rng.Intn(3) == 0 {
				d.nowMillis += int64(rng.Intn(30))
			}
			m.advance(d.nowMillis)
			words := modelLine(rng)
			require.Equal(t, m.run(d.db, words), line(d.do(words...)), "seed %d, command %d: %s", seed, i, quote(words))
		}
		for i, db := range d.m.st.Databases[:3] {
			require.NoError(t, db.Verify())
			require.Equal(t, len(m.keys[i]), d.m.Stats().Keys[i])
		}
	}
}

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
