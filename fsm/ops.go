package fsm

import (
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

// typeCommands has the commands on values of each type, otherCommands the other commands.
var (
	typeCommands  = []map[string]command.Op{str.Ops, bit.Ops, hash.Ops, list.Ops, set.Ops, zset.Ops, keys.Ops}
	otherCommands = []map[string]op{
		keyOps, messageOps, scriptOps, scriptLocals, lockOps, fenceOps,
	}
)

// newBindings returns the bindings of the functions with the rows of protocol's table.
func newBindings() bindings {
	t := bindings{
		"exec":              {name: "exec", run: execOp, writes: true},
		"set-notifications": {name: "set-notifications", run: setNotificationsOp, writes: true},
	}
	for _, requests := range []map[string]op{waitOps, lockRequests} {
		for name, run := range requests { // unordered: fills another map
			t[name] = &binding{name: name, run: run, writes: true}
		}
	}
	for name, run := range lockReads { // unordered: fills another map
		t[name] = &binding{name: name, run: run}
	}
	for _, family := range typeCommands {
		for name, of := range family { // unordered: fills another map
			t[name] = newBinding(name)
			t[name].of = of
		}
	}
	for _, family := range otherCommands {
		for name, run := range family { // unordered: fills another map
			t[name] = newBinding(name)
			t[name].run = run
		}
	}
	return t
}

// keyOps has the commands on keys that end locks, WATCH, and TIME.
var keyOps = map[string]op{
	"del":      delOp,
	"flushall": flushallOp,
	"flushdb":  flushdbOp,
	"time":     timeOp,
	"unlink":   delOp,
	"watch":    watchOp,
}

// scriptOps has the commands of scripts and of their cache.
var scriptOps = map[string]op{
	"eval":          evalOp,
	"eval_ro":       evalReadOnlyOp,
	"evalsha":       evalshaOp,
	"evalsha_ro":    evalshaReadOnlyOp,
	"script|exists": scriptExistsOp,
	"script|flush":  scriptFlushOp,
	"script|load":   scriptLoadOp,
}

// messageOps has the commands for messages to subscribers.
var messageOps = map[string]op{
	"publish":  command.With((*call).publish, false),
	"spublish": command.With((*call).publish, true),
}

// scriptLocals has the commands that the server runs itself, and that scripts and transactions may contain.
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

// hasCommand reports whether the version of the entry has a command, with or without its later options. row is nil for
// requests that only nodes write.
func (c *call) hasCommand(row *protocol.Command) bool {
	return row == nil || row.LogVersion <= c.EntryVersion
}
