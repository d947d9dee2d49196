package fsm

import (
	"slices"
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

// binding is a row of the command table with the function behind.
type binding struct {
	name string
	of   command.Op // of a value of some type, nil: another command, which run does
	run  op
	row  *protocol.Command // nil: a request that only nodes write
	// version is the first version of the entry that has the command, if that is later than versionLocks.
	version byte
	// subcommand is 1 if the row's name stands for two words, else 0.
	subcommand int
	// writes: the request may change the state.
	writes bool
	// overwrites: the command may store a key whatever was there.
	overwrites bool
	// blocks: the command may wait, if a node asks so by "block".
	blocks bool
	// guarded: the command writes keys, and refuses to if one of them is a lock.
	guarded bool
	// grows: the request may make the state grow, and is refused while memory is full: Redis's
	// denyoom.
	grows bool
	// counts: the keys that the command looks for count as hits and misses.
	counts bool
}

// takes reports whether the command may have n words in a request.
func (b *binding) takes(n int) bool {
	return b.row == nil || b.row.CheckArity(n+b.subcommand)
}

// bindings are the behaviours of all commands, by the full names of their rows.
type bindings map[string]*binding

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

// newBinding is a row without its function.
func newBinding(name string) *binding {
	row, _ := protocol.Lookup(name)
	b := &binding{name: name, row: row, subcommand: strings.Count(name, "|")}
	if row == nil {
		return b
	}
	b.version = row.LogVersion
	script := row.Route == protocol.Script && row.Flags&protocol.FlagReadOnly == 0
	b.writes = script || row.Route == protocol.Write
	b.overwrites = slices.ContainsFunc(row.KeySpecs, func(k protocol.KeySpec) bool {
		return (k.Flags|k.Plain)&protocol.KeyOW != 0
	})
	b.grows = row.Flags&protocol.FlagDenyOOM != 0
	b.counts = row.Flags&protocol.FlagReadOnly != 0 || countingWrites[name]
	b.blocks = b.writes && row.Flags&protocol.FlagBlocking != 0 && row.Group != protocol.GroupModule
	b.guarded = isGuarded(row)
	return b
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

func unknownCommand(args []string) protocol.Value {
	var b strings.Builder
	b.WriteString("unknown command '" + command.Cut(args[0]) + "', with args beginning with: ")
	for _, a := range args[1:] {
		if b.Len() > 128 {
			break
		}
		b.WriteString("'" + command.Cut(a) + "' ")
	}
	return command.ErrQuoting(b.String())
}
