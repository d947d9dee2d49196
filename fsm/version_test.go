package fsm

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

// laterVersion is a version that no entry has yet.
const laterVersion = protocol.EntryVersion + 1

// comesLater gives a command, or one of its arguments, the later version until the test ends.
func comesLater(t *testing.T, name, argument string) {
	t.Helper()
	row, _ := protocol.Lookup(name)
	version := &row.LogVersion
	if argument != "" {
		at := slices.IndexFunc(row.Args, func(a protocol.Arg) bool { return a.Name == argument })
		version = &row.Args[at].LogVersion
	}
	*version = laterVersion
	t.Cleanup(func() { *version = 0 })
}

// TestCommandsOfLaterVersions: an entry, including its scripts, has only the commands of its version.
func TestCommandsOfLaterVersions(t *testing.T) {
	comesLater(t, "incr", "")
	comesLater(t, "client|id", "")
	d := newDriver(t)
	for range 2 {
		require.Contains(t, line(d.do("incr", "n")), "unknown command 'incr'")
		for _, words := range []string{"'incr', 'n'", "'client', 'id'"} {
			require.Contains(t, line(d.eval("return redis.call("+words+")")), "(ERR Unknown Redis command called")
			require.Contains(t, line(d.eval("return redis.acl_check_cmd("+words+")")), "Invalid command")
		}
		require.Equal(t, command.Zero, d.do("exists", "n"))
	}
	d.m.st.version = laterVersion
	require.Equal(t, command.One, d.do("incr", "n"))
	require.Equal(t, protocol.Integer(2), d.eval("return redis.call('incr', 'n')"))
	require.Contains(t, line(d.eval("return redis.call('client', 'id')")), "not allowed from script")
}

// TestVersionWaitsForNoEntry: the version can be read while an entry is applied, since links between nodes send it each
// second.
func TestVersionWaitsForNoEntry(t *testing.T) {
	d := newDriver(t)
	d.do("incr", "n")
	d.m.mu.Lock() // as during an entry
	defer d.m.mu.Unlock()
	require.Eventually(t, func() bool {
		version, fresh := d.m.Version()
		return version == protocol.EntryVersion && !fresh
	}, time.Minute, time.Millisecond)
}

// TestOptionsOfLaterVersions: in an entry of an earlier version an option is an unknown word, for every sender, as in
// the release of that version.
func TestOptionsOfLaterVersions(t *testing.T) {
	comesLater(t, "set", "condition")
	comesLater(t, "lock.acquire", "note")
	comesLater(t, "script|flush", "async")
	d := newDriver(t)
	ways := []func() protocol.Value{
		func() protocol.Value { return d.do("set", "k", "v", "PX", "9", "Nx") },
		func() protocol.Value { return d.eval("return redis.pcall('set', 'k', 'v', 'nx', 'px', 'x')") },
		func() protocol.Value { return d.exec(nil, []string{"set", "k", "v", "nx"}).Elems[0] },
		func() protocol.Value { return d.native(1, 0, "lock.acquire", "l", "me", "px", "9", "note", "x") },
		func() protocol.Value {
			return d.eval("return redis.pcall('lock.acquire', 'l', 'me', 'px', 9, 'note', 'x')")
		},
	}
	for i, way := range ways {
		require.Equal(t, command.ErrSyntax, way(), i)
		require.Equal(t, command.Zero, d.do("exists", "k", "l"), i)
	}
	require.True(t, d.do("script|flush", "async").IsError())
	require.Equal(t, "OK", line(d.do("set", "nx", "nx", "px", "9")), "as a value the word is none")
	require.Equal(t, command.One, d.do("lock.acquire", "note", "note", "px", "9"))
	d.m.st.version = laterVersion
	for i, way := range ways {
		if reply := way(); i != 1 { // with a wrong duration
			require.False(t, reply.IsError(), "%d: %s", i, reply.Str)
		}
	}
	require.Equal(t, "OK", line(d.do("script|flush", "async")))
}
