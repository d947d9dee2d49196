package protocol

// raftCommands are the rows about the members of the cluster, which Redis lacks.
func raftCommands() []Command {
	return []Command{
		raftWord("raft.members", 1, "List the members of the cluster, as this node knows them"),
		raftWord("raft.status", 1, "Describe the cluster as this node knows it, with the members"),
	}
}

// raftWord is a row about members, for administrators.
func raftWord(name string, arity int, summary string, args ...Arg) Command {
	return Command{
		Name: name, Group: GroupServer, Since: HoldfastVersion, Arity: arity, Summary: summary,
		Complexity: "O(N), N being the number of members",
		Route:      Local, Flags: FlagAdmin | FlagNoScript | FlagNoMulti | FlagLoading | FlagStale,
		Tips: []string{"nondeterministic_output"},
		Args: args,
	}
}
