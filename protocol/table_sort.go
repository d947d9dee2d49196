package protocol

// sortCommands are the rows of SORT.
func sortCommands() []Command {
	return []Command{
		{
			Name: "sort", Group: GroupGeneric, Since: "1.0.0", Arity: -2,
			Summary:    "Sort the elements of a list, set or sorted set, and return or store them",
			Complexity: "O(N+M*log(M)), N being the number of elements and M the number returned",
			Route:      Write, Flags: FlagWrite | FlagDenyOOM,
			Categories: []string{"set", "sortedset", "list", "dangerous"},
			KeySpecs: []KeySpec{
				oneKey(1, KeyRO|KeyAccess),
				hiddenKeys(KeyRO|KeyAccess, "The keys of BY and GET follow from the elements"), hiddenKeys(KeyOW|KeyUpdate,
					"STORE may stand anywhere behind the key").behind("STORE"),
			},
			Args: []Arg{
				key("key"),
				pattern("pattern").of(2).after("BY").opt(),
				block("offset_count", integer("offset"), integer("count")).after("LIMIT").opt(),
				pattern("pattern").of(2).after("GET").many().eachTime().opt(),
				oneOf("order", token("ASC"), token("DESC")).opt(),
				Arg{Name: "sorting", Type: ArgPureToken, Token: "ALPHA"}.opt(),
				key("destination").of(3).after("STORE").opt(),
			},
		},
		{
			Name: "sort_ro", Group: GroupGeneric, Since: "7.0.0", Arity: -2,
			Summary:    "Sort the elements of a list, set or sorted set, and return them",
			Complexity: "O(N+M*log(M)), N being the number of elements and M the number returned",
			Route:      Read, Flags: FlagReadOnly,
			Categories: []string{"set", "sortedset", "list", "dangerous"},
			KeySpecs: []KeySpec{
				oneKey(1, KeyRO|KeyAccess),
				hiddenKeys(KeyRO|KeyAccess, "The keys of BY and GET follow from the elements"),
			},
			Args: []Arg{
				key("key"),
				pattern("pattern").of(2).after("BY").opt(),
				block("offset_count", integer("offset"), integer("count")).after("LIMIT").opt(),
				pattern("pattern").of(2).after("GET").many().eachTime().opt(),
				oneOf("order", token("ASC"), token("DESC")).opt(),
				Arg{Name: "sorting", Type: ArgPureToken, Token: "ALPHA"}.opt(),
			},
		},
	}
}
