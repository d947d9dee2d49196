package protocol

const anyAccess = "A script may do with its keys what it likes, so the most is assumed"

// scriptingCommands are the rows of Lua scripts and their cache.
func scriptingCommands() []Command {
	return []Command{{
		Name: "eval", Since: "2.6.0", Arity: -3, FromConn: true,
		Summary: "Run a Lua script", Complexity: "Depends on the script",
		Route: Script, Flags: FlagNoScript | FlagStale | FlagSkipMonitor | FlagNoMandatoryKeys,
		KeySpecs: []KeySpec{countedKeys(2, 1, KeyRW|KeyAccess|KeyUpdate).noted(anyAccess)},
		Args:     []Arg{text("script"), integer("numkeys"), key("key").many().opt(), text("arg").many().opt()},
	}, {
		Name: "eval_ro", Since: "7.0.0", Arity: -3,
		Summary: "Run a Lua script that writes nothing", Complexity: "Depends on the script",
		Route: Script, Flags: FlagReadOnly | FlagNoScript | FlagStale | FlagSkipMonitor | FlagNoMandatoryKeys,
		KeySpecs: []KeySpec{countedKeys(2, 1, KeyRO|KeyAccess).noted(anyAccess)},
		Args:     []Arg{text("script"), integer("numkeys"), key("key").many().opt(), text("arg").many().opt()},
	}, {
		Name: "evalsha", Since: "2.6.0", Arity: -3, FromConn: true,
		Summary: "Run a Lua script of the script cache, named by its SHA1", Complexity: "Depends on the script",
		Route: Script, Flags: FlagNoScript | FlagStale | FlagSkipMonitor | FlagNoMandatoryKeys,
		KeySpecs: []KeySpec{countedKeys(2, 1, KeyRW|KeyAccess|KeyUpdate).noted(anyAccess)},
		Args:     []Arg{text("sha1"), integer("numkeys"), key("key").many().opt(), text("arg").many().opt()},
	}, {
		Name: "evalsha_ro", Since: "7.0.0", Arity: -3,
		Summary: "Run a Lua script of the script cache that writes nothing", Complexity: "Depends on the script",
		Route: Script, Flags: FlagReadOnly | FlagNoScript | FlagStale | FlagSkipMonitor | FlagNoMandatoryKeys,
		KeySpecs: []KeySpec{countedKeys(2, 1, KeyRO|KeyAccess).noted(anyAccess)},
		Args:     []Arg{text("sha1"), integer("numkeys"), key("key").many().opt(), text("arg").many().opt()},
	}, {
		Name: "script", Since: "2.6.0", Arity: -2, Route: Local,
		Summary: "A container for commands about the script cache", Complexity: "Depends on the subcommand",
		Subcommands: []Command{{
			Name: "script|exists", Since: "2.6.0", Arity: -3, Route: Read, Flags: FlagNoScript,
			Summary: "Tell which scripts are in the script cache", Complexity: "O(N), N being the number of hashes",
			Tips: []string{"request_policy:all_shards", "response_policy:agg_logical_and"},
			Args: []Arg{text("sha1").many()},
		}, {
			Name: "script|flush", Since: "2.6.0", Arity: -2, Route: Write, Flags: FlagNoScript,
			Summary: "Empty the script cache", Complexity: "O(N), N being the number of scripts in the cache",
			Tips: []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
			Args: []Arg{oneOf("async", token("ASYNC"), token("SYNC")).from("6.2.0").opt()},
		}, helpRow("script", "5.0.0"), {
			Name: "script|kill", Since: "2.6.0", Arity: 2, Route: Local, Flags: FlagNoScript | FlagAllowBusy,
			Summary: "Answer that no script runs; scripts stop at their budget by themselves", Complexity: "O(1)",
			Tips: []string{"request_policy:all_shards", "response_policy:one_succeeded"},
		}, {
			Name: "script|load", Since: "2.6.0", Arity: 3, Route: Write, Flags: FlagNoScript | FlagStale,
			Summary:    "Store a Lua script in the script cache of all nodes",
			Complexity: "O(N), N being the length of the script",
			Tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
			Args:       []Arg{text("script")},
		}},
	}}
}

// transactionsCommands are the rows around MULTI.
func transactionsCommands() []Command {
	return []Command{{
		Name: "discard", Since: "2.0.0", Arity: 1,
		Summary:    "Drop the queued commands and end the transaction",
		Complexity: "O(N), N being the number of queued commands",
		Route:      Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast | FlagAllowBusy,
	}, {
		Name: "exec", Since: "1.2.0", Arity: 1,
		Summary:    "Run the queued commands as one, unless a watched key has changed",
		Complexity: "Depends on the queued commands",
		Route:      Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagSkipSlowlog,
	}, {
		Name: "multi", Since: "1.2.0", Arity: 1,
		Summary: "Start a transaction: queue the commands that follow", Complexity: "O(1)",
		Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast | FlagAllowBusy,
	}, {
		Name: "unwatch", Since: "2.2.0", Arity: 1,
		Summary: "Forget all watched keys", Complexity: "O(1)",
		Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast | FlagAllowBusy,
	}, {
		Name: "watch", Since: "2.2.0", Arity: -2,
		Summary: "Make the next EXEC depend on keys being unchanged", Complexity: "O(N), N being the number of keys",
		Route: Read, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast | FlagAllowBusy,
		KeySpecs: []KeySpec{keysFrom(1, 1, KeyRO)}, Args: []Arg{key("key").many()},
	}}
}
