package protocol

// backupCommands are the rows about backups, which Redis lacks.
func backupCommands() []Command {
	return []Command{{
		Name: "raft.backup", Group: GroupServer, Since: HoldfastVersion, Arity: -2,
		Summary:    "Take a backup of the cluster's state over this connection, part after part: see 'holdfast backup'",
		Complexity: "O(1) to begin, O(N) for all parts, N being the size of the state",
		Route:      Local, Flags: FlagAdmin | FlagNoScript | FlagNoMulti | FlagLoading | FlagStale,
		Tips: []string{"nondeterministic_output"},
		Args: []Arg{oneOf("part",
			block("begin", token("BEGIN"), token("STALE").opt()), token("NEXT"), token("END"))},
	}}
}
