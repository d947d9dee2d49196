package fsm

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// watch returns the marks that a connection keeps for WATCH.
func (d *driver) watch(keys ...string) (watches []protocol.Watch) {
	marks, due := d.read(append([]string{"watch"}, keys...)...)
	require.False(d.t, due)
	for i, key := range keys {
		watches = append(watches, protocol.Watch{DB: d.db, Key: key, Mark: uint64(marks.Elems[i].Num)})
	}
	return watches
}

func TestWatch(t *testing.T) {
	for _, c := range []struct {
		what    string
		between func(d *driver)
		runs    bool
	}{
		{"nothing", func(d *driver) {}, true},
		{"another key", func(d *driver) { d.do("set", "other", "1") }, true},
		{"a read", func(d *driver) { d.do("get", "k") }, true},
		{"a write that changes nothing", func(d *driver) { d.do("set", "k", "v", "NX"); d.do("persist", "k") }, true},
		{"GETEX PERSIST of a key that does not end", func(d *driver) { d.do("getex", "k", "PERSIST") }, true},
		{"the same value again", func(d *driver) { d.do("set", "k", "v") }, false},
		{"a deadline", func(d *driver) { d.do("pexpire", "k", "1000") }, false},
		{"removed", func(d *driver) { d.do("del", "k") }, false},
		{"removed and set again", func(d *driver) { d.do("del", "k"); d.do("set", "k", "v") }, false},
		{"a missing key that came", func(d *driver) { d.do("set", "missing", "v") }, false},
		{"a missing key that came and went", func(d *driver) { d.do("set", "missing", "v"); d.do("del", "missing") }, false},
		{"a missing key that came and went in a script", func(d *driver) {
			d.eval("redis.call('set','missing','v'); redis.call('del','missing')")
		}, false},
		{"a missing key that came and went in a transaction", func(d *driver) {
			d.exec(nil, []string{"incr", "missing"}, []string{"getdel", "missing"})
		}, false},
		{"a missing key that came in a script that was undone", func(d *driver) {
			reply := d.eval("redis.call('set','missing','v'); " + endless)
			require.True(d.t, reply.IsError())
		}, true},
		{
			"a missing key that was a lease", func(d *driver) { d.do("set", "missing", "v", "px", "100"); d.advance(101) },
			false,
		},
		{"a missing key that was renamed to and away", func(d *driver) {
			d.do("set", "x", "v")
			d.do("rename", "x", "missing")
			d.do("rename", "missing", "x")
		}, false},
		{"a missing key that was moved to and away", func(d *driver) {
			d.db = 1
			d.do("set", "missing", "v")
			d.do("move", "missing", "0")
			d.db = 0
			d.do("move", "missing", "1")
		}, false},
		{"a missing key that was set to an instant that is over", func(d *driver) {
			d.do("set", "missing", "v", "exat", "1")
		}, false},
		{"a missing key that was set to such an instant in a script that was undone", func(d *driver) {
			reply := d.eval("redis.call('set','missing','v','exat',1); " + endless)
			require.True(d.t, reply.IsError())
		}, true},
		{"another missing key", func(d *driver) { d.do("set", "x", "v"); d.do("del", "x") }, true},
		{
			"a missing key's name in another database", func(d *driver) { d.db = 1; d.do("set", "missing", "v"); d.db = 0 },
			true,
		},
		{"a lease that ended", func(d *driver) { d.advance(1000) }, false},
		{"flushed", func(d *driver) { d.do("flushall") }, false},
		{"swapped with a database that has an older key of the name", func(d *driver) { d.do("swapdb", "0", "1") }, false},
		{"swapped with an empty database", func(d *driver) { d.do("swapdb", "0", "2") }, false},
		{"swapped back", func(d *driver) { d.do("swapdb", "0", "1"); d.do("swapdb", "0", "1") }, false},
		{"swapped with itself", func(d *driver) { d.do("swapdb", "0", "0") }, true},
		{"other databases swapped", func(d *driver) { d.do("swapdb", "1", "2") }, true},
		{"swapped in a script that was undone", func(d *driver) {
			reply := d.eval("redis.call('swapdb',0,1); " + endless)
			require.True(d.t, reply.IsError())
		}, true},
		{"the key of another database", func(d *driver) { d.db = 1; d.do("set", "k", "v"); d.db = 0 }, true},
		{"renamed over", func(d *driver) { d.do("set", "x", "v"); d.do("rename", "x", "k") }, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := newDriver(t)
			d.db = 1
			d.do("set", "k", "v")
			d.db = 0
			d.do("set", "k", "v")
			d.do("set", "lease", "v", "PX", "500")
			watches := d.watch("k", "missing", "lease")
			c.between(d)
			reply := d.exec(watches, []string{"set", "done", "1"})
			require.Equal(t, !c.runs, reply.Kind == protocol.KindNullArray)
			require.Equal(t, c.runs, d.do("exists", "done").Num == 1)
		})
	}
}

