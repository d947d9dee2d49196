package frontend

import "github.com/holdfast/holdfast/protocol"

// commandLocals are the COMMAND family: all of it is derived from the table.
func commandLocals() map[string]local {
	arguments := func(f func(args [][]byte) protocol.Value) local {
		return local{answer: func(_ *conn, words [][]byte) protocol.Value { return f(words[2:]) }}
	}
	return map[string]local{
		"command":         {answer: func(*conn, [][]byte) protocol.Value { return protocol.DescribeCommands(nil) }},
		"command|count":   arguments(func([][]byte) protocol.Value { return protocol.CountCommands() }),
		"command|info":    arguments(protocol.DescribeCommands),
		"command|docs":    arguments(protocol.DocumentCommands),
		"command|list":    arguments(protocol.ListCommands),
		"command|getkeys": arguments(func(args [][]byte) protocol.Value { return protocol.GetKeys(args, false) }),
		"command|getkeysandflags": arguments(func(args [][]byte) protocol.Value {
			return protocol.GetKeys(args, true)
		}),
	}
}

// helpLocals answer HELP of every container from the table.
func helpLocals() map[string]local {
	locals := make(map[string]local)
	commands := protocol.Commands()
	for i := range commands {
		container := &commands[i]
		for j := range container.Subcommands {
			if name := container.Subcommands[j].Name; name == container.Name+"|help" {
				locals[name] = local{answer: func(*conn, [][]byte) protocol.Value { return container.Help() }}
			}
		}
	}
	return locals
}
