package lua

import (
	"sort"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// fakeHost is a keyspace of maps, with as many commands as the tests' scripts
// use. It replies as Redis does.
type fakeHost struct {
	strings map[string]string
	lists   map[string][]string
	hashes  map[string]map[string]string
	scores  map[string]map[string]float64
	// calls are the commands as they came.
	calls []string
	logs  []string
}

func newFakeHost() *fakeHost {
	return &fakeHost{
		strings: map[string]string{}, lists: map[string][]string{}, hashes: map[string]map[string]string{},
		scores: map[string]map[string]float64{},
	}
}

func (h *fakeHost) Log(level int, message string) {
	h.logs = append(h.logs, strconv.Itoa(level)+" "+message)
}

func (h *fakeHost) CheckACL(words []string) (bool, string) {
	if _, known := fakeCommands[strings.ToLower(words[0])]; !known {
		return false, "ERR Invalid command passed to redis.acl_check_cmd()"
	}
	return true, ""
}

// fakeCommand is a command: its least or exact number of words, and its effect.
type fakeCommand struct {
	min   int
	exact bool
	run   func(h *fakeHost, w []string, resp int) protocol.Value
}

var wrongType = protocol.ErrValue("WRONGTYPE Operation against a key holding the wrong kind of value")

func (h *fakeHost) Call(words []string, resp int) protocol.Value {
	h.calls = append(h.calls, strings.Join(words, " "))
	c, known := fakeCommands[strings.ToLower(words[0])]
	switch {
	case !known:
		return protocol.Err("Unknown Redis command called from script")
	case len(words) < c.min || c.exact && len(words) > c.min:
		return protocol.Err("Wrong number of args calling Redis command from script")
	case c.run == nil:
		return protocol.Err("This Redis command is not allowed from script")
	}
	return c.run(h, words, resp)
}

func (h *fakeHost) exists(key string) bool {
	_, s := h.strings[key]
	_, l := h.lists[key]
	_, m := h.hashes[key]
	_, z := h.scores[key]
	return s || l || m || z
}

func (h *fakeHost) drop(key string) int64 {
	if !h.exists(key) {
		return 0
	}
	delete(h.strings, key)
	delete(h.lists, key)
	delete(h.hashes, key)
	delete(h.scores, key)
	return 1
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func (h *fakeHost) add(key string, delta int64) protocol.Value {
	n, _ := strconv.ParseInt(h.strings[key], 10, 64)
	h.strings[key] = strconv.FormatInt(n+delta, 10)
	return protocol.Integer(n + delta)
}

func boolInt(b bool) protocol.Value {
	if b {
		return protocol.Integer(1)
	}
	return protocol.Integer(0)
}

var fakeCommands = map[string]fakeCommand{
	"subscribe": {min: 2},
	"multi":     {min: 1, exact: true},
	"eval":      {min: 3},
	"ping": {min: 1, run: func(_ *fakeHost, w []string, _ int) protocol.Value {
		if len(w) == 1 {
			return protocol.Simple("PONG")
		}
		return protocol.Bulk(w[1])
	}},
	"echo": {min: 2, exact: true, run: func(_ *fakeHost, w []string, _ int) protocol.Value { return protocol.Bulk(w[1]) }},
	"get": {min: 2, exact: true, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		if s, is := h.strings[w[1]]; is {
			return protocol.Bulk(s)
		}
		if h.exists(w[1]) {
			return wrongType
		}
		return protocol.Null
	}},
	"set": {min: 3, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		if len(w) > 3 && strings.ToLower(w[3]) == "nx" && h.exists(w[1]) {
			return protocol.Null
		}
		h.strings[w[1]] = w[2]
		return protocol.OK
	}},
	"del": {min: 2, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		n := int64(0)
		for _, key := range w[1:] {
			n += h.drop(key)
		}
		return protocol.Integer(n)
	}},
	"incr": {min: 2, run: func(h *fakeHost, w []string, _ int) protocol.Value { return h.add(w[1], 1) }},
	"incrby": {min: 3, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		n, err := strconv.ParseInt(w[2], 10, 64)
		if err != nil {
			return protocol.Err("value is not an integer or out of range")
		}
		return h.add(w[1], n)
	}},
	"mget": {min: 2, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		reply := protocol.Array()
		for _, key := range w[1:] {
			v := protocol.Null
			if s, is := h.strings[key]; is {
				v = protocol.Bulk(s)
			}
			reply.Elems = append(reply.Elems, v)
		}
		return reply
	}},
	"pexpire": {min: 3, run: func(h *fakeHost, w []string, _ int) protocol.Value { return boolInt(h.exists(w[1])) }},
	"rpush": {min: 3, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		h.lists[w[1]] = append(h.lists[w[1]], w[2:]...)
		return protocol.Integer(int64(len(h.lists[w[1]])))
	}},
	"lrange": {min: 4, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		return protocol.Strings(h.lists[w[1]]...)
	}},
	"hset": {min: 4, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		n := int64(0)
		for i := 2; i+1 < len(w); i += 2 {
			if h.hashes[w[1]] == nil {
				h.hashes[w[1]] = map[string]string{}
			}
			if _, is := h.hashes[w[1]][w[i]]; !is {
				n++
			}
			h.hashes[w[1]][w[i]] = w[i+1]
		}
		return protocol.Integer(n)
	}},
	"hget": {min: 3, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		if v, is := h.hashes[w[1]][w[2]]; is {
			return protocol.Bulk(v)
		}
		return protocol.Null
	}},
	"hexists": {min: 3, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		_, is := h.hashes[w[1]][w[2]]
		return boolInt(is)
	}},
	"hgetall": {min: 2, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		reply := protocol.Map()
		for _, k := range sortedKeys(h.hashes[w[1]]) {
			reply.Elems = append(reply.Elems, protocol.Bulk(k), protocol.Bulk(h.hashes[w[1]][k]))
		}
		return reply
	}},
	"sadd": {min: 3, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		h.lists[w[1]] = append(h.lists[w[1]], w[2:]...)
		return protocol.Integer(int64(len(w) - 2))
	}},
	"smembers": {min: 2, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		return protocol.Value{Kind: protocol.KindSet, Elems: protocol.Strings(h.lists[w[1]]...).Elems}
	}},
	"zadd": {min: 4, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		if h.scores[w[1]] == nil {
			h.scores[w[1]] = map[string]float64{}
		}
		h.scores[w[1]][w[3]], _ = strconv.ParseFloat(w[2], 64)
		return protocol.Integer(1)
	}},
	"zscore": {min: 3, run: func(h *fakeHost, w []string, _ int) protocol.Value {
		if score, is := h.scores[w[1]][w[2]]; is {
			return protocol.Double(score)
		}
		return protocol.Null
	}},
	"debug": {min: 3, run: func(_ *fakeHost, w []string, resp int) protocol.Value {
		if strings.ToLower(w[1]) != "protocol" {
			return protocol.Err("unknown subcommand")
		}
		return debugProtocol(w[2], resp)
	}},
}

// debugProtocol is DEBUG PROTOCOL, which replies with each type.
func debugProtocol(kind string, resp int) protocol.Value {
	switch kind {
	case "string":
		return protocol.Bulk("Hello World")
	case "integer":
		return protocol.Integer(12345)
	case "double":
		return protocol.Double(3.141)
	case "null":
		return protocol.Null
	case "array":
		return protocol.Array(protocol.Integer(0), protocol.Integer(1), protocol.Integer(2))
	case "set":
		return protocol.Set(protocol.Integer(0), protocol.Integer(1), protocol.Integer(2))
	case "map":
		return protocol.Map(protocol.Integer(0), protocol.Bool(false), protocol.Integer(1), protocol.Bool(true),
			protocol.Integer(2), protocol.Bool(false))
	case "bignum":
		return protocol.BigNumber("1234567999999999999999999999999999999")
	case "true":
		return protocol.Bool(true)
	case "false":
		return protocol.Bool(false)
	case "verbatim":
		return protocol.Verbatim("This is a verbatim\nstring")
	default:
		return protocol.Err("Wrong protocol type name. Please use one of the following: " +
			"string|integer|double|null|array|set|map|attrib|push|verbatim|true|false")
	}
}
