package fsm

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// plant stores a collection without a command.
func (d *driver) plant(key string, v keyspace.Collection) {
	it := keyspace.NewCollection(keyspace.Hash(key), key, v, command.Never, d.m.st.Generation)
	it.SetVersion(d.m.st.NextVersion())
	d.m.st.Databases[0].Put(&it)
	d.m.st.sumItems()
}

func longList(n int) *collection.List {
	l := collection.NewList()
	for range n {
		l.PushBack("1")
	}
	return l
}

func longSortedSet(n int) *collection.SortedSet {
	var g collection.Gathering
	for i := range n {
		g.Add(strconv.Itoa(i), float64(i))
	}
	return g.SortedSet()
}

// TestLongListIsBounded: a command that would take too long fails and changes nothing; other commands run.
func TestLongListIsBounded(t *testing.T) {
	d := newDriver(t)
	const n = command.MaxElementsWork/command.ElementWork + 2
	d.plant("l", longList(n))
	for _, words := range []string{
		"lrange l 0 -1", "lpop l 10000000", "lmpop 1 l left count 10000000",
		"lpos l 1 count 0", "lrem l 0 1",
	} {
		require.Equal(t, command.ErrTooMuchWork.Str, d.doLine(words).Str, words)
	}
	require.Equal(t, protocol.Integer(n), d.doLine("llen l"))
	require.Len(t, d.doLine("lrange l 5 1004").Elems, 1000)
	require.Equal(t, "1", d.doLine("lindex l 1000001").Str)
	require.Equal(t, "OK", d.doLine("lset l 1000001 x").Str)
	require.Equal(t, protocol.Integer(1000001), d.doLine("lpos l x"))
	require.Equal(t, protocol.Integer(n+1), d.doLine("linsert l before x y"))
	require.Equal(t, protocol.Integer(2),
		d.do("eval", "return redis.call('lrem','l',0,'x') + redis.call('lrem','l',-1,'y')", "0"))
}

// TestSearchesInScriptsAreBounded: a script that searches a long list repeatedly is undone.
func TestSearchesInScriptsAreBounded(t *testing.T) {
	d := newDriver(t)
	d.plant("l", longList(300_000))
	for _, search := range []string{
		"'lrem','l',0,'x'", "'lpos','l','x'", "'linsert','l','before','x','y'",
		"'lrange','l',0,-1",
	} {
		reply := d.do("eval", "redis.call('rpush','l','new') for i=1,1000 do redis.call("+search+") end", "0")
		require.Contains(t, reply.Str, "script is over its budget", search)
		require.Equal(t, protocol.Integer(300_000), d.doLine("llen l"), search)
	}
}

func TestLongSortedSetIsBounded(t *testing.T) {
	d := newDriver(t)
	const gatherWork = 1 << 10 // of package zset
	const n = command.MaxElementsWork/gatherWork + 2
	d.plant("z", longSortedSet(n))
	d.doLine("zadd kept 1 a")
	for _, words := range []string{
		"zunionstore kept 1 z", "zinterstore kept 2 z z", "zdiffstore kept 2 z none", "zrangestore kept z 0 -1", "zunion 1 z",
		"zpopmin z 10000000", "zremrangebyrank z 0 -1", "zrandmember z -10000000",
	} {
		require.Equal(t, command.ErrTooMuchWork.Str, d.doLine(words).Str, words)
	}
	require.Equal(t, protocol.Integer(1), d.doLine("zcard kept"))
	require.Equal(t, protocol.Integer(n), d.doLine("zcard z"))
	require.Equal(t, protocol.Integer(7), d.doLine("zintercard 2 z z limit 7"))
	require.Len(t, d.doLine("zrange z 100000 100099").Elems, 100)
	require.Equal(t, protocol.Integer(200_000), d.doLine("zrank z 200000"))
	require.Equal(t, protocol.Integer(1001), d.doLine("zcount z 1000 2000"))
	require.Equal(t, protocol.Integer(11), d.doLine("zremrangebyscore z 20 30"))
	reply := d.do("eval", "for i=1,1000000 do redis.call('zpopmin','z') end", "0")
	require.True(t, reply.IsError())
	require.Equal(t, protocol.Integer(n-11), d.doLine("zcard z"))
}

// TestScriptCopiesNoList: a script that pushes to a list of a million elements copies a few KiB.
func TestScriptCopiesNoList(t *testing.T) {
	d := newDriver(t)
	d.plant("l", longList(1_000_000))
	d.plant("z", longSortedSet(100_000))
	for _, call := range []string{
		"'rpush','l','x'", "'lpop','l'", "'lset','l',500000,'x'", "'zadd','z',1.5,'x'",
		"'zpopmin','z'",
	} {
		script := "return redis.call(" + call + ")"
		d.do("eval", script, "0")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		reply := d.do("eval", script, "0")
		runtime.ReadMemStats(&after)
		require.False(t, reply.IsError(), line(reply))
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<10), call)
	}
}

// TestFullCollections: at the memory limit, lists and sorted sets can shrink and cannot grow.
func TestFullCollections(t *testing.T) {
	d := filled(t)
	d.limits.MemoryBytes = 0
	for _, words := range []string{"rpush l a b c d", "zadd z 1 a 2 b 3 c 4 d"} {
		d.doLine(words)
	}
	d.limits.MemoryBytes = 1
	for _, words := range []string{
		"lpush l a", "rpush l a", "lpushx l a", "rpushx l a", "lset l 0 a", "linsert l before a a", "lmove l l left left",
		"rpoplpush l l",
		"zadd z 1 a", "zincrby z 1 a", "zrangestore z z 0 1", "zunionstore z 1 z", "zinterstore z 1 z", "zdiffstore z 1 z",
	} {
		require.Equal(t, oomText, line(d.doLine(words)), words)
	}
	for _, row := range [][2]string{
		{"lpop l", `"a"`},
		{"lrem l 0 b", "1"},
		{"ltrim l 0 0", "OK"},
		{"lmpop 1 l left", `["l" ["c"]]`},
		{"zrem z a", "1"},
		{"zpopmin z", `["b" (double) 2]`},
		{"zremrangebyrank z 0 0", "1"},
		{"zmpop 1 z min", `["z" [["d" (double) 4]]]`},
		{"exists l z", "0"},
	} {
		require.Equal(t, row[1], line(d.doLine(row[0])), row[0])
	}
}
