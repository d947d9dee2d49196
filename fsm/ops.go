package fsm

import (
	"strings"

	"github.com/holdfast/holdfast/fsm/bit"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/hash"
	"github.com/holdfast/holdfast/fsm/keys"
	"github.com/holdfast/holdfast/fsm/list"
	"github.com/holdfast/holdfast/fsm/set"
	"github.com/holdfast/holdfast/fsm/str"
	"github.com/holdfast/holdfast/fsm/zset"
	"github.com/holdfast/holdfast/protocol"
)

// rooms are the commands on a value of some type, and families the others.
var (
	rooms    = []map[string]command.Op{str.Ops, bit.Ops, hash.Ops, list.Ops, set.Ops, zset.Ops, keys.Ops}
	families = []map[string]op{
		keyOps, messageOps, scriptOps, scriptLocals, lockOps, fenceOps,
	}
)

// newBindings joins the behaviours with the rows of protocol's table.
func newBindings() bindings {
	t := bindings{
		"exec":   {name: "exec", run: execOp, writes: true},
		"notify": {name: "notify", run: notifyOp, writes: true},
	}
	for _, requests := range []map[string]op{waitOps, lockRequests} {
		for name, run := range requests { // unordered: fills another map
			t[name] = &binding{name: name, run: run, writes: true, version: requestVersions[name]}
		}
	}
	for name, run := range lockReads { // unordered: fills another map
		t[name] = &binding{name: name, run: run}
	}
	for _, family := range rooms {
		for name, of := range family { // unordered: fills another map
			t[name] = newBinding(name)
			t[name].of = of
		}
	}
	for _, family := range families {
		for name, run := range family { // unordered: fills another map
			t[name] = newBinding(name)
			t[name].run = run
		}
	}
	return t
}

// keyOps are the commands on keys that end locks, WATCH, and the clock.
var keyOps = map[string]op{
	"del":      delOp,
	"flushall": flushallOp,
	"flushdb":  flushdbOp,
	"time":     timeOp,
	"unlink":   delOp,
	"watch":    watchOp,
}

// scriptOps are scripts and their cache.
var scriptOps = map[string]op{
	"eval":          evalOp,
	"eval_ro":       evalReadOnlyOp,
	"evalsha":       evalshaOp,
	"evalsha_ro":    evalshaReadOnlyOp,
	"script|exists": scriptExistsOp,
	"script|flush":  scriptFlushOp,
	"script|load":   scriptLoadOp,
}

// messageOps are messages to subscribers.
var messageOps = map[string]op{
	"publish":  publishOp,
	"spublish": spublishOp,
}

// scriptLocals are commands that package server answers itself, and that scripts and transactions may
// contain.
var scriptLocals = map[string]op{
	"echo":   echoOp,
	"ping":   pingOp,
	"select": selectOp,
}

func echoOp(c *call) protocol.Value { return protocol.Bulk(c.Args[1]) }

func pingOp(c *call) protocol.Value {
	switch len(c.Args) {
	case 1:
		return protocol.Simple("PONG")
	case 2:
		return protocol.Bulk(c.Args[1])
	}
	return command.ErrArity(c.Args[0])
}

// selectOp selects a database until the end of the script or the request.
func selectOp(c *call) protocol.Value {
	db, problem, ok := command.DatabaseNumber(c.Args[1])
	if !ok {
		return problem
	}
	c.DB = db
	return protocol.OK
}

// versionKinds is the first version of the entry with commands for other values than strings. In an
// entry before, a script that calls such a command gets the error that it got then: a replay must not
// write what the first run did not.
const versionKinds = 4

// namesBefore are the commands that releases before versionKinds knew.
var namesBefore = func() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields(`
append auth client client|getname client|help client|id client|info client|kill client|list
client|no-evict client|no-touch client|reply client|setinfo client|setname command command|count
command|docs command|getkeys command|getkeysandflags command|help command|info command|list
config config|get config|help config|resetstat config|rewrite config|set copy dbsize debug decr
decrby del delex delifeq digest discard echo eval eval_ro evalsha evalsha_ro exec exists expire
expireat expiretime flushall flushdb get getdel getex getrange getset hello incr incrby
incrbyfloat info keys lolwut mget move mset msetex msetnx multi object object|encoding
object|help persist pexpire pexpireat pexpiretime ping psetex pttl quit randomkey rename
renamenx reset role scan script script|exists script|flush script|help script|kill script|load
select set setex setnx setrange strlen substr swapdb time touch ttl type unlink unwatch wait
waitaof watch
`) {
		names[name] = true
	}
	return names
}()

// versionLocks is the first version of the entry with native locks.
const versionLocks = 5

// Changes of meaning with version 6 of the entry stand behind a constant of their own, beside the code that asks for
// it: versionOfCluster is the first.

// requestVersions are the first versions of the entry with requests that only nodes write, from versionOfCluster on:
// what protocol's table says of commands.
var requestVersions = map[string]byte{}

// knows reports whether the version of the entry has a command. b is its binding, nil if there is none.
func (c *call) knows(name string, b *binding) bool {
	switch {
	case c.EntryVersion >= versionLocks:
		return b == nil || c.EntryVersion >= b.version
	case c.EntryVersion >= versionKinds:
		return !ofLocks(name)
	}
	return namesBefore[name]
}

// ofLocks reports whether a request came with native locks: a command with a dot, or what nodes write for one.
func ofLocks(name string) bool {
	switch name {
	case "native", "alive", "gone", "giveback":
		return true
	}
	return strings.IndexByte(name, '.') >= 0
}
