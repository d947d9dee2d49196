package frontend

import (
	"maps"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend/discovery"
	"github.com/holdfast/holdfast/server/frontend/metrics"
	"github.com/holdfast/holdfast/server/frontend/observe"
)

// handlers returns the handlers of all Local rows, by name, and that of WATCH, which changes the reply of the state
// machine.
func handlers() map[string]handler {
	all := make(map[string]handler)
	for _, family := range handlerFamilies() {
		maps.Copy(all, family)
	}
	return all
}

func handlerFamilies() []map[string]handler {
	return []map[string]handler{
		connectionHandlers(), authHandlers(), clientHandlers(), clientListHandlers(), commandHandlers(), helpHandlers(),
		configHandlers(), metricsHandlers(), discoveryHandlers(), waitHandlers(), transactionHandlers(), debugHandlers(),
		pubsubHandlers(), observeHandlers(), trackingHandlers(), monitorHandlers(), lockHandlers(), memberHandlers(),
		backupHandlers(), aclHandlers(),
	}
}

// discoveryHandlers returns the commands by which clients find the leader and the nodes.
func discoveryHandlers() map[string]handler {
	all := map[string]handler{"role": {reply: func(c *conn, _ [][]byte) protocol.Value {
		if c.sentinel() {
			return c.srv.directory.SentinelRole()
		}
		return c.srv.directory.Role()
	}}}
	for name, reply := range discovery.Replies() {
		all[name] = handler{reply: func(c *conn, args [][]byte) protocol.Value { return reply(c.srv.directory, args) }}
	}
	return all
}

// metricsHandlers returns the commands that show statistics.
func metricsHandlers() map[string]handler {
	all := map[string]handler{
		"config|resetstat": {reply: func(c *conn, _ [][]byte) protocol.Value {
			c.srv.metrics.Reset()
			return protocol.OK
		}},
		"info": {barrier: true, reply: func(c *conn, args [][]byte) protocol.Value {
			c.srv.backend.AwaitApplied(c.ctx, c.lastWrite) // the statistics include the client's own writes
			return c.srv.metrics.Info(args[1:], c.sentinel())
		}},
		"memory|purge": {reply: func(*conn, [][]byte) protocol.Value { return protocol.OK }},
	}
	for name, reply := range metrics.Replies() {
		all[name] = handler{barrier: true, reply: func(c *conn, args [][]byte) protocol.Value {
			return reply(c.srv.metrics, args)
		}}
	}
	return all
}

// observeHandlers returns the commands about slow commands.
func observeHandlers() map[string]handler {
	all := make(map[string]handler)
	for name, reply := range observe.Replies() {
		all[name] = handler{barrier: true, reply: func(c *conn, args [][]byte) protocol.Value {
			return reply(c.srv.slow, args)
		}}
	}
	return all
}

// commandHandlers returns COMMAND and its subcommands, which are derived from the command table.
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

// helpHandlers returns HELP of every container, derived from the table.
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

// newRows binds a handler to every Local row of the table. It panics if a Local row has none.
func newRows() map[*protocol.Command]*row {
	locals := handlers()
	rows := make(map[*protocol.Command]*row)
	add := func(command *protocol.Command, nameWords int) {
		l, bound := locals[command.Name]
		if command.Route == protocol.Local && !bound && len(command.Subcommands) == 0 {
			panic("frontend: no behaviour for the command " + command.Name)
		}
		native := command.Route == protocol.Write && command.Group == protocol.GroupModule
		rows[command] = &row{
			stats:   metrics.Command{Name: command.Name},
			Command: command, handler: l, nameArgs: nameWords, source: sourcePosition(command.Name),
			newest: command.NewestVersion(),
			blocks: command.Route == protocol.Write && command.Has(protocol.FlagBlocking) && !native,
			lock:   native, creates: command.Name == "setnx" || command.Name == "set",
			write: command.Route == protocol.Write || command.Route == protocol.Script && !command.Has(protocol.FlagReadOnly),
		}
	}
	for _, table := range tables() {
		for command := range table.All() {
			if rows[command] == nil {
				add(command, 1+strings.Count(command.Name, "|"))
			}
		}
	}
	return rows
}

// tables returns the command tables of all ports.
func tables() []*protocol.Table { return []*protocol.Table{protocol.Redis(), protocol.Sentinel()} }

// sourcePosition returns the position of the Lua source among the arguments of a command, or 0.
func sourcePosition(name string) int {
	switch name {
	case "eval", "eval_ro":
		return 1
	case "script|load":
		return 2
	}
	return 0
}
