package protocol

// transactionsCommands are the rows around MULTI.
func transactionsCommands() []Command {
	return []Command{
		{
			Name: "discard", Group: GroupTransactions, Since: "2.0.0", Arity: 1,
			Summary:    "Drop the queued commands and end the transaction",
			Complexity: "O(N), N being the number of queued commands",
			Route:      Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast | FlagAllowBusy,
		},
		{
			Name: "exec", Group: GroupTransactions, Since: "1.2.0", Arity: 1,
			Summary:    "Run the queued commands as one, unless a watched key has changed",
			Complexity: "Depends on the queued commands",
			Route:      Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagSkipSlowlog,
		},
		{
			Name: "multi", Group: GroupTransactions, Since: "1.2.0", Arity: 1,
			Summary:    "Start a transaction: queue the commands that follow",
			Complexity: "O(1)",
			Route:      Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast | FlagAllowBusy,
		},
		{
			Name: "unwatch", Group: GroupTransactions, Since: "2.2.0", Arity: 1,
			Summary:    "Forget all watched keys",
			Complexity: "O(1)",
			Route:      Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast | FlagAllowBusy,
		},
		{
			Name: "watch", Group: GroupTransactions, Since: "2.2.0", Arity: -2,
			Summary:    "Make the next EXEC depend on keys being unchanged",
			Complexity: "O(N), N being the number of keys",
			Route:      Read, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast | FlagAllowBusy,
			KeySpecs: []KeySpec{keysFrom(1, 1, KeyRO)},
			Args:     []Arg{key("key").many()},
		},
	}
}
