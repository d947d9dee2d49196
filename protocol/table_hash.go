package protocol

// hashCommands are the rows of hashes.
func hashCommands() []Command {
	return []Command{{
		Name: "hdel", Since: "2.0.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Delete fields of a hash", Complexity: "O(N), N being the number of fields to delete",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyDelete)}, Args: []Arg{key("key"), text("field").many()},
	}, {
		Name: "hexists", Since: "2.0.0", Arity: 3, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Tell whether a hash has a field", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO)}, Args: []Arg{key("key"), text("field")},
	}, {
		Name: "hget", Since: "2.0.0", Arity: 3, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return the value of a field of a hash", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), text("field")},
	}, {
		Name: "hgetall", Since: "2.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly,
		Summary: "Return all fields and values of a hash", Complexity: "O(N), N being the number of fields",
		Tips:     []string{"nondeterministic_output_order"},
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key")},
	}, {
		Name: "hincrby", Since: "2.0.0", Arity: 4, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary: "Add an integer to the integer in a field of a hash", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate)},
		Args:     []Arg{key("key"), text("field"), integer("increment")},
	}, {
		Name: "hincrbyfloat", Since: "2.6.0", Arity: 4, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary: "Add a floating point number to the number in a field of a hash", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate)},
		Args:     []Arg{key("key"), text("field"), double("increment")},
	}, {
		Name: "hkeys", Since: "2.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly,
		Summary: "Return all fields of a hash, without the values", Complexity: "O(N), N being the number of fields",
		Tips:     []string{"nondeterministic_output_order"},
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key")},
	}, {
		Name: "hlen", Since: "2.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Count the fields of a hash", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO)}, Args: []Arg{key("key")},
	}, {
		Name: "hmget", Since: "2.0.0", Arity: -3, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary:    "Return the values of several fields of a hash",
		Complexity: "O(N), N being the number of fields asked for",
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), text("field").many()},
	}, {
		Name: "hmset", Since: "2.0.0", Arity: -4, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary: "Set several fields of a hash", Complexity: "O(N), N being the number of fields to set",
		Deprecated: &Deprecation{Since: "4.0.0", ReplacedBy: "`HSET` with multiple field-value pairs"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyUpdate)},
		Args:       []Arg{key("key"), block("field_value", text("field"), text("value")).many()},
	}, {
		Name: "hrandfield", Since: "6.2.0", Arity: -2, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return fields of a hash that are drawn at random",
		Complexity: "O(N), N being the number of fields returned",
		Tips:       []string{"nondeterministic_output"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args:       []Arg{key("key"), block("options", integer("count"), token("WITHVALUES").opt()).opt()},
	}, {
		Name: "hscan", Since: "2.8.0", Arity: -3, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return some fields of a hash, and a cursor to go on with",
		Complexity: "O(1) for each call, O(N) for all fields",
		Tips:       []string{"nondeterministic_output"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args: []Arg{
			key("key"), integer("cursor"), pattern("pattern").after("MATCH").opt(), integer("count").after("COUNT").opt(),
			token("NOVALUES").from("7.4.0").opt(),
		},
	}, {
		Name: "hset", Since: "2.0.0", Arity: -4, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary:    "Set fields of a hash, which is created when missing",
		Complexity: "O(N), N being the number of fields to set",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyUpdate)},
		Args:       []Arg{key("key"), block("field_value", text("field"), text("value")).many()},
	}, {
		Name: "hsetnx", Since: "2.0.0", Arity: 4, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary: "Set a field of a hash, unless the hash has the field", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyInsert)}, Args: []Arg{key("key"), text("field"), text("value")},
	}, {
		Name: "hstrlen", Since: "3.2.0", Arity: 3, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return the length of the value of a field of a hash", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO)}, Args: []Arg{key("key"), text("field")},
	}, {
		Name: "hvals", Since: "2.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly,
		Summary: "Return all values of a hash, without the fields", Complexity: "O(N), N being the number of fields",
		Tips:     []string{"nondeterministic_output_order"},
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key")},
	}}
}
