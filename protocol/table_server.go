package protocol

// serverCommands are the rows that describe the server and its replication.
func serverCommands() []Command {
	return []Command{{
		Name: "command", Since: "2.8.13", Arity: -1, Route: Local, Flags: FlagLoading | FlagStale,
		Summary: "Describe all commands", Complexity: "O(N), N being the number of commands",
		Categories: []string{"connection"},
		Tips:       []string{"nondeterministic_output_order"},
		Subcommands: []Command{{
			Name: "command|count", Since: "2.8.13", Arity: 2, Route: Local, Flags: FlagLoading | FlagStale,
			Summary: "Count the commands", Complexity: "O(1)",
			Categories: []string{"connection"},
		}, {
			Name: "command|docs", Since: "7.0.0", Arity: -2, Route: Local, Flags: FlagLoading | FlagStale,
			Summary: "Return the documentation of commands", Complexity: "O(N), N being the number of commands",
			Categories: []string{"connection"},
			Tips:       []string{"nondeterministic_output_order"},
			Args:       []Arg{text("command-name").many().opt()},
		}, {
			Name: "command|getkeys", Since: "2.8.13", Arity: -3, Route: Local, Flags: FlagLoading | FlagStale,
			Summary: "Return the keys in a command line", Complexity: "O(N), N being the number of arguments",
			Categories: []string{"connection"},
			Args:       []Arg{text("command"), text("arg").many().opt()},
		}, {
			Name: "command|getkeysandflags", Since: "7.0.0", Arity: -3, Route: Local, Flags: FlagLoading | FlagStale,
			Summary:    "Return the keys in a command line and how they are accessed",
			Complexity: "O(N), N being the number of arguments",
			Categories: []string{"connection"},
			Args:       []Arg{text("command"), text("arg").many().opt()},
		}, {
			Name: "command|help", Since: "5.0.0", Arity: 2, Route: Local, Flags: FlagLoading | FlagStale,
			Summary: "Print this help", Complexity: "O(1)",
			Categories: []string{"connection"},
		}, {
			Name: "command|info", Since: "2.8.13", Arity: -2, Route: Local, Flags: FlagLoading | FlagStale,
			Summary: "Describe some commands", Complexity: "O(N), N being the number of commands",
			Categories: []string{"connection"},
			Tips:       []string{"nondeterministic_output_order"},
			Args:       []Arg{text("command-name").many().opt()},
		}, {
			Name: "command|list", Since: "7.0.0", Arity: -2, Route: Local, Flags: FlagLoading | FlagStale,
			Summary: "List the names of commands", Complexity: "O(N), N being the number of commands",
			Categories: []string{"connection"},
			Tips:       []string{"nondeterministic_output_order"},
			Args: []Arg{
				oneOf("filterby", text("module-name").after("MODULE"), text("category").after("ACLCAT"),
					pattern("pattern").after("PATTERN")).after("FILTERBY").opt(),
			},
		}},
	}, {
		Name: "config", Since: "2.0.0", Arity: -2, Route: Local,
		Summary: "A container for commands about the configuration", Complexity: "Depends on the subcommand",
		Subcommands: []Command{{
			Name: "config|get", Since: "2.0.0", Arity: -3,
			Summary:    "Return configuration parameters that match patterns",
			Complexity: "O(N), N being the number of patterns",
			Route:      Local, Flags: FlagAdmin | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{block("parameter", text("parameter")).many()},
		}, helpRow("config", "5.0.0"), {
			Name: "config|resetstat", Since: "2.0.0", Arity: 2,
			Summary: "Set the statistics of the node to zero", Complexity: "O(N), N being the number of commands",
			Route: Local, Flags: FlagAdmin | FlagNoScript | FlagLoading | FlagStale,
		}, {
			Name: "config|rewrite", Since: "2.8.0", Arity: 2,
			Summary: "Answer that there is no configuration file", Complexity: "O(1)",
			Route: Local, Flags: FlagAdmin | FlagNoScript | FlagLoading | FlagStale,
		}, {
			Name: "config|set", Since: "2.0.0", Arity: -4,
			Summary:    "Answer that parameters are set when a node starts",
			Complexity: "O(N), N being the number of parameters",
			Route:      Local, Flags: FlagAdmin | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{block("parameter_value", text("parameter"), text("value")).many()},
			Tips: []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
		}},
	}, {
		Name: "debug", Since: "1.0.0", Arity: -2, Route: Local, Flags: FlagAdmin | FlagNoScript | FlagLoading | FlagStale,
		Summary: "Aid the testing of clients and of the server", Complexity: "Depends on the subcommand",
		Args: []Arg{text("subcommand"), text("arg").many().opt()},
	}, {
		Name: "info", Since: "1.0.0", Arity: -1, Route: Local, Flags: FlagLoading | FlagStale,
		Summary: "Return information about the server", Complexity: "O(1)",
		Categories: []string{"dangerous"},
		Tips:       []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
		Args:       []Arg{text("section").many().opt()},
	}, {
		Name: "lolwut", Since: "5.0.0", Arity: -1, Route: Local, Flags: FlagReadOnly | FlagFast,
		Summary: "Draw something, and return the version", Complexity: "O(1)",
		Args: []Arg{integer("version").after("VERSION").opt()},
	}, {
		Name: "monitor", Since: "1.0.0", Arity: 1, Route: Local, Flags: FlagAdmin | FlagNoScript | FlagLoading | FlagStale,
		Summary:    "Show every command that the node's clients send",
		Complexity: "O(N) for each command shown, N being the number of monitors",
	}, {
		Name: "role", Since: "2.8.12", Arity: 1, Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast,
		Summary: "Return whether the node leads, and its peers", Complexity: "O(1)",
		Categories: []string{"admin", "dangerous"},
	}, {
		Name: "time", Since: "2.6.0", Arity: 1, Route: Read, Flags: FlagLoading | FlagStale | FlagFast,
		Summary: "Return the time of the cluster", Complexity: "O(1)",
		Tips: []string{"nondeterministic_output"},
	}, {
		Name: "wait", Group: GroupGeneric, Since: "3.0.0", Arity: 3, Route: Local, Flags: FlagNoScript,
		Summary: "Return how many other nodes have all acknowledged writes of the connection", Complexity: "O(1)",
		Categories: []string{"connection"},
		Tips:       []string{"request_policy:all_shards", "response_policy:agg_min"},
		Args:       []Arg{integer("numreplicas"), integer("timeout")},
	}, {
		Name: "waitaof", Group: GroupGeneric, Since: "7.2.0", Arity: 4, Route: Local, Flags: FlagNoScript,
		Summary: "Return how many nodes have all acknowledged writes of the connection on disk", Complexity: "O(1)",
		Categories: []string{"connection"},
		Tips:       []string{"request_policy:all_shards", "response_policy:agg_min"},
		Args:       []Arg{integer("numlocal"), integer("numreplicas"), integer("timeout")},
	}}
}

