package fsm

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

// binding is a row of the command table with its function.
type binding struct {
	name       string
	of         command.Op        // the function of a command of typeCommands, or nil
	run        op                // the function of any other command
	row        *protocol.Command // nil for a request that only nodes write
	newest     byte              // the first version of entries that has the command with all its options
	subcommand int               // 1 if the row's name has two words, and otherwise 0
	writes     bool              // the request may change the state
	overwrites bool              // the command may replace a key of any type
	deletes    bool              // the command is DEL or UNLINK
	blocks     bool              // the command may wait, if it is in a "wait-for-key" request
	guarded    bool              // the command writes keys, and is refused if one of them is a native lock
	settles    bool              // the command reads keys, and first settles the locks among them
	grows      bool              // the request may make the state grow, and is refused while memory is full
	counts     bool              // look-ups of the command's keys count as hits and misses
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

// countingWrites has the writing commands whose look-ups count as hits and misses. The look-ups of SET and BITFIELD
// count only with some arguments.
var countingWrites = map[string]bool{
	"bitop": true, "copy": true, "getdel": true, "getex": true, "getset": true, "sort": true,
	"sdiffstore": true, "sinterstore": true, "sunionstore": true,
	"zdiffstore": true, "zinterstore": true, "zrangestore": true, "zunionstore": true,
}
