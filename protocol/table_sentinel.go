package protocol

import "sync"

// theSentinel has the commands of a port for Sentinel's clients: those of Sentinel, and what Redis lets a
// Sentinel have of the others.
var theSentinel = sync.OnceValue(func() *Table {
	t := newTable(nil)
	for _, name := range []string{
		"auth", "client", "command", "hello", "info", "ping", "psubscribe", "publish", "punsubscribe", "quit", "role",
		"subscribe", "unsubscribe",
	} {
		if row, ok := Lookup(name); ok {
			t.add(row)
		}
	}
	rows := sentinelCommands()
	number(rows, len(theTable().byName))
	for i := range rows {
		sortRows(rows[i].Subcommands)
		t.add(&rows[i])
	}
	sortPointers(t.rows)
	return t
})

// Sentinel is the table of the commands of a port for Sentinel's clients.
func Sentinel() *Table { return theSentinel() }

// sentinelCommands are the rows that only a port for Sentinel's clients has.
func sentinelCommands() []Command {
	const name = "master-name"
	return []Command{
		{
			Name: "sentinel", Group: GroupSentinel, Since: "2.8.4", Arity: -2,
			Summary:    "A container for commands about the leader, as Sentinel has them",
			Complexity: "Depends on the subcommand",
			Route:      Local, Flags: FlagAdmin,
			Subcommands: []Command{
				sentinelQuery("ckquorum", "2.8.4", 3, "Say whether a majority of the nodes answers", text(name)),
				sentinelQuery("get-master-addr-by-name", "2.8.4", 3, "Return host and port of the leader", text(name)),
				{
					Name: "sentinel|help", Group: GroupSentinel, Since: "6.2.0", Arity: 2,
					Summary:    "Print this help",
					Complexity: "O(1)",
					Route:      Local, Flags: FlagLoading | FlagStale,
				},
				sentinelQuery("master", "2.8.4", 3, "Describe the leader", text(name)),
				sentinelQuery("masters", "2.8.4", 2, "Describe the leader, in a list"),
				sentinelQuery("myid", "6.2.0", 2, "Return the ID of the node"),
				sentinelQuery("pending-scripts", "2.8.4", 2, "Return an empty list, as there are no scripts"),
				sentinelQuery("replicas", "5.0.0", 3, "List the followers", text(name)),
				sentinelQuery("reset", "2.8.4", 3, "Return whether the pattern matches the name; nothing needs a reset",
					pattern("pattern")),
				sentinelQuery("sentinels", "2.8.4", 3, "List the other nodes", text(name)),
				sentinelQuery("slaves", "2.8.0", 3, "List the followers", text(name)).superseded("5.0.0", "`SENTINEL REPLICAS`"),
			},
		},
	}
}

func sentinelQuery(name, since string, arity int, summary string, args ...Arg) Command {
	return Command{
		Name: "sentinel|" + name, Group: GroupSentinel, Since: since, Arity: arity,
		Summary: summary, Complexity: "O(N), N being the number of nodes",
		Route: Local, Flags: FlagAdmin, Args: args,
	}
}
