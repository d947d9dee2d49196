package protocol

// setCommands are the rows of sets.
func setCommands() []Command {
	return []Command{{
		Name: "sadd", Since: "1.0.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary:    "Add members to a set, which is created when missing",
		Complexity: "O(N), N being the number of members to add",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyInsert)}, Args: []Arg{key("key"), text("member").many()},
	}, {
		Name: "scard", Since: "1.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Count the members of a set", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO)}, Args: []Arg{key("key")},
	}, {
		Name: "sdiff", Since: "1.0.0", Arity: -2, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the members of a set that no other set has",
		Complexity: "O(N), N being the number of members of all sets",
		Tips:       []string{"nondeterministic_output_order"},
		KeySpecs:   []KeySpec{keysFrom(1, 1, KeyRO|KeyAccess)}, Args: []Arg{key("key").many()},
	}, {
		Name: "sdiffstore", Since: "1.0.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary:    "Store the members of a set that no other set has",
		Complexity: "O(N), N being the number of members of all sets",
		KeySpecs:   []KeySpec{oneKey(1, KeyOW|KeyUpdate), keysFrom(2, 1, KeyRO|KeyAccess)},
		Args:       []Arg{key("destination"), key("key").many()},
	}, {
		Name: "sinter", Since: "1.0.0", Arity: -2, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the members that all sets have",
		Complexity: "O(N*M), N being the number of members of the smallest set and M the number of sets",
		Tips:       []string{"nondeterministic_output_order"},
		KeySpecs:   []KeySpec{keysFrom(1, 1, KeyRO|KeyAccess)}, Args: []Arg{key("key").many()},
	}, {
		Name: "sintercard", Since: "7.0.0", Arity: -3, Route: Read, Flags: FlagReadOnly,
		Summary:    "Count the members that all sets have",
		Complexity: "O(N*M), N being the number of members of the smallest set and M the number of sets",
		KeySpecs:   []KeySpec{countedKeys(1, 1, KeyRO|KeyAccess)},
		Args:       []Arg{integer("numkeys"), key("key").many(), integer("limit").after("LIMIT").opt()},
	}, {
		Name: "sinterstore", Since: "1.0.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary:    "Store the members that all sets have",
		Complexity: "O(N*M), N being the number of members of the smallest set and M the number of sets",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyUpdate), keysFrom(2, 1, KeyRO|KeyAccess)},
		Args:       []Arg{key("destination"), key("key").many()},
	}, {
		Name: "sismember", Since: "1.0.0", Arity: 3, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Tell whether a set has a member", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO)}, Args: []Arg{key("key"), text("member")},
	}, {
		Name: "smembers", Since: "1.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly,
		Summary: "Return all members of a set", Complexity: "O(N), N being the number of members",
		Tips:     []string{"nondeterministic_output_order"},
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key")},
	}, {
		Name: "smismember", Since: "6.2.0", Arity: -3, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Tell which of several members a set has", Complexity: "O(N), N being the number of members asked for",
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), text("member").many()},
	}, {
		Name: "smove", Since: "1.0.0", Arity: 4, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Move a member from a set to another", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete), oneKey(2, KeyRW|KeyInsert)},
		Args:     []Arg{key("source"), key("destination"), text("member")},
	}, {
		Name: "spop", Since: "1.0.0", Arity: -2, Route: Write, Flags: FlagWrite | FlagFast,
		Summary:    "Take members that are drawn at random out of a set",
		Complexity: "O(N), N being the number of members taken",
		Tips:       []string{"nondeterministic_output"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete)},
		Args:       []Arg{key("key"), integer("count").from("3.2.0").opt()},
	}, {
		Name: "srandmember", Since: "1.0.0", Arity: -2, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return members of a set that are drawn at random",
		Complexity: "O(N), N being the number of members returned",
		Tips:       []string{"nondeterministic_output"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), integer("count").from("2.6.0").opt()},
	}, {
		Name: "srem", Since: "1.0.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Remove members from a set", Complexity: "O(N), N being the number of members to remove",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyDelete)}, Args: []Arg{key("key"), text("member").many()},
	}, {
		Name: "sscan", Since: "2.8.0", Arity: -3, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return some members of a set, and a cursor to go on with",
		Complexity: "O(1) for each call, O(N) for all members",
		Tips:       []string{"nondeterministic_output"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args: []Arg{
			key("key"), integer("cursor"), pattern("pattern").after("MATCH").opt(), integer("count").after("COUNT").opt(),
		},
	}, {
		Name: "sunion", Since: "1.0.0", Arity: -2, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the members that any of several sets has",
		Complexity: "O(N), N being the number of members of all sets",
		Tips:       []string{"nondeterministic_output_order"},
		KeySpecs:   []KeySpec{keysFrom(1, 1, KeyRO|KeyAccess)}, Args: []Arg{key("key").many()},
	}, {
		Name: "sunionstore", Since: "1.0.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary:    "Store the members that any of several sets has",
		Complexity: "O(N), N being the number of members of all sets",
		KeySpecs:   []KeySpec{oneKey(1, KeyOW|KeyUpdate), keysFrom(2, 1, KeyRO|KeyAccess)},
		Args:       []Arg{key("destination"), key("key").many()},
	}}
}
