package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// requestFrom is [request] of a connection.
func requestFrom(body []byte, db int, conn uint64, words ...string) []byte {
	var r protocol.Request
	if _, err := protocol.NextRequest(string(request(nil, db, words...)), &r); err != nil {
		panic(err)
	}
	args := make([][]byte, len(r.Args)-1)
	for i, w := range r.Args[1:] {
		args[i] = []byte(w)
	}
	return protocol.AppendRequestFrom(body, db, conn, r.Args[0], args)
}

// mark is the mark of a key in database 0.
func (d *driver) mark(key string) (keyspace.Mark, bool) {
	return d.m.st.databases[0].Find(keyspace.Hash(key), key).Mark()
}

// TestMarksCostLittle: a held stock lock takes at most 24 bytes more than without its mark, and taking and releasing it
// allocates no more.
func TestMarksCostLittle(t *testing.T) {
	cost := func(version byte, key, token string) (bytes int64, allocations float64) {
		d := newDriverOf(t, version)
		d.nowMillis = 365 * 24 * 3600 * 1000 // a cluster of a year
		take := request(nil, 0, "set", key, token, "NX", "PX", "30000")
		if version >= versionMarks {
			take = requestFrom(nil, 0, 123_456, "set", key, token, "NX", "PX", "30000")
		}
		release := request(nil, 0, "delifeq", key, token)
		d.apply(take)
		bytes = d.m.st.itemBytes
		require.Equal(t, bytes, d.do("memory", "usage", key).Num)
		d.apply(release)
		entries := [2][]byte{}
		return bytes, testing.AllocsPerRun(200, func() {
			for i, body := range [][]byte{take, release} {
				d.seq++
				w := protocol.NewEntry(entries[i], version, d.nowMillis, d.wallOffset, 0)
				w.Add(protocol.Origin{Node: "n1", Epoch: 1}, d.seq, d.seq, body)
				entries[i] = w.Bytes()
				if err := d.m.Apply(entries[i], clientless{}); err != nil {
					panic(err)
				}
			}
		})
	}
	for _, keyLen := range []int{1, 8, 20, 31, 32, 60} {
		for _, tokenLen := range []int{16, 20, 32, 36, 64} {
			key, token := strings.Repeat("k", keyLen), strings.Repeat("t", tokenLen)
			before, fewest := cost(versionMarks-1, key, token)
			after, allocations := cost(versionMarks, key, token)
			require.LessOrEqual(t, after-before, int64(24), "%d %d", keyLen, tokenLen)
			require.LessOrEqual(t, allocations, fewest, "%d %d", keyLen, tokenLen)
		}
	}
}

// TestMarksBeginWithTheirVersion: entries of older versions make no marks, and list no stock locks.
func TestMarksBeginWithTheirVersion(t *testing.T) {
	d := newDriverOf(t, versionMarks-1)
	d.apply(requestFrom(nil, 0, 5, "set", "old", "t", "NX", "PX", "30000"))
	d.do("lock.acquire", "native", "me", "px", "30000")
	d.do("eval", "redis.call('hset','hash','f',1) redis.call('pexpire','hash',30000)", "0")
	d.do("expire", "old", "100")
	require.Zero(t, d.m.st.databases[0].Marks())
	rows := d.do("lock.list").Elems[1].Elems
	require.Len(t, rows, 1)
	require.NotContains(t, line(rows[0]), `"db"`)
	require.NotContains(t, line(rows[0]), "lease\"")
	require.Equal(t, line(errWrongType), line(d.do("lock.info", "old")))
	require.Equal(t, line(errSyntax), line(d.do("lock.list", "db", "1")))
	d = &driver{t: t, m: restored(t, d.m), seq: d.seq, nowMillis: d.nowMillis, wallOffset: d.wallOffset, version: versionMarks}
	d.do("expire", "old", "200")
	d.apply(requestFrom(nil, 0, 5, "set", "new", "t", "NX", "PX", "30000"))
	require.Equal(t, 1, d.m.st.databases[0].Marks())
	require.Len(t, d.do("lock.list").Elems[1].Elems, 2)
}

