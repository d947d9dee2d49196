package protocol

// bitmapCommands are the rows of bits in strings.
func bitmapCommands() []Command {
	return []Command{{
		Name: "bitcount", Since: "2.6.0", Arity: -2, Route: Read, Flags: FlagReadOnly,
		Summary: "Count the bits of a string that are 1", Complexity: "O(N), N being the number of bytes looked at",
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args: []Arg{
			key("key"),
			block("index", integer("start"), integer("end"),
				oneOf("index_unit", token("BYTE"), token("BIT")).from("7.0.0").opt()).opt(),
		},
	}, {
		Name: "bitfield", Since: "3.2.0", Arity: -2, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary: "Read, set or add to integers of any width in a string", Complexity: "O(1) for each operation",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate).plainWhile(KeyRO|KeyAccess,
			map[string]int{"GET": 2, "OVERFLOW": 1}).noted("GET alone reads")},
		Args: []Arg{
			key("key"),
			oneOf("operation", block("encoding_offset", text("encoding"), integer("offset")).after("GET"),
				block("write",
					oneOf("wrap_sat_fail", token("WRAP"), token("SAT"), token("FAIL")).after("OVERFLOW").opt(),
					oneOf("write_operation",
						block("encoding_offset_value", text("encoding"), integer("offset"), integer("value")).after("SET"),
						block("encoding_offset_increment", text("encoding"), integer("offset"),
							integer("increment")).after("INCRBY")))).many().opt(),
		},
	}, {
		Name: "bitfield_ro", Since: "6.0.0", Arity: -2, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Read integers of any width in a string", Complexity: "O(1) for each operation",
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args: []Arg{
			key("key"), block("encoding_offset", text("encoding"), integer("offset")).after("GET").many().eachTime().opt(),
		},
	}, {
		Name: "bitop", Since: "2.6.0", Arity: -4, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary:    "Store the result of a bitwise operation on strings",
		Complexity: "O(N), N being the length of the longest string",
		KeySpecs:   []KeySpec{oneKey(2, KeyOW|KeyUpdate), keysFrom(3, 1, KeyRO|KeyAccess)},
		Args: []Arg{
			oneOf("operation", token("AND"), token("OR"), token("XOR"), token("NOT"), token("DIFF").from("8.2.0"),
				token("DIFF1").from("8.2.0"), token("ANDOR").from("8.2.0"), token("ONE").from("8.2.0")),
			key("destkey"), key("key").many(),
		},
	}, {
		Name: "bitpos", Since: "2.8.7", Arity: -3, Route: Read, Flags: FlagReadOnly,
		Summary:    "Find the first bit of a string that is 0 or 1",
		Complexity: "O(N), N being the number of bytes looked at",
		KeySpecs:   []KeySpec{oneKey(1, KeyRO|KeyAccess)},
		Args: []Arg{
			key("key"), integer("bit"),
			block("index", integer("start"),
				block("end_index", integer("end"),
					oneOf("index_unit", token("BYTE"), token("BIT")).from("7.0.0").opt()).opt()).opt(),
		},
	}, {
		Name: "getbit", Since: "2.2.0", Arity: 3, Route: Read, Flags: FlagReadOnly | FlagFast,
		Summary: "Return a bit of a string", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRO|KeyAccess)}, Args: []Arg{key("key"), integer("offset")},
	}, {
		Name: "setbit", Since: "2.2.0", Arity: 4, Route: Write, Flags: FlagWrite | FlagDenyOOM,
		Summary: "Set a bit of a string, which is created or lengthened as needed", Complexity: "O(1)",
		KeySpecs: []KeySpec{oneKey(1, KeyRW|KeyAccess|KeyUpdate)},
		Args:     []Arg{key("key"), integer("offset"), integer("value")},
	}}
}
