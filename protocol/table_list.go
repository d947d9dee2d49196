package protocol

// listCommands are the rows of lists.
func listCommands() []Command {
	return []Command{{
		Name: "lindex", Since: "1.0.0", Arity: 3, Route: Read, Flags: FlagReadOnly,
		Summary: "Return the element at an index of a list", Complexity: "O(log(N)), N being the length of the list",
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), integer("index")},
	}, {
		Name: "linsert", Since: "2.2.0", Arity: 5, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary:    "Put an element before or behind another element of a list",
		Complexity: "O(N), N being the number of elements up to the other element",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyInsert)},
		Args:       []Arg{key("key"), oneOf("where", token("BEFORE"), token("AFTER")), text("pivot"), text("element")},
	}, {
		Name: "llen", Since: "1.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return the length of a list", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO)}, Args: []Arg{key("key")},
	}, {
		Name: "lmove", Since: "6.2.0", Arity: 5, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary: "Take an element off an end of a list, put it to an end of another and return it", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete), oneKey(2, KeyRW|KeyInsert)},
		Args: []Arg{
			key("source"), key("destination"), oneOf("wherefrom", token("LEFT"), token("RIGHT")),
			oneOf("whereto", token("LEFT"), token("RIGHT")),
		},
	}, {
		Name: "lmpop", Since: "7.0.0", Arity: -4, Route: Write, Flags: FlagWrite,
		Summary:    "Take elements off an end of the first list that exists",
		Complexity: "O(N+M), N being the number of keys and M the number of elements taken",
		KeySpecs:   []KeySpec{countedKeys(1, 1, KeyRW|KeyAccess|KeyDelete)},
		Args: []Arg{
			integer("numkeys"), key("key").many(), oneOf("where", token("LEFT"), token("RIGHT")),
			integer("count").after("COUNT").opt(),
		},
	}, {
		Name: "lpop", Since: "1.0.0", Arity: -2, Route: Write, Flags: FlagWrite | FlagFast,
		Summary:    "Take elements off the begin of a list and return them",
		Complexity: "O(N), N being the number of elements taken",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete)},
		Args:       []Arg{key("key"), integer("count").from("6.2.0").opt()},
	}, {
		Name: "lpos", Since: "6.0.6", Arity: -3, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the indexes of the elements of a list that are equal to an element",
		Complexity: "O(N), N being the length of the list",
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args: []Arg{
			key("key"), text("element"), integer("rank").after("RANK").opt(), integer("num-matches").after("COUNT").opt(),
			integer("len").after("MAXLEN").opt(),
		},
	}, {
		Name: "lpush", Since: "1.0.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary: "Put elements before the first element of a list", Complexity: "O(N), N being the number of elements put",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyInsert)}, Args: []Arg{key("key"), text("element").many()},
	}, {
		Name: "lpushx", Since: "2.2.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary:    "Put elements before the first element of a list, if the list exists",
		Complexity: "O(N), N being the number of elements put",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyInsert)}, Args: []Arg{key("key"), text("element").many()},
	}, {
		Name: "lrange", Since: "1.0.0", Arity: 4, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the elements of a list from one index to another",
		Complexity: "O(log(N)+M), N being the length of the list and M the number of elements returned",
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), integer("start"), integer("stop")},
	}, {
		Name: "lrem", Since: "1.0.0", Arity: 4, Route: Write, Flags: FlagWrite,
		Summary:    "Remove the elements of a list that are equal to an element",
		Complexity: "O(N), N being the length of the list",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyDelete)}, Args: []Arg{key("key"), integer("count"), text("element")},
	}, {
		Name: "lset", Since: "1.0.0", Arity: 4, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary: "Set the element at an index of a list", Complexity: "O(log(N)), N being the length of the list",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyUpdate)}, Args: []Arg{key("key"), integer("index"), text("element")},
	}, {
		Name: "ltrim", Since: "1.0.0", Arity: 4, Route: Write, Flags: FlagWrite,
		Summary:    "Keep the elements of a list from one index to another, and remove the others",
		Complexity: "O(N), N being the number of elements removed",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyDelete)}, Args: []Arg{key("key"), integer("start"), integer("stop")},
	}, {
		Name: "rpop", Since: "1.0.0", Arity: -2, Route: Write, Flags: FlagWrite | FlagFast,
		Summary:    "Take elements off the end of a list and return them",
		Complexity: "O(N), N being the number of elements taken",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete)},
		Args:       []Arg{key("key"), integer("count").from("6.2.0").opt()},
	}, {
		Name: "rpoplpush", Since: "1.2.0", Arity: 3, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary: "Take the last element off a list, put it before the first of another and return it", Complexity: "O(1)",
		Deprecated: &Deprecation{Since: "6.2.0", ReplacedBy: "`LMOVE` with the `RIGHT` and `LEFT` arguments"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete), oneKey(2, KeyRW|KeyInsert)},
		Args:       []Arg{key("source"), key("destination")},
	}, {
		Name: "rpush", Since: "1.0.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary: "Put elements behind the last element of a list", Complexity: "O(N), N being the number of elements put",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyInsert)}, Args: []Arg{key("key"), text("element").many()},
	}, {
		Name: "rpushx", Since: "2.2.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary:    "Put elements behind the last element of a list, if the list exists",
		Complexity: "O(N), N being the number of elements put",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyInsert)}, Args: []Arg{key("key"), text("element").many()},
	}}
}
