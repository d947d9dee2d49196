package frontend

import "github.com/holdfast/holdfast/protocol"

// commandHandlers are the COMMAND family, which is derived from the command table.
func commandHandlers() map[string]handler {
	arguments := func(f func(args [][]byte) protocol.Value) handler {
		return handler{reply: func(_ *conn, args [][]byte) protocol.Value { return f(args[2:]) }}
	}
	return map[string]handler{
		"command":         {reply: func(*conn, [][]byte) protocol.Value { return protocol.DescribeCommands(nil) }},
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

// helpHandlers answer HELP of every container from the table.
func helpHandlers() map[string]handler {
	locals := make(map[string]handler)
	commands := protocol.Commands()
	for i := range commands {
		container := &commands[i]
		for j := range container.Subcommands {
			if name := container.Subcommands[j].Name; name == container.Name+"|help" {
				locals[name] = handler{reply: func(c *conn, _ [][]byte) protocol.Value {
					if container.Group == protocol.GroupCluster && !c.srv.cfg.Options.ClusterMode {
						return errNoCluster.Value()
					}
					return container.Help()
				}}
			}
		}
	}
	return locals
}
