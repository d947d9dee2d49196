package fsm

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/bit"
	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/hash"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/list"
	"github.com/holdfast/holdfast/fsm/set"
	"github.com/holdfast/holdfast/fsm/str"
	"github.com/holdfast/holdfast/fsm/zset"
	"github.com/holdfast/holdfast/protocol"
)

// takesOtherKinds reports whether a command accepts a value of another type at the key with an index: it overwrites the
// key, tests its existence, or pops from the first key with a value.
func takesOtherKinds(name string, index int) bool {
	switch name {
	case "mget", "mset", "msetex", "msetnx", "psetex", "set", "setex", "setnx":
		return true
	case "bitop", "sdiffstore", "sinterstore", "sunionstore", "zdiffstore", "zinterstore", "zrangestore", "zunionstore":
		return index == 0
	case "blmpop", "blpop", "brpop", "bzmpop", "bzpopmax", "bzpopmin":
		return index > 0
	}
	return false
}

// TestOtherKindsAreRefused: each command on a type refuses values of other types, at each of its keys, and changes
// nothing.
func TestOtherKindsAreRefused(t *testing.T) {
	cases := workCases()
	for _, room := range []struct {
		ops          map[string]command.Op
		right, wrong string
	}{
		{str.Ops, "set # 1", "hset # f v"},
		{bit.Ops, "set # 1", "hset # f v"},
		{hash.Ops, "hset # f 1", "set # v"},
		{list.Ops, "rpush # a b", "set # v"},
		{set.Ops, "sadd # a b", "set # v"},
		{zset.Ops, "zadd # 1 a 2 b", "set # v"},
	} {
		for _, name := range slices.Sorted(maps.Keys(room.ops)) {
			for _, w := range cases[name] {
				fields := strings.Fields(strings.ReplaceAll(w.line, "#", "1"))
				if fields[0] == "wait-for-key" {
					fields = fields[2:]
				}
				row, _ := protocol.Lookup(name)
				var words [][]byte
				for _, word := range fields {
					words = append(words, []byte(word))
				}
				at, err := row.KeyPositions(words)
				require.NoError(t, err, w.line)
				require.NotEmpty(t, at, w.line)
				at = at[:min(len(at), 3)]
				for odd := -1; odd < len(at); odd++ {
					d := newDriver(t)
					for i := range at {
						key, line := fmt.Sprint("k", i), room.right
						if fields[at[i]] = key; odd < 0 || odd == i {
							line = room.wrong
						}
						d.doLine(strings.ReplaceAll(line, "#", key))
					}
					before := values(d, len(at))
					reply := line(d.do(fields...))
					refused := strings.HasPrefix(reply, "(WRONGTYPE ") ||
						(name == "delex" || name == "lcs") && strings.HasPrefix(reply, "(ERR ")
					require.Equal(t, !takesOtherKinds(name, odd), refused, "%s, of another kind: %d", name, odd)
					if refused {
						require.Equal(t, before, values(d, len(at)), w.line)
					}
				}
			}
		}
	}
}

// values returns the values of the keys k0, k1 and so on.
func values(d *driver, keys int) (all []string) {
	for i := range keys {
		for _, read := range []string{"get #", "hgetall #", "lrange # 0 9", "smembers #", "zrange # 0 9 withscores"} {
			all = append(all, line(d.doLine(strings.ReplaceAll(read, "#", fmt.Sprint("k", i)))))
		}
	}
	return all
}

// changers returns commands that add a word to a collection of each kind.
func changers(d *driver) (names []string) {
	changer(d, "addhash", collection.NewHash, func(v *collection.Hash, word string) { v.Put(word, "new") })
	changer(d, "addset", func() *collection.Set { return collection.NewSet("a", 1) },
		func(v *collection.Set, word string) { v.Add(word) })
	changer(d, "addlist", collection.NewList, func(v *collection.List, word string) { v.PushBack(word) })
	changer(d, "addzset", collection.NewSortedSet, func(v *collection.SortedSet, word string) {
		v.Put(word, float64(len(word)))
	})
	return []string{"addhash", "addset", "addlist", "addzset"}
}

func changer[T keyspace.Collection](d *driver, name string, fresh func() T, change func(v T, word string)) {
	d.m.ops[name] = &binding{name: name, writes: true, of: func(c *command.Call) protocol.Value {
		e, ok := command.Open(c, c.Args[1], fresh)
		if !ok {
			return command.ErrWrongType
		}
		for _, word := range c.Args[2:] {
			change(e.V, word)
		}
		e.Keep()
		return protocol.OK
	}}
}

// TestSnapshotBesideChanges: a snapshot is written while its collections are cloned and changed, under the race
// detector.
func TestSnapshotBesideChanges(t *testing.T) {
	d := newDriver(t)
	names := changers(d)
	for _, name := range names {
		d.do(append([]string{name, "large " + name}, manyWords(2000)...)...)
		d.do(name, "small "+name, "word")
	}
	for i := range 10 {
		s := d.m.Snapshot()
		want := s.Hash()
		done := make(chan string)
		go func() { done <- s.Hash() }()
		for j := range 20 {
			for _, name := range names {
				require.Equal(t, "OK", line(d.do(name, "large "+name, strconv.Itoa(i*j))))
				require.Equal(t, "OK", line(d.do(name, "small "+name, strconv.Itoa(i*j))))
			}
		}
		require.Equal(t, want, <-done)
		require.Equal(t, d.m.Hash(), restored(t, d.m).Hash())
	}
}

// TestRollBackCopiesLittle: an undone script that adds an element to a large collection copies a path of it only. So
// does the first change after a capture.
func TestRollBackCopiesLittle(t *testing.T) {
	const n = 50_000
	d := newDriver(t)
	for _, name := range changers(d) {
		d.do(append([]string{name, name}, manyWords(n)...)...)
		c := &d.m.call
		c.Ceiling = boundless
		change := func() {
			r := protocol.Request{Args: []string{name, name, "one more"}}
			c.begin(&r, 1)
			require.Equal(t, "OK", line(c.run()))
		}
		before := d.m.Hash()
		d.m.Snapshot()
		change()
		changed := d.m.Hash()
		require.NotEqual(t, before, changed)
		undone := allocatedBy(func() {
			from := c.beginSavepoint()
			change()
			c.undoTo(&from)
		})
		require.Less(t, undone, uint64(64<<10), name)
		captured := allocatedBy(func() {
			d.m.st.Generation++
			change()
		})
		require.Less(t, captured, uint64(64<<10), name)
		require.NoError(t, d.m.st.Databases[0].Verify())
	}
}

// allocatedBy returns the memory that f allocates.
func allocatedBy(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// place stores a collection under a key, as a command would.
func (d *driver) place(key string, v keyspace.Collection) {
	c := &d.m.call
	c.use(d.m.st, d.m.ops)
	c.DB, c.NowMillis, c.EntryVersion = d.db, d.nowMillis, protocol.EntryVersion
	c.Store(d.db, keyspace.NewCollection(keyspace.Hash(key), key, v, command.Never, d.m.st.Generation))
}

// newHash returns a hash of alternating fields and values.
func newHash(words ...string) *collection.Hash {
	h := collection.NewHash()
	for i := 0; i < len(words); i += 2 {
		h.Put(words[i], words[i+1])
	}
	return h
}

func newSet(members ...string) *collection.Set {
	s := collection.NewSet(members[0], len(members))
	for _, m := range members {
		s.Add(m)
	}
	return s
}

func manyWords(n int) (words []string) {
	for i := range n {
		words = append(words, "word "+strconv.Itoa(i))
	}
	return words
}
