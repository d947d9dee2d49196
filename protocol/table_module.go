package protocol

// moduleCommands are the rows about modules, for clients that ask which there are.
func moduleCommands() []Command {
	return []Command{
		{
			Name: "module", Group: GroupServer, Since: "4.0.0", Arity: -2,
			Summary:    "A container for commands about modules",
			Complexity: "Depends on the subcommand",
			Route:      Local,
			Subcommands: []Command{
				{
					Name: "module|help", Group: GroupServer, Since: "5.0.0", Arity: 2,
					Summary:    "Print this help",
					Complexity: "O(1)",
					Route:      Local, Flags: FlagLoading | FlagStale,
				},
				{
					Name: "module|list", Group: GroupServer, Since: "4.0.0", Arity: 2,
					Summary:    "List the modules: the words of native locks are one",
					Complexity: "O(1)",
					Route:      Local, Flags: FlagAdmin | FlagNoScript,
					Tips: []string{"nondeterministic_output_order"},
				},
			},
		},
	}
}
