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

// bag is a collection for tests: words, whose copies are counted.
type bag struct {
	words  []string
	clones *int
}

func (b *bag) Kind() keyspace.Kind { return keyspace.KindSet }
func (b *bag) Len() int            { return len(b.words) }
func (b *bag) Encoding() string    { return "bag" }
func (b *bag) SavedWords() int     { return len(b.words) }

func (b *bag) Bytes() (n int64) {
	for _, w := range b.words {
		n += int64(len(w)) + 16
	}
	return n
}

func (b *bag) Clone() keyspace.Collection {
	*b.clones++
	return &bag{slices.Clone(b.words), b.clones}
}

func (b *bag) Save(put func(word string) bool) {
	for _, w := range b.words {
		if !put(w) {
			return
		}
	}
}

// pool is another kind.
type pool struct{ bag }

func (p *pool) Kind() keyspace.Kind { return keyspace.KindHash }

// bagDriver has commands for bags: bagadd key word, bagdrop key, bagget key.
func bagDriver(t testing.TB) (d *driver, clones *int) {
	d, clones = newDriver(t), new(int)
	fresh := func() *bag { return &bag{clones: clones} }
	add := func(name string, writes bool, of command.Op) {
		d.m.ops[name] = &binding{name: name, of: of, writes: writes}
	}
	add("bagadd", true, func(c *command.Call) protocol.Value {
		e, ok := command.Open(c, c.Args[1], fresh)
		if !ok {
			return command.ErrWrongType
		}
		e.V.words = append(e.V.words, strings.Clone(c.Args[2]))
		e.Keep()
		return protocol.Integer(int64(e.V.Len()))
	})
	add("bagdrop", true, func(c *command.Call) protocol.Value {
		e, ok := command.Open(c, c.Args[1], fresh)
		if !ok {
			return command.ErrWrongType
		}
		e.V.words = e.V.words[:max(0, e.V.Len()-1)]
		e.Keep()
		return protocol.Integer(int64(e.V.Len()))
	})
	add("bagget", false, func(c *command.Call) protocol.Value {
		b, there, ok := command.Read[*bag](c, c.Args[1])
		switch {
		case !ok:
			return command.ErrWrongType
		case !there:
			return protocol.Null
		}
		return protocol.Strings(b.words...)
	})
	add("poolget", false, func(c *command.Call) protocol.Value {
		_, _, ok := command.Read[*pool](c, c.Args[1])
		return command.Boolean(ok)
	})
	return d, clones
}

// takesOtherKinds reports whether a command may find a value of another kind: where it overwrites what is there, looks
// whether anything is there, or pops from the first of its keys that has something. index is the index of the key.
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

// TestOtherKindsAreRefused: each command on a value of some type refuses the other ones, at each of its keys, and
// changes nothing.
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

// values are what the keys k0, k1 and so on hold.
func values(d *driver, keys int) (all []string) {
	for i := range keys {
		for _, read := range []string{"get #", "hgetall #", "lrange # 0 9", "smembers #", "zrange # 0 9 withscores"} {
			all = append(all, line(d.doLine(strings.ReplaceAll(read, "#", fmt.Sprint("k", i)))))
		}
	}
	return all
}

// TestWrongType: commands for strings refuse other kinds, and no command changes them by mistake.
func TestWrongType(t *testing.T) {
	d, _ := bagDriver(t)
	require.Equal(t, "1", line(d.doLine("bagadd b x")))
	const wrong = "(WRONGTYPE Operation against a key holding the wrong kind of value)"
	for _, row := range [][2]string{
		{"get b", wrong},
		{"getdel b", wrong},
		{"getex b ex 5", wrong},
		{"getset b v", wrong},
		{"set b v get", wrong},
		{"set b v nx get", wrong},
		{"set b v ifeq x", wrong},
		{"set b v ifne x", wrong},
		{"set b v ifdeq x", wrong},
		{"strlen b", wrong},
		{"append b x", wrong},
		{"getrange b 0 1", wrong},
		{"substr b 0 1", wrong},
		{"setrange b 0 x", wrong},
		{"incr b", wrong},
		{"decr b", wrong},
		{"incrby b 1", wrong},
		{"decrby b 1", wrong},
		{"incrbyfloat b 1", wrong},
		{"digest b", wrong},
		{"delifeq b x", wrong},
		{"delex b ifeq x", "(ERR Key should be of string type if conditions are specified)"},
		{"mget b nosuch", "[nil nil]"},
		{"setnx b v", "0"},
		{"msetnx b v", "0"},
		{"set b v nx", "nil"},
		{"poolget b", "0"},
		{"exists b", "1"},
		{"type b", "set"},
		{"object encoding b", `"bag"`},
		{"scan 0 type SET", `["0" ["b"]]`},
		{"scan 0 type string", `["0" []]`},
		{"scan 0 type zset", `["0" []]`},
		{"bagget b", `["x"]`},
		{"set s v", "OK"},
		{"bagadd s x", wrong},
		{"bagget s", wrong},
		{"get s", `"v"`},
		{"set b v xx", "OK"},
		{"get b", `"v"`},
		{"type b", "string"},
		{"bagadd c x", "1"},
		{"delex c", "1"},
		{"exists c", "0"},
	} {
		require.Equal(t, row[1], line(d.doLine(row[0])), row[0])
	}
}