// TestMarkOfEveryDatabase: a listing goes through all databases, whatever COUNT is, and names each lock once.
func TestMarkOfEveryDatabase(t *testing.T) {
	d := newDriver(t)
	for db := range protocol.MaxDatabases {
		d.db = db
		for i := range 5 {
			d.do("set", fmt.Sprintf("stock:%d", i), "t", "nx", "px", "30000")
			d.do("set", fmt.Sprintf("string:%d", i), "t", "px", "30000")
			d.do("lock.acquire", fmt.Sprintf("native:%d", i), "t", "px", "30000")
		}
	}
	list := func(words ...string) map[string]int {
		seen := map[string]int{}
		for cursor := "0"; ; {
			reply, due := d.read(append([]string{"lock.list", "cursor", cursor}, words...)...)
			require.False(t, due)
			for _, row := range reply.Elems[1].Elems {
				seen[fmt.Sprint(row.Elems[1].Str, row.Elems[3].Num)]++
			}
			if cursor = reply.Elems[0].Str; cursor == "0" {
				return seen
			}
		}
	}
	for _, count := range []string{"1", "3", "10", "1000"} {
		all := list("count", count)
		require.Len(t, all, 10*protocol.MaxDatabases, count)
		for key, n := range all {
			require.Equal(t, 1, n, key)
		}
		require.Len(t, list("count", count, "db", "15"), 10)
		require.Len(t, list("count", count, "db", "0", "match", "stock*"), 5)
	}
	for _, cursor := range []string{"18446744073709551615", "288230376151711744", "9007199254740991"} {
		reply, _ := d.read("lock.list", "cursor", cursor)
		require.False(t, reply.IsError(), cursor)
	}
}

// TestListPassesKeys: a call looks at so many keys, and goes on where the last one ended.
func TestListPassesKeys(t *testing.T) {
	d := newDriver(t)
	d.fill("k", 3*maxPassedKeys, 1<<40)
	d.do("set", "lock", "t", "nx", "px", "30000")
	calls := 0
	for cursor := "0"; calls == 0 || cursor != "0"; calls++ {
		reply, _ := d.read("lock.list", "cursor", cursor, "count", "1")
		cursor = reply.Elems[0].Str
		if rows := reply.Elems[1].Elems; len(rows) > 0 {
			require.Equal(t, "lock", rows[0].Elems[1].Str)
			cursor = "0"
		}
	}
	require.LessOrEqual(t, calls, 5)
}

// TestReadMeetsDueStockLock: a lock that is due by the clock of the read, and not by the log, is not listed.
func TestReadMeetsDueStockLock(t *testing.T) {
	d := newDriver(t)
	d.do("set", "k", "t", "nx", "px", "100")
	d.nowMillis += 101
	for _, words := range [][]string{{"lock.list"}, {"lock.info", "k"}} {
		_, due := d.read(words...)
		require.True(t, due, words)
	}
}

// TestLives: clients of former lives of nodes are named for a while, and a node that lives on keeps its number.
func TestLives(t *testing.T) {
	d := newDriver(t)
	take := func(node string, epoch uint64, key string) {
		d.seq++
		w := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, 0)
		w.Add(protocol.Origin{Node: node, Epoch: epoch}, 0, d.seq, requestFrom(nil, 0, 7, "set", key, "t", "nx", "px", "30000"))
		require.NoError(t, d.m.Apply(w.Bytes(), clientless{}))
	}
	client := func(key string) string {
		info := d.do("lock.info", key)
		return info.Elems[11].Elems[0].Elems[19].Str
	}
	take("stays", 1, "first")
	for epoch := range uint64(2 * maxLives) {
		take("restarts", epoch+1, fmt.Sprint("k", epoch+1))
	}
	take("stays", 1, "last")
	require.Equal(t, "stays/7", client("first"))
	require.Equal(t, "stays/7", client("last"))
	require.Equal(t, "restarts/7", client(fmt.Sprint("k", 2*maxLives)))
	require.Empty(t, client("k1"))
	require.Len(t, d.m.st.lives.known, maxLives)
	first, _ := d.mark("first")
	last, _ := d.mark("last")
	require.Equal(t, first.Life, last.Life)
	require.Equal(t, d.m.Hash(), restored(t, d.m).Hash())
}
