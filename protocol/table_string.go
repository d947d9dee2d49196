package protocol

// stringCommands are the rows of strings and counters.
func stringCommands() []Command {
	return []Command{{
		Name: "append", Since: "2.0.0", Arity: 3, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary:    "Append to the string at a key, which is created when missing",
		Complexity: "O(N), N being the length of the resulting string",
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyInsert)}, Args: []Arg{key("key"), text("value")},
	}, {
		Name: "decr", Since: "1.0.0", Arity: 2, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary: "Subtract one from the integer at a key", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate)}, Args: []Arg{key("key")},
	}, {
		Name: "decrby", Since: "1.0.0", Arity: 3, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary: "Subtract an integer from the integer at a key", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate)}, Args: []Arg{key("key"), integer("decrement")},
	}, {
		Name: "delex", Since: "8.4.0", Arity: -2, Route: Write, Flags: FlagWrite | FlagFast,
		Summary:    "Delete a key, under a condition on its string if asked",
		Complexity: "O(1), with IFDEQ and IFDNE O(N), N being the length of the string",
		KeySpecs:   []KeySpec{oneKey(1, KeyRM|KeyAccess|KeyDelete)},
		Args: []Arg{
			key("key"),
			oneOf("condition", text("ifeq-value").after("IFEQ"), text("ifne-value").after("IFNE"),
				text("ifdeq-digest").after("IFDEQ"), text("ifdne-digest").after("IFDNE")).opt(),
		},
	}, {
		Name: "delifeq", Since: "9.0.0", Arity: 3, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Delete a key if its string is the given one, as Valkey 9.0 does", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRM|KeyAccess|KeyDelete)}, Args: []Arg{key("key"), text("value")},
	}, {
		Name: "digest", Since: "8.4.0", Arity: 2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary:    "Return the XXH3 hash of the string at a key, in hexadecimal",
		Complexity: "O(N), N being the length of the string",
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key")},
	}, {
		Name: "get", Since: "1.0.0", Arity: 2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return the string at a key", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key")},
	}, {
		Name: "getdel", Since: "6.2.0", Arity: 2, Route: Write, Flags: FlagWrite | FlagFast, FromConn: true,
		Summary: "Return the string at a key and delete the key", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyDelete)}, Args: []Arg{key("key")},
	}, {
		Name: "getex", Since: "6.2.0", Arity: -2, Route: Write, Flags: FlagWrite | FlagFast,
		Summary: "Return the string at a key and set or remove its TTL", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate).noted("Writes the key because it changes the TTL")},
		Args: []Arg{
			key("key"),
			oneOf("expiration", integer("seconds").after("EX"), integer("milliseconds").after("PX"),
				unixTime("unix-time-seconds").after("EXAT"), unixTime("unix-time-milliseconds").after("PXAT"),
				token("PERSIST")).opt(),
		},
	}, {
		Name: "getrange", Since: "2.4.0", Arity: 4, Route: Read, Flags: FlagReadOnly,
		Summary: "Return a part of the string at a key", Complexity: "O(N), N being the length of the returned string",
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), integer("start"), integer("end")},
	}, {
		Name: "getset", Since: "1.0.0", Arity: 3, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary: "Set a key to a string and return the string it had", Complexity: "O(1)",
		Deprecated: &Deprecation{Since: "6.2.0", ReplacedBy: "`SET` with the `GET` argument"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate)}, Args: []Arg{key("key"), text("value")},
	}, {
		Name: "incr", Since: "1.0.0", Arity: 2, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary: "Add one to the integer at a key", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate)}, Args: []Arg{key("key")},
	}, {
		Name: "incrby", Since: "1.0.0", Arity: 3, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary: "Add an integer to the integer at a key", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate)}, Args: []Arg{key("key"), integer("increment")},
	}, {
		Name: "incrbyfloat", Since: "2.6.0", Arity: 3, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Summary: "Add a floating point number to the number at a key", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate)}, Args: []Arg{key("key"), double("increment")},
	}, {
		Name: "lcs", Since: "7.0.0", Arity: -3, Route: Read, Flags: FlagReadOnly,
		Summary:    "Find the longest common subsequence of two strings",
		Complexity: "O(N*M), N and M being the lengths of the strings",
		KeySpecs:   []KeySpec{twoKeys(1, KeyRO|KeyAccess)},
		Args: []Arg{
			key("key1"), key("key2").of(1), token("LEN").opt(), token("IDX").opt(),
			integer("len").after("MINMATCHLEN").opt(), token("WITHMATCHLEN").opt(),
		},
	}, {
		Name: "mget", Since: "1.0.0", Arity: -2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return the strings at several keys", Complexity: "O(N), N being the number of keys",
		Tips:     []string{"request_policy:multi_shard"},
		KeySpecs: []KeySpec{keysFrom(1, 1, KeyRO|KeyAccess)}, Args: []Arg{key("key").many()},
	}, {
		Name: "mset", Since: "1.0.1", Arity: -3, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary: "Set several keys to strings, all of them at once", Complexity: "O(N), N being the number of keys",
		Tips:     []string{"request_policy:multi_shard", "response_policy:all_succeeded"},
		KeySpecs: []KeySpec{keysFrom(1, 2, KeyOW|KeyUpdate)},
		Args:     []Arg{block("key_value", key("key"), text("value")).many()},
	}, {
		Name: "msetex", Since: "8.4.0", Arity: -4, Route: Write, Flags: FlagWrite | FlagDenyOOM, FromConn: true,
		Summary:    "Set several keys to strings, all or none, under a condition and with a TTL if asked",
		Complexity: "O(N), N being the number of keys",
		Tips:       []string{"request_policy:multi_shard", "response_policy:agg_min"},
		KeySpecs:   []KeySpec{countedKeys(1, 2, KeyOW|KeyUpdate)},
		Args: []Arg{
			integer("numkeys"), block("data", key("key"), text("value")).many(),
			oneOf("condition", token("NX"), token("XX")).opt(),
			oneOf("expiration", integer("seconds").after("EX"), integer("milliseconds").after("PX"),
				unixTime("unix-time-seconds").after("EXAT"), unixTime("unix-time-milliseconds").after("PXAT"),
				token("KEEPTTL")).opt(),
		},
	}, {
		Name: "msetnx", Since: "1.0.1", Arity: -3, Route: Write, Flags: FlagWrite | FlagDenyOOM, FromConn: true,
		Summary: "Set several keys to strings, unless one of them exists", Complexity: "O(N), N being the number of keys",
		Tips:     []string{"request_policy:multi_shard", "response_policy:agg_min"},
		KeySpecs: []KeySpec{keysFrom(1, 2, KeyOW|KeyInsert)},
		Args:     []Arg{block("key_value", key("key"), text("value")).many()},
	}, {
		Name: "psetex", Since: "2.6.0", Arity: 4, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary: "Set a key to a string with a TTL in milliseconds", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyOW|KeyUpdate)}, Args: []Arg{key("key"), integer("milliseconds"), text("value")},
	}, {
		Name: "set", Since: "1.0.0", Arity: -3, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		FromConn: true, FromConnWith: "NX",
		Summary: "Set a key to a string, under a condition and with a TTL if asked", Complexity: "O(1)",
		KeySpecs: []KeySpec{
			oneKey(1, KeyRW|KeyAccess|KeyUpdate).
				plain(KeyOW|KeyUpdate, "GET", "IFEQ", "IFNE", "IFDEQ", "IFDNE").
				noted("Reads the key with `GET` and with the conditions on its value"),
		},
		Args: []Arg{
			key("key"), text("value"),
			oneOf("condition", token("NX").from("2.6.12"), token("XX").from("2.6.12"),
				text("ifeq-value").after("IFEQ").from("8.4.0"), text("ifne-value").after("IFNE").from("8.4.0"),
				text("ifdeq-digest").after("IFDEQ").from("8.4.0"), text("ifdne-digest").after("IFDNE").from("8.4.0")).opt(),
			token("GET").from("6.2.0").opt(),
			oneOf("expiration", integer("seconds").after("EX").from("2.6.12"),
				integer("milliseconds").after("PX").from("2.6.12"), unixTime("unix-time-seconds").after("EXAT").from("6.2.0"),
				unixTime("unix-time-milliseconds").after("PXAT").from("6.2.0"), token("KEEPTTL").from("6.0.0")).opt(),
		},
	}, {
		Name: "setex", Since: "2.0.0", Arity: 4, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary: "Set a key to a string with a TTL in seconds", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyOW|KeyUpdate)}, Args: []Arg{key("key"), integer("seconds"), text("value")},
	}, {
		Name: "setnx", Since: "1.0.0", Arity: 3, Route: Write, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		FromConn: true,
		Summary:  "Set a key to a string unless the key exists", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyOW|KeyInsert)}, Args: []Arg{key("key"), text("value")},
	}, {
		Name: "setrange", Since: "2.2.0", Arity: 4, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary: "Overwrite a part of the string at a key", Complexity: "O(N), N being the length of the resulting string",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyUpdate)}, Args: []Arg{key("key"), integer("offset"), text("value")},
	}, {
		Name: "strlen", Since: "2.2.0", Arity: 2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return the length of the string at a key, in bytes", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO)}, Args: []Arg{key("key")},
	}, {
		Name: "substr", Since: "1.0.0", Arity: 4, Route: Read, Flags: FlagReadOnly,
		Summary: "Return a part of the string at a key", Complexity: "O(N), N being the length of the returned string",
		Deprecated: &Deprecation{Since: "2.0.0", ReplacedBy: "`GETRANGE`"},
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), integer("start"), integer("end")},
	}}
}
