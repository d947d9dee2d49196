package protocol

// seconds is how long a command may wait.
func seconds() Arg { return double("timeout") }

// blockingListCommands are the rows of commands that wait until a list has elements.
func blockingListCommands() []Command {
	ends := []Arg{token("LEFT"), token("RIGHT")}
	return []Command{{
		Name: "blmove", Since: "6.2.0", Arity: 6,
		Summary:    "Take an element off an end of a list, put it to an end of another and return it; wait for one",
		Complexity: "O(1)",
		Route:      Write, Flags: FlagWrite | FlagDenyOOM | FlagNoScript | FlagBlocking,
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete), oneKey(2, KeyRW|KeyInsert)},
		Args:     []Arg{key("source"), key("destination"), oneOf("wherefrom", ends...), oneOf("whereto", ends...), seconds()},
	}, {
		Name: "blmpop", Since: "7.0.0", Arity: -5, Route: Write, Flags: FlagWrite | FlagBlocking,
		Summary:    "Take elements off an end of the first list that exists; wait for one",
		Complexity: "O(N+M), N being the number of keys and M the number of elements taken",
		KeySpecs:   []KeySpec{countedKeys(2, 1, KeyRW|KeyAccess|KeyDelete)},
		Args: []Arg{
			seconds(), integer("numkeys"), key("key").many(), oneOf("where", ends...), integer("count").after("COUNT").opt(),
		},
	}, {
		Name: "blpop", Since: "2.0.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagNoScript | FlagBlocking,
		Summary:    "Take the first element off the first list that exists; wait for one",
		Complexity: "O(N), N being the number of keys",
		KeySpecs:   []KeySpec{keysBefore(1, 1, KeyRW|KeyAccess|KeyDelete)}, Args: []Arg{key("key").many(), seconds()},
	}, {
		Name: "brpop", Since: "2.0.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagNoScript | FlagBlocking,
		Summary:    "Take the last element off the first list that exists; wait for one",
		Complexity: "O(N), N being the number of keys",
		KeySpecs:   []KeySpec{keysBefore(1, 1, KeyRW|KeyAccess|KeyDelete)}, Args: []Arg{key("key").many(), seconds()},
	}, {
		Name: "brpoplpush", Since: "2.2.0", Arity: 4,
		Summary:    "Take the last element off a list, put it before the first of another and return it; wait for one",
		Complexity: "O(1)",
		Route:      Write, Flags: FlagWrite | FlagDenyOOM | FlagNoScript | FlagBlocking,
		Deprecated: &Deprecation{Since: "6.2.0", ReplacedBy: "`BLMOVE` with the `RIGHT` and `LEFT` arguments"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete), oneKey(2, KeyRW|KeyInsert)},
		Args:       []Arg{key("source"), key("destination"), seconds()},
	}}
}

// blockingSortedSetCommands are the rows of commands that wait until a sorted set has members.
func blockingSortedSetCommands() []Command {
	return []Command{{
		Name: "bzmpop", Since: "7.0.0", Arity: -5,
		Summary: "Take the members with the lowest or highest scores off the first sorted set that exists; wait for one",
		Complexity: "O(K) + O(M*log(N)), K being the number of keys, M the number of members taken and N the " +
			"size of the set",
		Route: Write, Flags: FlagWrite | FlagBlocking,
		KeySpecs: []KeySpec{countedKeys(2, 1, KeyRW|KeyAccess|KeyDelete)},
		Args: []Arg{
			seconds(), integer("numkeys"), key("key").many(), oneOf("where", token("MIN"), token("MAX")),
			integer("count").after("COUNT").opt(),
		},
	}, {
		Name: "bzpopmax", Since: "5.0.0", Arity: -3,
		Summary:    "Take the member with the highest score off the first sorted set that exists; wait for one",
		Complexity: "O(log(N)), N being the size of the set",
		Route:      Write, Flags: FlagWrite | FlagNoScript | FlagBlocking | FlagFast,
		KeySpecs: []KeySpec{keysBefore(1, 1, KeyRW|KeyAccess|KeyDelete)}, Args: []Arg{key("key").many(), seconds()},
	}, {
		Name: "bzpopmin", Since: "5.0.0", Arity: -3,
		Summary:    "Take the member with the lowest score off the first sorted set that exists; wait for one",
		Complexity: "O(log(N)), N being the size of the set",
		Route:      Write, Flags: FlagWrite | FlagNoScript | FlagBlocking | FlagFast,
		KeySpecs: []KeySpec{keysBefore(1, 1, KeyRW|KeyAccess|KeyDelete)}, Args: []Arg{key("key").many(), seconds()},
	}}
}
