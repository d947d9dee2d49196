package collection

import (
	"encoding/binary"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// A set begins in the form that Redis takes for what is about to come.
func TestSetBegins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first string
		n     int
		form  string
	}{
		{"1", 512, "intset"},
		{"1", 513, "hashtable"},
		{"-9223372036854775808", 1, "intset"},
		{"9223372036854775808", 1, "listpack"},
		{"01", 1, "listpack"},
		{"+1", 1, "listpack"},
		{"-0", 1, "listpack"},
		{"", 128, "listpack"},
		{"x", 129, "hashtable"},
	} {
		require.Equal(t, c.form, NewSet(c.first, c.n).Encoding(), "%q, %d", c.first, c.n)
	}
	s := NewIntSet()
	s.Add("1")
	s.Expect(512)
	require.Equal(t, "intset", s.Encoding())
	s.Expect(513)
	require.Equal(t, "hashtable", s.Encoding())
	s.TryInts()
	require.Equal(t, "intset", s.Encoding())
	s.Add("x")
	require.Equal(t, "listpack", s.Encoding())
	s.TryInts()
	require.Equal(t, "listpack", s.Encoding())
	require.Equal(t, "listpack", NewLike(s).Encoding())
	s.Expect(129)
	require.Equal(t, "hashtable", s.Encoding())
	require.True(t, NewLike(s).Add("y"))
}

