package protocol

// raftCommands are the rows about the members of the cluster, which Redis lacks.
func raftCommands() []Command {
	member, force := text("member"), token("FORCE").opt()
	return []Command{
		raftWord("raft.demote", -2, "Take a member's vote", member, force),
		raftWord("raft.members", 1, "List the members of the cluster, as this node knows them"),
		raftWord("raft.promote", 2, "Give a member that keeps up with the log a vote", member),
		raftWord("raft.remove", -2, "Take a member out of the cluster", member, force),
		raftWord("raft.repair", -2, "Replace a member's state by the leader's", member, force),
		raftWord("raft.replace", -3, "Give a member that has joined the place of another, which is taken out", text("old"),
			text("new"), force),
		raftWord("raft.status", 1, "Describe the cluster as this node knows it, with the members"),
		raftWord("raft.transfer", -1, "Have a voter lead", member.opt()),
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
