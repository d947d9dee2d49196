package protocol

// sortedSetCommands are the rows of sorted sets.
func sortedSetCommands() []Command {
	return []Command{{
		Name: "zadd", Since: "1.2.0", Arity: -4, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary:    "Add members to a sorted set, or change their scores",
		Complexity: "O(log(N)) for each member, N being the number of members of the sorted set",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyUpdate)},
		Args: []Arg{
			key("key"), oneOf("condition", token("NX"), token("XX")).from("3.0.2").opt(),
			oneOf("comparison", token("GT"), token("LT")).from("6.2.0").opt(),
			token("CH").named("change").from("3.0.2").opt(), token("INCR").named("increment").from("3.0.2").opt(),
			block("score_member", double("score"), text("member")).many(),
		},
	}, {
		Name: "zcard", Since: "1.2.0", Arity: 2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return the number of members of a sorted set", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO)}, Args: []Arg{key("key")},
	}, {
		Name: "zcount", Since: "2.0.0", Arity: 4, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary:    "Count the members of a sorted set with scores from one number to another",
		Complexity: "O(log(N)^2), N being the number of members of the sorted set",
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), double("min"), double("max")},
	}, {
		Name: "zdiff", Since: "6.2.0", Arity: -3, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the members of the first of several sets or sorted sets that the others lack",
		Complexity: "O(N*K*log(N)), N being the number of members of the first set and K the number of sets",
		KeySpecs:   []KeySpec{countedKeys(1, 1, KeyRO|KeyAccess)},
		Args:       []Arg{integer("numkeys"), key("key").many(), token("WITHSCORES").opt()},
	}, {
		Name: "zdiffstore", Since: "6.2.0", Arity: -4, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary:    "Store the members of the first of several sets or sorted sets that the others lack",
		Complexity: "O(N*K*log(N)), N being the number of members of the first set and K the number of sets",
		KeySpecs:   []KeySpec{oneKey(1, KeyOW|KeyUpdate), countedKeys(2, 1, KeyRO|KeyAccess)},
		Args:       []Arg{key("destination"), integer("numkeys"), key("key").many()},
	}, {
		Name: "zincrby", Since: "1.2.0", Arity: 4, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary:    "Add a number to the score of a member of a sorted set",
		Complexity: "O(log(N)), N being the number of members of the sorted set",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate)},
		Args:       []Arg{key("key"), integer("increment"), text("member")},
	}, {
		Name: "zinter", Since: "6.2.0", Arity: -3, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the members that several sets or sorted sets have in common",
		Complexity: "O(N*K*log(N)), N being the number of members of the smallest set and K the number of sets",
		KeySpecs:   []KeySpec{countedKeys(1, 1, KeyRO|KeyAccess)},
		Args:       []Arg{integer("numkeys"), key("key").many(), weights(), aggregate(), token("WITHSCORES").opt()},
	}, {
		Name: "zintercard", Since: "7.0.0", Arity: -3, Route: Read, Flags: FlagReadOnly,
		Summary:    "Count the members that several sets or sorted sets have in common",
		Complexity: "O(N*K*log(N)), N being the number of members of the smallest set and K the number of sets",
		KeySpecs:   []KeySpec{countedKeys(1, 1, KeyRO|KeyAccess)},
		Args:       []Arg{integer("numkeys"), key("key").many(), integer("limit").after("LIMIT").opt()},
	}, {
		Name: "zinterstore", Since: "2.0.0", Arity: -4, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary:    "Store the members that several sets or sorted sets have in common",
		Complexity: "O(N*K*log(N)), N being the number of members of the smallest set and K the number of sets",
		KeySpecs:   []KeySpec{oneKey(1, KeyOW|KeyUpdate), countedKeys(2, 1, KeyRO|KeyAccess)},
		Args:       []Arg{key("destination"), integer("numkeys"), key("key").many(), weights(), aggregate()},
	}, {
		Name: "zlexcount", Since: "2.8.9", Arity: 4, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary:    "Count the members of a sorted set from one member to another",
		Complexity: "O(log(N)^2), N being the number of members of the sorted set",
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), text("min"), text("max")},
	}, {
		Name: "zmpop", Since: "7.0.0", Arity: -4,
		Summary: "Remove the members with the lowest or highest scores from the first sorted set that exists",
		Complexity: "O(K+M*log(N)), K being the number of keys, N the number of members of the sorted set and M the " +
			"number of members removed",
		Route: Write, Flags: FlagWrite,
		KeySpecs: []KeySpec{countedKeys(1, 1, KeyRW|KeyAccess|KeyDelete)},
		Args: []Arg{
			integer("numkeys"), key("key").many(), oneOf("where", token("MIN"), token("MAX")),
			integer("count").after("COUNT").opt(),
		},
	}, {
		Name: "zmscore", Since: "6.2.0", Arity: -3, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary:    "Return the scores of members of a sorted set",
		Complexity: "O(M*log(N)), N being the number of members of the sorted set and M the number of members asked for",
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), text("member").many()},
	}, {
		Name: "zpopmax", Since: "5.0.0", Arity: -2, Route: Write, Flags: FlagWrite | FlagFast,
		Summary:    "Remove the members of a sorted set with the highest scores and return them",
		Complexity: "O(M*log(N)), N being the number of members of the sorted set and M the number of members removed",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete)}, Args: []Arg{key("key"), integer("count").opt()},
	}, {
		Name: "zpopmin", Since: "5.0.0", Arity: -2, Route: Write, Flags: FlagWrite | FlagFast,
		Summary:    "Remove the members of a sorted set with the lowest scores and return them",
		Complexity: "O(M*log(N)), N being the number of members of the sorted set and M the number of members removed",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete)}, Args: []Arg{key("key"), integer("count").opt()},
	}, {
		Name: "zrandmember", Since: "6.2.0", Arity: -2, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return random members of a sorted set",
		Complexity: "O(M*log(N)), N being the number of members of the sorted set and M the number of members returned",
		Tips:       []string{"nondeterministic_output"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args:       []Arg{key("key"), block("options", integer("count"), token("WITHSCORES").opt()).opt()},
	}, {
		Name: "zrange", Since: "1.2.0", Arity: -4, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the members of a sorted set in a range of indexes, scores or names",
		Complexity: "O(log(N)^2+M), N being the number of members of the sorted set and M the number of members returned",
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args: []Arg{
			key("key"), text("start"), text("stop"), oneOf("sortby", token("BYSCORE"), token("BYLEX")).from("6.2.0").opt(),
			token("REV").from("6.2.0").opt(),
			block("offset_count", integer("offset"), integer("count")).after("LIMIT").from("6.2.0").opt(),
			token("WITHSCORES").opt(),
		},
	}, {
		Name: "zrangebylex", Since: "2.8.9", Arity: -4, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the members of a sorted set in a range of names",
		Complexity: "O(log(N)^2+M), N being the number of members of the sorted set and M the number of members returned",
		Deprecated: &Deprecation{Since: "6.2.0", ReplacedBy: "`ZRANGE` with the `BYLEX` argument"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), text("min"), text("max"), offsetCount()},
	}, {
		Name: "zrangebyscore", Since: "1.0.5", Arity: -4, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the members of a sorted set in a range of scores",
		Complexity: "O(log(N)^2+M), N being the number of members of the sorted set and M the number of members returned",
		Deprecated: &Deprecation{Since: "6.2.0", ReplacedBy: "`ZRANGE` with the `BYSCORE` argument"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args:       []Arg{key("key"), double("min"), double("max"), token("WITHSCORES").from("2.0.0").opt(), offsetCount()},
	}, {
		Name: "zrangestore", Since: "6.2.0", Arity: -5,
		Summary: "Store the members of a sorted set in a range of indexes, scores or names in another key",
		Complexity: "O(log(N)^2+M*log(M)), N being the number of members of the sorted set and M the number of " +
			"members stored",
		Route: Write, Flags: FlagWrite | FlagDenyOOM,
		KeySpecs: []KeySpec{oneKey(1, KeyOW|KeyUpdate), oneKey(2, KeyRO|KeyAccess)},
		Args: []Arg{
			key("dst"), key("src"), text("min"), text("max"), oneOf("sortby", token("BYSCORE"), token("BYLEX")).opt(),
			token("REV").opt(), offsetCount(),
		},
	}, {
		Name: "zrank", Since: "2.0.0", Arity: -3, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary:    "Return the index of a member of a sorted set in ascending order",
		Complexity: "O(log(N)^2), N being the number of members of the sorted set",
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args:       []Arg{key("key"), text("member"), token("WITHSCORE").from("7.2.0").opt()},
	}, {
		Name: "zrem", Since: "1.2.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagFast,
		Summary:    "Remove members from a sorted set",
		Complexity: "O(M*log(N)), N being the number of members of the sorted set and M the number of members removed",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyDelete)}, Args: []Arg{key("key"), text("member").many()},
	}, {
		Name: "zremrangebylex", Since: "2.8.9", Arity: 4,
		Summary: "Remove the members of a sorted set in a range of names",
		Complexity: "O(log(N)^2+M*log(N)), N being the number of members of the sorted set and M the number of " +
			"members removed",
		Route: Write, Flags: FlagWrite,
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyDelete)}, Args: []Arg{key("key"), text("min"), text("max")},
	}, {
		Name: "zremrangebyrank", Since: "2.0.0", Arity: 4, Route: Write, Flags: FlagWrite,
		Summary:    "Remove the members of a sorted set in a range of indexes",
		Complexity: "O(M*log(N)), N being the number of members of the sorted set and M the number of members removed",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyDelete)}, Args: []Arg{key("key"), integer("start"), integer("stop")},
	}, {
		Name: "zremrangebyscore", Since: "1.2.0", Arity: 4,
		Summary: "Remove the members of a sorted set in a range of scores",
		Complexity: "O(log(N)^2+M*log(N)), N being the number of members of the sorted set and M the number of " +
			"members removed",
		Route: Write, Flags: FlagWrite,
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyDelete)}, Args: []Arg{key("key"), double("min"), double("max")},
	}, {
		Name: "zrevrange", Since: "1.2.0", Arity: -4, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the members of a sorted set in a range of indexes, in descending order",
		Complexity: "O(log(N)+M), N being the number of members of the sorted set and M the number of members returned",
		Deprecated: &Deprecation{Since: "6.2.0", ReplacedBy: "`ZRANGE` with the `REV` argument"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args:       []Arg{key("key"), integer("start"), integer("stop"), token("WITHSCORES").opt()},
	}, {
		Name: "zrevrangebylex", Since: "2.8.9", Arity: -4, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the members of a sorted set in a range of names, in descending order",
		Complexity: "O(log(N)^2+M), N being the number of members of the sorted set and M the number of members returned",
		Deprecated: &Deprecation{Since: "6.2.0", ReplacedBy: "`ZRANGE` with the `REV` and `BYLEX` arguments"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), text("max"), text("min"), offsetCount()},
	}, {
		Name: "zrevrangebyscore", Since: "2.2.0", Arity: -4, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the members of a sorted set in a range of scores, in descending order",
		Complexity: "O(log(N)^2+M), N being the number of members of the sorted set and M the number of members returned",
		Deprecated: &Deprecation{Since: "6.2.0", ReplacedBy: "`ZRANGE` with the `REV` and `BYSCORE` arguments"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args:       []Arg{key("key"), double("max"), double("min"), token("WITHSCORES").opt(), offsetCount()},
	}, {
		Name: "zrevrank", Since: "2.0.0", Arity: -3, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary:    "Return the index of a member of a sorted set in descending order",
		Complexity: "O(log(N)^2), N being the number of members of the sorted set",
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args:       []Arg{key("key"), text("member"), token("WITHSCORE").from("7.2.0").opt()},
	}, {
		Name: "zscan", Since: "2.8.0", Arity: -3, Route: Read, Flags: FlagReadOnly,
		Summary:    "Go through the members of a sorted set by a cursor",
		Complexity: "O(1) for each call, O(N) for all, N being the number of members of the sorted set",
		Tips:       []string{"nondeterministic_output"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args: []Arg{
			key("key"), integer("cursor"), pattern("pattern").after("MATCH").opt(), integer("count").after("COUNT").opt(),
		},
	}, {
		Name: "zscore", Since: "1.2.0", Arity: 3, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary:    "Return the score of a member of a sorted set",
		Complexity: "O(log(N)), N being the number of members of the sorted set",
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), text("member")},
	}, {
		Name: "zunion", Since: "6.2.0", Arity: -3, Route: Read, Flags: FlagReadOnly,
		Summary:    "Return the members of several sets or sorted sets with their scores put together",
		Complexity: "O(N*log(N)), N being the number of members of all sets",
		KeySpecs:   []KeySpec{countedKeys(1, 1, KeyRO|KeyAccess)},
		Args:       []Arg{integer("numkeys"), key("key").many(), weights(), aggregate(), token("WITHSCORES").opt()},
	}, {
		Name: "zunionstore", Since: "2.0.0", Arity: -4, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary:    "Store the members of several sets or sorted sets with their scores put together",
		Complexity: "O(N*log(N)), N being the number of members of all sets",
		KeySpecs:   []KeySpec{oneKey(1, KeyOW|KeyUpdate), countedKeys(2, 1, KeyRO|KeyAccess)},
		Args:       []Arg{key("destination"), integer("numkeys"), key("key").many(), weights(), aggregate()},
	}}
}
