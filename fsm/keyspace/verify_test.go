package keyspace

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVerify: the check finds what contradicts something else.
func TestVerify(t *testing.T) {
	for want, damage := range map[string]func(k *Keyspace){
		"counted as 99":           func(k *Keyspace) { k.items.count = 99 },
		"are counted as":          func(k *Keyspace) { k.bytes++ },
		"account 2 with":          func(k *Keyspace) { k.usage = make([]Usage, 3); k.usage[2].Keys = 1 },
		"marks are counted":       func(k *Keyspace) { k.marks++ },
		"the items' deadlines":    func(k *Keyspace) { k.deadlines.remove(k.Find(Hash("k7"), "k7").deadline()) },
		"deadlines are counted":   func(k *Keyspace) { k.deadlines.count++ },
		"a chunk of":              func(k *Keyspace) { k.deadlines.chunks[0].bytes++ },
		"is in the bucket of":     func(k *Keyspace) { k.Find(Hash("k7"), "k7").Hash ^= 1 << 63 },
		"has tag":                 func(k *Keyspace) { k.Find(Hash("k7"), "k7").Hash ^= 1 },
		"of depth 40":             func(k *Keyspace) { k.items.top[0].buckets[0].depth = 40 },
		"buckets have one place,": func(k *Keyspace) { k.items.top[0].single++ },
	} {
		k := New(0)
		for i := range 1000 {
			key := fmt.Sprint("k", i)
			it := NewItem(Hash(key), key, "v", int64(1000+i), EncodingAuto)
			k.Put(&it)
		}
		require.NoError(t, k.Verify())
		damage(k)
		require.ErrorContains(t, k.Verify(), want)
	}
}
