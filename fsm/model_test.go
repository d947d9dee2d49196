package fsm

import (
	"math/rand"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// model is the plainest form of the state machine: maps, a clock, and expiry by a loop over all keys.
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

// put sets a key's new value, which may already have ended.
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

// run returns the reply to a command line, in the form of [line].
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

// modelLine returns a random command line that the model implements.
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
	for seed := range int64(40) {
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