// TestWatchOverASnapshot: a mark of one node is compared on another that was restored from a snapshot.
func TestWatchOverASnapshot(t *testing.T) {
	for _, c := range []struct {
		what    string
		between []string
		runs    bool
	}{
		{"nothing", []string{"del other"}, true},
		{"came and went", []string{"set missing v", "del missing"}, false},
		{"swapped back", []string{"swapdb 0 1", "swapdb 1 0"}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := newDriver(t)
			watches := d.watch("missing")
			for _, line := range c.between {
				d.doLine(line)
			}
			b := dump(t, d.m)
			d.m = newMachine()
			require.NoError(t, d.m.Restore(bytes.NewReader(b)))
			require.Equal(t, c.runs, d.exec(watches).Kind == protocol.KindArray)
		})
	}
}

// TestCreationsShareAPlace: of two keys with one index in NewKeyVersions, a creation of one counts for the other as
// well. Creations before WATCH do not count.
func TestCreationsShareAPlace(t *testing.T) {
	d := newDriver(t)
	for n := range 3 * len(command.NewKeyVersions{}) {
		d.do("set", "k"+command.FormatUint(uint64(n)), "v")
	}
	require.Equal(t, protocol.KindArray, d.exec(d.watch("missing")).Kind, "what came before does not count")
	watches := d.watch("missing")
	for n := 0; d.exec(watches).Kind == protocol.KindArray; n++ {
		require.Less(t, n, 20*len(command.NewKeyVersions{}))
		d.do("incr", "i"+command.FormatUint(uint64(n)))
	}
}

// TestCreationInThePlaceOfEnded: a key that replaces an ended one counts as created, also on a node that has swept the
// ended key or never had it.
func TestCreationInThePlaceOfEnded(t *testing.T) {
	d := newDriver(t)
	d.fill("k", 2*sweepLimit+10, 100) // more than the next two entries sweep
	d.do("set", "last", "v", "px", "101")
	d.advance(102)
	require.NotNil(t, d.m.st.Databases[0].Find(keyspace.Hash("last"), "last"), "it waits to be swept")
	other := &driver{
		t: t, m: restored(t, d.m), seq: d.seq, nowMillis: d.nowMillis, wallOffset: d.wallOffset,
		version: d.version,
	}
	require.Equal(t, d.m.Hash(), other.m.Hash())
	marked := uint64(newMark(d.m.st.Versions, true))
	for _, each := range []*driver{d, other} {
		each.do("set", "last", "w")
		each.do("del", "last")
		reply := each.exec([]protocol.Watch{{Key: "last", Mark: marked}}, []string{"set", "a", "1"})
		require.Equal(t, protocol.KindNullArray, reply.Kind, "it came and went")
	}
	require.Equal(t, d.m.Hash(), other.m.Hash())
}
