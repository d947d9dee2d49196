package protocol

// keysCommands are the rows that work on keys of any type, and on whole databases.
func keysCommands() []Command {
	return []Command{{
		Name: "copy", Since: "6.2.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary: "Copy the value and the TTL of a key to another key", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess), oneKey(2, KeyOW|KeyUpdate)},
		Args: []Arg{
			key("source"), key("destination"), integer("destination-db").after("DB").opt(), token("REPLACE").opt(),
		},
	}, {
		Name: "dbsize", Group: GroupServer, Since: "1.0.0", Arity: 1, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Count the keys of the database", Complexity: "O(1)",
		Categories: []string{"keyspace"},
		Tips:       []string{"request_policy:all_shards", "response_policy:agg_sum"},
	}, {
		Name: "del", Since: "1.0.0", Arity: -2, Route: Write, Flags: FlagWrite, FromConn: true,
		Summary: "Delete keys", Complexity: "O(N), N being the number of keys",
		Tips:     []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		KeySpecs: []KeySpec{keysFrom(1, 1, KeyRM|KeyDelete)}, Args: []Arg{key("key").many()},
	}, {
		Name: "exists", Since: "1.0.0", Arity: -2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Count how many of the keys exist", Complexity: "O(N), N being the number of keys",
		Tips:     []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		KeySpecs: []KeySpec{keysFrom(1, 1, KeyRO)}, Args: []Arg{key("key").many()},
	}, {
		Name: "expire", Since: "1.0.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Set the TTL of a key in seconds", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyUpdate)}, Args: []Arg{key("key"), integer("seconds"), expiryCondition()},
	}, {
		Name: "expireat", Since: "1.2.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Let a key expire at a Unix time in seconds", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyUpdate)},
		Args:     []Arg{key("key"), unixTime("unix-time-seconds"), expiryCondition()},
	}, {
		Name: "expiretime", Since: "7.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return the Unix time in seconds at which a key expires", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key")},
	}, {
		Name: "flushall", Group: GroupServer, Since: "1.0.0", Arity: -1, Route: Write, Flags: FlagWrite, FromConn: true,
		Summary: "Delete all keys of all databases", Complexity: "O(N), N being the number of keys in all databases",
		Categories: []string{"keyspace", "dangerous"},
		Tips:       []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		Args:       []Arg{oneOf("async", token("ASYNC").from("4.0.0"), token("SYNC").from("6.2.0")).opt()},
	}, {
		Name: "flushdb", Group: GroupServer, Since: "1.0.0", Arity: -1, Route: Write, Flags: FlagWrite, FromConn: true,
		Summary: "Delete all keys of the database", Complexity: "O(N), N being the number of keys in the database",
		Categories: []string{"keyspace", "dangerous"},
		Tips:       []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		Args:       []Arg{oneOf("async", token("ASYNC").from("4.0.0"), token("SYNC").from("6.2.0")).opt()},
	}, {
		Name: "keys", Since: "1.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly,
		Summary: "Return all keys that match a pattern", Complexity: "O(N), N being the number of keys in the database",
		Categories: []string{"keyspace", "dangerous"},
		Tips:       []string{"request_policy:all_shards", "nondeterministic_output_order"},
		Args:       []Arg{pattern("pattern")},
	}, {
		Name: "move", Since: "1.0.0", Arity: 3, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Move a key to another database", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate)}, Args: []Arg{key("key"), integer("db")},
	}, {
		Name: "object", Since: "2.2.3", Arity: -2, Route: Local,
		Summary: "A container for commands about how values are stored", Complexity: "Depends on the subcommand",
		Subcommands: []Command{{
			Name: "object|encoding", Since: "2.2.3", Arity: 3, Route: Read, Flags: FlagReadOnly,
			Summary: "Return the name of the encoding Redis would use for a value", Complexity: "O(1)",
			Tips:     []string{"nondeterministic_output"},
			KeySpecs: []KeySpec{oneKey(2, KeyRO)}, Args: []Arg{key("key")},
		}, {
			Name: "object|freq", Since: "4.0.0", Arity: 3, Route: Read, Flags: FlagReadOnly,
			Summary: "Return how often a value is used, by the LFU counter", Complexity: "O(1)",
			Tips:     []string{"nondeterministic_output"},
			KeySpecs: []KeySpec{oneKey(2, KeyRO)}, Args: []Arg{key("key")},
		}, helpRow("object", "6.2.0"), {
			Name: "object|idletime", Since: "2.2.3", Arity: 3, Route: Read, Flags: FlagReadOnly,
			Summary: "Return the seconds since a value was last used", Complexity: "O(1)",
			Tips:     []string{"nondeterministic_output"},
			KeySpecs: []KeySpec{oneKey(2, KeyRO)}, Args: []Arg{key("key")},
		}, {
			Name: "object|refcount", Since: "2.2.3", Arity: 3, Route: Read, Flags: FlagReadOnly,
			Summary: "Return the number of references to a value", Complexity: "O(1)",
			Tips:     []string{"nondeterministic_output"},
			KeySpecs: []KeySpec{oneKey(2, KeyRO)}, Args: []Arg{key("key")},
		}},
	}, {
		Name: "persist", Since: "2.2.0", Arity: 2, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Remove the TTL of a key", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyUpdate)}, Args: []Arg{key("key")},
	}, {
		Name: "pexpire", Since: "2.6.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Set the TTL of a key in milliseconds", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyUpdate)},
		Args:     []Arg{key("key"), integer("milliseconds"), expiryCondition()},
	}, {
		Name: "pexpireat", Since: "2.6.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Let a key expire at a Unix time in milliseconds", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyUpdate)},
		Args:     []Arg{key("key"), unixTime("unix-time-milliseconds"), expiryCondition()},
	}, {
		Name: "pexpiretime", Since: "7.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return the Unix time in milliseconds at which a key expires", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key")},
	}, {
		Name: "pttl", Since: "2.6.0", Arity: 2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return the rest of a key's TTL in milliseconds", Complexity: "O(1)",
		Tips:     []string{"nondeterministic_output"},
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key")},
	}, {
		Name: "randomkey", Since: "1.0.0", Arity: 1, Route: Read, Flags: FlagReadOnly,
		Summary: "Return some key of the database", Complexity: "O(1)",
		Tips: []string{"request_policy:all_shards", "nondeterministic_output"},
	}, {
		Name: "rename", Since: "1.0.0", Arity: 3, Route: Write, Flags: FlagWrite,
		Summary: "Rename a key, replacing the key of the new name", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete), oneKey(2, KeyOW|KeyUpdate)},
		Args:     []Arg{key("key"), key("newkey")},
	}, {
		Name: "renamenx", Since: "1.0.0", Arity: 3, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Rename a key unless the new name exists", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete), oneKey(2, KeyOW|KeyInsert)},
		Args:     []Arg{key("key"), key("newkey")},
	}, {
		Name: "scan", Since: "2.8.0", Arity: -2, Route: Read, Flags: FlagReadOnly,
		Summary: "Iterate over the keys of the database", Complexity: "O(N), N being the number of keys visited",
		Tips: []string{"nondeterministic_output", "request_policy:special"},
		Args: []Arg{
			integer("cursor"), pattern("pattern").after("MATCH").opt(), integer("count").after("COUNT").opt(),
			text("type").after("TYPE").from("6.0.0").opt(),
		},
	}, {
		Name: "swapdb", Group: GroupServer, Since: "4.0.0", Arity: 3, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Exchange two databases", Complexity: "O(N), N being the number of keys in both databases",
		Categories: []string{"keyspace", "dangerous"},
		Args:       []Arg{integer("index1"), integer("index2")},
	}, {
		Name: "touch", Since: "3.2.1", Arity: -2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Count how many of the keys exist, as EXISTS does", Complexity: "O(N), N being the number of keys",
		Tips:     []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		KeySpecs: []KeySpec{keysFrom(1, 1, KeyRO)}, Args: []Arg{key("key").many()},
	}, {
		Name: "ttl", Since: "1.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return the rest of a key's TTL in seconds", Complexity: "O(1)",
		Tips:     []string{"nondeterministic_output"},
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key")},
	}, {
		Name: "type", Since: "1.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return the type of the value at a key", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO)}, Args: []Arg{key("key")},
	}, {
		Name: "unlink", Since: "4.0.0", Arity: -2, Route: Write, Flags: FlagWrite | FlagFast, FromConn: true,
		Summary: "Delete keys, as DEL does", Complexity: "O(N), N being the number of keys",
		Tips:     []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		KeySpecs: []KeySpec{keysFrom(1, 1, KeyRM|KeyDelete)}, Args: []Arg{key("key").many()},
	}}
}