// TestKeysOfAnyKind: what is done to a key is done to a collection too, and a copy goes on alone.
func TestKeysOfAnyKind(t *testing.T) {
	d, clones := bagDriver(t)
	for _, row := range [][2]string{
		{"bagadd b x", "1"},
		{"pexpire b 1000", "1"},
		{"bagadd b y", "2"},
		{"pttl b", "1000"},
		{"rename b c", "OK"},
		{"exists b", "0"},
		{"pttl c", "1000"},
		{"bagadd c z", "3"},
		{"copy c d", "1"},
		{"bagadd c only-c", "4"},
		{"bagadd d only-d", "4"},
		{"copy c d", "0"},
		{"bagget c", `["x" "y" "z" "only-c"]`},
		{"bagget d", `["x" "y" "z" "only-d"]`},
		{"set s v", "OK"},
		{"rename d s", "OK"},
		{"type s", "set"},
		{"copy c s replace", "1"},
		{"bagget s", `["x" "y" "z" "only-c"]`},
		{"move c 1", "1"},
		{"exists c", "0"},
		{"persist s", "1"},
		{"pttl s", "-1"},
		{"bagdrop s", "3"},
		{"bagdrop s", "2"},
		{"bagdrop s", "1"},
		{"bagdrop s", "0"},
		{"exists s", "0"},
		{"type s", "none"},
		{"bagdrop s", "0"},
		{"exists s", "0"},
		{"dbsize", "0"},
	} {
		require.Equal(t, row[1], line(d.doLine(row[0])), row[0])
		for _, db := range d.m.st.Databases {
			require.NoError(t, db.Verify())
		}
	}
	require.Equal(t, 2, *clones, "COPY alone clones")
	d.db = 1
	require.Equal(t, `["x" "y" "z" "only-c"]`, line(d.doLine("bagget c")))
	d.advance(1001)
	require.Zero(t, d.m.st.ItemBytes)
	require.Equal(t, "0", line(d.doLine("dbsize")))
}

// TestCollectionsInTime: a capture and a roll-back keep what was, for one clone at the next change.
func TestCollectionsInTime(t *testing.T) {
	d, clones := bagDriver(t)
	for i := range 10 {
		d.do("bagadd", "b", strconv.Itoa(i))
	}
	require.Zero(t, *clones)
	captured := d.m.Snapshot().(*snapshot)
	d.doLine("bagadd b after")
	d.doLine("bagadd b more")
	require.Equal(t, 1, *clones)
	captured.databases[0].Ascend(func(it *keyspace.Item) bool {
		require.Equal(t, 10, it.Collection().Len())
		return true
	})

	c := &d.m.call
	before, versions := line(d.doLine("bagget b")), d.m.st.Versions
	outer := c.begins()
	bytes := d.m.st.ItemBytes
	run := func(words ...string) {
		r := protocol.Request{Args: words}
		c.begin(&r, 1)
		require.False(t, c.run().IsError())
	}
	run("bagadd", "b", "in the transaction")
	run("bagadd", "b", "twice")
	require.Len(t, c.journal.Changes, 1, "a change in place is noted once")
	middle := *d.m.st.Databases[0].Find(keyspace.Hash("b"), "b")
	middleWords := slices.Clone(middle.Collection().(*bag).words)
	inner := c.begins()
	run("bagadd", "b", "in the script")
	run("rename", "b", "other")
	run("bagadd", "other", "as other")
	run("pexpire", "other", "5")
	run("bagadd", "other", strings.Repeat("a long one", 1000))
	run("copy", "other", "b")
	run("bagadd", "b", "again")
	run("del", "other")
	c.undoTo(&inner)
	require.NoError(t, d.m.st.Databases[0].Verify())
	require.Equal(t, middleWords, d.m.st.Databases[0].Find(keyspace.Hash("b"), "b").Collection().(*bag).words)
	run("bagadd", "b", "in the transaction again")
	c.undoTo(&outer)
	require.NoError(t, d.m.st.Databases[0].Verify())
	require.Equal(t, bytes, d.m.st.ItemBytes)
	require.Equal(t, versions, d.m.st.Versions)
	require.Equal(t, before, line(d.doLine("bagget b")))
}

// TestSizeInPlace: a collection counts for its size, also when it grows in place under a deadline.
func TestSizeInPlace(t *testing.T) {
	d, _ := bagDriver(t)
	d.doLine("bagadd b x")
	d.doLine("pexpire b 1000")
	small := d.m.st.ItemBytes
	d.do("bagadd", "b", strings.Repeat("x", 10_000))
	require.Greater(t, d.m.st.ItemBytes, small+9_000)
	require.NoError(t, d.m.st.Databases[0].Verify())
	d.doLine("bagdrop b")
	require.Equal(t, small, d.m.st.ItemBytes)
	require.NoError(t, d.m.st.Databases[0].Verify())
}

// changers change a collection of each kind: they add a word.
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

// TestSnapshotBesideChanges: a snapshot is written while its collections are cloned and changed. The race
// detector looks on.
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

// TestRollBackCopiesLittle: a script that adds an element to a large collection, and is undone, copies a
// path of the collection and not the collection. So does the first change after a capture.
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
			from := c.begins()
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

// allocatedBy is the memory that f allocates.
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

// newHash is a hash of fields and values in turn.
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
