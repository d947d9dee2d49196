package protocol

import "sync"

// clusterCommands are the rows with which clients of Redis Cluster find the nodes.
func clusterCommands() []Command {
	return []Command{{
		Name: "asking", Since: "3.0.0", Arity: 1, Route: Local, Flags: FlagFast,
		Summary: "Accepted for clients that follow redirections; there are none", Complexity: "O(1)",
		Categories: []string{"connection"},
	}, {
		Name: "cluster", Since: "3.0.0", Arity: -2, Route: Local,
		Summary: "A container for commands about the nodes of the cluster", Complexity: "Depends on the subcommand",
		Subcommands: []Command{
			clusterQuery("count-failure-reports", "3.0.0", 3,
				"Return 0, as no node reports the failure of another", text("node-id")).with(FlagAdmin),
			clusterQuery("countkeysinslot", "3.0.0", 3, "Count the keys of a hash slot", integer("slot")).reading(),
			clusterQuery("getkeysinslot", "3.0.0", 4, "Return keys of a hash slot",
				integer("slot"), integer("count")).reading(),
			helpRow("cluster", "5.0.0"),
			clusterQuery("info", "3.0.0", 2, "Describe the state of the cluster"),
			clusterQuery("keyslot", "3.0.0", 3, "Return the hash slot of a key", text("key")),
			clusterQuery("links", "7.0.0", 2, "Return an empty list, as there is no cluster bus"),
			clusterQuery("myid", "3.0.0", 2, "Return the ID of the node"),
			clusterQuery("myshardid", "7.2.0", 2, "Return the ID of the only shard"),
			clusterQuery("nodes", "3.0.0", 2, "List the nodes, one a line"),
			clusterQuery("replicas", "5.0.0", 3, "List the followers of the leader", text("node-id")).with(FlagAdmin),
			clusterQuery("shards", "7.0.0", 2, "Return the only shard with the nodes"),
			clusterQuery("slaves", "3.0.0", 3, "List the followers of the leader", text("node-id")).with(FlagAdmin).
				superseded("5.0.0", "`CLUSTER REPLICAS`"),
			clusterQuery("slots", "3.0.0", 2, "Return the only range of slots with the nodes").
				superseded("7.0.0", "`CLUSTER SHARDS`"),
		},
	}, {
		Name: "readonly", Since: "3.0.0", Arity: 1, Route: Local, Flags: FlagLoading | FlagStale | FlagFast,
		Summary: "Accepted for clients that read from followers; a follower serves all commands", Complexity: "O(1)",
		Categories: []string{"connection"},
	}, {
		Name: "readwrite", Since: "3.0.0", Arity: 1, Route: Local, Flags: FlagLoading | FlagStale | FlagFast,
		Summary: "Accepted for clients that sent READONLY", Complexity: "O(1)",
		Categories: []string{"connection"},
	}}
}

// clusterQuery is a subcommand of CLUSTER that changes nothing.
func clusterQuery(name, since string, arity int, summary string, args ...Arg) Command {
	c := Command{
		Name: "cluster|" + name, Since: since, Arity: arity, Route: Local, Flags: FlagStale, Args: args,
		Summary: summary, Complexity: "O(N), N being the number of nodes",
	}
	switch name {
	case "countkeysinslot", "keyslot", "myid", "myshardid":
	default:
		c.Tips = []string{"nondeterministic_output"}
	}
	return c
}

func (c Command) with(flags Flags) Command {
	c.Flags |= flags
	return c
}

// reading makes the row look at the state.
func (c Command) reading() Command {
	c.Route, c.Complexity = Read, "O(N), N being the number of keys in the database"
	return c
}

func (c Command) superseded(since, by string) Command {
	c.Deprecated = &Deprecation{Since: since, ReplacedBy: by}
	return c
}

// raftCommands are the rows about the members of the cluster, which Redis lacks.
func raftCommands() []Command {
	member, force := text("member"), token("FORCE").opt()
	return []Command{
		raftWord("raft.demote", -2, "Take a member's vote", member, force),
		raftWord("raft.members", 1, "List the members of the cluster, as this node knows them"),
		raftWord("raft.promote", 2, "Give a member that keeps up with the log a vote", member),
		raftWord("raft.remove", -2, "Take a member out of the cluster", member, force),
		raftWord("raft.repair", -2, "Replace a member's state by the leader's", member, force),
		raftWord("raft.replace", -3, "Give a member that has joined the place of another, which is taken out", text("old"),
			text("new"), force),
		raftWord("raft.status", 1, "Describe the cluster as this node knows it, with the members"),
		raftWord("raft.transfer", -1, "Have a voter lead", member.opt()),
	}
}

// raftWord is a row about members, for administrators.
func raftWord(name string, arity int, summary string, args ...Arg) Command {
	return Command{
		Name: name, Since: HoldfastVersion, Arity: arity, Summary: summary,
		Complexity: "O(N), N being the number of members",
		Route:      Local, Flags: FlagAdmin | FlagNoScript | FlagNoMulti | FlagLoading | FlagStale,
		Tips: []string{"nondeterministic_output"},
		Args: args,
	}
}

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
	rows := inGroup(GroupSentinel, sentinelCommands())
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
	return []Command{{
		Name: "sentinel", Since: "2.8.4", Arity: -2, Route: Local, Flags: FlagAdmin,
		Summary:    "A container for commands about the leader, as Sentinel has them",
		Complexity: "Depends on the subcommand",
		Subcommands: []Command{
			sentinelQuery("ckquorum", "2.8.4", 3, "Say whether a majority of the nodes answers", text(name)),
			sentinelQuery("get-master-addr-by-name", "2.8.4", 3, "Return host and port of the leader", text(name)),
			helpRow("sentinel", "6.2.0"),
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
	}}
}

func sentinelQuery(name, since string, arity int, summary string, args ...Arg) Command {
	return Command{
		Name: "sentinel|" + name, Since: since, Arity: arity, Route: Local, Flags: FlagAdmin, Args: args,
		Summary: summary, Complexity: "O(N), N being the number of nodes",
	}
}
