package keyspace

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pile is a collection that has a size and nothing else.
type pile struct{ bytes int64 }

func (p *pile) Kind() Kind        { return KindList }
func (p *pile) Len() int          { return 1 }
func (p *pile) Bytes() int64      { return p.bytes }
func (p *pile) Clone() Collection { return &pile{p.bytes} }
func (p *pile) Encoding() string  { return "pile" }
func (p *pile) SavedWords() int   { return 0 }

func (p *pile) Save(func(string) bool) {}

// TestObjects: who shares a collection, and who may change it.
func TestObjects(t *testing.T) {
	it := NewCollection(Hash("k"), "k", &pile{5}, 7, 3)
	require.Equal(t, "k", it.Key())
	require.Equal(t, KindList, it.Kind())
	require.False(t, it.IsString())
	require.True(t, it.OwnedBy(3))
	require.False(t, it.OwnedBy(4))

	renamed := it.Renamed(Hash("new"), "new")
	require.Equal(t, Item{data: renamed.data, object: it.object, Hash: Hash("new"), DeadlineMillis: 7}, renamed)
	require.Equal(t, "new", renamed.Key())
	require.True(t, renamed.Shares(&it))

	other := it.Copied(Hash("new"), "new", 4)
	require.False(t, other.Shares(&it))
	require.True(t, other.OwnedBy(4))
	require.NotSame(t, it.Collection(), other.Collection())
	require.Equal(t, int64(7), other.DeadlineMillis)

	next := it.With(&pile{6}, 4)
	require.Equal(t, "k", next.Key())
	require.False(t, next.Shares(&it))
	require.Equal(t, int64(5), it.Collection().Bytes())

	text := NewItem(Hash("k"), "k", "v", Never, EncodingAuto)
	require.Nil(t, text.Collection())
	require.True(t, text.IsString())
	require.Equal(t, KindString, text.Kind())
	require.False(t, text.OwnedBy(0))
	require.False(t, text.Shares(&text), "there is nothing to share")
	for kind, name := range map[Kind]string{
		KindString: "string", KindHash: "hash", KindList: "list", KindSet: "set",
		KindSortedSet: "zset", KindLock: "lock",
	} {
		require.Equal(t, name, kind.String())
	}
}

// TestItemsAllocate: a short key and its value, with a mark or without, are one allocation.
func TestItemsAllocate(t *testing.T) {
	var it Item
	content := []byte("keyvalue")
	for _, makes := range []func(){
		func() { it = NewItem(1, "key", "value", Never, EncodingAuto) },
		func() { it = NewMarked(1, "key", "value", Never, Mark{Conn: 7}) },
		func() { it = ItemOf(content, len("key"), EncodingAuto) },
	} {
		require.EqualValues(t, 1, testing.AllocsPerRun(100, makes))
	}
	require.Equal(t, "value", it.Value())
}

// TestHead: key, value and encoding come back, over all lengths of the head.
func TestHead(t *testing.T) {
	for _, n := range []int{0, 1, 31, 32, 33, 127, 4095, 4096, 1 << 19, 1<<19 + 1} {
		for e := range EncodingCount {
			for _, value := range []string{"", "v", "value"} {
				key := strings.Repeat("k", n)
				for _, it := range []Item{NewItem(Hash(key), key, value, Never, e), ItemOf([]byte(key+value), n, e)} {
					require.Equal(t, key, it.Key())
					require.Equal(t, value, it.Value())
					require.Equal(t, e, it.Encoding())
					require.Equal(t, Hash(key), it.Hash)
					require.Equal(t, classOf(n+len(value)), it.class(), "the head does not count")
				}
			}
		}
	}
}

// TestLocks: all locks share an object, which keeps nothing of any of them.
func TestLocks(t *testing.T) {
	k := New(0)
	short, long := NewLock(Hash("k"), NewLockText("k")), NewLock(Hash("key"), NewLockText(strings.Repeat("key", 100)))
	require.True(t, short.IsLock())
	require.True(t, short.Shares(&long))
	for _, it := range []Item{short, long, short} {
		k.Put(&it)
	}
	require.Equal(t, short.Bytes()+long.Bytes(), k.Bytes())
	require.Less(t, short.Bytes(), long.Bytes())
	text := NewItem(Hash("k"), "k", "v", Never, EncodingAuto)
	require.False(t, text.IsLock())
	k.Remove(short.Hash, "k")
	k.Remove(long.Hash, long.Key())
	for _, n := range []int{0, 1, 31, 32, 4095, 4096} {
		key := strings.Repeat("k", n)
		text := NewLockText(key)
		it := NewLock(Hash(key), text)
		require.Equal(t, key, text.Key())
		require.Equal(t, key, it.Key())
		require.Equal(t, text, it.LockText())
	}
	require.Zero(t, k.Bytes())
	require.False(t, short.OwnedBy(0))
	require.False(t, k.HasAccounts(), "what has no account is not counted by account")
	require.Zero(t, k.Usage(0))
}

func remarked(it Item, first, second Mark) Item {
	it = it.WithMark(first)
	return it.WithMark(second)
}

// TestMarks: a mark comes back beside key and value, over all lengths of the head, and shows in nothing else.
func TestMarks(t *testing.T) {
	marks := []Mark{
		{},
		{SinceMillis: 1, LeaseMillis: 30_000, Incarnation: 3, Conn: 12_345, Renewals: 200},
		{
			SinceMillis: math.MinInt64, LeaseMillis: math.MaxInt64, Incarnation: math.MaxUint64, Conn: math.MaxUint64,
			Renewals: math.MaxUint64,
		},
	}
	for _, n := range []int{0, 1, 31, 32, 4096} {
		key := strings.Repeat("k", n)
		for _, value := range []string{"", "v", "value\x00\xff"} {
			plain := NewItem(Hash(key), key, value, 7, EncodingAuto)
			require.False(t, plain.IsMarked())
			_, ok := plain.Mark()
			require.False(t, ok)
			for _, m := range marks {
				for _, it := range []Item{NewMarked(Hash(key), key, value, 7, m), plain.WithMark(m), remarked(plain, marks[1], m)} {
					got, ok := it.Mark()
					require.True(t, ok)
					require.Equal(t, m, got)
					require.Equal(t, key, it.Key())
					require.Equal(t, value, it.Value())
					require.Equal(t, EncodingAuto, it.Encoding())
					require.Greater(t, it.contentLen(), len(key)+len(value), "the mark counts")
				}
			}
		}
	}
	hash := NewCollection(Hash("k"), "k", &pile{5}, 7, 3)
	marked := hash.WithMark(marks[1])
	require.True(t, marked.Shares(&hash))
	require.Equal(t, "k", marked.Key())
	next := marked.With(&pile{6}, 4)
	require.True(t, next.IsMarked(), "the mark stays while the collection changes")
	copied := marked.Copied(Hash("l"), "l", 4)
	require.False(t, copied.IsMarked())
	var none Item
	require.False(t, none.IsMarked())
	require.Empty(t, none.Key()+none.Value())
	require.Zero(t, none.contentLen())
}