// TestAscendGoesOn walks a hash and a set in steps, as a cursor does.
func TestAscendGoesOn(t *testing.T) {
	t.Parallel()
	for _, n := range []int{5, 128, 1000} {
		h, s := NewHash(), NewIntSet()
		for i := range n {
			h.Put(strconv.Itoa(i), "")
			s.Add(strconv.Itoa(i))
		}
		seen := map[string]int{}
		for step := range uint64(16) {
			from, to := step<<60, step<<60+1<<60-1
			h.Ascend(from, func(order uint64, name, _ string) bool {
				require.GreaterOrEqual(t, order, from)
				if order <= to {
					seen[name]++
				}
				return order <= to || h.Small()
			})
			s.Ascend(from, func(order uint64, name string) bool {
				require.GreaterOrEqual(t, order, from)
				if order <= to {
					seen[name]++
				}
				return order <= to || s.Small()
			})
		}
		require.Len(t, seen, n)
		for name, times := range seen {
			require.Equal(t, 2, times, name)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	numbers := func(first string, n int) []string {
		words := []string{first}
		for i := range n {
			words = append(words, strconv.Itoa(i))
		}
		return words
	}
	long := strings.Repeat("x", 65)
	for name, c := range map[string]struct {
		kind  keyspace.Kind
		words []string
	}{
		"nothing":              {keyspace.KindHash, nil},
		"no fields":            {keyspace.KindHash, []string{"listpack"}},
		"a string":             {keyspace.KindString, []string{"listpack", "x"}},
		"no kind":              {99, []string{"listpack", "x"}},
		"no encoding":          {keyspace.KindHash, []string{"x", "a", "b"}},
		"a set's encoding":     {keyspace.KindHash, []string{"intset", "1", "2"}},
		"a field twice":        {keyspace.KindHash, []string{"listpack", "a", "b", "a", "c"}},
		"no value":             {keyspace.KindHash, []string{"listpack", "a", "b", "c"}},
		"a long value":         {keyspace.KindHash, []string{"listpack", "a", long}},
		"too many fields":      {keyspace.KindHash, numbers("listpack", 258)},
		"fields in disorder":   {keyspace.KindHash, numbers("hashtable", 10)},
		"no set's encoding":    {keyspace.KindSet, []string{"x", "a"}},
		"a member twice":       {keyspace.KindSet, []string{"listpack", "a", "a"}},
		"an integer twice":     {keyspace.KindSet, []string{"intset", "1", "1"}},
		"integers in disorder": {keyspace.KindSet, []string{"intset", "2", "1"}},
		"no integer":           {keyspace.KindSet, []string{"intset", "x"}},
		"no integer behind":    {keyspace.KindSet, []string{"intset", "1", "x"}},
		"too many integers":    {keyspace.KindSet, numbers("intset", 513)},
		"too many members":     {keyspace.KindSet, numbers("listpack", 129)},
		"a long member":        {keyspace.KindSet, []string{"listpack", long}},
		"members in disorder":  {keyspace.KindSet, numbers("hashtable", 10)},
		"a list's encoding":    {keyspace.KindList, []string{"hashtable", "a"}},
		"a listpack too long":  {keyspace.KindList, []string{"listpack", strings.Repeat(long, 127)}},
		"a member, no score":   {keyspace.KindSortedSet, []string{"listpack", "a"}},
		"a short score":        {keyspace.KindSortedSet, []string{"listpack", "a", "1"}},
		"a score not a number": {keyspace.KindSortedSet, []string{"listpack", "a", "\x7f\xf8\x00\x00\x00\x00\x00\x00"}},
		"scores in disorder": {keyspace.KindSortedSet, []string{
			"skiplist", "a", "\x3f\xf0\x00\x00\x00\x00\x00\x00", "b",
			"\x00\x00\x00\x00\x00\x00\x00\x00",
		}},
		"minus zero": {keyspace.KindSortedSet, []string{"listpack", "a", "\x80\x00\x00\x00\x00\x00\x00\x00"}},
		"two scores": {keyspace.KindSortedSet, []string{
			"listpack", "a", "\x00\x00\x00\x00\x00\x00\x00\x00", "a",
			"\x3f\xf0\x00\x00\x00\x00\x00\x00",
		}},
		"a long zset member":   {keyspace.KindSortedSet, []string{"listpack", long, "\x00\x00\x00\x00\x00\x00\x00\x00"}},
		"no zset's encoding":   {keyspace.KindSortedSet, []string{"x", "a", "\x00\x00\x00\x00\x00\x00\x00\x00"}},
		"a large member twice": {keyspace.KindSet, []string{"hashtable", "a", "a"}},
	} {
		loaded, err := load(c.kind, c.words)
		require.Error(t, err, name)
		require.Nil(t, loaded, name)
	}
}

// FuzzLoad makes collections of any words. Those that load are as good as any: they change, and save
// what loads again.
func FuzzLoad(f *testing.F) {
	seed := func(kind keyspace.Kind, words ...string) {
		data := []byte{byte(kind)}
		for _, w := range words {
			data = append(binary.AppendUvarint(data, uint64(len(w))), w...)
		}
		f.Add(data)
	}
	seed(keyspace.KindHash, "listpack", "a", "b")
	seed(keyspace.KindHash, "hashtable", "a", "b")
	seed(keyspace.KindSet, "listpack", "a", "b")
	seed(keyspace.KindSet, "hashtable", "a")
	seed(keyspace.KindSet, "intset", "1", "2")
	seed(keyspace.KindList, "listpack", "a", "b")
	seed(keyspace.KindList, "quicklist", "a")
	seed(keyspace.KindSortedSet, "listpack", "a", "\x00\x00\x00\x00\x00\x00\x00\x00")
	seed(keyspace.KindSortedSet, "skiplist", "a", "\x3f\xf0\x00\x00\x00\x00\x00\x00")
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		kind, words := keyspace.Kind(data[0]), []string(nil)
		for data = data[1:]; len(data) > 0; {
			n, size := binary.Uvarint(data)
			if size <= 0 || n > uint64(len(data)-size) {
				return
			}
			words = append(words, string(data[size:size+int(n)]))
			data = data[size+int(n):]
		}
		c, err := load(kind, words)
		if err != nil {
			return
		}
		require.Equal(t, words, saved(c))
		checkLoads(t, c)
		switch c := c.Clone().(type) {
		case *Hash:
			c.Put("new", strings.Repeat("v", len(words)))
			c.Remove(words[1])
			checkLoads(t, c)
		case *Set:
			c.Add("new")
			c.Remove(words[1])
			checkLoads(t, c)
		case *List:
			c.PushFront("new")
			c.Set(1, strings.Repeat("v", len(words)))
			checkLoads(t, c)
		case *SortedSet:
			c.Put("new", 1)
			c.Remove(words[1])
			checkLoads(t, c)
		}
	})
}

