package fsm

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// collections is what the commands on collections mean, with plain maps and slices: a key is a
// map[string]string (a hash), a map[string]bool (a set), a map[string]float64 (a sorted set), or a []string
// (a list), and an empty one is not there.
type collections map[string]any

const wrongKind = "(WRONGTYPE Operation against a key holding the wrong kind of value)"

// at is the collection of a kind; !ok: the key is of another kind.
func at[T any](m collections, key string) (c T, ok bool) {
	v, there := m[key]
	if !there {
		return c, true
	}
	c, ok = v.(T)
	return c, ok
}

// keep stores a collection, or removes the key of an empty one.
func keep[T any](m collections, key string, c T, n int) {
	if m[key] = c; n == 0 {
		delete(m, key)
	}
}

func array(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return "[" + strings.Join(quoted, " ") + "]"
}

// orNone is the reply nil without the key.
func orNone[T any](value string, of map[string]T, name string) string {
	_, there := of[name]
	return quoteOrNil(value, there)
}

// run answers a command line as [line] writes replies, with the elements in order where Redis has none.
func (m collections) run(words []string) string {
	key := words[1]
	switch name := words[0]; {
	case name == "del":
		_, there := m[key]
		delete(m, key)
		return flag01(there)
	case name == "rename":
		c, there := m[key]
		if !there {
			return "(ERR no such key)"
		}
		delete(m, key)
		m[words[2]] = c
		return "OK"
	case name[0] == 'h':
		return m.hash(words)
	case name[0] == 's':
		return m.set(words)
	case name[0] == 'z':
		return m.sortedSet(words)
	}
	return m.list(words)
}

func (m collections) hash(words []string) string {
	h, ok := at[map[string]string](m, words[1])
	if !ok {
		return wrongKind
	}
	switch words[0] {
	case "hset":
		before := len(h)
		h = maps.Clone(h)
		if h == nil {
			h = map[string]string{}
		}
		for pair := range slices.Chunk(words[2:], 2) {
			h[pair[0]] = pair[1]
		}
		m[words[1]] = h
		return strconv.Itoa(len(h) - before)
	case "hdel":
		before := len(h)
		h = maps.Clone(h)
		maps.DeleteFunc(h, func(field, _ string) bool { return slices.Contains(words[2:], field) })
		keep(m, words[1], h, len(h))
		return strconv.Itoa(before - len(h))
	case "hincrby":
		n, err := strconv.ParseInt(cmp.Or(h[words[2]], "0"), 10, 64)
		if _, there := h[words[2]]; there && (err != nil || strconv.FormatInt(n, 10) != h[words[2]]) {
			return "(ERR hash value is not an integer)"
		}
		by, _ := strconv.ParseInt(words[3], 10, 64)
		m.hash([]string{"hset", words[1], words[2], integer(n + by)})
		return integer(n + by)
	case "hget":
		return orNone(h[words[2]], h, words[2])
	case "hkeys":
		return array(slices.Sorted(maps.Keys(h)))
	}
	return strconv.Itoa(len(h)) // hlen
}

func (m collections) set(words []string) string {
	if words[0] == "sinter" || words[0] == "sunion" || words[0] == "sdiff" || words[0] == "sunionstore" ||
		words[0] == "smove" {
		return m.sets(words)
	}
	s, ok := at[map[string]bool](m, words[1])
	if !ok {
		return wrongKind
	}
	before := len(s)
	switch words[0] {
	case "sadd":
		s = maps.Clone(s)
		if s == nil {
			s = map[string]bool{}
		}
		for _, w := range words[2:] {
			s[w] = true
		}
		m[words[1]] = s
		return strconv.Itoa(len(s) - before)
	case "srem":
		s = maps.Clone(s)
		maps.DeleteFunc(s, func(w string, _ bool) bool { return slices.Contains(words[2:], w) })
		keep(m, words[1], s, len(s))
		return strconv.Itoa(before - len(s))
	case "sismember":
		return flag01(s[words[2]])
	case "smembers":
		return array(slices.Sorted(maps.Keys(s)))
	}
	return strconv.Itoa(len(s)) // scard
}

// sets are the commands on two sets.
func (m collections) sets(words []string) string {
	from := words[1:]
	if words[0] == "sunionstore" {
		from = words[2:]
	}
	a, ok := at[map[string]bool](m, from[0])
	b, ok2 := at[map[string]bool](m, from[1])
	switch {
	case words[0] == "smove" && m[from[0]] == nil:
		return "0"
	case !ok || !ok2:
		return wrongKind
	}
	all := map[string]bool{}
	for _, w := range slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b))) {
		switch {
		case words[0] == "sinter" && a[w] && b[w], words[0] == "sdiff" && a[w] && !b[w],
			strings.HasPrefix(words[0], "sunion"):
			all[w] = true
		}
	}
	switch words[0] {
	case "sunionstore":
		keep(m, words[1], all, len(all))
		return strconv.Itoa(len(all))
	case "smove":
		if !a[words[3]] {
			return "0"
		}
		m.set([]string{"srem", from[0], words[3]})
		m.set([]string{"sadd", from[1], words[3]})
		return "1"
	}
	return array(slices.Sorted(maps.Keys(all)))
}

