package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// told formats events, one per line.
func told(events []event.Event) string {
	var b strings.Builder
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case event.Published:
			fmt.Fprintf(&b, "%s: %s (sharded %t)\n", e.Name, e.Payload, e.Sharded)
		case event.Notified:
			e.Messages(func(channel, payload string) { fmt.Fprintf(&b, "%s: %s\n", channel, payload) })
		case event.Changed:
			fmt.Fprintf(&b, "changed %d %s by %d\n", e.DB, e.Key, e.Seq)
		case event.Flushed:
			fmt.Fprintf(&b, "flushed %d\n", e.DB)
		case event.Swapped:
			fmt.Fprintf(&b, "swapped %d %d\n", e.DB, e.Other)
		case event.Read:
			fmt.Fprintf(&b, "looked %s by %d\n", e.Key, e.Seq)
		case event.Ran:
			fmt.Fprintf(&b, "ran %d\n", e.Seq)
		case event.Called:
			fmt.Fprintf(&b, "called %d %.60s\n", e.DB, e.Payload)
		}
	}
	return b.String()
}

// events applies a body as a batch, and returns the events.
func (d *driver) events(body []byte) string {
	d.t.Helper()
	return told(d.record(body).events)
}

func TestPublish(t *testing.T) {
	d := newDriver(t)
	body := pipeline("publish c hello", "spublish s there", "get k",
		"eval redis.call('publish','c',ARGV[1])~return~redis.call('spublish','s','2') 0 1")
	body = protocol.AppendTransaction(body, 0, nil, pipeline("publish c 3", "get k"))
	require.Empty(t, d.events(body), "nobody listens")

	d.m.Listen(event.InMessages)
	const want = `c: hello (sharded false)
s: there (sharded true)
c: 1 (sharded false)
s: 2 (sharded true)
c: 3 (sharded false)
`
	require.Equal(t, want, d.events(body))
	require.Equal(t, "[0 0 nil 0 [0 nil]]", lines(d.apply(body)))
	require.Empty(t, d.events(pipeline("get k")))
	require.Equal(t, want, d.events(body))
}

func TestPublishIsNoRead(t *testing.T) {
	d := newDriver(t)
	reply := d.doLine("eval_ro x 0")
	require.True(t, reply.IsError())
	require.Contains(t, line(d.do("eval_ro", "return redis.call('publish','c','m')", "0")),
		"Write commands are not allowed")
}

func TestChanges(t *testing.T) {
	d := newDriver(t)
	d.m.Listen(event.InChanges)
	for _, c := range []struct{ lines, want string }{
		{"set a 1 px 500;get a;publish c m", "changed 0 a by 0\n"},
		{"rename a b", "changed 0 a by 0\nchanged 0 b by 0\n"},
		{"set b 2 nx", ""},
		{"move b 1", "changed 0 b by 0\nchanged 1 b by 0\n"},
		{"flushdb;flushall", "flushed 1\n"},
		{"swapdb 0 1", "swapped 0 1\n"},
		{"set x 1 pxat 1;set y 1;expire y -1", "changed 0 y by 0\nchanged 0 y by 0\n"},
		{"eval redis.call('incr','n')~error('x') 0", "changed 0 n by 0\n"},
	} {
		require.Equal(t, c.want, d.events(pipeline(strings.Split(c.lines, ";")...)), c.lines)
	}
}

// TestUndoneIsNotTold: commands that are rolled back or left for another entry have no events.
func TestUndoneIsNotTold(t *testing.T) {
	d := newDriver(t)
	d.m.Listen(event.InChanges | event.InMessages)
	const endless = "eval redis.call('set','a','1')~redis.call('publish','c','m')~while~true~do~end 0"
	require.Equal(t, "c: before (sharded false)\n", d.events(pipeline("publish c before", endless)))

	queued := protocol.AppendTransaction(nil, 0, nil, pipeline("publish c kept", endless, "set b 1"))
	require.Equal(t, "c: kept (sharded false)\nchanged 0 b by 0\n", d.events(queued))

	d.m.budgets.transaction = 1 << 14
	queued = protocol.AppendTransaction(nil, 0, nil, pipeline(strings.Split(strings.Repeat("publish c m,", 100)+"set b 1",
		",")...))
	require.Empty(t, d.events(queued))
}

// TestOwnBatches: events name the batches of this node, and the keys that their scripts read.
func TestOwnBatches(t *testing.T) {
	d := newDriver(t)
	body := pipeline("set a 1",
		"eval redis.call('get',KEYS[1])~redis.call('mget','x','y')~redis.call('sintercard','2','p','q')"+
			"~redis.call('set','z','1') 2 k d",
		"eval redis.call('set','z','2') 1 k", "get g", "eval_ro return~redis.call('strlen','s') 1 u")
	body = protocol.AppendTransaction(body, 0, nil, pipeline("eval redis.call('exists','e') 0"))
	d.m.Listen(event.InChanges)
	require.Equal(t, "changed 0 a by 0\nchanged 0 z by 0\nchanged 0 z by 0\n", d.events(body))
	d.m.SeedReads(protocol.Incarnation{Node: "n1", Epoch: 1})
	require.Equal(t, `changed 0 a by 2
looked k by 2
looked d by 2
looked k by 2
looked x by 2
looked y by 2
looked p by 2
looked q by 2
changed 0 z by 2
changed 0 z by 2
looked u by 2
looked s by 2
looked e by 2
ran 2
`, d.events(body))
	require.Empty(t, d.advance(1))
}

// TestCalls: events name the commands called by scripts of this node, up to a limit per entry.
func TestCalls(t *testing.T) {
	d := newDriver(t)
	d.m.Listen(event.InCalls)
	body := pipeline("set a 1",
		`eval redis.call('SET',KEYS[1],'\n')~redis.call('select','2')~redis.pcall('lpush',KEYS[1])~redis.call('nosuch') 1 k`,
		"eval redis.pcall('lpush',KEYS[1],'1') 1 a")
	require.Empty(t, d.events(body), "another node's")
	d.m.SeedReads(protocol.Incarnation{Node: "n1", Epoch: 1})
	require.Equal(t, `called 0 "SET" "k" "\n"
called 2 "select" "2"
called 0 "lpush" "a" "1"
`, d.events(body))
	require.Empty(t, d.events(pipeline("eval redis.call('set','a','1')~while~true~do~end 0")), "undone")

	const million = `"set" "k" "xxxxxxxx`
	long := pipeline("eval for~i=1,30~do~redis.call('set','k',string.rep('x',1000000))~end 0",
		"eval redis.call('get','k') 0")
	for range 2 {
		told := d.record(long).events
		require.Len(t, told, 17)
		for _, e := range told[:16] {
			require.Contains(t, e.Payload, million)
		}
		require.Empty(t, told[16].Payload)
	}
}
