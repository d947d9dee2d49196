package protocol

// observeCommands are the rows with which people look at a node: what was slow, and what takes memory.
func observeCommands() []Command {
	return []Command{{
		Name: "latency", Since: "2.8.13", Arity: -2, Route: Local,
		Summary: "A container for commands about how long commands take", Complexity: "Depends on the subcommand",
		Subcommands: []Command{
			latencyQuery("doctor", "2.8.13", 2, "Say in words which events were slow"),
			latencyQuery("graph", "2.8.13", 3, "Draw the latest slow events of a kind", text("event")),
			helpRow("latency", "2.8.13"),
			latencyQuery("histogram", "7.0.0", -2, "Return how often commands took how long", text("command").many().opt()),
			latencyQuery("history", "2.8.13", 3, "Return the latest slow events of a kind", text("event")),
			latencyQuery("latest", "2.8.13", 2, "Return the latest slow event of each kind"),
			{
				Name: "latency|reset", Since: "2.8.13", Arity: -2,
				Summary: "Forget the slow events of some kinds, or all", Complexity: "O(1)",
				Route: Local, Flags: FlagAdmin | FlagNoScript | FlagLoading | FlagStale,
				Tips: []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
				Args: []Arg{text("event").many().opt()},
			},
		},
	}, {
		Name: "memory", Since: "4.0.0", Arity: -2, Route: Local,
		Summary: "A container for commands about memory", Complexity: "Depends on the subcommand",
		Subcommands: []Command{
			memoryQuery("doctor", "Say in words whether memory is short", "special"),
			helpRow("memory", "4.0.0"),
			memoryQuery("malloc-stats", "Describe the heap of the process", "special"),
			memoryQuery("purge", "Answer OK, as the runtime returns memory by itself", "all_succeeded"),
			memoryQuery("stats", "Say what takes how much memory", "special"),
			{
				Name: "memory|usage", Since: "4.0.0", Arity: -3, Route: Read, Flags: FlagReadOnly,
				Summary: "Return the bytes of a key with the value", Complexity: "O(1)",
				KeySpecs: []KeySpec{oneKey(2, KeyRO)}, Args: []Arg{key("key"), integer("count").after("SAMPLES").opt()},
			},
		},
	}, {
		Name: "slowlog", Since: "2.2.12", Arity: -2, Route: Local,
		Summary: "A container for commands about slow commands", Complexity: "Depends on the subcommand",
		Subcommands: []Command{
			slowlogQuery("get", -2, "Return the latest slow commands of the node", "", integer("count").opt()),
			helpRow("slowlog", "6.2.0"),
			slowlogQuery("len", 2, "Count the slow commands that are remembered", "agg_sum"),
			slowlogQuery("reset", 2, "Forget the slow commands", "all_succeeded"),
		},
	}}
}

func latencyQuery(name, since string, arity int, summary string, args ...Arg) Command {
	return Command{
		Name: "latency|" + name, Since: since, Arity: arity,
		Summary: summary, Complexity: "O(N), N being the number of events",
		Route: Local, Flags: FlagAdmin | FlagNoScript | FlagLoading | FlagStale,
		Tips: []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"},
		Args: args,
	}
}

func memoryQuery(name, summary, response string) Command {
	c := Command{
		Name: "memory|" + name, Since: "4.0.0", Arity: 2,
		Summary: summary, Complexity: "O(1)", Route: Local,
		Tips: []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:" + response},
	}
	if name == "purge" {
		c.Tips = c.Tips[1:]
	}
	return c
}

func slowlogQuery(name string, arity int, summary, response string, args ...Arg) Command {
	c := Command{
		Name: "slowlog|" + name, Since: "2.2.12", Arity: arity, Route: Local, Flags: FlagAdmin | FlagLoading | FlagStale,
		Summary: summary, Complexity: "O(N), N being the number of commands that are remembered",
		Tips: []string{"request_policy:all_nodes"}, Args: args,
	}
	if response != "" {
		c.Tips = append(c.Tips, "response_policy:"+response)
	}
	if name != "reset" {
		c.Tips = append(c.Tips, "nondeterministic_output")
	}
	return c
}