// TestBytesCoverTheHeap: what a collection counts for is what it takes, or somewhat more.
func TestBytesCoverTheHeap(t *testing.T) {
	const many = 2000
	for name, c := range map[string]func() keyspace.Collection{
		"lock": func() keyspace.Collection {
			h := NewHash()
			h.Put("0b9d5e2e-8b4c-4f7b-9d6a-3f1c2a7e5d4b:123", "1")
			return h
		},
		"packed hash": func() keyspace.Collection { return hashOf(100, "value") },
		"large hash":  func() keyspace.Collection { return hashOf(1000, "value") },
		"long values": func() keyspace.Collection { return hashOf(200, strings.Repeat("v", 200)) },
		"integers":    func() keyspace.Collection { return setOf(300, "") },
		"packed set":  func() keyspace.Collection { return setOf(100, "m") },
		"large set":   func() keyspace.Collection { return setOf(1000, "member") },
		"queue":       func() keyspace.Collection { return listOf(1, 40) },
		"short list":  func() keyspace.Collection { return listOf(40, 40) },
		"long list":   func() keyspace.Collection { return listOf(10_000, 20) },
		"empty words": func() keyspace.Collection { return listOf(10_000, 0) },
		"long words":  func() keyspace.Collection { return listOf(50, 1500) },
		"scattered":   func() keyspace.Collection { return scattered(10_000, 20) },
		"popped":      func() keyspace.Collection { return popped(150, 1) },
		"fair lock":   func() keyspace.Collection { return sortedSetOf(2, 40) },
		"packed zset": func() keyspace.Collection { return sortedSetOf(100, 20) },
		"large zset":  func() keyspace.Collection { return sortedSetOf(1000, 20) },
		"long zset":   func() keyspace.Collection { return sortedSetOf(200, 200) },
	} {
		n := many / max(1, c().Len()/10)
		kept := make([]keyspace.Collection, n)
		before := heap()
		for i := range kept {
			kept[i] = c()
		}
		took := (heap() - before) / int64(n)
		counted := kept[0].Bytes()
		t.Logf("%s: %d bytes, counted as %d", name, took, counted)
		require.LessOrEqual(t, took, counted*11/10, name)
		require.LessOrEqual(t, counted, took*2+64, name)
		if name == "lock" {
			require.Less(t, took, int64(150))
		}
		runtime.KeepAlive(kept)
	}
}

func hashOf(n int, value string) *Hash {
	h := NewHash()
	for i := range n {
		h.Put("field:"+strconv.Itoa(i), value)
	}
	return h
}

func setOf(n int, prefix string) *Set {
	s := NewSet(prefix, 1)
	if prefix == "" {
		s = NewIntSet()
	}
	for i := range n {
		s.Add(prefix + strconv.Itoa(i))
	}
	return s
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A collection keeps nothing of the log entry that its words came in.
func TestElementsAreCopied(t *testing.T) {
	t.Parallel()
	entry := strings.Repeat("0123456789", 20)
	inside := func(word string) bool {
		at, start := uintptr(unsafe.Pointer(unsafe.StringData(word))), uintptr(unsafe.Pointer(unsafe.StringData(entry)))
		return word != "" && at >= start && at < start+uintptr(len(entry))
	}
	for _, n := range []int{0, 200} {
		h, s := hashOf(n, ""), setOf(n, "m")
		for _, word := range []string{entry, entry[:4], entry[9:20], ""} {
			h.Put(word, "")
			h.Put("", word)
			s.Add(word)
		}
		h.All(func(name, value string) bool { return assert.False(t, inside(name) || inside(value)) })
		s.All(func(name string) bool { return assert.False(t, inside(name)) })
	}
	c, err := load(keyspace.KindSet, []string{"hashtable", entry})
	require.NoError(t, err)
	require.False(t, inside(c.(*Set).At(0)))
}

func TestGetDoesNotAllocate(t *testing.T) {
	small, large := hashOf(100, ""), hashOf(200, "")
	require.Zero(t, testing.AllocsPerRun(10, func() {
		small.Get("field:7")
		large.Get("field:7")
	}))
}

// TestBorders: a collection is small up to Redis's limits, and not beyond.
func TestBorders(t *testing.T) {
	t.Parallel()
	border := strings.Repeat("x", 64)
	h := hashOf(127, "")
	h.Put(border, border)
	require.Equal(t, "listpack", h.Encoding())
	h.Put(border, "other")
	require.Equal(t, "listpack", h.Encoding())
	more := h.Clone().(*Hash)
	more.Put("one more", "")
	require.Equal(t, "hashtable", more.Encoding())
	h.Put(border, border+"x")
	require.Equal(t, "hashtable", h.Encoding())

	s := setOf(127, "m")
	s.Add(border)
	require.Equal(t, "listpack", s.Encoding())
	s.Add("m0")
	require.Equal(t, "listpack", s.Encoding())
	s.Add("one more")
	require.Equal(t, "hashtable", s.Encoding())
	s = setOf(1, "m")
	s.Add(border + "x")
	require.Equal(t, "hashtable", s.Encoding())

	s = setOf(512, "")
	require.Equal(t, "intset", s.Encoding())
	s.Add("512")
	require.Equal(t, "hashtable", s.Encoding())
	s = setOf(127, "")
	s.Add("x")
	require.Equal(t, "listpack", s.Encoding())
	s = setOf(128, "")
	s.Add("x")
	require.Equal(t, "hashtable", s.Encoding())
}