// ranked are the members in the order of their scores.
func ranked(z map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(z), func(a, b string) int {
		return cmp.Or(cmp.Compare(z[a], z[b]), strings.Compare(a, b))
	})
}

func double(f float64) string { return "(double) " + strconv.FormatFloat(f, 'f', -1, 64) }

func (m collections) sortedSet(words []string) string {
	z, ok := at[map[string]float64](m, words[1])
	if !ok {
		return wrongKind
	}
	before := len(z)
	number := func(i int) float64 {
		f, _ := strconv.ParseFloat(words[i], 64)
		return f
	}
	switch words[0] {
	case "zadd", "zincrby":
		z = maps.Clone(z)
		if z == nil {
			z = map[string]float64{}
		}
		if words[0] == "zincrby" {
			z[words[3]] += number(2)
			m[words[1]] = z
			return double(z[words[3]])
		}
		z[words[3]] = number(2)
		m[words[1]] = z
		return strconv.Itoa(len(z) - before)
	case "zrem":
		z = maps.Clone(z)
		maps.DeleteFunc(z, func(w string, _ float64) bool { return w == words[2] })
		keep(m, words[1], z, len(z))
		return strconv.Itoa(before - len(z))
	case "zscore":
		if f, there := z[words[2]]; there {
			return double(f)
		}
		return "nil"
	case "zrank":
		if i := slices.Index(ranked(z), words[2]); i >= 0 {
			return strconv.Itoa(i)
		}
		return "nil"
	case "zrange":
		return array(within(ranked(z), words[2], words[3]))
	case "zrangebyscore":
		return array(slices.DeleteFunc(ranked(z), func(w string) bool { return z[w] < number(2) || z[w] > number(3) }))
	case "zremrangebyrank":
		gone := within(ranked(z), words[2], words[3])
		z = maps.Clone(z)
		maps.DeleteFunc(z, func(w string, _ float64) bool { return slices.Contains(gone, w) })
		keep(m, words[1], z, len(z))
		return strconv.Itoa(len(gone))
	}
	return strconv.Itoa(len(z)) // zcard
}

// within is a part of a list, as LRANGE and ZRANGE count.
func within(l []string, first, last string) []string {
	from, _ := strconv.Atoi(first)
	to, _ := strconv.Atoi(last)
	if from < 0 {
		from = max(0, from+len(l))
	}
	if to < 0 {
		to += len(l)
	}
	to = min(to, len(l)-1)
	if from > to {
		return nil
	}
	return l[from : to+1]
}

func (m collections) list(words []string) string {
	key := words[1]
	l, ok := at[[]string](m, key)
	if !ok {
		return wrongKind
	}
	switch words[0] {
	case "rpush", "lpush":
		for _, w := range words[2:] {
			if words[0] == "rpush" {
				l = append(slices.Clone(l), w)
			} else {
				l = append([]string{w}, l...)
			}
		}
	case "lpop", "rpop":
		if len(l) == 0 {
			return "nil"
		}
		i := 0
		if words[0] == "rpop" {
			i = len(l) - 1
		}
		popped := l[i]
		l = slices.Delete(slices.Clone(l), i, i+1)
		keep(m, key, l, len(l))
		return strconv.Quote(popped)
	case "lrange":
		return array(within(l, words[2], words[3]))
	case "lindex":
		return quoteOrNil(strings.Join(within(l, words[2], words[2]), ""), len(within(l, words[2], words[2])) == 1)
	case "ltrim":
		l = slices.Clone(within(l, words[2], words[3]))
		keep(m, key, l, len(l))
		return "OK"
	case "lrem":
		before := len(l)
		l = slices.DeleteFunc(slices.Clone(l), func(w string) bool { return w == words[3] })
		keep(m, key, l, len(l))
		return strconv.Itoa(before - len(l))
	case "linsert":
		i := slices.Index(l, words[3])
		switch {
		case len(l) == 0:
			return "0"
		case i < 0:
			return "-1"
		case words[2] == "AFTER":
			i++
		}
		l = slices.Insert(slices.Clone(l), i, words[4])
	case "lmove":
		return m.lmove(words, l)
	}
	keep(m, key, l, len(l)) // llen changes nothing
	return strconv.Itoa(len(l))
}

// lmove is LMOVE from LEFT to RIGHT or the like.
func (m collections) lmove(words []string, l []string) string {
	if len(l) == 0 {
		return "nil"
	}
	if _, ok := at[[]string](m, words[2]); !ok {
		return wrongKind
	}
	ends := map[string][2]string{"LEFT": {"lpop", "lpush"}, "RIGHT": {"rpop", "rpush"}}
	moved := m.list([]string{ends[words[3]][0], words[1]})
	element, _ := strconv.Unquote(moved)
	m.list([]string{ends[words[4]][1], words[2], element})
	return moved
}
