package fsm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// watch returns what a connection would keep of WATCH.
func (d *driver) watch(keys ...string) (watches []protocol.Watch) {
	versions, due := d.read(append([]string{"watch"}, keys...)...)
	require.False(d.t, due)
	for i, key := range keys {
		watches = append(watches, protocol.Watch{DB: d.db, Key: key, Version: uint64(versions.Elems[i].Num)})
	}
	return watches
}

func (d *driver) exec(watches []protocol.Watch, queued ...[]string) protocol.Value {
	var body []byte
	for _, words := range queued {
		body = request(body, d.db, words...)
	}
	replies := d.apply(protocol.AppendTransaction(nil, d.db, watches, body))
	require.Len(d.t, replies, 1)
	return replies[0]
}

func TestTransaction(t *testing.T) {
	d := newDriver(t)
	reply := d.exec(nil, []string{"set", "a", "x"}, []string{"incr", "a"}, []string{"get", "a"}, []string{"ping"})
	require.Equal(t, `[OK (ERR value is not an integer or out of range) "x" PONG]`, line(reply), "an error does not stop the others")
	require.Equal(t, protocol.KindArray, d.exec(nil).Kind, "empty")
	reply = d.exec(nil, []string{"exec", "", ""}, []string{"watch", "a"})
	require.Equal(t, "[(ERR MULTI calls can not be nested) (ERR WATCH inside MULTI is not allowed)]", line(reply))
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
		{"the same value again", func(d *driver) { d.do("set", "k", "v") }, false},
		{"a deadline", func(d *driver) { d.do("pexpire", "k", "1000") }, false},
		{"removed", func(d *driver) { d.do("del", "k") }, false},
		{"removed and set again", func(d *driver) { d.do("del", "k"); d.do("set", "k", "v") }, false},
		{"a missing key that came", func(d *driver) { d.do("set", "missing", "v") }, false},
		{"a missing key that came and went", func(d *driver) { d.do("set", "missing", "v"); d.do("del", "missing") }, true},
		{"a lease that ended", func(d *driver) { d.advance(1000) }, false},
		{"flushed", func(d *driver) { d.do("flushall") }, false},
		{"swapped", func(d *driver) { d.do("swapdb", "0", "1") }, false},
		{"swapped back", func(d *driver) { d.do("swapdb", "0", "1"); d.do("swapdb", "0", "1") }, true},
		{"the key of another database", func(d *driver) { d.db = 1; d.do("set", "k", "v"); d.db = 0 }, true},
		{"renamed over", func(d *driver) { d.do("set", "x", "v"); d.do("rename", "x", "k") }, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := newDriver(t)
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