// sortCommands are the rows of SORT.
func sortCommands() []Command {
	return []Command{{
		Name: "sort", Since: "1.0.0", Arity: -2, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary:    "Sort the elements of a list, set or sorted set, and return or store them",
		Complexity: "O(N+M*log(M)), N being the number of elements and M the number returned",
		Categories: []string{"set", "sortedset", "list", "dangerous"},
		KeySpecs: []KeySpec{
			oneKey(1, KeyRO|KeyAccess),
			hiddenKeys(KeyRO|KeyAccess, "The keys of BY and GET follow from the elements"), hiddenKeys(KeyOW|KeyUpdate,
				"STORE may stand anywhere behind the key").behind("STORE"),
		},
		Args: []Arg{
			key("key"), pattern("pattern").of(2).after("BY").opt(), offsetCount(),
			pattern("pattern").of(2).after("GET").many().eachTime().opt(), oneOf("order", token("ASC"), token("DESC")).opt(),
			Arg{Name: "sorting", Type: ArgPureToken, Token: "ALPHA"}.opt(), key("destination").of(3).after("STORE").opt(),
		},
	}, {
		Name: "sort_ro", Since: "7.0.0", Arity: -2, Route: Read, Flags: FlagReadOnly,
		Summary:    "Sort the elements of a list, set or sorted set, and return them",
		Complexity: "O(N+M*log(M)), N being the number of elements and M the number returned",
		Categories: []string{"set", "sortedset", "list", "dangerous"},
		KeySpecs: []KeySpec{
			oneKey(1, KeyRO|KeyAccess),
			hiddenKeys(KeyRO|KeyAccess, "The keys of BY and GET follow from the elements"),
		},
		Args: []Arg{
			key("key"), pattern("pattern").of(2).after("BY").opt(), offsetCount(),
			pattern("pattern").of(2).after("GET").many().eachTime().opt(), oneOf("order", token("ASC"), token("DESC")).opt(),
			Arg{Name: "sorting", Type: ArgPureToken, Token: "ALPHA"}.opt(),
		},
	}}
}
