package frontend

import (
	"maps"
	"sync/atomic"

	"github.com/holdfast/holdfast/protocol"
)

// local is the behaviour of a row that this package has. Either answer or act is set.
type local struct {
	// answer makes the reply to a command line.
	answer func(c *conn, words [][]byte) protocol.Value
	// act places the reply itself: now, or when the batch has come back.
	act func(c *conn, words [][]byte)
	// unqueued commands run inside MULTI, too.
	unqueued bool
	// last commands wait until everything before them in the pipeline has been done.
	last bool
}

// bindings are the behaviours by the names of their rows: every Local row's, and
// that of WATCH, whose reply is not what the state machine answers.
func bindings() map[string]local {
	all := make(map[string]local)
	for _, family := range families() {
		maps.Copy(all, family)
	}
	return all
}

func families() []map[string]local {
	return []map[string]local{
		connectionLocals(), authLocals(), clientLocals(), clientListLocals(), commandLocals(), helpLocals(),
		configLocals(), infoLocals(), roleLocals(), waitLocals(), transactionLocals(), debugLocals(),
	}
}

// row is a row of the command table, as dispatch needs it.
type row struct {
	*protocol.Command
	local local
	// nameWords is how many words of the line are the name: 2 for a subcommand.
	nameWords int
	// source is the position of the Lua source in the line; 0: none.
	source int
	// write: the command goes through the log.
	write bool

	calls, rejected, failed atomic.Uint64
}

// newRows binds every row of the table. A Local row without a behaviour is a
// mistake in this program.
func newRows() map[*protocol.Command]*row {
	locals := bindings()
	rows := make(map[*protocol.Command]*row)
	add := func(command *protocol.Command, nameWords int) {
		l, bound := locals[command.Name]
		if command.Route == protocol.Local && !bound && len(command.Subcommands) == 0 {
			panic("frontend: no behaviour for the command " + command.Name)
		}
		rows[command] = &row{
			Command: command, local: l, nameWords: nameWords, source: sourcePosition(command.Name),
			write: command.Route == protocol.Write || command.Route == protocol.Script && !command.Has(protocol.FlagReadOnly),
		}
	}
	commands := protocol.Commands()
	for i := range commands {
		add(&commands[i], 1)
		for j := range commands[i].Subcommands {
			add(&commands[i].Subcommands[j], 2)
		}
	}
	return rows
}

// sourcePosition is where a command line has a Lua source.
func sourcePosition(name string) int {
	switch name {
	case "eval", "eval_ro":
		return 1
	case "script|load":
		return 2
	}
	return 0
}
