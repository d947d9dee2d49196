package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// take acquires stock locks as a client of connection 5.
func (d *driver) take(px string, keys ...string) {
	d.t.Helper()
	var body []byte
	for _, key := range keys {
		body = requestFrom(body, d.db, 5, "set", key, "token of "+key, "NX", "PX", px)
	}
	for _, reply := range d.apply(body) {
		require.Equal(d.t, protocol.OK, reply)
	}
}

func numbered(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
	}
	return keys
}

// TestManyStockLosses: simultaneous losses take ten rows, whatever the reason, and stock locks do not evict native
// ones.
func TestManyStockLosses(t *testing.T) {
	d := newDriver(t)
	d.do("lock.acquire", "native", "me", "px", "1000")
	d.do("lock.break", "native")
	sum := func(reason string, n int) {
		t.Helper()
		rows := d.history(10, "STOCK")
		require.Len(t, rows, 10)
		require.Equal(t, fmt.Sprint(n-10), rows[0]["more"])
		require.Equal(t, []string{reason, "0"}, []string{rows[9]["reason"], rows[9]["more"]})
	}
	keys := numbered(2000)
	d.take("1000", keys...)
	d.do(append([]string{"del"}, keys...)...)
	sum("broken", len(keys))
	require.Len(t, d.m.st.history.kinds[stockLocks].causes, 1)
	d.take("1000", keys...)
	d.advance(1001)
	sum("expired", len(keys))
	for db, keys := range [][]string{numbered(maxFlushedKeys + 2000), numbered(3), nil, numbered(maxFlushedKeys)} {
		d.db = db
		d.take("1000", keys...)
		for i := range len(keys) { // neither locks nor keys of SET NX
			d.do("set", fmt.Sprint("other", i), "x")
			d.do("setnx", fmt.Sprint("another", i), "x")
		}
	}
	d.do("flushall")
	rows := d.history(11, "STOCK")
	require.Equal(t, "expired", rows[10]["reason"])
	for i := 1; i < 700; i++ {
		d.take("1", "k")
		d.advance(2)
		d.take("1", "k")
		d.do("del", "k")
	}
	stock := &d.m.st.history.kinds[stockLocks]
	require.Equal(t, []int{keptLosses, keptLosses, keptCauses}, []int{
		len(stock.byTime.rows), len(stock.byForce.rows),
		len(stock.causes),
	})
	rows = d.history(2, "NATIVE")
	require.Len(t, rows, 1)
	require.Equal(t, "lock.break", rows[0]["command"])
	m := restored(t, d.m)
	require.Equal(t, d.m.Hash(), m.Hash())
	require.Equal(t, d.m.Stats().UsedBytes, m.Stats().UsedBytes)
}

// TestFlushedStockLocks: all flushed locks are counted, also those after the keys that are visited.
func TestFlushedStockLocks(t *testing.T) {
	for _, n := range []int{11, maxFlushedKeys - 1, maxFlushedKeys, maxFlushedKeys + 500} {
		d := newDriver(t)
		d.take("1000", numbered(n)...)
		d.do("flushdb")
		rows := d.history(11)
		require.Len(t, rows, 10)
		require.Equal(t, []string{"flushed", fmt.Sprint(n - 10), "flushdb"}, []string{
			rows[0]["reason"], rows[0]["more"],
			rows[0]["command"],
		})
	}
}

// TestStockLossesAreBounded: their bytes are limited, whatever the lengths of keys and tokens, and they share no memory
// with items.
func TestStockLossesAreBounded(t *testing.T) {
	d := newDriver(t)
	d.do("del", "k")
	empty := d.m.Stats().UsedBytes
	long := strings.Repeat("x", 100_000)
	for i := range 600 {
		d.do("set", fmt.Sprint("k", i), long, "NX", "PX", "1")
		d.advance(2)
		d.do("set", fmt.Sprint(i)+long, "t", "NX", "PX", "1000")
		d.do("del", fmt.Sprint(i)+long)
		require.LessOrEqual(t, d.m.Stats().UsedBytes-empty, int64(2*keptLossBytes+keptCauseBytes))
	}
	require.Len(t, d.m.st.history.kinds[stockLocks].byForce.rows, keptLossBytes/(lossBytes+maxLostKeyBytes+1))
	rows := d.history(2)
	require.Equal(t, []int{maxLostKeyBytes, 1}, []int{len(rows[0]["key"]), len(rows[0]["owner"])})
	require.Equal(t, []int{4, 1024}, []int{len(rows[1]["key"]), len(rows[1]["owner"])})
}

// TestReleaseInATransaction: a client that watches a lock and reads it before deleting it counts as the holder,
// whatever its connection.
func TestReleaseInATransaction(t *testing.T) {
	d := newDriver(t)
	watches := func(key string) []protocol.Watch {
		return []protocol.Watch{{Key: key, Mark: uint64(d.do("watch", key).Elems[0].Num)}}
	}
	for key, losses := range map[string]int{"k": 0, "other": 1} {
		d.take("1000", "k")
		reply := d.apply(protocol.AppendTransaction(nil, 0, watches(key), pipeline("del k", "set x y")))[0]
		require.Len(t, reply.Elems, 2)
		require.Len(t, d.history(10), losses)
		d.m.st.history = lockHistory{}
	}
	d.take("1000", "k")
	d.apply(protocol.AppendTransaction(nil, 0, watches("k"), pipeline("set x y")))
	d.do("del", "k")
	require.Len(t, d.history(10), 1, "the transaction is over")
}

// TestHistoryIsFresh: a read of a lease whose end the log has not reached waits for the log.
func TestHistoryIsFresh(t *testing.T) {
	d := newDriver(t)
	d.do("set", "plain", "x", "PX", "500")
	d.nowMillis += 501
	_, due := d.read("lock.history")
	require.False(t, due, "there are no stock locks")
	d.take("1000", "k")
	_, due = d.read("lock.history")
	require.False(t, due)
	d.nowMillis += 1001
	_, due = d.read("lock.history")
	require.True(t, due)
	d.advance(0)
	v, due := d.read("lock.history")
	require.False(t, due)
	require.Len(t, v.Elems[1].Elems, 1)
}

// BenchmarkStockEnds measures an entry in which the maximum of stock locks ends, each at another instant.
func BenchmarkStockEnds(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		d := newDriver(b)
		for i := range sweepLimit {
			d.do("set", fmt.Sprint("lock:", i), "0123456789abcdef", "NX", "PX", fmt.Sprint(1000+i))
		}
		d.nowMillis += 1000 + sweepLimit
		entry := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits).Bytes()
		b.StartTimer()
		if err := d.m.Apply(entry, clientless{}); err != nil {
			b.Fatal(err)
		}
	}
}