// moduleCommands are the rows about modules, for clients that ask which there are.
func moduleCommands() []Command {
	return []Command{{
		Name: "module", Since: "4.0.0", Arity: -2, Route: Local,
		Summary: "A container for commands about modules", Complexity: "Depends on the subcommand",
		Subcommands: []Command{helpRow("module", "5.0.0"), {
			Name: "module|list", Since: "4.0.0", Arity: 2, Route: Local, Flags: FlagAdmin | FlagNoScript,
			Summary: "List the modules: the words of native locks are one", Complexity: "O(1)",
			Tips: []string{"nondeterministic_output_order"},
		}},
	}}
}

// backupCommands are the rows about backups, which Redis lacks.
func backupCommands() []Command {
	return []Command{{
		Name: "raft.backup", Since: HoldfastVersion, Arity: -2,
		Summary:    "Take a backup of the cluster's state over this connection, part after part: see 'holdfast backup'",
		Complexity: "O(1) to begin, O(N) for all parts, N being the size of the state",
		Route:      Local, Flags: FlagAdmin | FlagNoScript | FlagNoMulti | FlagLoading | FlagStale,
		Tips: []string{"nondeterministic_output"},
		Args: []Arg{oneOf("part", block("begin", token("BEGIN"), token("STALE").opt()), token("NEXT"), token("END"))},
	}}
}

// aclCommands are the rows about users.
func aclCommands() []Command {
	const perUser = "O(N), N being the number of users"
	user := text("username")
	return []Command{{
		Name: "acl", Since: "6.0.0", Arity: -2, Route: Local,
		Summary: "A container for commands about users and what they may do", Complexity: "Depends on the subcommand",
		Subcommands: []Command{
			aclWord("cat", "6.0.0", -2, 0, "List the categories of commands, or the commands of one", "O(1)",
				text("categoryname").opt()),
			aclWord("deluser", "6.0.0", -3, FlagAdmin, "Refused: users come from a file", "O(1)", user.many()),
			aclWord("dryrun", "7.0.0", -4, FlagAdmin, "Say whether a user may run a command, without running it", "O(1)",
				user, text("command"), text("arg").opt().many()),
			aclWord("genpass", "6.0.0", -2, 0, "Return a random password", "O(1)", integer("bits").opt()),
			aclWord("getuser", "6.0.0", 3, FlagAdmin, "Describe a user", "O(N), N being the number of the user's rules", user),
			helpRow("acl", "6.0.0"),
			aclWord("list", "6.0.0", 2, FlagAdmin, "List the users as lines of a file of users", perUser),
			aclWord("load", "6.0.0", 2, FlagAdmin, "Read the file of users again", perUser),
			aclWord("log", "6.0.0", -2, FlagAdmin, "List what was refused on this node lately",
				"O(N), N being the number of lines",
				oneOf("operation", integer("count"), token("RESET")).opt()),
			aclWord("save", "6.0.0", 2, FlagAdmin, "Refused: users come from a file", "O(1)"),
			aclWord("setuser", "6.0.0", -3, FlagAdmin, "Refused: users come from a file", "O(1)", user,
				text("rule").opt().many()),
			aclWord("users", "6.0.0", 2, FlagAdmin, "List the names of the users", perUser),
			aclWord("whoami", "6.0.0", 2, 0, "Return the name of the connection's user", "O(1)"),
		},
	}}
}

func aclWord(name, since string, arity int, flags Flags, summary, complexity string, args ...Arg) Command {
	return Command{
		Name: "acl|" + name, Since: since, Arity: arity,
		Summary: summary, Complexity: complexity,
		Route: Local, Flags: flags | FlagNoScript | FlagLoading | FlagStale,
		Args: args,
	}
}
