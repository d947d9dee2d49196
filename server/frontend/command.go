package frontend

import (
	"slices"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend/discovery"
)

// commandHandlers are the COMMAND family, which is derived from the command table.
func commandHandlers() map[string]handler {
	arguments := func(f func(args [][]byte) protocol.Value) handler {
		return handler{reply: func(_ *conn, args [][]byte) protocol.Value { return f(args[2:]) }}
	}
	about := func(f func(t *protocol.Table, args [][]byte) protocol.Value) handler {
		return handler{reply: func(c *conn, args [][]byte) protocol.Value { return f(c.table, args[min(2, len(args)):]) }}
	}
	return map[string]handler{
		"command":         about((*protocol.Table).DescribeCommands),
		"command|count":   about(func(t *protocol.Table, _ [][]byte) protocol.Value { return t.CountCommands() }),
		"command|info":    about((*protocol.Table).DescribeCommands),
		"command|docs":    about((*protocol.Table).DocumentCommands),
		"command|list":    about((*protocol.Table).ListCommands),
		"command|getkeys": arguments(func(args [][]byte) protocol.Value { return protocol.GetKeys(args, false) }),
		"command|getkeysandflags": arguments(func(args [][]byte) protocol.Value {
			return protocol.GetKeys(args, true)
		}),
	}
}

// helpHandlers answer HELP of every container from the table.
func helpHandlers() map[string]handler {
	locals := make(map[string]handler)
	for _, table := range tables() {
		for container := range table.All() {
			if slices.ContainsFunc(container.Subcommands, func(c protocol.Command) bool {
				return c.Name == container.Name+"|help"
			}) {
				locals[container.Name+"|help"] = handler{reply: func(c *conn, _ [][]byte) protocol.Value {
					if container.Group == protocol.GroupCluster && !c.srv.cfg.Options.ClusterMode {
						return discovery.ErrNoCluster.Value()
					}
					return container.Help()
				}}
			}
		}
	}
	return locals
}
