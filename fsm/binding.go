package fsm

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

// binding is a row of the command table with its function.
type binding struct {
	name string
	of   command.Op // of a value of some type, nil: another command, which run does
	run  op
	row  *protocol.Command // nil: a request that only nodes write
	// newest is the first version of entries that has the command with all its options.
	newest byte
	// subcommand is 1 if the row's name stands for two words, else 0.
	subcommand int
	// writes: the request may change the state.
	writes bool
	// overwrites: the command may replace a key of any type.
	overwrites bool
	// deletes: the command is DEL or UNLINK.
	deletes bool
	// blocks: the command may wait, if a node asks so by "wait-for-key".
	blocks bool
	// guarded: the command writes keys, and is refused if one of them is a lock.
	guarded bool
	// settles: the command reads keys, and settles the locks among them first.
	settles bool
	// grows: the request may make the state grow, and is refused while memory is full: Redis's
	// denyoom.
	grows bool
	// counts: look-ups of the command's keys count as hits and misses.
	counts bool
}

// acceptsArity reports whether the command may have n words in a request.
func (b *binding) acceptsArity(n int) bool {
	return b.row == nil || b.row.CheckArity(n+b.subcommand)
}

// bindings has the bindings of all commands, by the full names of their rows.
type bindings map[string]*binding

// rowBindings has the bindings by the numbers of their rows.
type rowBindings [protocol.MaxCommands]*binding

func (t bindings) byRow() *rowBindings {
	rows := new(rowBindings)
	for _, b := range t { // unordered: fills another table
		if b.row != nil {
			rows[b.row.Number()] = b
		}
	}
	return rows
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

// newBinding returns the binding of a row, without a function.
func newBinding(name string) *binding {
	row, _ := protocol.Lookup(name)
	b := &binding{name: name, row: row, subcommand: strings.Count(name, "|")}
	if row == nil {
		return b
	}
	b.newest = row.NewestVersion()
	script := row.Route == protocol.Script && row.Flags&protocol.FlagReadOnly == 0
	b.writes = script || row.Route == protocol.Write
	b.overwrites = slices.ContainsFunc(row.KeySpecs, func(k protocol.KeySpec) bool {
		return (k.Flags|k.Plain)&protocol.KeyOW != 0
	})
	b.grows = row.Flags&protocol.FlagDenyOOM != 0
	b.counts = row.Flags&protocol.FlagReadOnly != 0 || countingWrites[name]
	b.blocks = b.writes && row.Flags&protocol.FlagBlocking != 0 && row.Group != protocol.GroupModule
	b.deletes = deletes(name)
	b.guarded = isGuarded(row)
	b.settles = row.Route != protocol.Write && len(row.KeySpecs) > 0
	return b
}

// countingWrites has the commands that write, and count the keys that they read. SET and BITFIELD count with some
// arguments.
var countingWrites = map[string]bool{
	"bitop": true, "copy": true, "getdel": true, "getex": true, "getset": true, "sort": true,
	"sdiffstore": true, "sinterstore": true, "sunionstore": true,
	"zdiffstore": true, "zinterstore": true, "zrangestore": true, "zunionstore": true,
}
