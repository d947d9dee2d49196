package fsm

import (
	"cmp"
	"fmt"
	"math/rand"
	"strconv"
	"testing"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol/protocoltest"

	"github.com/stretchr/testify/require"
)

// scanAll performs a whole scan and calls between after every step.
func scanAll(d *driver, between func(), options ...string) (keys []string) {
	cursor := "0"
	for {
		reply := d.do(append([]string{"scan", cursor}, options...)...)
		require.False(d.t, reply.IsError(), reply.Str)
		for _, key := range reply.Elems[1].Elems {
			keys = append(keys, key.Str)
		}
		before := cursor
		if cursor = reply.Elems[0].Str; cursor == "0" {
			return keys
		}
		require.NotEqual(d.t, before, cursor, "the scan stands still")
		n, err := strconv.ParseInt(cursor, 10, 64)
		require.NoError(d.t, err)
		require.Less(d.t, n, int64(1)<<53, "a cursor that a double cannot hold")
		between()
	}
}

func TestScanReturnsEveryKeyOnce(t *testing.T) {
	d := newDriver(t)
	want := map[string]bool{}
	for i := range 1000 {
		key := fmt.Sprint("key:", i)
		d.do("set", key, "v")
		want[key] = true
	}
	for _, count := range []string{"1", "7", "10", "999", "1000", "1000000"} {
		got := map[string]bool{}
		for _, key := range scanAll(d, func() {}, "count", count) {
			require.False(t, got[key], "%s twice", key)
			got[key] = true
		}
		require.Equal(t, want, got)
	}
	require.Len(t, scanAll(d, func() {}, "match", "key:1*", "count", "50"), 111)
	require.Empty(t, scanAll(d, func() {}, "type", "list"))
	require.Len(t, scanAll(d, func() {}, "type", "STRING"), 1000)
}

// TestScanKeepsItsPromise: keys present during the whole scan are returned once, while others come and go, and also if
// each step is answered by another node, which has no state of the scan.
func TestScanKeepsItsPromise(t *testing.T) {
	for seed := range int64(20) {
		rng := rand.New(rand.NewSource(seed))
		d := newDriver(t)
		for i := range 300 {
			d.do("set", fmt.Sprint("stays:", i), "v")
			d.do("set", fmt.Sprint("goes:", i), "v", "PX", strconv.Itoa(1+rng.Intn(500)))
		}
		seen := map[string]int{}
		for _, key := range scanAll(d, func() {
			d.do("set", fmt.Sprint("comes:", rng.Intn(1000)), "v")
			d.do("del", fmt.Sprint("comes:", rng.Intn(1000)))
			d.do("set", fmt.Sprint("stays:", rng.Intn(300)), "changed")
			d.advance(int64(rng.Intn(20)))
			d.m = restored(t, d.m)
		}) {
			seen[key]++
		}
		for i := range 300 {
			require.Equal(t, 1, seen[fmt.Sprint("stays:", i)])
		}
	}
}

// Keys with the same position come in one reply, since the cursor cannot separate them.
func TestScanSamePosition(t *testing.T) {
	d := newDriver(t)
	for i := range 100 {
		d.do("set", fmt.Sprint(i), "v")
	}
	// No two real keys are known whose hashes share 53 bits, so the test fakes them.
	var items []keyspace.Item
	db := d.m.st.Databases[0]
	db.Ascend(0, 0, 0, func(it *keyspace.Item) bool {
		items = append(items, *it)
		return true
	})
	d.m.st.Databases[0] = keyspace.New(0)
	for i, it := range items {
		same := it
		same.Hash = items[i-i%10].Hash &^ (1<<command.CursorShift - 1)
		d.m.st.Databases[0].Put(&same)
	}
	require.Len(t, scanAll(d, func() {}, "count", "3"), 100)
	require.Len(t, d.do("scan", "0", "count", "1").Elems[1].Elems, 10)
}

func TestRandomkeyDrawsAll(t *testing.T) {
	d := newDriver(t)
	for i := range 20 {
		d.do("set", fmt.Sprint(i), "v")
	}
	seen := map[string]bool{}
	for range 2000 {
		reply, _ := d.read("randomkey")
		seen[reply.Str] = true
	}
	require.Len(t, seen, 20)
	seen = map[string]bool{}
	for range 2000 {
		seen[d.do("randomkey").Str] = true
	}
	require.Len(t, seen, 20)
}

func TestHostilePattern(t *testing.T) {
	protocoltest.SkipShort(t, "large values")
	d := newDriver(t)
	long := make([]byte, 1<<20)
	for i := range long {
		long[i] = 'a'
	}
	d.do("set", string(long), "v")
	pattern := "*" + string(long[:1<<19]) + "b*"
	require.Equal(t, command.ErrPattern, d.do("keys", pattern))
	require.Equal(t, command.ErrPattern, d.do("scan", "0", "match", pattern))
	d.do("del", string(long))
	d.apply(requestFrom(nil, 0, 5, "set", string(long), "t", "nx", "px", "1000"))
	require.Equal(t, command.ErrPattern, d.do("lock.list", "match", pattern))
	work := d.charged()
	d.db = 1
	d.do("lock.acquire", "l", "me", "px", "1000")
	require.Equal(t, command.ErrPattern, d.do("lock.list", "match", pattern))
	require.Equal(t, work, d.charged(), "it ends with the pattern")
}

// TestListPassesManyKeys: LOCK.LIST continues in another call if a stock lock comes after many other keys.
func TestListPassesManyKeys(t *testing.T) {
	d := newDriver(t)
	d.fill("k", 2*maxPassedKeys+100, 1<<40)
	d.apply(requestFrom(nil, 0, 5, "set", "s", "t", "nx", "px", "100000"))
	pages, rows := 0, 0
	for cursor := ""; cursor != "0"; pages++ {
		reply := d.do("lock.list", "cursor", cmp.Or(cursor, "0"))
		cursor, rows = reply.Elems[0].Str, rows+len(reply.Elems[1].Elems)
		require.Less(t, d.charged(), int64(maxPassedKeys+100)*command.ScanWork)
	}
	require.Equal(t, []int{3, 1}, []int{pages, rows})
}
