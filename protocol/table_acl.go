package protocol

// aclCommands are the rows about users.
func aclCommands() []Command {
	const perUser = "O(N), N being the number of users"
	user := text("username")
	return []Command{{
		Name: "acl", Group: GroupServer, Since: "6.0.0", Arity: -2,
		Summary:    "A container for commands about users and what they may do",
		Complexity: "Depends on the subcommand",
		Route:      Local,
		Subcommands: []Command{
			aclWord("cat", "6.0.0", -2, 0, "List the categories of commands, or the commands of one", "O(1)",
				text("categoryname").opt()),
			aclWord("deluser", "6.0.0", -3, FlagAdmin, "Refused: users come from a file", "O(1)", user.many()),
			aclWord("dryrun", "7.0.0", -4, FlagAdmin, "Say whether a user may run a command, without running it", "O(1)",
				user, text("command"), text("arg").opt().many()),
			aclWord("genpass", "6.0.0", -2, 0, "Return a random password", "O(1)", integer("bits").opt()),
			aclWord("getuser", "6.0.0", 3, FlagAdmin, "Describe a user", "O(N), N being the number of the user's rules", user),
			{
				Name: "acl|help", Group: GroupServer, Since: "6.0.0", Arity: 2,
				Summary: "Print this help", Complexity: "O(1)",
				Route: Local, Flags: FlagLoading | FlagStale,
			},
			aclWord("list", "6.0.0", 2, FlagAdmin, "List the users as lines of a file of users", perUser),
			aclWord("load", "6.0.0", 2, FlagAdmin, "Read the file of users again", perUser),
			aclWord("log", "6.0.0", -2, FlagAdmin, "List what was refused on this node lately",
				"O(N), N being the number of lines",
				oneOf("operation", integer("count"), token("RESET")).opt()),
			aclWord("save", "6.0.0", 2, FlagAdmin, "Refused: users come from a file", "O(1)"),
			aclWord("setuser", "6.0.0", -3, FlagAdmin, "Refused: users come from a file", "O(1)", user,
				text("rule").opt().many()),
			aclWord("users", "6.0.0", 2, FlagAdmin, "List the names of the users", perUser),
			aclWord("whoami", "6.0.0", 2, 0, "Return the name of the connection's user", "O(1)"),
		},
	}}
}

func aclWord(name, since string, arity int, flags Flags, summary, complexity string, args ...Arg) Command {
	return Command{
		Name: "acl|" + name, Group: GroupServer, Since: since, Arity: arity,
		Summary: summary, Complexity: complexity,
		Route: Local, Flags: flags | FlagNoScript | FlagLoading | FlagStale,
		Args: args,
	}
}
